// SPDX-License-Identifier: BSD-3-Clause
// This process's userfaultfd: stops other threads' accesses to a range while its pages change
// place.
#pragma once

#include <cstdint>

namespace hostnic::memory {

enum class UserfaultMode {
  kNone,
  kFull,      // also stops accesses that the kernel makes for a system call
  kUserOnly,  // a system call that touches a stopped page fails with EFAULT
};

// Used under the registrar's mutex.
class Userfault {
 public:
  // Tries the full system call, then the descriptor of /dev/userfaultfd in `lent_device` (-1:
  // none), then user mode only. Returns false if none works: error() says why not. It may be tried
  // again with another device.
  bool open(int lent_device);
  void close();

  UserfaultMode mode() const { return mode_; }
  const char* error() const { return error_; }

  // Stops writes in the range, and with `missing` also any first touch. Returns 0 or an errno
  // value.
  int stop(uint64_t start, uint64_t length_bytes, bool missing);
  // Stops nothing but first touches. Returns 0 or an errno value.
  int stop_first_touches(uint64_t start, uint64_t length_bytes);
  // Wakes threads that wait; they look at the page tables again.
  void wake(uint64_t start, uint64_t length_bytes);
  // Undoes stop() where the pages stayed in place.
  void release(uint64_t start, uint64_t length_bytes);

  // Whether the kernel can move private pages (Linux 6.8).
  bool moves_pages() const { return moves_pages_; }
  // Makes a private area a place to which pages may be moved. Returns 0 or an errno value.
  int accept_pages(uint64_t start, uint64_t length_bytes);
  // /proc/self/pagemap, which the functions below look at.
  void use_pagemap(int fd) { pagemap_fd_ = fd; }
  // Moves the private pages of a stopped range, as far as there are any. Returns 0, or EBUSY when
  // one of them is in the hands of a device or a forked child, or another errno value; then those
  // before it have moved.
  int move_pages(uint64_t to, uint64_t from, uint64_t length_bytes);
  // Brings back pages that were moved away from a range that is still stopped. It does not fail:
  // they would be lost. A page that does not move for long is copied.
  void put_back(uint64_t to, uint64_t from, uint64_t length_bytes);

 private:
  bool accept(int fd, UserfaultMode mode);

  void copy_back(uint64_t page, uint64_t from) const;

  int fd_ = -1, pagemap_fd_ = -1;
  UserfaultMode mode_ = UserfaultMode::kNone;
  bool moves_pages_ = false;
  char error_[160] = "not opened yet";
};

}  // namespace hostnic::memory
