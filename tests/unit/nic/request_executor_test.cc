// SPDX-License-Identifier: BSD-3-Clause
// What verbs mean at the responder, rule by rule, with a placement, receives and reports that do as
// they are told and remember what they were asked for.
#include "dataplane/nic/execute/request_executor.h"

#include <gtest/gtest.h>

#include <array>
#include <cstddef>
#include <span>
#include <vector>

namespace hostnic {
namespace {

constexpr uint32_t kKey = 0x1234, kWindowKey = 0x80001234, kCapacityBytes = 1000;
constexpr VirtualAddress kVa = 0x10000;

struct FakePlacement {
  struct Placed {
    uint64_t where;  // address of a WRITE, offset in a receive of a SEND
    size_t bytes;
    bool ahead, tail;
  };
  MemoryRegionEntry region;
  uint64_t region_bytes = 4096;
  PlaceResult result = PlaceResult::kDone;
  LocalError error = LocalError::kNone;
  std::vector<Placed> placed;

  RemoteRange remote_range(const AccessScope& scope, uint32_t key, uint64_t va, uint64_t bytes,
                           uint32_t access) {
    const bool inside = va >= kVa && bytes <= region_bytes && va - kVa <= region_bytes - bytes;
    if (key != kKey || !inside || (scope.rights & access) != access) return {};
    return {&region, va};
  }
  bool place_at_once(const PlaceRequest&, MemoryRegionEntry&, uint64_t,
                     std::span<const std::byte>) {
    return false;
  }
  PlaceResult place(const PlaceRequest& request, MemoryRegionEntry&, uint64_t iova,
                    std::span<const std::byte> bytes) {
    return note(request, iova, bytes);
  }
  PlaceResult scatter(const AccessScope&, const PlaceRequest& request, std::span<const Sge>,
                      uint64_t offset, std::span<const std::byte> bytes, LocalError& why) {
    why = error;
    return note(request, offset, bytes);
  }

 private:
  PlaceResult note(const PlaceRequest& request, uint64_t where, std::span<const std::byte> bytes) {
    if (result == PlaceResult::kDone && error == LocalError::kNone)
      placed.push_back({where, bytes.size(), request.ahead, request.tail});
    return result;
  }
};

struct FakeWindows {
  MemoryWindow window{.key = kWindowKey, .bound = true};
  MemoryWindow* invalidatable(const AccessScope&, uint32_t key) {
    return key == kWindowKey ? &window : nullptr;
  }
  static void unbind(MemoryWindow& bound) { bound.bound = false; }
};

struct FakeReceives {
  uint32_t posted = 1;  // receives 0 to posted - 1
  bool readable = true;
  struct Completed {
    uint32_t sn;
    ReceiveEnd end;
    RecvStatus status;
  };
  std::vector<Completed> completed;

  bool is_there(const QpContext&, uint32_t sn, bool) const { return sn < posted; }
  bool load(const QpContext&, uint32_t, PostedReceive& receive) const {
    receive.capacity_bytes = kCapacityBytes;
    return readable;
  }
  static void prefetch(const QpContext&, uint32_t) {}
  void complete(const QpContext&, uint32_t sn, const ReceiveEnd& end, RecvStatus status) {
    completed.push_back({sn, end, status});
  }
};

struct FakeReports {
  std::vector<uint32_t> events;
  void publish_event(const QpContext&, uint32_t event) { events.push_back(event); }
};

struct FakeParts {
  FakePlacement& placement;
  FakeWindows& windows;
  FakeReceives& receives;
  FakeReports& reports;
  Counters& counters;
  SplitAtomic& split_atomic;
};

class Execute : public testing::Test {
 protected:
  Execute() {
    qp_.access = kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;
    placement_.region.access = qp_.access;
  }
  static std::span<const std::byte> bytes(size_t count) {
    static std::array<std::byte, 4096> some{};
    return {some.data(), count};
  }
  Outcome write(const WritePart& part, size_t count = 100) {
    return executor_.place_write(qp_, part, {.psn = Psn(5)}, bytes(count));
  }
  Outcome send(const SendPart& part, size_t count = 100) {
    return executor_.place_send(qp_, part, {.psn = Psn(5)}, bytes(count));
  }
  Outcome atomic(const wire::AtomicEth& operation, uint64_t& before, Psn psn = Psn(5)) {
    return executor_.execute_atomic(qp_, operation, /*compare_swap=*/false, psn, before);
  }
  void map_region(std::span<std::byte> memory) {
    placement_.region.pieces = {{.va = kVa, .length_bytes = memory.size(), .host = memory.data()}};
  }
  static void expect_refused(const Outcome& outcome, Refusal refusal) {
    EXPECT_EQ(outcome.kind, Outcome::kRefused);
    EXPECT_EQ(outcome.refusal, refusal);
  }

  QpContext qp_;
  FakePlacement placement_;
  FakeWindows windows_;
  FakeReceives receives_;
  FakeReports reports_;
  Counters counters_;
  SplitAtomic split_atomic_;
  BasicRequestExecutor<FakeParts> executor_{
      FakeParts{placement_, windows_, receives_, reports_, counters_, split_atomic_}};
};

WritePart write_to(VirtualAddress va, uint64_t checked_bytes = 100) {
  return {.key = kKey, .va = va, .checked_bytes = checked_bytes};
}

TEST_F(Execute, AWriteGoesWhereItSays) {
  EXPECT_TRUE(write(write_to(kVa + 8)).done());
  ASSERT_EQ(placement_.placed.size(), 1u);
  EXPECT_EQ(placement_.placed[0].where, kVa + 8);
  EXPECT_EQ(placement_.placed[0].bytes, 100u);
  EXPECT_TRUE(placement_.placed[0].tail) << "programs watch the last bytes of a message";
  WritePart middle = write_to(kVa);
  middle.is_last = false;
  EXPECT_TRUE(write(middle).done());
  EXPECT_FALSE(placement_.placed[1].tail);
}

TEST_F(Execute, AWritesKeyIsGoodForAllThatIsChecked) {
  expect_refused(write({.key = kKey + 1, .va = kVa, .checked_bytes = 100}), Refusal::kAccess);
  expect_refused(write(write_to(kVa + 4000)), Refusal::kAccess);
  expect_refused(write(write_to(kVa, 5000)), Refusal::kAccess);
  qp_.access = 0;
  expect_refused(write(write_to(kVa)), Refusal::kAccess);
  EXPECT_TRUE(placement_.placed.empty());
  EXPECT_TRUE(write({.key = kKey + 1}, 0).done()) << "no bytes name no memory";
}

TEST_F(Execute, AWriteWithImmediateDataNeedsAReceive) {
  WritePart part = write_to(kVa);
  part.takes_receive = true;
  part.sn = 1;
  EXPECT_EQ(write(part).kind, Outcome::kNoReceive);
  EXPECT_EQ(write(part, 0).kind, Outcome::kNoReceive);
  EXPECT_TRUE(placement_.placed.empty());
  part.sn = 0;
  EXPECT_TRUE(write(part).done());
  part.key = kKey + 1;
  expect_refused(write(part), Refusal::kReceiveAccess);
}

TEST_F(Execute, MemoryThatIsNotThereNowIsTriedAgain) {
  placement_.result = PlaceResult::kNotNow;
  EXPECT_EQ(write(write_to(kVa)).kind, Outcome::kNotNow);
  EXPECT_EQ(send({.message_bytes = 100}).kind, Outcome::kNotNow);
  EXPECT_EQ(send({.message_bytes = 100, .invalidates = true, .invalidate_key = kWindowKey}).kind,
            Outcome::kNotNow);
  EXPECT_TRUE(windows_.window.bound) << "nothing has happened yet";
}

TEST_F(Execute, MemoryThatIsGoneIsWhoseItIs) {
  placement_.result = PlaceResult::kMemoryGone;
  expect_refused(write(write_to(kVa)), Refusal::kAccess);
  expect_refused(send({.message_bytes = 100}), Refusal::kReceiveMemory);
  placement_.result = PlaceResult::kDone;
  placement_.error = LocalError::kProtection;
  expect_refused(send({.message_bytes = 100}), Refusal::kReceiveMemory);
  placement_.error = LocalError::kLength;
  expect_refused(send({.message_bytes = 100}), Refusal::kReceiveTooLong);
}

TEST_F(Execute, ASendNeedsAReceiveThatIsLongEnough) {
  EXPECT_EQ(send({.sn = 1, .message_bytes = 100}).kind, Outcome::kNoReceive);
  expect_refused(send({.message_bytes = kCapacityBytes + 1}), Refusal::kReceiveTooLong);
  EXPECT_TRUE(send({.offset_bytes = 900, .message_bytes = kCapacityBytes}).done());
  ASSERT_EQ(placement_.placed.size(), 1u);
  EXPECT_EQ(placement_.placed[0].where, 900u);
  receives_.readable = false;
  expect_refused(send({.message_bytes = 100}), Refusal::kReceiveMemory);
}

TEST_F(Execute, ADatagramsHeaderGoesFirst) {
  EXPECT_TRUE(send({.message_bytes = 140, .header = bytes(40)}).done());
  ASSERT_EQ(placement_.placed.size(), 2u);
  EXPECT_EQ(placement_.placed[0].where, 0u);
  EXPECT_EQ(placement_.placed[0].bytes, 40u);
  EXPECT_EQ(placement_.placed[1].where, 40u);
  EXPECT_EQ(placement_.placed[1].bytes, 100u);
}

TEST_F(Execute, ASendInvalidatesTheWindowThatItMay) {
  expect_refused(send({.message_bytes = 100, .invalidates = true, .invalidate_key = kKey}),
                 Refusal::kReceiveAccess);
  EXPECT_TRUE(windows_.window.bound);
  EXPECT_TRUE(placement_.placed.empty());
  EXPECT_TRUE(
      send({.message_bytes = 100, .invalidates = true, .invalidate_key = kWindowKey}).done());
  EXPECT_FALSE(windows_.window.bound);
}

TEST_F(Execute, AnAtomicExecutesOnceAndIsRecorded) {
  alignas(8) std::array<std::byte, 16> memory{};
  map_region(memory);
  uint64_t before = 99;
  for (uint32_t i = 0; i < 3; ++i) {
    EXPECT_TRUE(atomic({.va = kVa + 8, .rkey = kKey, .swap_or_add = 5}, before, Psn(i)).done());
    EXPECT_EQ(before, i * 5);
    EXPECT_EQ(recorded_atomic(qp_, Psn(i)), i * 5);
  }
  EXPECT_EQ(counters_.get(Counter::atomics_executed), 3u);
  EXPECT_FALSE(recorded_atomic(qp_, Psn(3)));
  for (uint32_t i = 3; i < 3 + kAtomicRecords; ++i) record_atomic(qp_, Psn(i), i);
  EXPECT_FALSE(recorded_atomic(qp_, Psn(2))) << "there are only so many";
  EXPECT_EQ(recorded_atomic(qp_, Psn(3)), 3u);
}

TEST_F(Execute, AnAtomicIsAlignedAndReachesItsMemory) {
  alignas(8) std::array<std::byte, 16> memory{};
  map_region(memory);
  uint64_t before = 0;
  for (VirtualAddress va = kVa + 1; va < kVa + 8; ++va)
    expect_refused(atomic({.va = va, .rkey = kKey, .swap_or_add = 1}, before),
                   Refusal::kMisaligned);
  expect_refused(atomic({.va = kVa, .rkey = kKey + 1, .swap_or_add = 1}, before), Refusal::kAccess);
  placement_.region.access |= kAccessOnDemand;
  expect_refused(atomic({.va = kVa, .rkey = kKey, .swap_or_add = 1}, before), Refusal::kAccess);
  EXPECT_EQ(memory, (std::array<std::byte, 16>{}));
  EXPECT_EQ(counters_.get(Counter::atomics_executed), 0u);
}

// In two steps what is written between them is lost, but nothing that another atomic of the device
// does, nor what was posted behind it and came first.
TEST_F(Execute, AnAtomicInTwoStepsIsAtomicAgainstAtomics) {
  alignas(8) std::array<std::byte, 8> memory{};
  map_region(memory);
  uint64_t& word = *reinterpret_cast<uint64_t*>(memory.data());
  const wire::AtomicEth add_5{.va = kVa, .rkey = kKey, .swap_or_add = 5};
  uint64_t before = 0;
  word = 10;
  ASSERT_TRUE(executor_.begin_split_atomic(qp_, add_5, Psn(1), 1));
  word = 20;
  QpContext other;
  other.access = qp_.access;
  EXPECT_EQ(executor_.execute_atomic(other, add_5, false, Psn(7), before).kind, Outcome::kNotNow);
  EXPECT_FALSE(executor_.begin_split_atomic(other, add_5, Psn(7), 1));
  EXPECT_TRUE(executor_.execute_atomic(qp_, add_5, false, Psn(1), before).done());
  EXPECT_EQ(before, 10u);
  EXPECT_EQ(word, 15u);
  EXPECT_EQ(recorded_atomic(qp_, Psn(1)), 10u);
  EXPECT_TRUE(executor_.execute_atomic(other, add_5, false, Psn(7), before).done());
  EXPECT_EQ(word, 20u);

  ASSERT_TRUE(executor_.begin_split_atomic(qp_, add_5, Psn(2), 1));
  word = 40;
  EarlyWritePool pool(4);
  qp_.requests.early_writes.add(pool, Psn(3), 1, 0, 8);
  EXPECT_TRUE(executor_.execute_atomic(qp_, add_5, false, Psn(2), before).done());
  EXPECT_EQ(before, 40u);
  EXPECT_EQ(word, 45u);
  qp_.requests.early_writes.clear(pool);

  ASSERT_TRUE(executor_.begin_split_atomic(qp_, add_5, Psn(4), 1));
  executor_.end_split_atomic(other);
  EXPECT_NE(executor_.split_atomic_of(qp_), nullptr);
  executor_.end_split_atomic(qp_);
  EXPECT_EQ(executor_.split_atomic_of(qp_), nullptr);
}

TEST_F(Execute, AReadsMemoryIsLookedAt) {
  std::array<std::byte, 4096> memory{};
  map_region(memory);
  const auto look = [this](const wire::Reth& read) {
    return executor_.look_at_read(qp_, {.read = read, .length_bytes = read.length_bytes});
  };
  EXPECT_TRUE(look({kVa, kKey, 4096}).done());
  EXPECT_TRUE(look({0, kKey + 1, 0}).done()) << "nothing is read, whatever the key";
  expect_refused(look({kVa, kKey + 1, 1}), Refusal::kAccess);
  expect_refused(look({kVa, kKey, 4097}), Refusal::kAccess);
  placement_.region.partly_gone = true;
  placement_.region.pieces[0].gone = true;
  expect_refused(look({kVa, kKey, 4096}), Refusal::kAccess);
}

TEST_F(Execute, NoMessageIsLongerThanAMessageMayBe) {
  placement_.region_bytes = uint64_t{4} << 30;
  const auto look = [this](uint32_t length_bytes) {
    return executor_.look_at_read(qp_, {.read = {kVa, kKey, length_bytes}});
  };
  EXPECT_TRUE(look(kMaxMessageBytes).done());
  expect_refused(look(kMaxMessageBytes + 1), Refusal::kMessageTooLong);
  MessageState message;
  message.begin(/*write=*/true, {kVa, kKey, kMaxMessageBytes + 1});
  EXPECT_FALSE(message.fits(4096, /*more=*/true));
  message.begin(/*write=*/true, {kVa, kKey, kMaxMessageBytes});
  EXPECT_TRUE(message.fits(4096, /*more=*/true));
  message.begin(/*write=*/false, {});
  message.offset_bytes = kMaxMessageBytes;
  EXPECT_TRUE(message.fits(0, /*more=*/false));
  EXPECT_FALSE(message.fits(1, /*more=*/false));
}

TEST(MessageState, AWriteIsAsLongAsItsFirstSays) {
  MessageState message;
  message.begin(/*write=*/true, {kVa, kKey, 250});
  EXPECT_EQ(message.checked_bytes(/*cont=*/false, 100), 250u) << "all, with the first packet";
  EXPECT_TRUE(message.fits(100, /*more=*/true));
  EXPECT_FALSE(message.fits(250, /*more=*/true)) << "more is to come, but nothing is left";
  EXPECT_FALSE(message.fits(100, /*more=*/false));
  message.offset_bytes = 200;
  EXPECT_EQ(message.next_va(), kVa + 200);
  EXPECT_EQ(message.checked_bytes(/*cont=*/true, 50), 50u);
  EXPECT_TRUE(message.fits(50, /*more=*/false));
  EXPECT_FALSE(message.fits(51, /*more=*/false));
}

TEST_F(Execute, APeerHasAsManyReadsAsWereAgreedUpon) {
  qp_.responder_resources = 4;
  EXPECT_FALSE(is_one_read_too_many(qp_, 3));
  EXPECT_TRUE(is_one_read_too_many(qp_, 4));
  EXPECT_FALSE(is_one_read_too_many(qp_, -1)) << "a repetition";
  qp_.responder_resources = 0;
  EXPECT_TRUE(is_one_read_too_many(qp_, 0));
  EXPECT_TRUE(is_one_read_too_many(qp_, -1));
}

TEST_F(Execute, AConnectionIsEstablishedOnceAndInRtrOnly) {
  qp_.state = QpState::kRts;
  executor_.note_arrival(qp_);
  EXPECT_TRUE(reports_.events.empty());
  qp_.state = QpState::kRtr;
  executor_.note_arrival(qp_);
  executor_.note_arrival(qp_);
  EXPECT_EQ(reports_.events, std::vector<uint32_t>{kEventCommEstablished});
}

TEST_F(Execute, ARefusalEndsTheReceiveThatWasTaken) {
  struct Row {
    Refusal refusal;
    wire::NakCode code;
    uint32_t event;
    std::optional<RecvStatus> status;
  };
  using wire::NakCode;
  const Row rows[] = {{Refusal::kInvalidRequest, NakCode::kInvalidRequest, kEventRequestError, {}},
                      {Refusal::kTooManyReads, NakCode::kInvalidRequest, kEventRequestError, {}},
                      {Refusal::kMisaligned, NakCode::kInvalidRequest, kEventRequestError, {}},
                      {Refusal::kMessageTooLong, NakCode::kInvalidRequest, kEventRequestError, {}},
                      {Refusal::kAccess, NakCode::kRemoteAccess, kEventAccessError, {}},
                      {Refusal::kReceiveAccess, NakCode::kRemoteAccess,
                       kEventAccessError | kEventRecvError, RecvStatus::kAccessError},
                      {Refusal::kReceiveTooLong, NakCode::kInvalidRequest, kEventRecvError,
                       RecvStatus::kLengthError},
                      {Refusal::kReceiveMemory, NakCode::kRemoteOperational, kEventRecvError,
                       RecvStatus::kProtectionError}};
  for (const Row& row : rows) {
    receives_.completed.clear();
    const RefusalMeaning& meaning = executor_.refuse(qp_, 7, row.refusal);
    EXPECT_EQ(meaning.code, row.code);
    EXPECT_EQ(meaning.event, row.event);
    ASSERT_EQ(receives_.completed.size(), row.status ? 1u : 0u);
    if (!row.status) continue;
    EXPECT_EQ(receives_.completed[0].sn, 7u);
    EXPECT_EQ(receives_.completed[0].status, *row.status);
  }
}

TEST(ReceiveEnd, SaysHowTheMessageCame) {
  wire::Packet p;
  p.imm_data = 0x11;
  p.invalidate_rkey = 0x22;
  const ReceiveEnd plain = receive_end_of(p, {}, 12);
  EXPECT_EQ(plain.byte_len, 12u);
  EXPECT_EQ(plain.flags, 0u);
  p.solicited = true;
  const ReceiveEnd imm = receive_end_of(p, {.is_write = true, .has_imm = true}, 12);
  EXPECT_EQ(imm.flags, uint32_t{kRecvSolicited | kRecvIsWriteImm | kRecvHasImm});
  EXPECT_EQ(imm.imm_data, 0x11u);
  const ReceiveEnd invalidated = receive_end_of(p, {.has_inv = true}, 12);
  EXPECT_EQ(invalidated.flags, uint32_t{kRecvSolicited | kRecvHasInv});
  EXPECT_EQ(invalidated.imm_data, 0x22u);
}

}  // namespace
}  // namespace hostnic
