// SPDX-License-Identifier: BSD-3-Clause
// Events and refused commands of rdma_cm in words, with their numbers.
#include "verbs-shim/cm/event_words.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>

#include <cerrno>
#include <cstring>

namespace hostnic::cm_device {
namespace {

TEST(CmEventWords, FailuresAreNamedWithTheirStatus) {
  EXPECT_EQ(event_words(kRejected, 8, "127.77.0.2, port 7"),
            "RDMA_CM_EVENT_REJECTED (to 127.77.0.2, port 7): nobody listens on that port there (or "
            "with another rdma_port_space) (status 8)");
  EXPECT_NE(event_words(kRejected, 28, "").find("rdma_reject"), std::string::npos);
  EXPECT_NE(event_words(kRejected, 99, "").find("(status 99)"), std::string::npos);
  EXPECT_EQ(event_words(kAddrError, -EHOSTUNREACH, ""),
            "RDMA_CM_EVENT_ADDR_ERROR: no host has that address, or it does not answer (status "
            "-113, EHOSTUNREACH)");
  EXPECT_NE(event_words(kUnreachable, -ETIMEDOUT, "").find("4791"), std::string::npos);
}

TEST(CmEventWords, ARefusedDatagramServiceIsNoSilentHost) {
  EXPECT_EQ(event_words(kUnreachable, 1, "10.0.0.1, port 9"),
            "RDMA_CM_EVENT_UNREACHABLE (to 10.0.0.1, port 9): nobody listens on that port there "
            "(or with another rdma_port_space) (status 1)");
  for (const int32_t status : {1, 2, 3, 4, 5})
    EXPECT_EQ(event_words(kUnreachable, status, "").find("4791"), std::string::npos) << status;
}

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

sockaddr_in loopback(uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  return address;
}

TEST(CmEventWords, AddressesAreNamedWithTheirPort) {
  EXPECT_EQ(address_words(bytes_of(loopback(7174))), "127.0.0.1, port 7174");
  EXPECT_EQ(address_words(bytes_of(loopback(0))), "127.0.0.1");
  sockaddr_in6 v6{};
  v6.sin6_family = AF_INET6;
  v6.sin6_port = htons(9);
  v6.sin6_addr = in6addr_loopback;
  EXPECT_EQ(address_words(bytes_of(v6)), "::1, port 9");
  EXPECT_EQ(address_words({}), "");
  EXPECT_EQ(address_words(bytes_of(sockaddr_in6{})), "");
}

TEST(CmEventWords, RefusedCommandsNameTheAddress) {
  rdma_ucm_bind bind{};
  const sockaddr_in address = loopback(7174);
  memcpy(&bind.addr, &address, sizeof(address));
  EXPECT_EQ(refused_words(RDMA_USER_CM_CMD_BIND, bytes_of(bind), EADDRINUSE),
            "rdma_bind_addr: 127.0.0.1, port 7174: another id has that port (EADDRINUSE)");
  EXPECT_NE(refused_words(RDMA_USER_CM_CMD_BIND, bytes_of(bind), EADDRNOTAVAIL)
                .find("127.0.0.1, port 7174: no NIC here has that address"),
            std::string::npos);
  EXPECT_EQ(refused_words(RDMA_USER_CM_CMD_BIND, bytes_of(bind), ENOMEM), "");
  rdma_ucm_resolve_addr resolve{};
  memcpy(&resolve.dst_addr, &address, sizeof(address));
  EXPECT_EQ(refused_words(RDMA_USER_CM_CMD_RESOLVE_ADDR, bytes_of(resolve), EINVAL),
            "rdma_resolve_addr: 127.0.0.1, port 7174: the id listens, or is connected, or its "
            "address is being resolved (EINVAL)");
  rdma_ucm_join_mcast join{};
  memcpy(&join.addr, &address, sizeof(address));
  EXPECT_EQ(refused_words(RDMA_USER_CM_CMD_JOIN_MCAST, bytes_of(join), EINVAL),
            "rdma_join_multicast: 127.0.0.1, port 7174: no multicast group, or the id has no "
            "address of its own yet (EINVAL)");
  for (uint32_t command = 0; command < 32; ++command)
    for (const size_t bytes : {0, 4, 20})
      refused_words(command, bytes_of(bind).first(bytes), EINVAL);
}

TEST(CmEventWords, WhatIsNoFailureHasNone) {
  for (const uint32_t resolved_established_disconnected : {0u, 9u, 10u})
    EXPECT_EQ(event_words(resolved_established_disconnected, 0, ""), "");
}

TEST(CmEventWords, PrivateDataThatIsTooLongIsNamed) {
  rdma_ucm_connect connect{};
  connect.conn_param.private_data_len = 57;
  const auto bytes = std::as_bytes(std::span(&connect, 1));
  EXPECT_EQ(refused_words(RDMA_USER_CM_CMD_CONNECT, bytes, EINVAL),
            "rdma_connect: private data of 57 bytes, 56 at most (EINVAL)");
  EXPECT_EQ(refused_words(RDMA_USER_CM_CMD_CONNECT, bytes, ENOMEM), "");
  EXPECT_EQ(refused_words(RDMA_USER_CM_CMD_CONNECT, bytes.first(8), EINVAL), "");
  connect.conn_param.private_data_len = 56;
  EXPECT_EQ(
      refused_words(RDMA_USER_CM_CMD_CONNECT, bytes, EINVAL),
      "rdma_connect: the id's address is not resolved (rdma_resolve_addr), or it is connected "
      "already (EINVAL)");
}

}  // namespace
}  // namespace hostnic::cm_device
