// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/twin/content.h"

#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <vector>

namespace hostnic::twin {
namespace {

class Pool;
Pool& pool();

// The model's bytes lie apart from the program's heap, whose shape is up to the operations.
class Pool {
 public:
  uint8_t* get() {
    const std::lock_guard lock(mutex_);
    if (free_.empty()) {
      constexpr size_t kChunk = 256;
      const long at = syscall(SYS_mmap, nullptr, kChunk * kPage, PROT_READ | PROT_WRITE,
                              MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (at < 0 && at > -4096) {
        perror("hostnic-twin: no memory for the model");
        _exit(2);
      }
      auto* chunk = reinterpret_cast<uint8_t*>(at);
      for (size_t i = kChunk; i-- > 0;) free_.push_back(chunk + i * kPage);
    }
    uint8_t* page = free_.back();
    free_.pop_back();
    return page;
  }
  // A child of one thread finds it usable, whatever the other threads did.
  void lock() { mutex_.lock(); }
  void unlock() { mutex_.unlock(); }
  void put(uint8_t* page) {
    const std::lock_guard lock(mutex_);
    free_.push_back(page);
  }

 private:
  std::mutex mutex_;
  std::vector<uint8_t*> free_;
};

// Made before main begins, and so before there is another thread: a child that is forked while
// another thread makes it would wait for ever for that to end.
Pool& pool() {
  static Pool& the_pool = []() -> Pool& {
    auto* made = new Pool;
    pthread_atfork([] { pool().lock(); }, [] { pool().unlock(); }, [] { pool().unlock(); });
    return *made;
  }();
  return the_pool;
}
[[maybe_unused]] const Pool& made_early = pool();

}  // namespace

void fill_page(uint8_t* to, uint64_t seed, uint64_t page) {
  if (seed == 0) {
    std::memset(to, 0, kPage);
    return;
  }
  uint64_t state = mix(seed + page * 0x9e3779b97f4a7c15ULL);
  for (size_t i = 0; i < kPage; i += 8) {
    state = state * 6364136223846793005ULL + 1442695040888963407ULL;
    const uint64_t word = state ^ (state >> 29);
    std::memcpy(to + i, &word, 8);
  }
}

void fill(uint8_t* to, size_t length, uint64_t seed) {
  for (size_t done = 0; done < length; done += kPage) {
    if (length - done >= kPage) {
      fill_page(to + done, seed, done / kPage);
    } else {
      uint8_t last[kPage];
      fill_page(last, seed, done / kPage);
      std::memcpy(to + done, last, length - done);
    }
  }
}

Frame::~Frame() {
  if (bytes_ != nullptr) pool().put(bytes_);
}

void Frame::set_page(uint64_t seed, uint64_t page) {
  if (bytes_ != nullptr) pool().put(bytes_);
  bytes_ = nullptr;
  seed_ = seed;
  page_ = page;
  unknown = false;
}

uint8_t* Frame::own_bytes() {
  if (bytes_ == nullptr) {
    bytes_ = pool().get();
    fill_page(bytes_, seed_, page_);
  }
  return bytes_;
}

void Frame::set(size_t offset, const uint8_t* bytes, size_t length) {
  std::memcpy(own_bytes() + offset, bytes, length);
  if (length == kPage) unknown = false;
}

void Frame::get(uint8_t* to, size_t offset, size_t length) const {
  if (bytes_ != nullptr) {
    std::memcpy(to, bytes_ + offset, length);
    return;
  }
  if (seed_ == 0) {
    std::memset(to, 0, length);
    return;
  }
  uint8_t page[kPage];
  fill_page(page, seed_, page_);
  std::memcpy(to, page + offset, length);
}

}  // namespace hostnic::twin
