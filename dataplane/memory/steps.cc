// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/memory/steps.h"

#include <time.h>

#include <atomic>

namespace hostnic {
namespace {

constinit std::atomic<uint32_t> short_mappings{0};

// Pauses are much shorter than a time slice: who has them is not preempted in the middle of a step,
// while it holds the lock. With the timer's slack a pause takes some 60 us.
constexpr timespec kPause{0, 10'000};
constexpr unsigned kMostPauses = 30;

}  // namespace

ShortMapping::ShortMapping() { short_mappings.fetch_add(1, std::memory_order_relaxed); }
ShortMapping::~ShortMapping() { short_mappings.fetch_sub(1, std::memory_order_relaxed); }

void let_short_mappings_pass() {
  for (unsigned i = 0; i < kMostPauses && short_mappings.load(std::memory_order_relaxed) != 0; ++i)
    nanosleep(&kPause, nullptr);
}

}  // namespace hostnic
