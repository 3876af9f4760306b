// SPDX-License-Identifier: BSD-3-Clause
// Descriptors that strangers send, and connections in which some may lie unread. Looking at such a
// file, and closing it, asks its file system, which may take for ever (FUSE, a network that is
// gone); closing a TCP socket that lingers waits for its peer. What the kernel closes for us, be it
// in a datagram that is dropped or in the queue of a socket that is closed, counts like what we
// close. Nothing but a thread that can be spared does that.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "dataplane/memory/user_shares.h"
#include "protocol/expected.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic {

// Whether the descriptor is a UNIX socket, which is known without asking the file. Any thread.
bool is_unix_socket(int fd);

// Closes a descriptor, and what lies unread in it if it is a UNIX socket. Sockets no longer linger.
// May block all the same: for threads that can be spared.
void close_with_contents(UniqueFd fd);

// Threads that close descriptors: a few for each user, so that those whose descriptors do not let
// themselves be closed keep nobody else's waiting.
class Closers {
 public:
  static constexpr UserShares::Limits kThreads{.all = 32, .strangers = 28, .user = 4};

  // `close_one` is for tests.
  explicit Closers(void (*close_one)(UniqueFd) = close_with_contents) : close_one_(close_one) {}
  // Its threads can't be waited for.
  ~Closers() = delete;

  // Makes the first thread, which stays. Returns false if none can be had.
  bool start();
  // Closes the descriptor soon; `stranger` sent it, or nobody does: hostnicd's own user or root.
  // Does not wait. [any thread]
  void close(UniqueFd fd, std::optional<uint32_t> stranger);
  size_t threads() const;  // [any thread]
  // Whether something is being closed, or is to be. [any thread]
  bool busy() const;

 private:
  struct Item {
    UniqueFd fd;
    std::optional<uint32_t> stranger;
  };
  bool add_thread();
  void add_thread_if_wanted();
  std::deque<Item>::iterator next_item();
  void run();

  void (*const close_one_)(UniqueFd);
  UserShares closing_{kThreads};
  mutable std::mutex mutex_;
  std::condition_variable news_;
  std::deque<Item> waiting_;
  size_t threads_ = 0, idle_ = 0;
};

// Returns the closers of this hostnicd.
Closers& closers();
void close_apart(std::vector<UniqueFd> fds, std::optional<uint32_t> stranger);

// Whether all files are memory (tmpfs, hugetlbfs), which answers at once. May block: for session
// threads that hold no lock. An error is one line.
Expected<void, std::string> check_files_are_memory(std::span<const UniqueFd> fds);

}  // namespace hostnic
