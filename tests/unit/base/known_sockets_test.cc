// SPDX-License-Identifier: BSD-3-Clause
// Which descriptors stand for something else, and for whom.
#include "verbs-shim/base/known_sockets.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "protocol/hostif/unique_fd.h"

namespace hostnic {
namespace {

constexpr uint64_t kName = 7;

UniqueFd some_socket() { return UniqueFd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0)); }

TEST(KnownSockets, AreKnownByTheirKindAndBySocket) {
  const UniqueFd fd = some_socket();
  EXPECT_EQ(known_name(fd.get(), SocketKind::kCm), 0u);
  ASSERT_TRUE(add_known(fd.get(), SocketKind::kCm, kName));
  EXPECT_EQ(known_name(fd.get(), SocketKind::kCm), kName);
  EXPECT_EQ(known_name(fd.get(), SocketKind::kNetlink), 0u);
  const UniqueFd copy(dup(fd.get()));
  copy_known(fd.get(), copy.get());
  EXPECT_EQ(known_name(copy.get(), SocketKind::kCm), kName);
  const UniqueFd other = some_socket();
  ASSERT_EQ(dup2(other.get(), copy.get()), copy.get());
  EXPECT_EQ(known_name(copy.get(), SocketKind::kCm), 0u) << "another socket has the number now";
  EXPECT_EQ(known_name(fd.get(), SocketKind::kCm), kName);
}

// hostnic's thread that fills late memory has a table of its own, and opens files of /proc at
// numbers by which the program knows its channels.
TEST(KnownSockets, AThreadWithATableOfItsOwnLeavesTheOthersAlone) {
  const UniqueFd fd = some_socket();
  ASSERT_TRUE(add_known(fd.get(), SocketKind::kCm, kName));
  std::thread([&fd] {
    ASSERT_EQ(unshare(CLONE_FILES), 0);
    const UniqueFd file(open("/proc/self/maps", O_RDONLY | O_CLOEXEC));
    ASSERT_EQ(dup2(file.get(), fd.get()), fd.get());
    EXPECT_EQ(known_name(fd.get(), SocketKind::kCm), 0u);
  }).join();
  EXPECT_EQ(known_name(fd.get(), SocketKind::kCm), kName);
}

}  // namespace
}  // namespace hostnic
