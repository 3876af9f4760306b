// SPDX-License-Identifier: BSD-3-Clause
// The shared words of program and hostnicd (docs/core-sharing.md, "Memory order") on a weakly
// ordered machine: each protocol with the orders that the code has, and then without one of them,
// which must go wrong: the machine is weak enough to need it.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/unit/hostif/weak_machine.h"

namespace hostnic::weak {
namespace {

constexpr Order kRelaxed = Order::kRelaxed, kAcquire = Order::kAcquire, kRelease = Order::kRelease,
                kSequential = Order::kSequential;
constexpr int kProgram = 0, kNic = 1;  // threads; either may be written first

using Wrong = std::function<bool(const End&)>;

bool can_go_wrong(std::vector<Thread> threads, const Wrong& is_wrong) {
  const std::vector<End> ends = Machine(std::move(threads)).ends();
  EXPECT_GT(ends.size(), 1u);
  return std::any_of(ends.begin(), ends.end(), is_wrong);
}

Thread fence_if(bool fences) { return fences ? Thread{fence()} : Thread{}; }

// ---- rings (protocol/hostif/ring.h): a descriptor goes over; then its place is used again

bool ring_can_go_wrong(Order produced, Order sees_produced, Order consumed) {
  const Thread producer =
      Thread{store("element", 1), store("producer", 1, produced),
             load("consumer", "room", kAcquire)} +
      if_equal("room", 1, {store("element", 2), store("producer", 2, kRelease)});
  const Thread consumer =
      Thread{load("producer", "there", sees_produced)} +
      if_equal("there", 1, {load("element", "taken"), store("consumer", 1, consumed)});
  return can_go_wrong({producer, consumer}, [](const End& end) {
    return end.registers.at("there") == 1 && end.registers.at("taken") != 1;
  });
}

TEST(MemoryOrder, ARingsElementIsWholeAndItsPlaceIsFree) {
  EXPECT_FALSE(ring_can_go_wrong(kRelease, kAcquire, kRelease));
  EXPECT_TRUE(ring_can_go_wrong(kRelaxed, kAcquire, kRelease));
  EXPECT_TRUE(ring_can_go_wrong(kRelease, kRelaxed, kRelease));
  EXPECT_TRUE(ring_can_go_wrong(kRelease, kAcquire, kRelaxed));
}

// ---- the doorbell: an lcore falls asleep while work is posted

enum class LcoreFence { kOwn, kShared };

bool doorbell_can_go_wrong(bool poster_fences, bool lcore_fences, LcoreFence lcores) {
  const Thread poster = Thread{store("producer", 1, kRelease)} + fence_if(poster_fences) +
                        Thread{load("lcore_sleeping", "sleeps")} +
                        if_equal("sleeps", 1, {add("doorbell", 1, kSequential), wake("doorbell")});
  Thread lcore{store("lcore_sleeping", 1)};
  if (lcore_fences)
    lcore.push_back(fence(lcores == LcoreFence::kShared ? Kind::kFenceAll : Kind::kFence));
  lcore = lcore + Thread{load("producer", "work", kAcquire)} +
          if_equal("work", 0, {sleep_while("doorbell", 0)});
  return can_go_wrong({poster, lcore}, [](const End& end) { return end.asleep[kNic]; });
}

TEST(MemoryOrder, WhoPostsWakesTheLcoreOrIsSeenByIt) {
  EXPECT_FALSE(doorbell_can_go_wrong(true, true, LcoreFence::kOwn));
  EXPECT_TRUE(doorbell_can_go_wrong(false, true, LcoreFence::kOwn));
  EXPECT_TRUE(doorbell_can_go_wrong(true, false, LcoreFence::kOwn));
}

TEST(MemoryOrder, AnLcoresMembarrierFencesWhoPosts) {
  EXPECT_FALSE(doorbell_can_go_wrong(false, true, LcoreFence::kShared));
}

// ---- the service thread sleeps (protocol/hostif/core_sharing.h)

// The NIC has just woken it once, and has another report: it clears the flag before it counts.
bool service_can_oversleep(bool sleeper_fences, bool nic_fences, bool clears_first) {
  Thread service{load("driver_wake", "seen", kAcquire), store("driver_sleeping", 1)};
  if (sleeper_fences) service.push_back(fence());
  service = service + Thread{load("producer", "work", kAcquire)};
  Step sleep = only_if("work", 0, sleep_while("driver_wake", 0));
  sleep.needs.push_back("seen");
  sleep.value = [](const Registers& registers) { return registers.at("seen"); };
  service.push_back(sleep);

  const Thread counts = {add("driver_wake", 1, kRelease)};
  const Thread clears = {store("driver_sleeping", 0)};
  const Thread first_wake = clears_first ? clears + counts : counts + clears;
  const Thread nic =
      first_wake + Thread{wake("driver_wake"), store("producer", 1, kRelease)} +
      fence_if(nic_fences) + Thread{load("driver_sleeping", "sleeps", kAcquire)} +
      if_equal("sleeps", 1,
               {store("driver_sleeping", 0), add("driver_wake", 1, kRelease), wake("driver_wake")});
  return can_go_wrong({service, nic}, [](const End& end) { return end.asleep[kProgram]; });
}

TEST(MemoryOrder, TheServiceThreadDoesNotSleepThroughAReport) {
  EXPECT_FALSE(service_can_oversleep(true, true, true));
  EXPECT_TRUE(service_can_oversleep(false, true, true));
  EXPECT_TRUE(service_can_oversleep(true, false, true));
  EXPECT_TRUE(service_can_oversleep(true, true, false));
}

// ---- a polling thread naps

bool report_can_be_missed(bool sleeper_fences, bool nic_fences) {
  const Thread poller = Thread{store("poller_naps", 1)} + fence_if(sleeper_fences) +
                        Thread{load("producer", "work", kAcquire)} +
                        if_equal("work", 0, {sleep_while("poller_naps", 1)});
  const Thread nic = Thread{store("producer", 1, kRelease)} + fence_if(nic_fences) +
                     Thread{load("poller_naps", "naps")} +
                     if_equal("naps", 1, {store("poller_naps", 0, kRelease), wake("poller_naps")});
  return can_go_wrong({poller, nic}, [](const End& end) { return end.asleep[kProgram]; });
}

TEST(MemoryOrder, APollerDoesNotNapThroughAReport) {
  EXPECT_FALSE(report_can_be_missed(true, true));
  EXPECT_TRUE(report_can_be_missed(false, true));
  EXPECT_TRUE(report_can_be_missed(true, false));
}

// ---- a queue pair's status (QpStatus): consistent, and no change without a report

bool status_can_be_torn(bool writer_fences, bool reader_fences) {
  Thread nic{store("sequence", 1)};
  if (writer_fences) nic.push_back(fence(Kind::kReleaseFence));
  nic = nic + Thread{store("una", 1), store("sack_end", 1), store("sequence", 2, kRelease)};
  Thread driver{load("sequence", "before", kAcquire), load("una", "una_seen"),
                load("sack_end", "sack_seen")};
  if (reader_fences) driver.push_back(fence(Kind::kAcquireFence));
  driver.push_back(load("sequence", "after"));
  return can_go_wrong({driver, nic}, [](const End& end) {
    const Registers& seen = end.registers;
    return seen.at("before") == seen.at("after") && seen.at("before") % 2 == 0 &&
           seen.at("una_seen") != seen.at("sack_seen");
  });
}

TEST(MemoryOrder, AStatusIsReadWholeOrReadAgain) {
  EXPECT_FALSE(status_can_be_torn(true, true));
  EXPECT_TRUE(status_can_be_torn(false, true));
  EXPECT_TRUE(status_can_be_torn(true, false));
}

// The first report is in the ring, so `dirty` is 1; the NIC changes the status once more.
bool change_can_stay_unreported(bool nic_fences, bool driver_fences) {
  Thread nic{store("dirty", 1), store("producer", 1, kRelease), store("una", 1, kRelease)};
  if (nic_fences) nic.push_back(fence());
  nic = nic + Thread{load("dirty", "is_dirty")} +
        if_equal("is_dirty", 0, {store("dirty", 1), store("producer", 2, kRelease)});
  Thread driver =
      Thread{load("producer", "reports", kAcquire)} + if_equal("reports", 1, {store("dirty", 0)});
  if (driver_fences) driver.push_back(fence());
  driver = driver + Thread{load("una", "una_seen", kAcquire)};
  return can_go_wrong({driver, nic}, [](const End& end) {
    return end.registers.at("reports") == 1 && end.registers.at("una_seen") == 0 &&
           end.words.at("producer") == 1;
  });
}

TEST(MemoryOrder, AChangedStatusIsSeenOrReportedAgain) {
  EXPECT_FALSE(change_can_stay_unreported(true, true));
  EXPECT_TRUE(change_can_stay_unreported(false, true));
  EXPECT_TRUE(change_can_stay_unreported(true, false));
}

// ---- receives: their completions, and the credit that a starved peer waits for

bool completion_can_be_early(Order published) {
  const Thread nic{store("data", 1), store("completion", 1), store("recv_completed", 1, published)};
  const Thread driver =
      Thread{load("recv_completed", "completed", kAcquire)} +
      if_equal("completed", 1, {load("completion", "entry"), load("data", "data_seen")});
  return can_go_wrong({driver, nic}, [](const End& end) {
    return end.registers.at("completed") == 1 &&
           (end.registers.at("entry") == 0 || end.registers.at("data_seen") == 0);
  });
}

TEST(MemoryOrder, ACompletionIsThereWithItsBytes) {
  EXPECT_FALSE(completion_can_be_early(kRelease));
  EXPECT_TRUE(completion_can_be_early(kRelaxed));
}

bool starved_peer_can_be_forgotten(bool poster_fences, bool nic_fences) {
  const Thread poster = Thread{store("recv_posted", 1, kRelease)} + fence_if(poster_fences) +
                        Thread{load("credit_watched", "watched")} +
                        if_equal("watched", 1, {store("notified", 1)});
  const Thread nic = Thread{store("credit_watched", 1)} + fence_if(nic_fences) +
                     Thread{load("recv_posted", "credit", kAcquire)};
  return can_go_wrong({poster, nic}, [](const End& end) {
    return end.registers.at("credit") == 0 && !end.words.contains("notified");
  });
}

TEST(MemoryOrder, AReceiveReachesAStarvedPeer) {
  EXPECT_FALSE(starved_peer_can_be_forgotten(true, true));
  EXPECT_TRUE(starved_peer_can_be_forgotten(false, true));
  EXPECT_TRUE(starved_peer_can_be_forgotten(true, false));
}

// ---- a message's last word is stored last (dataplane/nic/memory/copy.h)

bool last_word_can_be_early(bool nic_fences) {
  Thread nic{store("first_word", 1)};
  if (nic_fences) nic.push_back(fence(Kind::kReleaseFence));
  nic.push_back(store("last_word", 1));
  // A program that polls memory on such a machine has a barrier of its own, as for an adapter.
  const Thread program{load("last_word", "last"), fence(Kind::kAcquireFence),
                       load("first_word", "first")};
  return can_go_wrong({program, nic}, [](const End& end) {
    return end.registers.at("last") == 1 && end.registers.at("first") == 0;
  });
}

TEST(MemoryOrder, WhoSeesTheLastWordSeesTheMessage) {
  EXPECT_FALSE(last_word_can_be_early(true));
  EXPECT_TRUE(last_word_can_be_early(false));
}

// ---- the memory gate (segment.h): no transfer while a mapping changes

bool transfer_can_meet_a_change(Order enters, Order looks, bool driver_fences) {
  const Thread driver = Thread{store("closed", 1)} + fence_if(driver_fences) +
                        Thread{load("in_transfer", "under_way", kAcquire)} +
                        if_equal("under_way", 0, {store("mapping", 1)});
  const Thread nic =
      Thread{add("in_transfer", 1, enters), load("closed", "is_closed", looks)} +
      if_equal("is_closed", 0,
               {load("mapping", "before", kAcquire), load("mapping", "after", kAcquire)}) +
      Thread{add("in_transfer", -1, kRelease)};
  return can_go_wrong({driver, nic}, [](const End& end) {
    return end.registers.at("is_closed") == 0 &&
           end.registers.at("before") != end.registers.at("after");
  });
}

TEST(MemoryOrder, NoTransferMeetsAChangeOfItsMapping) {
  EXPECT_FALSE(transfer_can_meet_a_change(kSequential, kSequential, true));
  EXPECT_TRUE(transfer_can_meet_a_change(kSequential, kAcquire, true));
  EXPECT_TRUE(transfer_can_meet_a_change(kSequential, kSequential, false));
}

// ---- the driver's mutex, which its favourite takes without a fence (biased_mutex.h)

bool two_can_be_inside(Kind others_fence) {
  const Thread favourite =
      Thread{store("inside", 1), load("not_favourite", "taken_back", kAcquire)} +
      if_equal("taken_back", 0,
               {load("state", "at_first", kAcquire), load("state", "at_last", kAcquire)}) +
      Thread{store("inside", 0, kRelease)};
  const Thread other = Thread{store("not_favourite", 1), fence(others_fence),
                              load("inside", "is_inside", kAcquire)} +
                       if_equal("is_inside", 0, {store("state", 1)});
  return can_go_wrong({favourite, other}, [](const End& end) {
    return end.registers.at("taken_back") == 0 &&
           end.registers.at("at_first") != end.registers.at("at_last");
  });
}

TEST(MemoryOrder, AFavouriteIsAloneInsideAfterAMembarrier) {
  EXPECT_FALSE(two_can_be_inside(Kind::kFenceAll));
  EXPECT_TRUE(two_can_be_inside(Kind::kFence));
}

}  // namespace
}  // namespace hostnic::weak
