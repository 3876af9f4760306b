// SPDX-License-Identifier: BSD-3-Clause
// Pollers and the lcore share few cores.
#include "verbs-shim/runtime/core_sharing.h"

#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <memory>
#include <string>
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

bool is_migrated(uint64_t yield) { return (yield & YieldingPoller::kMigrated) != 0; }

class CoreSharingTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(sched_getaffinity(0, sizeof(before_), &before_), 0);
    if (CPU_COUNT(&before_) < 2) GTEST_SKIP() << "needs two processors";
  }
  void TearDown() override { sched_setaffinity(0, sizeof(before_), &before_); }

  // More busy threads than any machine has processors, or none but this one.
  static uint32_t many() { return CPU_SETSIZE + 1; }
  static uint32_t one() { return 1; }

  // Whether it yielded depends on who else runs here.
  void share(CoreSharing& cores) { (void)cores.share(now_ns_ += 10'000'000, 1); }
  // Shares the core of a busy lcore so often; returns how often that ended on another one.
  int moves_of(CoreSharing& cores, int attempts, int enough) {
    const auto cpus = allowed();
    int moves = 0;
    for (int attempt = 0; attempt < attempts && moves < enough; ++attempt) {
      const int cpu = sched_getcpu();
      doorbell_.busy_cpu.store(static_cast<uint32_t>(cpu) + 1);
      share(cores);
      if (sched_getcpu() != cpu) ++moves;
      EXPECT_EQ(allowed(), cpus);
    }
    return moves;
  }
  // A thread that begins each of its yields on a core, and may leave it.
  std::thread poll_beside(CoreSharing& cores, int cpu, const std::atomic<bool>& stop) {
    return std::thread([this, &cores, cpu, &stop] {
      while (!stop.load()) {
        pin_to(cpu);
        ASSERT_EQ(sched_setaffinity(0, sizeof(before_), &before_), 0);
        (void)cores.share(now_ns_ += 10'000'000'000, 1);
      }
    });
  }
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
  CoreSharing cores_{*header_, doorbell_, /*move_threads=*/true, many};
  // Later than any test before: the thread remembers when it moved.
  static inline TimeNs now_ns_ = monotonic_ns();
};

TEST_F(CoreSharingTest, APollerLeavesTheCoreOfABusyLcore) {
  // The kernel may move us by itself, so one attempt proves nothing.
  EXPECT_EQ(moves_of(cores_, 200, 5), 5);
}

// Watches the affinity of the thread that makes it. Whether a thread moved tells nothing, because
// the kernel moves threads as it likes.
class Affinity {
 public:
  Affinity() : tid_(gettid()), thread_([this] { watch(); }) {}
  ~Affinity() { changed(); }
  // Ends the watch. Returns whether the affinity was ever another one than at its start.
  bool changed() {
    stop_.store(true);
    if (thread_.joinable()) thread_.join();
    return changed_;
  }

 private:
  void watch() {
    cpu_set_t before, now;
    if (sched_getaffinity(tid_, sizeof(before), &before) != 0) return;
    while (!stop_.load()) {
      sched_getaffinity(tid_, sizeof(now), &now);
      changed_ |= !CPU_EQUAL(&before, &now);
    }
  }
  const pid_t tid_;
  std::atomic<bool> stop_{false};
  bool changed_ = false;
  std::thread thread_;
};

TEST_F(CoreSharingTest, NoThreadIsMovedWhereThereAreProcessorsForAllBusyThreads) {
  static std::atomic<uint32_t> counted{0};
  CoreSharing cores(*header_, doorbell_, true, [] {
    ++counted;
    return one();
  });
  Affinity affinity;
  (void)moves_of(cores, 2'000, 2'000);
  EXPECT_FALSE(affinity.changed());
  EXPECT_GT(counted.load(), 0u);
}

TEST_F(CoreSharingTest, NoThreadIsMovedWhereTheProgramForbidsIt) {
  static std::atomic<uint32_t> counted{0};
  CoreSharing cores(*header_, doorbell_, false, [] {
    ++counted;
    return many();
  });
  Affinity affinity;
  for (int i = 0; i < 5; ++i) {
    (void)moves_of(cores, 400, 400);
    now_ns_ += 1'000'000'000;
  }
  EXPECT_FALSE(affinity.changed());
  EXPECT_EQ(counted.load(), 0u) << "there was nothing to ask";
}

TEST_F(CoreSharingTest, AsManyBusyThreadsAsProcessorsAreNotTooMany) {
  static uint32_t busy = 0;
  CoreSharing cores(*header_, doorbell_, true, [] { return busy; });
  busy = static_cast<uint32_t>(CPU_COUNT(&before_));
  {
    Affinity affinity;
    (void)moves_of(cores, 2'000, 2'000);
    EXPECT_FALSE(affinity.changed());
  }
  ++busy;
  EXPECT_EQ(moves_of(cores, 200, 5), 5);
}

TEST(BusyThreads, AreThoseThatTheKernelCounts) {
  EXPECT_GE(busy_threads(), 1u) << "we run";
  EXPECT_EQ(busy_threads("/nowhere"), 0u);
  std::string path = testing::TempDir() + "loadavg";
  const auto counted = [&](const char* text) {
    std::ofstream(path) << text;
    return busy_threads(path.c_str());
  };
  EXPECT_EQ(counted("8.54 6.95 5.53 8/112 16617\n"), 8u);
  EXPECT_EQ(counted("0.00 0.00 0.00 12/3045 9\n"), 12u);
  EXPECT_EQ(counted(""), 0u);
  EXPECT_EQ(counted("8.54 6.95"), 0u);
  EXPECT_EQ(counted("8.54 6.95 5.53 x"), 0u);
  std::remove(path.c_str());
}

TEST(MoveThreads, IsAKeyOfTheEnvironment) {
  const auto with = [](const char* value) {
    setenv("HOSTNIC_MOVE_THREADS", value, 1);
    auto wanted = may_move_threads();
    unsetenv("HOSTNIC_MOVE_THREADS");
    return wanted;
  };
  EXPECT_TRUE(*may_move_threads()) << "unset";
  EXPECT_TRUE(*with(""));
  EXPECT_TRUE(*with("1"));
  EXPECT_FALSE(*with("0"));
  const auto wrong = with("off");
  ASSERT_FALSE(wrong);
  EXPECT_EQ(wrong.error().error, EINVAL);
  EXPECT_EQ(wrong.error().message, "HOSTNIC_MOVE_THREADS=off: use 0 or 1");
}

TEST_F(CoreSharingTest, APollerThatMayRunNowhereElseStays) {
  pin_to(allowed().back());
  const auto cpus = allowed();
  doorbell_.busy_cpu.store(static_cast<uint32_t>(cpus[0]) + 1);
  share(cores_);
  EXPECT_EQ(allowed(), cpus);
  EXPECT_EQ(sched_getcpu(), cpus[0]);
  now_ns_ += 1'000'000'000;  // by when it looks for a way out again
}

TEST_F(CoreSharingTest, WhileAPollerYieldsItIsKnownToComeBack) {
  share(cores_);
  EXPECT_GE(header_->polling_until_ns.load(), now_ns_ + kPollingNs);
}

// A child that kept its parent's id would be taken by others for a poller that yields.
TEST_F(CoreSharingTest, AThreadOfAForkedChildGoesByItsOwnId) {
  share(cores_);
  const pid_t child = fork();
  if (child == 0) {
    forget_own_tid();  // as the library's fork handler does
    std::atomic<bool> stop{false};
    std::atomic<uint32_t> seen{0};
    const auto own = static_cast<uint32_t>(gettid());
    std::thread watcher([&] {
      while (!stop.load())
        if (const uint32_t tid = cores_.yielding().yield.load(); tid != 0) seen.store(tid);
    });
    for (const TimeNs until_ns = monotonic_ns() + 10'000'000'000;
         seen.load() == 0 && monotonic_ns() < until_ns;)
      share(cores_);
    stop.store(true);
    watcher.join();
    _exit(seen.load() == own ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST_F(CoreSharingTest, APollerInACrowdNapsWhenItHasWaitedForAWhile) {
  doorbell_.crowded.store(1);
  for (uint32_t rounds = kRoundsBeforeNap; rounds < kRoundsBeforeNap + 10; ++rounds)
    EXPECT_FALSE(cores_.share(now_ns_ += 10'000'000, rounds));
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

TEST_F(CoreSharingTest, APollerWhoseYieldsAreUsedNapsWherePacketsAreWorkForOthers) {
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
        if (!cores_.share(begin_ns, kRoundsBeforeNap)) return;
        const TimeNs end_ns = monotonic_ns();
        used = end_ns - begin_ns > 5'000 && end_ns - begin_ns < 200'000;
        again = cores_.share(end_ns, kRoundsBeforeNap);
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
TEST_F(CoreSharingTest, APollerAloneOnItsCoreYieldsLessOften) {
  const auto cpus = allowed();
  std::thread([&] {
    pin_to(cpus.back());
    const uint32_t alone = polls_before_sharing();
    const auto polls_after_a_yield = [&](TimeNs at_least_ns, TimeNs at_most_ns) {
      for (int attempt = 0; attempt < 200'000; ++attempt) {
        const TimeNs begin_ns = monotonic_ns();
        if (!cores_.share(begin_ns, 1)) continue;
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

// Computes on a core until it ends, so that a yield there lasts.
class Stranger {
 public:
  explicit Stranger(int cpu)
      : thread_([this, cpu] {
          pin_to(cpu);
          while (!stop_.load()) {
          }
        }) {}
  ~Stranger() {
    stop_.store(true);
    thread_.join();
  }
  Stranger(const Stranger&) = delete;
  Stranger& operator=(const Stranger&) = delete;

 private:
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

// A stranger computes on the poller's core. The service thread is woken on another one, or there.
class PreemptedPoller : public CoreSharingTest, public testing::WithParamInterface<bool> {};

TEST_P(PreemptedPoller, IsMigrated) {
  const auto cpus = allowed();
  const int crowded = cpus.front(), migrator = GetParam() ? crowded : cpus.back();
  std::atomic<bool> stop{false};
  const Stranger stranger(crowded);
  std::atomic<int> migrated{0};
  std::thread poller([&] {
    while (!stop.load()) {
      pin_to(crowded);
      ASSERT_EQ(sched_setaffinity(0, sizeof(before_), &before_), 0);
      // Now and then: the yields would be costly.
      (void)cores_.share(now_ns_ += 10'000'000'000, 1);
      ASSERT_EQ(allowed(), cpus);
      ASSERT_EQ(cores_.yielding().yield.load(), 0u);
    }
  });
  pin_to(migrator);
  for (const TimeNs until_ns = monotonic_ns() + 10'000'000'000;
       migrated.load() < 5 && monotonic_ns() < until_ns;) {
    const uint64_t yield = cores_.yielding().yield.load();
    if (yield == 0 || is_migrated(yield)) continue;
    // Not yet: it has only begun.
    cores_.migrate_preempted_poller(cores_.yielding().since_ns.load() + 1'000);
    EXPECT_FALSE(is_migrated(cores_.yielding().yield.load()));
    cores_.migrate_preempted_poller(cores_.yielding().since_ns.load() + 1'000'000);
    if (is_migrated(cores_.yielding().yield.load())) ++migrated;
  }
  stop.store(true);
  poller.join();
  EXPECT_EQ(migrated.load(), 5);
}

TEST_F(CoreSharingTest, APreemptedPollerStaysWhereItMayNotBeMoved) {
  CoreSharing enough(*header_, doorbell_, true, one);
  CoreSharing forbidden(*header_, doorbell_, false, many);
  for (CoreSharing* cores : {&enough, &forbidden}) {
    const auto cpus = allowed();
    std::atomic<bool> stop{false};
    std::thread poller([&] {
      pin_to(cpus.front());
      ASSERT_EQ(sched_setaffinity(0, sizeof(before_), &before_), 0);
      while (!stop.load()) (void)cores->share(now_ns_ += 10'000'000'000, 1);
    });
    int found = 0;
    for (const TimeNs until_ns = monotonic_ns() + 10'000'000'000;
         found < 1'000 && monotonic_ns() < until_ns;) {
      if (cores->yielding().yield.load() == 0) continue;
      ++found;
      cores->migrate_preempted_poller(cores->yielding().since_ns.load() + 1'000'000);
      EXPECT_FALSE(is_migrated(cores->yielding().yield.load()));
    }
    stop.store(true);
    poller.join();
    EXPECT_EQ(found, 1'000);
  }
}

INSTANTIATE_TEST_SUITE_P(BySomebody, PreemptedPoller, testing::Bool(),
                         [](const testing::TestParamInfo<bool>& by) {
                           return by.param ? "OnItsCore" : "OnAnother";
                         });

// The affinity that a migrator has read may be the next yield's no more: a poller that leaves a
// core narrows its own for a moment.
TEST_F(CoreSharingTest, TheYieldBehindTheOneLookedAtIsNotMigrated) {
  static const YieldingPoller* yielding = nullptr;
  static std::atomic<uint32_t> later = 0;
  const auto later_yield = [] {
    const uint64_t looked_at = yielding->yield.load();
    const TimeNs until_ns = monotonic_ns() + 1'000'000'000;
    for (uint64_t now = looked_at; (now == looked_at || now == 0) && monotonic_ns() < until_ns;)
      now = yielding->yield.load();
    ++later;
    return many();
  };
  CoreSharing cores(*header_, doorbell_, true, later_yield);
  yielding = &cores.yielding();
  const auto cpus = allowed();
  const Stranger stranger(cpus.front());
  std::atomic<bool> stop{false};
  std::thread poller = poll_beside(cores, cpus.front(), stop);
  pin_to(cpus.back());
  while (later.load() < 20) {
    if (cores.yielding().yield.load() == 0) continue;
    cores.migrate_preempted_poller(cores.yielding().since_ns.load() + 1'000'000);
    EXPECT_FALSE(is_migrated(cores.yielding().yield.load()));
  }
  stop.store(true);
  poller.join();
}

// Launchers and thread pools pin threads that run already: where one may run is then where it is
// to be brought, and nothing changes that its poller could wait for.
TEST_F(CoreSharingTest, APollerThatIsPinnedInItsYieldComesBackFromIt) {
  const auto cpus = allowed();
  const Stranger stranger(cpus.front());
  std::atomic<bool> stop{false};
  std::thread poller = poll_beside(cores_, cpus.front(), stop);
  pin_to(cpus.back());
  cpu_set_t back;
  CPU_ZERO(&back);
  CPU_SET(cpus.back(), &back);
  for (int pinned = 0; pinned < 20;) {
    const uint64_t yield = cores_.yielding().yield.load();
    if (yield == 0 || is_migrated(yield)) continue;
    if (sched_setaffinity(YieldingPoller::thread(yield), sizeof(back), &back) != 0) continue;
    cores_.migrate_preempted_poller(cores_.yielding().since_ns.load() + 1'000'000);
    ++pinned;
    while (cores_.yielding().yield.load() == yield) sched_yield();
  }
  stop.store(true);
  poller.join();
}

TEST_F(CoreSharingTest, APollerThatMayRunNowhereElseIsNotFetched) {
  const auto cpus = allowed();
  std::thread poller([&] {
    pin_to(cpus.front());
    for (int i = 0; i < 1'000; ++i) (void)cores_.share(now_ns_ += 10'000'000'000, 1);
    EXPECT_EQ(allowed(), std::vector<int>{cpus.front()});
  });
  pin_to(cpus.back());
  for (int i = 0; i < 1'000; ++i) {
    cores_.migrate_preempted_poller(cores_.yielding().since_ns.load() + 1'000'000);
    EXPECT_FALSE(is_migrated(cores_.yielding().yield.load()));
  }
  poller.join();
}

TEST_F(CoreSharingTest, APollerThatNapsSaysSoWhereTheNicWakesIt) {
  announce_nap(*header_);
  EXPECT_EQ(header_->poller_naps.load(), 1u);
  cores_.nap();  // ends by itself
}

}  // namespace
}  // namespace hostnic::runtime
