// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/trust/foreign_descriptors.h"

#include <errno.h>
#include <fcntl.h>
#include <linux/magic.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/vfs.h>

#include <algorithm>
#include <chrono>
#include <iterator>
#include <system_error>
#include <thread>
#include <utility>

#include "protocol/hostif/control_socket.h"

namespace hostnic {
namespace {

// The most descriptors that are taken out of each other.
constexpr size_t kMostContents = 4096;
constexpr std::chrono::seconds kIdleThreadEnds{5};

int option_of(int fd, int name) {
  int value = -1;
  socklen_t length = sizeof(value);
  return getsockopt(fd, SOL_SOCKET, name, &value, &length) == 0 ? value : -1;
}

}  // namespace

bool is_unix_socket(int fd) { return option_of(fd, SO_DOMAIN) == AF_UNIX; }

void close_with_contents(UniqueFd fd) {
  std::deque<UniqueFd> left;
  left.push_back(std::move(fd));
  for (size_t taken = 1; !left.empty(); left.pop_front()) {
    const int at = left.front().get();
    if (option_of(at, SO_TYPE) < 0) continue;
    constexpr linger kNone{0, 0};
    setsockopt(at, SOL_SOCKET, SO_LINGER, &kNone, sizeof(kNone));
    if (option_of(at, SO_ACCEPTCONN) == 1) {
      fcntl(at, F_SETFL, fcntl(at, F_GETFL) | O_NONBLOCK);
      for (int made = 0; taken < kMostContents && made >= 0; ++taken) {
        made = accept4(at, nullptr, nullptr, SOCK_CLOEXEC);
        if (made >= 0) left.emplace_back(made);
      }
    }
    ControlDatagram datagram;
    while (is_unix_socket(at) && taken < kMostContents &&
           receive_datagram(at, MSG_DONTWAIT, datagram) == ReceiveResult::kOk) {
      taken += 1 + datagram.fds.size();
      std::ranges::move(datagram.fds, std::back_inserter(left));
    }
  }
}

bool Closers::start() {
  const std::lock_guard lock(mutex_);
  return threads_ != 0 || add_thread();
}

size_t Closers::threads() const {
  const std::lock_guard lock(mutex_);
  return threads_;
}

bool Closers::busy() const {
  const std::lock_guard lock(mutex_);
  return !waiting_.empty() || closing_.taken() != 0;
}

// Called with the lock. Without a thread to spare those that there are do it.
bool Closers::add_thread() {
  try {
    std::thread([this] { run(); }).detach();
  } catch (const std::system_error&) {
    return false;
  }
  ++threads_;
  return true;
}

void Closers::close(UniqueFd fd, std::optional<uint32_t> stranger) {
  if (!fd) return;
  const std::lock_guard lock(mutex_);
  waiting_.push_back({std::move(fd), stranger});
  add_thread_if_wanted();
  news_.notify_one();
}

// Called with the lock. No thread is made for what would wait for its user's share, nor where one
// has nothing to close yet: that looks again when it has.
void Closers::add_thread_if_wanted() {
  if (threads_ > closing_.taken() || threads_ >= kThreads.all) return;
  const bool wanted = std::ranges::any_of(waiting_, [this](const Item& item) {
    return !item.stranger || closing_.of(*item.stranger) < kThreads.user;
  });
  if (wanted) add_thread();
}

// The first descriptor whose user's share has a thread left.
std::deque<Closers::Item>::iterator Closers::next_item() {
  return std::ranges::find_if(waiting_,
                              [this](const Item& item) { return closing_.take(item.stranger); });
}

void Closers::run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto next = next_item();
    if (next != waiting_.end()) {
      Item item = std::move(*next);
      waiting_.erase(next);
      add_thread_if_wanted();
      lock.unlock();
      close_one_(std::move(item.fd));
      lock.lock();
      closing_.give_back(item.stranger);
      continue;
    }
    ++idle_;
    const bool ends = news_.wait_for(lock, kIdleThreadEnds) == std::cv_status::timeout;
    --idle_;
    if (ends && idle_ != 0 && waiting_.empty()) break;
  }
  --threads_;
}

Closers& closers() {
  static auto* const kClosers = new Closers;
  return *kClosers;
}

void close_apart(std::vector<UniqueFd> fds, std::optional<uint32_t> stranger) {
  for (UniqueFd& fd : fds) closers().close(std::move(fd), stranger);
}

Expected<void, std::string> check_files_are_memory(std::span<const UniqueFd> fds) {
  for (const UniqueFd& fd : fds) {
    struct statfs file_system {};
    if (fstatfs(fd.get(), &file_system) != 0)
      return Unexpected(std::string("unusable descriptor: ") + strerror(errno));
    if (file_system.f_type != TMPFS_MAGIC && file_system.f_type != HUGETLBFS_MAGIC)
      return Unexpected(std::string("a descriptor is no file of tmpfs or hugetlbfs"));
  }
  return {};
}

}  // namespace hostnic
