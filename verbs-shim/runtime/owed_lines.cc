// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/runtime/owed_lines.h"

#include <cstdlib>
#include <iterator>
#include <utility>

#include "verbs-shim/base/clock.h"

namespace hostnic::runtime {
namespace {

constexpr uint32_t kSettleEveryNs = 5'000'000;
// The service thread has other work: hostnicd is asked for so long at a time.
constexpr uint64_t kSettleNs = 20'000'000;

// Those that have owed a line, whose process may end before it is said.
struct Owing {
  std::mutex mutex;
  std::vector<OwedLines*> all;
};
Owing& owing() {
  static auto* const them = new Owing;
  return *them;
}

}  // namespace

OwedLines::~OwedLines() {
  finish();
  if (!is_known_) return;
  const std::lock_guard lock(owing().mutex);
  std::erase(owing().all, this);
}

void OwedLines::add(const driver::OwedLine& line, TimeNs now_ns) {
  bool is_first = false;
  {
    const std::lock_guard lock(mutex_);
    if (count_.load(std::memory_order_relaxed) < kMost) {
      lines_.push_back({line, now_ns + kLimitNs});
      count_.fetch_add(1, std::memory_order_relaxed);
      is_first = !std::exchange(is_known_, true);
      if (!is_first) return;
    }
  }
  if (!is_first) return say_(line, {});
  [[maybe_unused]] static const int once = atexit(finish_all);
  const std::lock_guard lock(owing().mutex);
  owing().all.push_back(this);
}

bool OwedLines::settle(TimeNs now_ns) {
  if (!any()) return false;
  std::vector<Kept> taken;
  {
    const std::lock_guard lock(mutex_);
    taken.swap(lines_);
  }
  std::vector<Kept> kept;
  const TimeNs end_ns = monotonic_ns() + kSettleNs;
  for (Kept& each : taken) {
    const bool may_ask = monotonic_ns() < end_ns;
    const auto why = may_ask ? ask_(each.line.request) : std::nullopt;
    const bool is_asking = !why || why->ticket != 0;
    if (why) each.line.request.ticket = why->ticket;
    if (is_asking && now_ns < each.until_ns) {
      kept.push_back(std::move(each));
      continue;
    }
    say_(each.line, why ? why->text : std::string());
    count_.fetch_sub(1, std::memory_order_relaxed);
  }
  const std::lock_guard lock(mutex_);
  lines_.insert(lines_.begin(), std::make_move_iterator(kept.begin()),
                std::make_move_iterator(kept.end()));
  return any();
}

// Lines that another thread is about to say are waited for, too.
void OwedLines::finish() {
  const TimeNs end_ns = monotonic_ns() + kLimitNs + kLimitNs / 4;
  while (settle(monotonic_ns()) && monotonic_ns() < end_ns) pause_for(kSettleEveryNs);
}

void OwedLines::finish_all() {
  // A forked child may have inherited a mutex that nobody gives back.
  const std::unique_lock lock(owing().mutex, std::try_to_lock);
  if (!lock) return;
  for (OwedLines* const each : owing().all) each->finish();
}

}  // namespace hostnic::runtime
