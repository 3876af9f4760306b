// SPDX-License-Identifier: BSD-3-Clause
// What mappings of clients' memory cost hostnicd itself. The kernel makes a page table of 4 KiB for
// each 2 MiB of addresses in which a page was touched, and another one for each GiB, charges them
// to hostnicd's control group, and keeps them until the mapping goes. Memory that lies together
// costs a five hundredth of itself; pages that lie alone cost as much as they are.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

namespace hostnic {

// How many page tables somebody may have, and has. Lcores take some as well: nothing here waits.
class PageTableBudget {
 public:
  // What is taken here is taken of `whole`, too, if there is one.
  explicit PageTableBudget(uint64_t most, std::shared_ptr<PageTableBudget> whole = nullptr)
      : most_(most), whole_(std::move(whole)) {}
  PageTableBudget(const PageTableBudget&) = delete;
  PageTableBudget& operator=(const PageTableBudget&) = delete;

  // Takes so many, or none and returns false. [any thread]
  bool take(uint64_t count);
  void give_back(uint64_t count);  // [any thread]
  uint64_t taken() const { return taken_.load(std::memory_order_relaxed); }
  uint64_t most() const { return most_; }

 private:
  const uint64_t most_;
  const std::shared_ptr<PageTableBudget> whole_;
  std::atomic<uint64_t> taken_{0};
};

// The budgets of all users but hostnicd's own and root, who have none. [any thread]
class PageTableBudgets {
 public:
  // `of_user` is the most of each, twice of which is the most of all together.
  explicit PageTableBudgets(uint64_t of_user)
      : of_user_(of_user), all_(std::make_shared<PageTableBudget>(2 * of_user)) {}

  // All of a user's devices get the same one, while one of them has it.
  std::shared_ptr<PageTableBudget> of(uint32_t stranger);
  const PageTableBudget& all() const { return *all_; }

 private:
  const uint64_t of_user_;
  const std::shared_ptr<PageTableBudget> all_;
  std::mutex mutex_;
  std::map<uint32_t, std::weak_ptr<PageTableBudget>> of_users_;
};

// The page tables of one mapping: those of all addresses that were ever used. They are given back
// with the object, which ends after the mapping. One thread at a time.
class PageTables {
 public:
  static constexpr uint64_t kTableBytes = 4096;
  static constexpr uint64_t kSpanBytes = uint64_t{2} << 20;  // what one serves

  // Of an empty mapping, which has none.
  PageTables() = default;
  // Without a budget nothing is counted.
  PageTables(const std::byte* start, uint64_t length_bytes,
             std::shared_ptr<PageTableBudget> budget);
  PageTables(PageTables&& other) noexcept { *this = std::move(other); }
  PageTables& operator=(PageTables&& other) noexcept;
  ~PageTables() { reset(); }

  // Counts those of a part of the mapping, not empty, that may be touched from now on. Returns
  // false, and counts none, if the budget has not as many.
  bool use(const std::byte* at, uint64_t length_bytes);
  uint64_t count() const { return count_; }

 private:
  static constexpr uint64_t kWordSpans = 64, kGigabyteWords = 8;

  bool is_used(uint64_t span) const {
    return (used_[span / kWordSpans] >> (span % kWordSpans) & 1) != 0;
  }
  bool is_gigabyte_used(uint64_t span) const;
  void reset();

  uint64_t first_span_ = 0;     // the mapping's first gigabyte begins there
  std::vector<uint64_t> used_;  // a bit for each span, of whole gigabytes
  uint64_t count_ = 0;
  std::shared_ptr<PageTableBudget> budget_;
};

}  // namespace hostnic
