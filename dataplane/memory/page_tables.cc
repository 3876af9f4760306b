// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/memory/page_tables.h"

#include <algorithm>
#include <span>
#include <utility>

namespace hostnic {

bool PageTableBudget::take(uint64_t count) {
  uint64_t taken = taken_.load(std::memory_order_relaxed);
  do {
    if (count > most_ - taken) return false;
  } while (!taken_.compare_exchange_weak(taken, taken + count, std::memory_order_relaxed));
  if (whole_ == nullptr || whole_->take(count)) return true;
  taken_.fetch_sub(count, std::memory_order_relaxed);
  return false;
}

void PageTableBudget::give_back(uint64_t count) {
  taken_.fetch_sub(count, std::memory_order_relaxed);
  if (whole_ != nullptr) whole_->give_back(count);
}

std::shared_ptr<PageTableBudget> PageTableBudgets::of(uint32_t stranger) {
  const std::lock_guard lock(mutex_);
  std::erase_if(of_users_, [](const auto& each) { return each.second.expired(); });
  std::weak_ptr<PageTableBudget>& known = of_users_[stranger];
  std::shared_ptr<PageTableBudget> budget = known.lock();
  if (budget == nullptr) known = budget = std::make_shared<PageTableBudget>(of_user_, all_);
  return budget;
}

PageTables::PageTables(const std::byte* start, uint64_t length_bytes,
                       std::shared_ptr<PageTableBudget> budget)
    : budget_(std::move(budget)) {
  if (budget_ == nullptr) return;
  constexpr uint64_t kGigabyteSpans = kWordSpans * kGigabyteWords;
  const auto begin = reinterpret_cast<uintptr_t>(start);
  first_span_ = begin / kSpanBytes / kGigabyteSpans * kGigabyteSpans;
  const uint64_t end_span = (begin + length_bytes + kSpanBytes - 1) / kSpanBytes;
  used_.resize((end_span - first_span_ + kGigabyteSpans - 1) / kGigabyteSpans * kGigabyteWords);
}

PageTables& PageTables::operator=(PageTables&& other) noexcept {
  if (this == &other) return *this;
  reset();
  first_span_ = other.first_span_;
  used_ = std::move(other.used_);
  count_ = std::exchange(other.count_, 0);
  budget_ = std::move(other.budget_);
  return *this;
}

void PageTables::reset() {
  if (budget_ != nullptr) budget_->give_back(count_);
  count_ = 0;
}

bool PageTables::is_gigabyte_used(uint64_t span) const {
  const uint64_t first = span / kWordSpans / kGigabyteWords * kGigabyteWords;
  const auto words = std::span(used_).subspan(first, kGigabyteWords);
  return std::ranges::any_of(words, [](uint64_t word) { return word != 0; });
}

bool PageTables::use(const std::byte* at, uint64_t length_bytes) {
  if (budget_ == nullptr) return true;
  const auto begin = reinterpret_cast<uintptr_t>(at);
  const uint64_t first = begin / kSpanBytes - first_span_;
  const uint64_t last = (begin + length_bytes - 1) / kSpanBytes - first_span_;
  uint64_t more = 0;
  for (uint64_t span = first; span <= last; ++span) {
    const bool is_first_there = span == first || span % (kWordSpans * kGigabyteWords) == 0;
    if (is_first_there && !is_gigabyte_used(span)) ++more;
    if (!is_used(span)) ++more;
  }
  if (more == 0) return true;
  if (!budget_->take(more)) return false;
  for (uint64_t span = first; span <= last; ++span)
    used_[span / kWordSpans] |= uint64_t{1} << (span % kWordSpans);
  count_ += more;
  return true;
}

}  // namespace hostnic
