// SPDX-License-Identifier: BSD-3-Clause
// Pollers and the lcore share few cores.
#include "verbs-shim/runtime/core_sharing.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <thread>
#include <vector>

#include "protocol/hostif/yield_cost.h"
#include "verbs-shim/base/clock.h"

namespace hostnic::runtime {
namespace {

void pin_to(int cpu) {
  cpu_set_t one;
  CPU_ZERO(&one);
  CPU_SET(cpu, &one);
  ASSERT_EQ(sched_setaffinity(0, sizeof(one), &one), 0);
}

class CoreSharing : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(sched_getaffinity(0, sizeof(before_), &before_), 0);
    if (CPU_COUNT(&before_) < 2) GTEST_SKIP() << "needs two processors";
  }
  void TearDown() override { sched_setaffinity(0, sizeof(before_), &before_); }

  // Whether it yielded depends on who else runs here.
  void share() { (void)share_core(*header_, doorbell_, yielding_, now_ns_ += 10'000'000, 1); }
  static std::vector<int> allowed() {
    cpu_set_t set;
    std::vector<int> cpus;
    if (sched_getaffinity(0, sizeof(set), &set) != 0) return cpus;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
      if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
    return cpus;
  }

  cpu_set_t before_;
  std::unique_ptr<SegmentHeader> header_ = std::make_unique<SegmentHeader>();
  DoorbellPage doorbell_{};
  YieldingPoller yielding_;
  // Later than any test before: the thread remembers when it moved.
  static inline TimeNs now_ns_ = monotonic_ns();
};

TEST_F(CoreSharing, APollerLeavesTheCoreOfABusyLcore) {
  const auto cpus = allowed();
  // The kernel may move us by itself, so one attempt proves nothing.
  int moves = 0;
  for (int attempt = 0; attempt < 200 && moves < 5; ++attempt) {
    const int cpu = sched_getcpu();
    doorbell_.busy_cpu.store(static_cast<uint32_t>(cpu) + 1);
    share();
    if (sched_getcpu() != cpu) ++moves;
    ASSERT_EQ(allowed(), cpus);
  }
  EXPECT_EQ(moves, 5);
}

TEST_F(CoreSharing, APollerThatMayRunNowhereElseStays) {
  pin_to(allowed().back());
  const auto cpus = allowed();
  doorbell_.busy_cpu.store(static_cast<uint32_t>(cpus[0]) + 1);
  share();
  EXPECT_EQ(allowed(), cpus);
  EXPECT_EQ(sched_getcpu(), cpus[0]);
  now_ns_ += 1'000'000'000;  // by when it looks for a way out again
}

TEST_F(CoreSharing, WhileAPollerYieldsItIsKnownToComeBack) {
  share();
  EXPECT_GE(header_->polling_until_ns.load(), now_ns_ + kPollingNs);
}

// Of whom others would else believe that it yields.
TEST_F(CoreSharing, AThreadOfAForkedChildGoesByItsOwnId) {
  share();
  const pid_t child = fork();
  if (child == 0) {
    forget_own_tid();  // as the library's fork handler does
    std::atomic<bool> stop{false};
    std::atomic<uint32_t> seen{0};
    const auto own = static_cast<uint32_t>(gettid());
    std::thread watcher([&] {
      while (!stop.load())
        if (const uint32_t tid = yielding_.tid.load(); tid != 0) seen.store(tid);
    });
    for (const TimeNs until_ns = monotonic_ns() + 10'000'000'000;
         seen.load() == 0 && monotonic_ns() < until_ns;)
      share();
    stop.store(true);
    watcher.join();
    _exit(seen.load() == own ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(CoreSharing, APollerInACrowdNapsWhenItHasWaitedForAWhile) {
  doorbell_.crowded.store(1);
  for (uint32_t rounds = kRoundsBeforeNap; rounds < kRoundsBeforeNap + 10; ++rounds)
    EXPECT_FALSE(share_core(*header_, doorbell_, yielding_, now_ns_ += 10'000'000, rounds));
  EXPECT_GE(header_->polling_until_ns.load(), now_ns_ + kPollingNs) << "it comes back";
}

// A partner on this core that works for a moment at a time, and yields.
class Partner {
 public:
  explicit Partner(int cpu) : thread_([this, cpu] { run(cpu); }) {}
  ~Partner() {
    stop_.store(true);
    thread_.join();
  }

 private:
  void run(int cpu) {
    pin_to(cpu);
    while (!stop_.load()) {
      for (const TimeNs until_ns = monotonic_ns() + 10'000; monotonic_ns() < until_ns;) {
      }
      sched_yield();
    }
  }
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

TEST_F(CoreSharing, APollerWhoseYieldsAreUsedNapsWherePacketsAreWorkForOthers) {
  const auto cpus = allowed();
  doorbell_.busy_cpu.store(static_cast<uint32_t>(cpus.front()) + 1);
  const Partner partner(cpus.back());
  // What a poller does after a yield that the partner used, and no stranger: a new thread each
  // time, which remembers nothing.
  const auto yields_again = [&] {
    bool again = false;
    bool used = false;
    for (int attempt = 0; !used && attempt < 20'000; ++attempt) {
      std::thread([&] {
        pin_to(cpus.back());
        const TimeNs begin_ns = monotonic_ns();
        if (!share_core(*header_, doorbell_, yielding_, begin_ns, kRoundsBeforeNap)) return;
        const TimeNs end_ns = monotonic_ns();
        used = end_ns - begin_ns > 5'000 && end_ns - begin_ns < 200'000;
        again = share_core(*header_, doorbell_, yielding_, end_ns, kRoundsBeforeNap);
      }).join();
    }
    EXPECT_TRUE(used) << "no yield took as long as a partner's";
    return again;
  };
  doorbell_.serves_ethernet.store(1);
  EXPECT_FALSE(yields_again());
  doorbell_.serves_ethernet.store(0);
  EXPECT_TRUE(yields_again());
}

// Each yield is a while without a look.
TEST_F(CoreSharing, APollerAloneOnItsCoreYieldsLessOften) {
  const auto cpus = allowed();
  std::thread([&] {
    pin_to(cpus.back());
    const uint32_t alone = polls_before_sharing();
    const auto polls_after_a_yield = [&](TimeNs at_least_ns, TimeNs at_most_ns) {
      for (int attempt = 0; attempt < 200'000; ++attempt) {
        const TimeNs begin_ns = monotonic_ns();
        if (!share_core(*header_, doorbell_, yielding_, begin_ns, 1)) continue;
        const TimeNs took_ns = monotonic_ns() - begin_ns;
        if (took_ns >= at_least_ns && took_ns < at_most_ns) return polls_before_sharing();
      }
      return 0u;
    };
    {
      const Partner partner(cpus.back());
      EXPECT_LT(polls_after_a_yield(5'000, 200'000), alone);
    }
    // Where a yield takes longer, in a debugging build, it passes for used.
    const uint32_t polls = polls_after_a_yield(0, kYieldUsedNs);
    EXPECT_TRUE(polls == alone || polls == 0) << polls;
  }).join();
}

// A stranger computes on the poller's core. The service thread is woken on another one, or there.
class PreemptedPoller : public CoreSharing, public testing::WithParamInterface<bool> {};

TEST_P(PreemptedPoller, IsMigrated) {
  const auto cpus = allowed();
  const int crowded = cpus.front(), migrator = GetParam() ? crowded : cpus.back();
  std::atomic<bool> stop{false};
  std::thread stranger([&] {
    pin_to(crowded);
    while (!stop.load()) {
    }
  });
  std::atomic<int> migrated{0};
  std::thread poller([&] {
    while (!stop.load()) {
      pin_to(crowded);
      ASSERT_EQ(sched_setaffinity(0, sizeof(before_), &before_), 0);
      // Now and then: the yields would be costly.
      (void)share_core(*header_, doorbell_, yielding_, now_ns_ += 10'000'000'000, 1);
      ASSERT_EQ(allowed(), cpus);
      ASSERT_EQ(yielding_.tid.load(), 0u);
    }
  });
  pin_to(migrator);
  for (const TimeNs until_ns = monotonic_ns() + 10'000'000'000;
       migrated.load() < 5 && monotonic_ns() < until_ns;) {
    const uint32_t tid = yielding_.tid.load();
    if (tid == 0 || (tid & YieldingPoller::kMigrated) != 0) continue;
    // Not yet: it has only begun.
    migrate_preempted_poller(yielding_, yielding_.since_ns.load() + 1'000);
    EXPECT_EQ(yielding_.tid.load() & YieldingPoller::kMigrated, 0u);
    migrate_preempted_poller(yielding_, yielding_.since_ns.load() + 1'000'000);
    if ((yielding_.tid.load() & YieldingPoller::kMigrated) != 0) ++migrated;
  }
  stop.store(true);
  stranger.join();
  poller.join();
  EXPECT_EQ(migrated.load(), 5);
}
INSTANTIATE_TEST_SUITE_P(BySomebody, PreemptedPoller, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& by) {
                           return by.param ? "OnItsCore" : "OnAnother";
                         });

TEST_F(CoreSharing, APollerThatMayRunNowhereElseIsNotFetched) {
  const auto cpus = allowed();
  std::thread poller([&] {
    pin_to(cpus.front());
    for (int i = 0; i < 1'000; ++i)
      (void)share_core(*header_, doorbell_, yielding_, now_ns_ += 10'000'000'000, 1);
    EXPECT_EQ(allowed(), std::vector<int>{cpus.front()});
  });
  pin_to(cpus.back());
  for (int i = 0; i < 1'000; ++i) {
    migrate_preempted_poller(yielding_, yielding_.since_ns.load() + 1'000'000);
    EXPECT_EQ(yielding_.tid.load() & YieldingPoller::kMigrated, 0u);
  }
  poller.join();
}

TEST_F(CoreSharing, APollerThatNapsSaysSoWhereTheNicWakesIt) {
  announce_nap(*header_);
  EXPECT_EQ(header_->poller_naps.load(), 1u);
  nap(*header_);  // ends by itself
}

}  // namespace
}  // namespace hostnic::runtime
