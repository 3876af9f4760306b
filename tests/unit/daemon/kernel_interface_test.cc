// SPDX-License-Identifier: BSD-3-Clause
// What hostnicd asks of the kernel's interfaces, on the loopback interface.
#include "dataplane/daemon/network/kernel_interface.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>

#include <string>

#include "protocol/wire/udp.h"

namespace hostnic {
namespace {

// A datagram to the RoCE port through the loopback interface, by the time this returns delivered,
// refused, or dropped. 0, or the errno value that says how it was answered.
int answer_to_roce_packet() {
  const UniqueFd sender(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(wire::kRoceUdpPort);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(sender.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return errno;
  if (send(sender.get(), "packet", 6, 0) != 6) return errno;
  int error = 0;
  socklen_t bytes = sizeof error;
  getsockopt(sender.get(), SOL_SOCKET, SO_ERROR, &error, &bytes);
  return error;
}

TEST(KernelInterface, TheKernelDoesNotAnswerRocePackets) {
  const UniqueFd silence = silence_roce_of("lo");
  ASSERT_TRUE(silence) << strerror(errno);
  EXPECT_EQ(answer_to_roce_packet(), 0);
  char byte = 0;
  EXPECT_EQ(recv(silence.get(), &byte, 1, MSG_DONTWAIT), -1) << "the packet waits here for ever";
}

TEST(KernelInterface, NicsThatShareAnInterfaceBothSilenceTheKernel) {
  UniqueFd first = silence_roce_of("lo");
  const UniqueFd second = silence_roce_of("lo");
  ASSERT_TRUE(first && second) << strerror(errno);
  first.reset();
  EXPECT_EQ(answer_to_roce_packet(), 0);
}

TEST(KernelInterface, SilenceNeedsAnInterface) {
  EXPECT_FALSE(silence_roce_of("no-such-if"));
  EXPECT_EQ(errno, ENODEV);
}

// A UDP socket on an address of the loopback interface that no other test uses.
class Listener {
 public:
  Listener(uint32_t ip, uint16_t port) {
    const int yes = 1;
    setsockopt(socket_.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
    address_.sin_family = AF_INET;
    address_.sin_port = htons(port);
    address_.sin_addr.s_addr = htonl(ip);
    bound_ = bind(socket_.get(), reinterpret_cast<sockaddr*>(&address_), sizeof address_) == 0;
  }
  bool bound() const { return bound_; }
  void send(const char* text) const {
    const UniqueFd sender(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    sendto(sender.get(), text, strlen(text), 0, reinterpret_cast<const sockaddr*>(&address_),
           sizeof address_);
  }
  // What arrived first, or comes within five seconds.
  std::string next() const {
    char text[16] = "";
    pollfd readable{socket_.get(), POLLIN, 0};
    poll(&readable, 1, 5000);
    const ssize_t bytes = recv(socket_.get(), text, sizeof text, MSG_DONTWAIT);
    return bytes < 0 ? "nothing" : std::string(text, static_cast<size_t>(bytes));
  }

 private:
  UniqueFd socket_{socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0)};
  sockaddr_in address_{};
  bool bound_ = false;
};

// Addresses with the highest bit set would be signed somewhere; the loopback interface has none.
constexpr uint32_t kNicIp = 0x7f2f5b01, kOtherIp = 0x7f2f5b02;

TEST(KernelInterface, RocePacketsToTheNicEndBeforeIpAndNoOthersDo) {
  const Listener nic(kNicIp, wire::kRoceUdpPort), other_port(kNicIp, wire::kRoceUdpPort + 1),
      other_address(kOtherIp, wire::kRoceUdpPort);
  ASSERT_TRUE(nic.bound() && other_port.bound() && other_address.bound());
  UniqueFd end = end_roce_before_ip("lo", Ipv4Address{kNicIp});
  if (!end) GTEST_SKIP() << "no tcx programs for us: " << strerror(errno);
  nic.send("dropped");
  other_port.send("port");
  other_address.send("address");
  EXPECT_EQ(other_port.next(), "port");
  EXPECT_EQ(other_address.next(), "address");
  end.reset();
  nic.send("let pass");
  EXPECT_EQ(nic.next(), "let pass");
}

TEST(KernelInterface, PacketSocketsAreFoundAmongAllDescriptors) {
  const UniqueFd packet(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0));
  if (!packet) GTEST_SKIP() << "no packet sockets for us: " << strerror(errno);
  const UniqueFd other(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  EXPECT_EQ(packet_sockets(), std::vector{packet.get()});
}

}  // namespace
}  // namespace hostnic
