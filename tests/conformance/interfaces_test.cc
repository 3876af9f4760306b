// SPDX-License-Identifier: BSD-3-Clause
// The NICs' addresses among this machine's: programs look for a device by an address that they
// know from getifaddrs() or from a TCP socket.
#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <string>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

class Interfaces : public Conformance {
 protected:
  void SetUp() override {
    Conformance::SetUp();
    ASSERT_EQ(getifaddrs(&list_), 0);
    if (!is_ipv4(near_host->gid()))
      GTEST_SKIP() << "IPv6 NICs have addresses of the machine, or none";
  }
  void TearDown() override {
    freeifaddrs(list_);
    Conformance::TearDown();
  }
  // The address that the device's only GID holds.
  static in_addr_t address_of(ibv_context* context) {
    ibv_gid gid{};
    EXPECT_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
    in_addr_t address = 0;
    memcpy(&address, gid.raw + 12, sizeof address);
    return address;
  }
  const ifaddrs* entry_with(in_addr_t address) const {
    const ifaddrs* found = nullptr;
    for (const ifaddrs* entry = list_; entry != nullptr; entry = entry->ifa_next) {
      if (entry->ifa_addr == nullptr || entry->ifa_addr->sa_family != AF_INET) continue;
      if (reinterpret_cast<const sockaddr_in*>(entry->ifa_addr)->sin_addr.s_addr != address)
        continue;
      EXPECT_EQ(found, nullptr) << "an address is there once";
      found = entry;
    }
    return found;
  }

  ifaddrs* list_ = nullptr;
};

TEST_F(Interfaces, NameTheNicsAddresses) {
  for (ibv_context* context : {near_host->context, far_host->context}) {
    const char* device = ibv_get_device_name(context->device);
    const ifaddrs* entry = entry_with(address_of(context));
    ASSERT_NE(entry, nullptr) << device;
    EXPECT_EQ(entry->ifa_name, std::string("lo:") + device);
    EXPECT_TRUE(entry->ifa_flags & IFF_UP);
    EXPECT_FALSE(entry->ifa_flags & IFF_LOOPBACK) << "libfabric looks no further";
    ASSERT_NE(entry->ifa_netmask, nullptr);
    EXPECT_EQ(reinterpret_cast<const sockaddr_in*>(entry->ifa_netmask)->sin_addr.s_addr,
              inet_addr("255.255.255.0"));
    EXPECT_NE(if_nametoindex(entry->ifa_name), 0u) << "a label belongs to its interface";
  }
}

TEST_F(Interfaces, TheMachinesOwnAreThere) {
  EXPECT_NE(entry_with(htonl(INADDR_LOOPBACK)), nullptr);
  ifaddrs* again = nullptr;
  ASSERT_EQ(getifaddrs(&again), 0);
  freeifaddrs(again);
  freeifaddrs(nullptr);
}

TEST_F(Interfaces, TcpTakesTheNicsAddresses) {
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = address_of(far_host->context);
  socklen_t size = sizeof address;
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  ASSERT_EQ(bind(listener, generic, size), 0);
  ASSERT_EQ(listen(listener, 1), 0);
  ASSERT_EQ(getsockname(listener, generic, &size), 0);
  const int client = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  EXPECT_EQ(::connect(client, generic, size), 0);
  close(client);
  close(listener);
}

// As libfabric looks for the device of an interface.
TEST_F(Interfaces, LeadToTheirDevices) {
  rdma_event_channel* channel = rdma_create_event_channel();
  ASSERT_NE(channel, nullptr);
  for (ibv_context* context : {near_host->context, far_host->context}) {
    const ifaddrs* entry = entry_with(address_of(context));
    ASSERT_NE(entry, nullptr);
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0);
    ASSERT_EQ(rdma_bind_addr(id, entry->ifa_addr), 0);
    ASSERT_NE(id->verbs, nullptr);
    EXPECT_STREQ(ibv_get_device_name(id->verbs->device), ibv_get_device_name(context->device));
    rdma_destroy_id(id);
  }
  rdma_destroy_event_channel(channel);
}

// As scripts look for the interface of a device.
TEST_F(Interfaces, AreNamedInSysfs) {
  const std::string net = std::string("/sys/class/infiniband/") +
                          ibv_get_device_name(near_host->context->device) + "/device/net";
  EXPECT_EQ(access(net.c_str(), F_OK), 0);
  EXPECT_EQ(access((net + "/lo/address").c_str(), R_OK), 0);
}

}  // namespace
}  // namespace hostnic::conformance
