// SPDX-License-Identifier: BSD-3-Clause
// Which functions an object of verbs had in its tables before they were replaced by traced ones.
#pragma once

#include <sched.h>

#include <atomic>
#include <cstdint>
#include <cstdlib>
#include <new>

namespace hostnic::calls {

// Functions by object. Looking up takes no lock. Entries are used again, and never freed: somebody
// may be looking. `Functions` is a copyable structure of pointers.
template <typename Functions>
class Originals {
 public:
  // The functions of an object that was added; null: there is none.
  const Functions* find(const void* object) const {
    for (const Entry* entry = bucket(object).load(std::memory_order_acquire); entry != nullptr;
         entry = entry->next)
      if (entry->object.load(std::memory_order_acquire) == object) return &entry->functions;
    return nullptr;
  }

  // Adds an object; returns false, without effect, if it is there or memory is used up.
  bool add(const void* object, const Functions& functions) {
    const Lock lock(*this);
    if (find(object) != nullptr) return false;
    std::atomic<Entry*>& first = bucket(object);
    for (Entry* entry = first.load(std::memory_order_relaxed); entry != nullptr;
         entry = entry->next) {
      if (entry->object.load(std::memory_order_relaxed) != nullptr) continue;
      entry->functions = functions;
      entry->object.store(object, std::memory_order_release);
      return true;
    }
    void* memory = malloc(sizeof(Entry));
    if (memory == nullptr) return false;
    auto* entry = new (memory) Entry;
    entry->functions = functions;
    entry->next = first.load(std::memory_order_relaxed);
    entry->object.store(object, std::memory_order_relaxed);
    first.store(entry, std::memory_order_release);
    return true;
  }

  // Forgets an object. Returns whether it was there, and what it had.
  bool remove(const void* object, Functions& functions) {
    const Lock lock(*this);
    for (Entry* entry = bucket(object).load(std::memory_order_relaxed); entry != nullptr;
         entry = entry->next) {
      if (entry->object.load(std::memory_order_relaxed) != object) continue;
      functions = entry->functions;
      entry->object.store(nullptr, std::memory_order_release);
      return true;
    }
    return false;
  }

  // For a forked child, in which the thread that had the lock is no more.
  void unlock_in_child() { locked_.clear(); }

 private:
  struct Entry {
    std::atomic<const void*> object{nullptr};
    Functions functions{};
    Entry* next = nullptr;
  };
  class Lock {
   public:
    explicit Lock(Originals& owner) : owner_(owner) {
      while (owner_.locked_.test_and_set(std::memory_order_acquire)) sched_yield();
    }
    ~Lock() { owner_.locked_.clear(std::memory_order_release); }
    Lock(const Lock&) = delete;
    Lock& operator=(const Lock&) = delete;

   private:
    Originals& owner_;
  };
  static constexpr size_t kBuckets = 1024;

  static size_t place(const void* object) {
    return (reinterpret_cast<uintptr_t>(object) >> 4) * 0x9e3779b97f4a7c15 >> 54;
  }
  std::atomic<Entry*>& bucket(const void* object) { return buckets_[place(object)]; }
  const std::atomic<Entry*>& bucket(const void* object) const { return buckets_[place(object)]; }

  std::atomic<Entry*> buckets_[kBuckets] = {};
  std::atomic_flag locked_ = ATOMIC_FLAG_INIT;
};

}  // namespace hostnic::calls
