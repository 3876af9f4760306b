// SPDX-License-Identifier: BSD-3-Clause
// The listening socket: who may replace what, and that nothing is left behind.
#include "protocol/hostif/control_socket.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <filesystem>
#include <fstream>

#include "dataplane/daemon/control/control_listener.h"

namespace hostnic {
namespace {

class ControlSocket : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/hostnic-test-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    directory_ = name;
    path_ = directory_ + "/run/hostnicd.sock";
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  // What a killed hostnicd leaves: a socket file that refuses connections.
  void leave_stale_socket() {
    std::filesystem::create_directory(directory_ + "/run");
    const sockaddr_un address = *socket_address(path_);
    const UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET, 0));
    ASSERT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  }

  std::string directory_, path_;
};

TEST_F(ControlSocket, IsPrivateAndRemovesItself) {
  {
    auto listener = ControlListener::create(path_);
    ASSERT_TRUE(listener) << listener.error();
    struct stat info {};
    ASSERT_EQ(stat((directory_ + "/run").c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0700u);
    ASSERT_EQ(stat(path_.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777, 0600u);
  }
  EXPECT_TRUE(std::filesystem::is_empty(directory_ + "/run"));
}

TEST_F(ControlSocket, OthersAreLetInWhereItIsWanted) {
  const std::string own_group = std::to_string(getegid());
  auto listener = ControlListener::create(path_, {.mode = 0660, .group = own_group});
  ASSERT_TRUE(listener) << listener.error();
  struct stat info {};
  ASSERT_EQ(stat((directory_ + "/run").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0711u);
  ASSERT_EQ(stat(path_.c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0660u);
  EXPECT_EQ(info.st_gid, getegid());
  auto nobodys = ControlListener::create(path_ + "2", {.mode = 0660, .group = "no-such-group"});
  ASSERT_FALSE(nobodys);
  EXPECT_NE(nobodys.error().find("no-such-group"), std::string::npos);
}

TEST_F(ControlSocket, ASecondOneIsRefusedAndTheFirstLivesOn) {
  auto first = ControlListener::create(path_);
  ASSERT_TRUE(first);
  auto second = ControlListener::create(path_);
  ASSERT_FALSE(second);
  EXPECT_NE(second.error().find(path_), std::string::npos);
  EXPECT_TRUE(std::filesystem::exists(path_));
}

TEST_F(ControlSocket, AStaleOneIsReplaced) {
  leave_stale_socket();
  auto listener = ControlListener::create(path_);
  EXPECT_TRUE(listener) << listener.error();
}

TEST_F(ControlSocket, AFileOfSomebodyElseIsLeftAlone) {
  const std::string file = directory_ + "/notes.txt";
  std::ofstream(file) << "mine";
  auto listener = ControlListener::create(file);
  ASSERT_FALSE(listener);
  EXPECT_NE(listener.error().find("no socket"), std::string::npos);
  EXPECT_EQ(std::filesystem::file_size(file), 4u);
}

TEST_F(ControlSocket, TooLongAPathIsRefused) {
  auto listener = ControlListener::create("/tmp/" + std::string(200, 'x'));
  ASSERT_FALSE(listener);
  EXPECT_NE(listener.error().find("bytes"), std::string::npos);
}

// What a service manager passes: a descriptor of a socket that listens there, or does not.
UniqueFd passed(const std::string& path, int type, bool listening) {
  UniqueFd fd(socket(AF_UNIX, type | SOCK_CLOEXEC, 0));
  const sockaddr_un address = *socket_address(path);
  EXPECT_EQ(bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  if (listening) {
    EXPECT_EQ(listen(fd.get(), 1), 0);
  }
  return fd;
}

// Nobody who connects between two hostnicds is refused.
TEST_F(ControlSocket, ThatTheServiceManagerHasMadeStays) {
  std::filesystem::create_directory(directory_ + "/run");
  const UniqueFd managers = passed(path_, SOCK_SEQPACKET, true);
  for (int life = 0; life < 2; ++life) {
    auto listener = ControlListener::adopt(UniqueFd(dup(managers.get())));
    ASSERT_TRUE(listener) << listener.error();
    EXPECT_EQ(listener->path(), path_);
    EXPECT_EQ(accept(listener->fd(), nullptr, nullptr), -1) << "nobody waits, nor do we";
  }
  const UniqueFd client(socket(AF_UNIX, SOCK_SEQPACKET, 0));
  const sockaddr_un address = *socket_address(path_);
  EXPECT_EQ(connect(client.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)), 0);
  auto another = ControlListener::create(path_);
  ASSERT_FALSE(another) << "it is the service manager's";
  EXPECT_NE(another.error().find("listens"), std::string::npos);
}

TEST_F(ControlSocket, WhatIsNoneOfOursIsNotTaken) {
  std::filesystem::create_directory(directory_ + "/run");
  EXPECT_FALSE(ControlListener::adopt(passed(path_ + "1", SOCK_STREAM, true)));
  EXPECT_FALSE(ControlListener::adopt(passed(path_ + "2", SOCK_SEQPACKET, false)));
  EXPECT_FALSE(ControlListener::adopt(UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC))));
  UniqueFd tcp(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  ASSERT_EQ(listen(tcp.get(), 1), 0);
  EXPECT_FALSE(ControlListener::adopt(std::move(tcp)));
}

struct Pair {
  Pair() {
    int fds[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, fds), 0);
    a = UniqueFd(fds[0]);
    b = UniqueFd(fds[1]);
  }
  UniqueFd a, b;
};

TEST(ControlDatagrams, CarryBytesAndDescriptors) {
  Pair pair;
  const char text[] = "payload";
  const int fd = 0;
  ASSERT_TRUE(send_reply(pair.a.get(), 0, ControlReply{}, std::as_bytes(std::span(text)),
                         std::span(&fd, 1)));
  ControlDatagram datagram;
  ASSERT_EQ(receive_datagram(pair.b.get(), 0, datagram), ReceiveResult::kOk);
  EXPECT_EQ(datagram.bytes.size(), sizeof(ControlReply) + sizeof(text));
  ASSERT_EQ(datagram.fds.size(), 1u);
  // Not inherited by programs that hostnicd might start.
  EXPECT_EQ(fcntl(datagram.fds[0].get(), F_GETFD), FD_CLOEXEC);
  EXPECT_FALSE(datagram.cut);
}

// Both ends as they are used: the most descriptors, an error's text, an answer too short to be one.
TEST(ControlDatagrams, ARequestAndItsReply) {
  Pair pair;
  const char text[] = "show nic";
  const std::vector<int> files(kMaxControlFds, 0);
  ASSERT_TRUE(
      send_request(pair.a.get(), ControlKind::kText, std::as_bytes(std::span(text)), files));
  ControlDatagram datagram;
  ASSERT_EQ(receive_datagram(pair.b.get(), 0, datagram), ReceiveResult::kOk);
  EXPECT_FALSE(datagram.cut);
  EXPECT_EQ(datagram.fds.size(), kMaxControlFds);
  ControlRequest request;
  ASSERT_EQ(datagram.bytes.size(), sizeof(request) + sizeof(text));
  memcpy(&request, datagram.bytes.data(), sizeof(request));
  EXPECT_EQ(request.kind, ControlKind::kText);
  EXPECT_EQ(request.payload_bytes, sizeof(text));
  EXPECT_EQ(memcmp(datagram.bytes.data() + sizeof(request), text, sizeof(text)), 0);

  ControlReply reply;
  reply.error = EINVAL;
  memset(reply.message, 'x', sizeof(reply.message));  // a peer that does not end its text
  ASSERT_TRUE(send_reply(pair.b.get(), 0, reply, std::as_bytes(std::span(text)),
                         std::span(files.data(), 1)));
  const auto received = receive_reply(pair.a.get());
  ASSERT_TRUE(received);
  EXPECT_EQ(received->header.error, EINVAL);
  EXPECT_EQ(strlen(received->header.message), sizeof(reply.message) - 1);
  EXPECT_EQ(received->header.payload_bytes, sizeof(text));
  ASSERT_EQ(received->payload.size(), sizeof(text));
  EXPECT_EQ(memcmp(received->payload.data(), text, sizeof(text)), 0);
  EXPECT_EQ(received->fds.size(), 1u);

  ASSERT_EQ(send(pair.b.get(), text, sizeof(text), 0), static_cast<ssize_t>(sizeof(text)));
  EXPECT_FALSE(receive_reply(pair.a.get()));
  pair.b.reset();
  EXPECT_FALSE(receive_reply(pair.a.get()));
}

TEST(ControlDatagrams, TooLongOnesAreMarked) {
  Pair pair;
  const int bytes = 1 << 20;
  setsockopt(pair.a.get(), SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof(bytes));
  const std::vector<char> big(kMaxControlBytes + 1);
  if (send(pair.a.get(), big.data(), big.size(), 0) < 0)
    GTEST_SKIP() << "this kernel sends no message of that size: " << strerror(errno);
  ControlDatagram datagram;
  ASSERT_EQ(receive_datagram(pair.b.get(), 0, datagram), ReceiveResult::kOk);
  EXPECT_TRUE(datagram.cut);
}

TEST(ControlDatagrams, TheEndIsSeen) {
  Pair pair;
  ControlDatagram datagram;
  EXPECT_EQ(receive_datagram(pair.b.get(), MSG_DONTWAIT, datagram), ReceiveResult::kAgain);
  pair.a.reset();
  EXPECT_EQ(receive_datagram(pair.b.get(), MSG_DONTWAIT, datagram), ReceiveResult::kClosed);
  EXPECT_FALSE(send_reply(pair.b.get(), 0, ControlReply{}));
}

}  // namespace
}  // namespace hostnic
