// SPDX-License-Identifier: BSD-3-Clause
// An array of zeros that costs memory where it is written. Programs ask for queues as deep as they
// could ever need.
#pragma once

#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <new>
#include <type_traits>

namespace hostnic::driver {

template <class T>
class ZeroedArray {
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);

 public:
  ZeroedArray() = default;
  ZeroedArray(const ZeroedArray&) = delete;
  ZeroedArray& operator=(const ZeroedArray&) = delete;
  ~ZeroedArray() { free(); }

  // Replaces the array by `count` zeroed items.
  void allocate(size_t count) {
    free();
    if (count == 0) return;
    const size_t bytes = count * sizeof(T);
    mapped_bytes_ = bytes >= kMappedBytes ? bytes : 0;
    void* const memory =
        mapped_bytes_ != 0 ? map(bytes) : std::calloc(count + 1, std::max(sizeof(T), alignof(T)));
    if (memory == nullptr) throw std::bad_alloc();
    memory_ = memory;
    // Zeros may stand for objects here, because the type needs no constructor.
    const auto address = reinterpret_cast<uintptr_t>(memory);
    items_ = reinterpret_cast<T*>((address + alignof(T) - 1) / alignof(T) * alignof(T));
    size_ = count;
  }
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  T* data() { return items_; }
  const T* data() const { return items_; }
  T& operator[](size_t index) { return items_[index]; }
  const T& operator[](size_t index) const { return items_[index]; }

 private:
  // Arrays of this size and more lie in a mapping without huge pages, of which each touch, by
  // malloc's own words for one, would bring in 2 MB.
  static constexpr size_t kMappedBytes = 64 * 1024;

  // Maps memory by a system call of its own: no program registers this memory, so that nobody need
  // be told.
  static void* map(size_t bytes) {
    const long at = syscall(SYS_mmap, nullptr, bytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0L);
    if (at == -1) return nullptr;
    syscall(SYS_madvise, at, bytes, MADV_NOHUGEPAGE);
    return reinterpret_cast<void*>(at);
  }
  void free() {
    if (mapped_bytes_ != 0)
      syscall(SYS_munmap, memory_, mapped_bytes_);
    else
      std::free(memory_);
    memory_ = nullptr;
    items_ = nullptr;
    size_ = mapped_bytes_ = 0;
  }

  void* memory_ = nullptr;
  T* items_ = nullptr;
  size_t size_ = 0, mapped_bytes_ = 0;
};

}  // namespace hostnic::driver
