// SPDX-License-Identifier: BSD-3-Clause
// The descriptors that this library has in a process that is not its own. A daemon closes all
// descriptors that it did not open itself, and opens others, which get the same numbers: what is
// the library's has to survive that, and what has become the program's must not be written to or
// closed any more.
//
//   kept  the library's alone. The program can't close it or put another file in its place:
//         close() says EBADF, as of a descriptor that it never had, and dup2() EBUSY.
//   lent  the program knows it (a completion channel's, say) and may close it: then it is no
//         longer the library's, and closing the object leaves the number alone.
//
// For any thread, before constructors and in signal handlers: no lock, no allocation. What bypasses
// libc is not noticed.
#pragma once

#include <utility>

namespace hostnic {

// Makes a copy of a descriptor that is kept, with a number that programs seldom ask for. Returns
// -1, with errno set, if there is none left.
int keep_copy(int fd) noexcept;
void lend(int fd) noexcept;
// Whether a descriptor is kept, or lent and not closed by the program.
bool is_kept(int fd) noexcept;
bool still_ours(int fd) noexcept;
// Closes a descriptor if it still is ours. errno stays.
void close_ours(int fd) noexcept;

// -- For the functions that stand in for libc's.
// The first kept descriptor from that number on; INT_MAX: there is none.
int next_kept(int from) noexcept;
// Says that the program closes descriptors, which are not kept, or puts others in their place.
// Without effect in a child of vfork() and in a thread with a table of its own.
void note_closed(int first, int last) noexcept;
// Says that the calling thread has left the process's table of descriptors (unshare(CLONE_FILES)):
// its numbers lead to other files.
void note_own_table() noexcept;
bool has_own_table() noexcept;
// Says that this is a forked child. It may close the parent's descriptors: its own devices have
// others.
void lend_kept_in_child() noexcept;

// A kept descriptor.
class OwnFd {
 public:
  constexpr OwnFd() = default;
  // Copies `fd`, which stays the caller's. The result is empty, with errno set, if there is none.
  static OwnFd copy_of(int fd) noexcept {
    OwnFd own;
    own.fd_ = keep_copy(fd);
    return own;
  }
  OwnFd(OwnFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  OwnFd& operator=(OwnFd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~OwnFd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset() noexcept { close_ours(std::exchange(fd_, -1)); }

 private:
  int fd_ = -1;
};

}  // namespace hostnic
