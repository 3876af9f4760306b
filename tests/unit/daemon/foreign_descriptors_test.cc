// SPDX-License-Identifier: BSD-3-Clause
// What strangers' descriptors can keep waiting when they are closed.
#include "dataplane/daemon/trust/foreign_descriptors.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

namespace hostnic {
namespace {

constexpr int kSoonMs = 20'000;  // on a busy machine

struct Pipe {
  Pipe() {
    int ends[2] = {-1, -1};
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    read = UniqueFd(ends[0]);
    write = UniqueFd(ends[1]);
  }
  // Whether the other end is closed before long.
  bool is_closed(int limit_ms = kSoonMs) const {
    pollfd end{read.get(), 0, 0};
    return poll(&end, 1, limit_ms) == 1 && (end.revents & POLLHUP) != 0;
  }
  UniqueFd read, write;
};

std::atomic<bool> let_go{false};
// Closes what is a pipe only when it may.
void close_when_told(UniqueFd fd) {
  if (fcntl(fd.get(), F_GETPIPE_SZ) > 0) let_go.wait(false);
}

TEST(Closers, AUserWhoseDescriptorsDontCloseHoldsUpNobodyElse) {
  let_go.store(false);
  auto& closers = *new Closers(close_when_told);
  ASSERT_TRUE(closers.start());
  std::vector<Pipe> stuck(200);
  for (Pipe& each : stuck) closers.close(std::move(each.write), 1000);
  // Another user's are closed at once, and so are the owner's.
  for (const std::optional<uint32_t> stranger : {std::optional(1001u), std::optional<uint32_t>()}) {
    int pair[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, pair), 0);
    const UniqueFd mine(pair[0]);
    closers.close(UniqueFd(pair[1]), stranger);
    pollfd end{mine.get(), 0, 0};
    EXPECT_EQ(poll(&end, 1, kSoonMs), 1);
  }
  EXPECT_LE(closers.threads(), Closers::kThreads.user + 3);
  EXPECT_FALSE(stuck[0].is_closed(0));
  EXPECT_TRUE(closers.busy());
  let_go.store(true);
  let_go.notify_all();
  for (const Pipe& each : stuck) EXPECT_TRUE(each.is_closed());
  while (closers.busy()) std::this_thread::yield();
}

// A TCP connection that is full, and whose peer does not read.
struct FullConnection {
  FullConnection() {
    const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    EXPECT_EQ(bind(listener.get(), at, length), 0);
    EXPECT_EQ(listen(listener.get(), 1), 0);
    EXPECT_EQ(getsockname(listener.get(), at, &length), 0);
    full = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(connect(full.get(), at, length), 0);
    peer = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::vector<char> bytes(1 << 20);
    while (send(full.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) continue;
    constexpr linger kLong{1, 3600};
    EXPECT_EQ(setsockopt(full.get(), SOL_SOCKET, SO_LINGER, &kLong, sizeof(kLong)), 0);
  }
  UniqueFd full, peer;
};

// A UNIX socket in whose queue a descriptor lies.
UniqueFd in_a_socket(UniqueFd fd) {
  int pair[2] = {-1, -1};
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair), 0);
  const UniqueFd other(pair[1]);
  char byte = 'x';
  iovec part{&byte, 1};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof(int));
  const int raw = fd.get();
  std::memcpy(CMSG_DATA(rights), &raw, sizeof(raw));
  EXPECT_EQ(sendmsg(other.get(), &message, 0), 1);
  return UniqueFd(pair[0]);
}

TEST(CloseWithContents, DoesNotWaitForSocketsThatLinger) {
  for (const int depth : {0, 1, 3}) {
    FullConnection connection;
    UniqueFd fd = std::move(connection.full);
    for (int i = 0; i < depth; ++i) fd = in_a_socket(std::move(fd));
    std::atomic<bool> done{false};
    // In a thread that can be left: it would stand for an hour.
    std::thread([&done, fd = std::move(fd)]() mutable {
      close_with_contents(std::move(fd));
      done.store(true);
      done.notify_all();
    }).detach();
    for (int i = 0; i < kSoonMs && !done.load(); ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    ASSERT_TRUE(done.load()) << depth;
  }
}

TEST(CloseWithContents, ClosesWhatIsNoSocket) {
  Pipe pipe;
  close_with_contents(std::move(pipe.write));
  EXPECT_TRUE(pipe.is_closed());
  Pipe inside;
  close_with_contents(in_a_socket(std::move(inside.write)));
  EXPECT_TRUE(inside.is_closed());
}

}  // namespace
}  // namespace hostnic
