// What hostnicd asks of the kernel's interfaces, on the loopback interface.
#include <errno.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/socket.h>

#include "dataplane/daemon/kernel_interface.h"
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

}  // namespace
}  // namespace hostnic
