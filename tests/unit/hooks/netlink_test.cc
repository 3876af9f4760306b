// SPDX-License-Identifier: BSD-3-Clause
// Sockets of RDMA netlink, on a driver without hostnicd: requests go there, answers come back in
// datagrams, and what is the kernel's stays the kernel's.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <linux/netlink.h>
#include <poll.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "protocol/nldev/message.h"
#include "tests/unit/abi/fake_driver.h"
#include "verbs-shim/netlink/kernel_answers.h"
#include "verbs-shim/netlink/sockets.h"

namespace hostnic::netlink {
namespace {

constexpr uint16_t kGet = RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_GET);

Bytes message(uint16_t type, uint16_t flags, size_t bytes = 0) {
  Bytes out;
  {
    nldev::MessageWriter writer(out, {.type = type, .flags = flags});
    writer.append(Bytes(bytes));
  }
  return out;
}

Bytes request_of_device(uint32_t index, uint16_t flags = NLM_F_REQUEST) {
  Bytes out;
  {
    nldev::MessageWriter writer(out, {.type = kGet, .flags = flags});
    writer.put_u32(RDMA_NLDEV_ATTR_DEV_INDEX, index);
  }
  return out;
}

Bytes joined(std::initializer_list<Bytes> parts) {
  Bytes all;
  for (const Bytes& each : parts) all.insert(all.end(), each.begin(), each.end());
  return all;
}

class NetlinkSocket : public testing::Test {
 protected:
  void SetUp() override {
    fake::behaviour() = {};
    fake::seen() = {};
    fd_ = open_socket(SOCK_RAW | SOCK_CLOEXEC);
    ASSERT_GE(fd_, 0);
  }
  void TearDown() override { close(fd_); }
  // Sends as the hooks have it.
  void ask(const Bytes& datagram) const {
    ASSERT_EQ(send(fd_, datagram.data(), datagram.size(), 0),
              static_cast<ssize_t>(datagram.size()));
    serve(fd_);
  }
  ssize_t receive() const {
    char bytes[16384];
    serve(fd_);
    return recv(fd_, bytes, sizeof(bytes), MSG_DONTWAIT);
  }
  int fd_ = -1;
};

TEST_F(NetlinkSocket, HasTheAddressesOfANetlinkSocket) {
  sockaddr_nl address{};
  socklen_t length = sizeof(address);
  ASSERT_EQ(socket_name(fd_, reinterpret_cast<sockaddr*>(&address), &length), 0);
  EXPECT_EQ(address.nl_family, AF_NETLINK);
  EXPECT_EQ(address.nl_pid, 0u) << "it is not bound";
  ASSERT_EQ(bind_socket(fd_, reinterpret_cast<const sockaddr*>(&address), length), 0);
  ASSERT_EQ(socket_name(fd_, reinterpret_cast<sockaddr*>(&address), &length), 0);
  EXPECT_EQ(length, sizeof(address));
  EXPECT_NE(address.nl_pid, 0u);
  sockaddr other{};
  other.sa_family = AF_UNIX;
  EXPECT_EQ(bind_socket(fd_, &other, sizeof(other)), -1);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(NetlinkSocket, AnswersCanBePolledWhenTheRequestIsSent) {
  fake::behaviour().netlink_answer =
      joined({message(kGet, NLM_F_MULTI, 100), message(NLMSG_DONE, NLM_F_MULTI, 4)});
  pollfd readable{fd_, POLLIN, 0};
  EXPECT_EQ(poll(&readable, 1, 0), 0);
  ask(message(kGet, NLM_F_REQUEST | NLM_F_DUMP));
  EXPECT_EQ(poll(&readable, 1, 0), 1);
  ASSERT_EQ(fake::seen().netlink_datagrams.size(), 1u);
  EXPECT_EQ(fake::seen().netlink.device_count, 2u);
  EXPECT_EQ(fake::seen().netlink.devices[1].index, 1u);
  EXPECT_EQ(receive(), 136) << "the list's end comes with it";
  EXPECT_EQ(receive(), -1);
}

TEST_F(NetlinkSocket, MoreThanASocketHoldsComesAsItIsRead) {
  constexpr int kMessages = 1000;
  for (int i = 0; i < kMessages; ++i) {
    const Bytes each = message(kGet, 0, 4000);
    auto& answer = fake::behaviour().netlink_answer;
    answer.insert(answer.end(), each.begin(), each.end());
  }
  ask(message(kGet, NLM_F_REQUEST));
  int received = 0;
  while (receive() == 4016) ++received;
  EXPECT_EQ(received, kMessages);
}

TEST_F(NetlinkSocket, OptionsReachWhoAnswers) {
  constexpr int kOn = 1;
  EXPECT_EQ(set_option(fd_, NETLINK_CAP_ACK, &kOn, sizeof(kOn)), 0);
  EXPECT_EQ(set_option(fd_, NETLINK_EXT_ACK, &kOn, sizeof(kOn)), 0);
  EXPECT_EQ(set_option(fd_, NETLINK_EXT_ACK, &kOn, 1), -1);
  ask(message(kGet, NLM_F_REQUEST));
  EXPECT_EQ(fake::seen().netlink.short_acks, 1u);
  EXPECT_EQ(fake::seen().netlink.wants_words, 1u);
}

TEST_F(NetlinkSocket, ADeadHostnicdIsAnError) {
  fake::behaviour().no_hostnicd = true;
  ask(message(kGet, NLM_F_REQUEST));
  EXPECT_EQ(receive(), static_cast<ssize_t>(sizeof(nlmsghdr) + sizeof(nlmsgerr)));
}

TEST_F(NetlinkSocket, IsKnownAsLongAsItIsOpen) {
  EXPECT_TRUE(is_socket(fd_));
  const int copy = dup(fd_);
  EXPECT_FALSE(is_socket(copy)) << "nobody has said that it is one";
  copy_known(fd_, copy);
  EXPECT_TRUE(is_socket(copy));
  close(copy);
  const int other = open("/dev/null", 0);
  EXPECT_FALSE(is_socket(other));
  close(other);
}

TEST_F(NetlinkSocket, WithoutOurDevicesItIsTheKernels) {
  fake::behaviour().no_hostnicd = true;
  EXPECT_EQ(open_socket(SOCK_RAW), -2);
  fake::behaviour() = {};
  EXPECT_EQ(open_socket(SOCK_STREAM), -2);
  {
    const KernelsOnly real_library;
    EXPECT_EQ(open_socket(SOCK_RAW), -2);
  }
  const int again = open_socket(SOCK_DGRAM);
  EXPECT_GE(again, 0);
  close(again);
}

TEST(NetlinkKernel, IsAskedForWhatIsIts) {
  constexpr uint32_t kFirst = 3;
  EXPECT_EQ(whose(request_of_device(2), kFirst), Whose::kKernels);
  EXPECT_EQ(whose(request_of_device(3), kFirst), Whose::kOurs);
  EXPECT_EQ(whose(message(kGet, NLM_F_REQUEST | NLM_F_DUMP), kFirst), Whose::kBoths);
  EXPECT_EQ(whose(message(RDMA_NL_GET_TYPE(RDMA_NL_NLDEV, RDMA_NLDEV_CMD_SYS_GET), NLM_F_REQUEST),
                  kFirst),
            Whose::kKernels);
  EXPECT_EQ(whose(message(RDMA_NL_GET_TYPE(RDMA_NL_LS, 0), NLM_F_REQUEST), kFirst),
            Whose::kKernels);
  EXPECT_EQ(whose(Bytes(3), kFirst), Whose::kKernels);
}

TEST(NetlinkKernel, ItsListHasOurs) {
  const std::vector<Bytes> list = {
      joined({request_of_device(1, NLM_F_MULTI), request_of_device(6, NLM_F_MULTI)}),
      joined({request_of_device(2, NLM_F_MULTI), message(NLMSG_DONE, NLM_F_MULTI, 4)})};
  EXPECT_EQ(index_behind(list), 7u);
  EXPECT_EQ(index_behind({message(NLMSG_DONE, NLM_F_MULTI, 4)}), 0u);
  const auto without = without_end(list);
  ASSERT_EQ(without.size(), 2u);
  EXPECT_EQ(without[0], list[0]);
  EXPECT_EQ(without[1], request_of_device(2, NLM_F_MULTI));
  EXPECT_TRUE(without_end({message(NLMSG_DONE, NLM_F_MULTI, 4)}).empty());
}

}  // namespace
}  // namespace hostnic::netlink
