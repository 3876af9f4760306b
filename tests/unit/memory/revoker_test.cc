// SPDX-License-Identifier: BSD-3-Clause
// The order in which devices learn of changes of mappings.
#include "verbs-shim/memory/revoker.h"

#include <pthread.h>

#include <atomic>
#include <memory>
#include <string>
#include <thread>

#include "tests/unit/memory/watching.h"

namespace hostnic::memory_testing {
namespace {

using memory::MappingChange;
using memory::Revoker;

// A device that writes down what it is told.
class Listener final : public memory::RegionUser {
 public:
  MemoryGate& memory_gate() override { return gate_; }
  void memory_gate_opened() override {}
  uint64_t nic_turn_ns() override { return turn_ns; }
  void follow_memory(const MemoryChange& change) override {
    const std::lock_guard lock(mutex_);
    heard_ += change.kind == MemoryChangeKind::kGone ? 'g' : 'm';
  }
  std::string heard() {
    const std::lock_guard lock(mutex_);
    return heard_;
  }

  std::atomic<uint64_t> turn_ns{UINT64_MAX};

 private:
  MemoryGate gate_{};
  std::mutex mutex_;
  std::string heard_;
};

class RevokerOrder : public ::testing::Test {
 protected:
  RevokerOrder() {
    revoker_->attach(listener_);
    EXPECT_EQ(0, revoker_->start([](const MemoryChange&) {}));
  }
  ~RevokerOrder() override { revoker_->detach(listener_); }
  static MappingChange gone() {
    return {{kPage, kPage, MemoryChangeKind::kGone, 0, 0}, /*noted=*/true};
  }
  static MappingChange moved() {
    return {{2 * kPage, kPage, MemoryChangeKind::kMoved, 0, kPage}, /*noted=*/true};
  }

  // Its thread never ends, and keeps it.
  Revoker* const revoker_ = new Revoker;
  Listener listener_;
};

// The kernel reports that memory is gone; the thread that unmapped it goes on when the report has
// been read, and moves something else there before the report is handed on.
TEST_F(RevokerOrder, ReportsComeBeforeWhatFollows) {
  std::atomic<int> step{0};
  std::thread reader([&] {
    const uint64_t report = revoker_->begin_change(Revoker::Notice::kByReport);
    step = 1;
    while (step != 2) std::this_thread::yield();
    // Whoever reads reports may have to tell of something itself, and waits for that.
    const MappingChange own = gone();
    EXPECT_TRUE(revoker_->tell(own));
    EXPECT_EQ("g", listener_.heard()) << "the move has to wait";
    revoker_->end_change(report, &own, 1);
  });
  while (step != 1) std::this_thread::yield();
  const MappingChange move = moved();
  revoker_->end_change(revoker_->begin_change(), &move, 1);
  step = 2;
  reader.join();
  EXPECT_TRUE(comes_true([&] { return listener_.heard() == "ggm"; })) << listener_.heard();
}

TEST_F(RevokerOrder, LaterReportsAreNotWaitedFor) {
  const MappingChange move = moved(), end = gone();
  const uint64_t change = revoker_->begin_change();
  revoker_->end_change(change, &move, 1);
  EXPECT_TRUE(comes_true([&] { return listener_.heard() == "m"; }));
  const uint64_t report = revoker_->begin_change(Revoker::Notice::kByReport);
  const uint64_t next = revoker_->begin_change(Revoker::Notice::kByReport);
  revoker_->end_change(report, &end, 1);
  EXPECT_TRUE(comes_true([&] { return listener_.heard() == "mg"; }));
  revoker_->end_change(next, nullptr, 0);
}

// What a bare call has moved, as the kernel reports it, is where it is before the C library's next
// call asks.
TEST_F(RevokerOrder, CallsGoByWhatWasReported) {
  static std::atomic<int> known{0};
  Revoker* const revoker = new Revoker;
  ASSERT_EQ(0, revoker->start([](const MemoryChange&) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    known = 1;
  }));
  revoker->wait_until_known();
  std::atomic<int> step{0};
  std::thread reader([&] {
    const uint64_t report = revoker->begin_change(Revoker::Notice::kByReport);
    step = 1;
    const MappingChange move{{2 * kPage, kPage, MemoryChangeKind::kMoved, 0, kPage}, false};
    revoker->end_change(report, &move, 1);
  });
  while (step != 1) std::this_thread::yield();
  // It waits a moment only, which is not enough on a machine without time.
  for (int tries = 0; tries < 1000 && known != 1; tries++) revoker->wait_until_known();
  EXPECT_EQ(1, known);
  reader.join();
}

// A NIC without a processor finds the gate closed whenever it gets one, if nobody waits for that.
TEST_F(RevokerOrder, AChangeWaitsForANicThatHasHadNoTurn) {
  using Clock = std::chrono::steady_clock;
  listener_.memory_gate().wanted = MemoryGate::kLcore;
  listener_.turn_ns = 0;
  std::atomic<bool> begun{false};
  const Clock::time_point start = Clock::now();
  std::thread changer([&] {
    const uint64_t change = revoker_->begin_change();
    begun = true;
    revoker_->end_change(change, nullptr, 0);
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  const bool too_early = begun;
  // It waits for a tenth of a second at most, which may have passed on a busy machine.
  EXPECT_FALSE(too_early && Clock::now() - start < std::chrono::milliseconds(100));
  listener_.turn_ns = UINT64_MAX;
  changer.join();
  EXPECT_EQ(MemoryGate::kNobody, listener_.memory_gate().wanted)
      << "whoever wanted to get through is no more";
}

// The C library's calls that wait throw nothing: a thread that is to be cancelled ends afterwards.
TEST_F(RevokerOrder, WaitingIsNoCancellationPoint) {
  const uint64_t report = revoker_->begin_change(Revoker::Notice::kByReport);
  static std::atomic<bool> waited{false};
  pthread_t waiting{};
  const auto body = [](void* revoker) -> void* {
    pthread_cancel(pthread_self());
    static_cast<Revoker*>(revoker)->wait_until_known();
    waited = true;
    pthread_testcancel();
    return nullptr;
  };
  ASSERT_EQ(0, pthread_create(&waiting, nullptr, body, revoker_));
  void* result = nullptr;
  ASSERT_EQ(0, pthread_join(waiting, &result));
  EXPECT_EQ(PTHREAD_CANCELED, result);
  EXPECT_TRUE(waited);
  revoker_->end_change(report, nullptr, 0);
}

}  // namespace
}  // namespace hostnic::memory_testing
