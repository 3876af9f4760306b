// SPDX-License-Identifier: BSD-3-Clause
// Tells children of a bare fork (the system call, which calls no handlers) from the process whose
// memory and files are kept: such a child has a copy of the library's state, and of its locks as
// they were, whose owners are not in it.
#pragma once

#include <atomic>
#include <cstdint>

namespace hostnic::memory {

// Why a bare fork's child gets no devices and no registrations: they would lead to its parent's
// memory.
inline constexpr char kBareChild[] =
    "this process was made by a bare fork or clone system call, of which the library is not told, "
    "after its parent had opened a device; use the C library's fork(), or exec";

class OwnProcess {
 public:
  // Makes the calling process the one that is known. Returns false where the kernel can't empty a
  // page in children (before Linux 4.14): nobody is taken for a child of a bare fork then. To be
  // called with the registrar's lock.
  static bool set();

  // Says in a child that the handlers of its fork have run: it is a process like its parent.
  static void set_in_child() {
    if (std::atomic<uint32_t>* const word = word_.load(std::memory_order_acquire); word != nullptr)
      word->store(1, std::memory_order_relaxed);
  }

  // Whether this is a child of a bare fork of the process that is known. Works before constructors,
  // for any thread, and in signal handlers.
  static bool is_bare_child() {
    const std::atomic<uint32_t>* const word = word_.load(std::memory_order_acquire);
    return word != nullptr && word->load(std::memory_order_relaxed) == 0;
  }
  // Whether set() has returned true here, or set_in_child() was called.
  static bool is_known() {
    const std::atomic<uint32_t>* const word = word_.load(std::memory_order_acquire);
    return word != nullptr && word->load(std::memory_order_relaxed) != 0;
  }

 private:
  // In a page that the kernel empties in every child that does not share memory with its parent.
  static inline constinit std::atomic<std::atomic<uint32_t>*> word_{nullptr};
};

}  // namespace hostnic::memory
