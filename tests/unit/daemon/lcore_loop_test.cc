// SPDX-License-Identifier: BSD-3-Clause
// The lcore loop: tasks, sleeping, and that no wake-up is ever lost.
#include "dataplane/daemon/lcore/lcore_loop.h"

#include <gtest/gtest.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "dataplane/daemon/lcore/clock.h"

namespace hostnic {
namespace {

using namespace std::chrono_literals;

// A NIC whose work is a number that producers raise.
class FakeNic : public Pollable {
 public:
  uint32_t poll(TimeNs) override {
    ++polls;
    inside.store(true);
    for (int i = 0; i < spins; ++i) std::atomic_signal_fence(std::memory_order_seq_cst);
    inside.store(false);
    const uint32_t waiting = seen();
    const uint32_t work = waiting - done.load(std::memory_order_relaxed);
    done.store(waiting, std::memory_order_release);
    return always_works ? work + 1 : work;
  }
  TimeNs next_deadline_ns() const override { return deadline_ns.load(); }
  bool work_waiting() override { return seen() != done.load(); }
  bool needs_tick() const override { return tick; }
  bool delivered_to(uint32_t) override { return false; }

  uint32_t seen() const {
    return monotonic_now_ns() < visible_from_ns.load() ? done.load()
                                                       : published.load(std::memory_order_acquire);
  }

  std::atomic<uint32_t> published{0}, done{0};
  std::atomic<TimeNs> visible_from_ns{0};  // what is published is not seen before
  std::atomic<uint64_t> polls{0};
  std::atomic<TimeNs> deadline_ns{UINT64_MAX};
  std::atomic<bool> inside{false}, always_works{false};
  int spins = 0;
  bool tick = false;
};

bool eventually(const auto& condition, std::chrono::milliseconds limit = 5s) {
  const auto end = std::chrono::steady_clock::now() + limit;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(100us);
  }
  return true;
}

class LcoreLoopTest : public testing::Test {
 protected:
  void start(const LcoreIdle& idle = {}, int arrivals = -1) {
    auto made = LcoreLoop::create(idle);
    ASSERT_TRUE(made) << made.error();
    loop_ = std::move(*made);
    if (arrivals >= 0) {
      ASSERT_EQ(loop_->watch_arrivals(arrivals), 0);
    }
    loop_->add(&nic_);
    thread_ = std::thread([this] { loop_->run(); });
  }
  void TearDown() override {
    if (loop_ == nullptr) return;
    loop_->request_stop();
    thread_.join();
  }
  bool sleeps() {
    return eventually([&] { return loop_->sleeping(); });
  }

  FakeNic nic_;
  std::unique_ptr<LcoreLoop> loop_;
  std::thread thread_;
};

TEST_F(LcoreLoopTest, TasksRunOnTheLcoreAndHaveRunOnReturn) {
  start();
  for (int i = 0; i < 200; ++i) {
    std::thread::id where;
    if (i % 20 == 0) {
      ASSERT_TRUE(sleeps());
    }
    loop_->run_on([&] { where = std::this_thread::get_id(); });
    ASSERT_EQ(where, thread_.get_id());
  }
}

// Having run a task is the quiescent point of the MR table: no turn, which may hold a pointer into
// it, is going on, and none that began before goes on afterwards.
TEST_F(LcoreLoopTest, Rule12_ATaskIsAQuiescentPoint) {
  LcoreIdle idle;
  idle.policy = IdlePolicy::kPoll;
  nic_.spins = 5000;
  start(idle);
  for (int i = 0; i < 300; ++i) {
    ASSERT_TRUE(eventually([&] { return nic_.inside.load(); }));
    bool inside = true;
    const uint64_t polls = nic_.polls.load();
    loop_->run_on([&] {
      inside = nic_.inside.load();
      EXPECT_GE(nic_.polls.load(), polls);
    });
    ASSERT_FALSE(inside) << "in the middle of a turn";
  }
}

TEST_F(LcoreLoopTest, TasksOfSeveralThreadsAllRun) {
  start();
  uint32_t sum = 0;  // the lcore's, so needs no atomic
  std::vector<std::thread> threads;
  for (int t = 0; t < 4; ++t)
    threads.emplace_back([&] {
      for (int i = 0; i < 500; ++i) loop_->run_on([&] { ++sum; });
    });
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(sum, 2000u);
}

// The longest turn is in time that the lcore had a processor, or slept: a task that sleeps keeps
// all others waiting. Time that the lcore waited for a processor shortly before the task is taken
// off as well, so that a busy machine may need several tries.
TEST_F(LcoreLoopTest, SaysHowLongItsLongestTurnWas) {
  start();
  const auto longest_of = [this](const std::function<void()>& task) {
    loop_->run_on([&] {
      loop_->clear_longest_turn();
      task();
    });
    loop_->run_on([] {});
    return loop_->longest_turn_ns();
  };
  const auto reaches = [&](uint64_t least_ns, const std::function<void()>& task) {
    for (int tries = 0; tries < 50; ++tries)
      if (longest_of(task) >= least_ns) return true;
    return false;
  };
  EXPECT_TRUE(reaches(50'000'000, [] { std::this_thread::sleep_for(50ms); }));
  EXPECT_TRUE(reaches(60'000'000, [] {
    const uint64_t begin_ns = thread_cpu_now_ns();
    while (thread_cpu_now_ns() - begin_ns < 60'000'000) continue;
  }));
}

TEST_F(LcoreLoopTest, SleepsWithoutWorkAndThenPollsNoMore) {
  start();
  ASSERT_TRUE(sleeps());
  const uint64_t turns = loop_->turns();
  std::this_thread::sleep_for(50ms);
  EXPECT_LE(loop_->turns(), turns + 2);
}

TEST_F(LcoreLoopTest, NeverSleepsWithThePollPolicy) {
  LcoreIdle idle;
  idle.policy = IdlePolicy::kPoll;
  start(idle);
  // It may be long before the lcore gets a processor.
  for (int tries = 0; tries < 1000 && loop_->turns() <= 100; ++tries)
    std::this_thread::sleep_for(20ms);
  EXPECT_GT(loop_->turns(), 100u);
  EXPECT_EQ(loop_->sleeps(), 0u);
}

// The heart of it: a producer that publishes and looks at the sleep word at every phase of the
// lcore's falling asleep, some 1 us after its last work. Without the fences it hangs once in some
// ten thousand rounds.
TEST_F(LcoreLoopTest, Rule34_NoWakeUpIsLost) {
  LcoreIdle idle;
  idle.linger_ns = 0;
  start(idle);
  for (uint32_t i = 1; i <= 150'000; ++i) {
    nic_.published.store(i, std::memory_order_release);
    loop_->ring();
    const TimeNs published_ns = monotonic_now_ns();
    while (nic_.done.load(std::memory_order_acquire) != i)
      ASSERT_LT(monotonic_now_ns() - published_ns, 5'000'000'000u) << "round " << i;
    const TimeNs next_ns = monotonic_now_ns() + i * 7 % 4001;
    while (monotonic_now_ns() < next_ns) {
    }
  }
  EXPECT_GT(loop_->sleeps(), 1000u) << "the test hardly ever met a sleeping lcore";
}

// What a program hands over in the very moment in which the lcore falls asleep, neither may see of
// the other where membarrier does not reach the program's processor.
TEST_F(LcoreLoopTest, WorkThatNobodyRangForIsFoundSoonAfterItFellAsleep) {
  start();
  for (uint32_t round = 1; round <= 20; ++round) {
    ASSERT_TRUE(sleeps());
    // Seen only when it has fallen asleep again.
    nic_.visible_from_ns = monotonic_now_ns() + 400'000;
    nic_.published = round;
    loop_->ring();
    ASSERT_TRUE(eventually([&] { return nic_.done.load() == round; })) << "round " << round;
  }
}

TEST_F(LcoreLoopTest, AClientsEventfdWakesItAgainAndAgain) {
  start();
  const UniqueFd doorbell(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  ASSERT_EQ(loop_->watch(doorbell.get()), 0);
  for (uint32_t i = 1; i <= 50; ++i) {
    ASSERT_TRUE(sleeps());
    nic_.published.store(i);
    eventfd_write(doorbell.get(), 1);  // nobody reads it
    ASSERT_TRUE(eventually([&] { return nic_.done.load() == i; })) << i;
  }
  loop_->unwatch(doorbell.get());
  ASSERT_TRUE(sleeps());
  const uint64_t turns = loop_->turns();
  eventfd_write(doorbell.get(), 1);
  std::this_thread::sleep_for(20ms);
  EXPECT_LE(loop_->turns(), turns + 2) << "a client that is gone still wakes the lcore";
}

// Whether some epoll set of this process looks at it.
bool somebody_watches(int fd) {
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fdinfo")) {
    std::ifstream lines(entry.path());
    std::string word;
    for (int watched = -1; lines >> word;)
      if (word == "tfd:" && lines >> watched && watched == fd) return true;
  }
  return false;
}

// Each packet would cost its sender a wake-up of somebody who is awake.
TEST_F(LcoreLoopTest, ABusyLcoreListensForPacketsOnlyBeforeItSleeps) {
  const UniqueFd socket(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  nic_.always_works = true;
  start({}, socket.get());
  EXPECT_TRUE(eventually([&] { return !somebody_watches(socket.get()); }));
  nic_.always_works = false;
  for (uint32_t i = 1; i <= 5; ++i) {
    // The flag goes up first: who rings from then on is heard.
    ASSERT_TRUE(sleeps());
    ASSERT_TRUE(eventually([&] { return somebody_watches(socket.get()); }));
    nic_.published.store(i);
    eventfd_write(socket.get(), 1);
    ASSERT_TRUE(eventually([&] { return nic_.done.load() == i; })) << i;
  }
}

TEST_F(LcoreLoopTest, KeepsADeadlineWhileAsleep) {
  start();
  ASSERT_TRUE(sleeps());
  const TimeNs due_ns = monotonic_now_ns() + 30'000'000;
  nic_.deadline_ns = due_ns;
  loop_->ring();  // it fell asleep without one
  nic_.published.store(1);
  ASSERT_TRUE(eventually([&] { return nic_.done.load() == 1; }, 1s));
  nic_.deadline_ns = monotonic_now_ns() + 20'000'000;
  loop_->ring();
  ASSERT_TRUE(sleeps());
  nic_.published.store(2);  // nobody rings: the deadline has to find it
  EXPECT_TRUE(eventually([&] { return nic_.done.load() == 2; }, 1s));
  nic_.deadline_ns = UINT64_MAX;
}

TEST_F(LcoreLoopTest, LooksAtPortsThatCanNotRing) {
  nic_.tick = true;
  start();
  ASSERT_TRUE(sleeps());
  for (uint32_t i = 1; i <= 20; ++i) {
    std::this_thread::sleep_for(5ms);
    nic_.published.store(i);
    ASSERT_TRUE(eventually([&] { return nic_.done.load() == i; }, 1s));
  }
}

TEST_F(LcoreLoopTest, StoppedNicsAreLeftAloneButTasksRun) {
  start();
  loop_->set_handling(false);
  loop_->run_on([] {});
  const uint64_t polls = nic_.polls.load();
  nic_.published.store(1);
  loop_->ring();
  loop_->run_on([] {});
  std::this_thread::sleep_for(10ms);
  EXPECT_EQ(nic_.polls.load(), polls);
  loop_->set_handling(true);
  EXPECT_TRUE(eventually([&] { return nic_.done.load() == 1; }));
}

TEST_F(LcoreLoopTest, TheDoorbellPageSaysWhereABusyLcoreRuns) {
  start();
  void* page = mmap(nullptr, sizeof(DoorbellPage), PROT_READ, MAP_SHARED, loop_->doorbell_fd(), 0);
  ASSERT_NE(page, MAP_FAILED);
  const auto busy_cpu = [page] {
    return static_cast<const DoorbellPage*>(page)->busy_cpu.load(std::memory_order_relaxed);
  };
  EXPECT_EQ(busy_cpu(), 0u);
  nic_.always_works = true;
  loop_->ring();
  EXPECT_TRUE(eventually([&] { return busy_cpu() != 0; }));
  EXPECT_LE(busy_cpu(), static_cast<uint32_t>(sysconf(_SC_NPROCESSORS_CONF)));
  nic_.always_works = false;
  // It says no more once there is work now and then.
  EXPECT_TRUE(eventually([&] {
    loop_->ring();
    return busy_cpu() == 0;
  }));
  munmap(page, sizeof(DoorbellPage));
}

TEST_F(LcoreLoopTest, TheDoorbellPageSaysWhetherAPortIsEthernets) {
  for (const bool ethernet : {false, true}) {
    nic_.tick = ethernet;
    start();
    void* page =
        mmap(nullptr, sizeof(DoorbellPage), PROT_READ, MAP_SHARED, loop_->doorbell_fd(), 0);
    ASSERT_NE(page, MAP_FAILED);
    EXPECT_EQ(static_cast<DoorbellPage*>(page)->serves_ethernet.load(), ethernet ? 1u : 0u);
    munmap(page, sizeof(DoorbellPage));
    loop_->request_stop();
    thread_.join();
    loop_.reset();
  }
}

TEST_F(LcoreLoopTest, ClientsCanReadTheDoorbellPageAndNotWriteIt) {
  start();
  ASSERT_TRUE(sleeps());
  void* page = mmap(nullptr, 4096, PROT_READ, MAP_SHARED, loop_->doorbell_fd(), 0);
  ASSERT_NE(page, MAP_FAILED);
  EXPECT_EQ(static_cast<DoorbellPage*>(page)->lcore_sleeping.load(), 1u);
  munmap(page, 4096);
  EXPECT_EQ(mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, loop_->doorbell_fd(), 0),
            MAP_FAILED);
  EXPECT_EQ(pwrite(loop_->doorbell_fd(), "x", 1, 0), -1);
  EXPECT_EQ(ftruncate(loop_->doorbell_fd(), 0), -1);
}

}  // namespace
}  // namespace hostnic
