// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/message_times.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>
#include <vector>

#include "dataplane/cli/ctf_reader.h"
#include "dataplane/cli/message_report.h"

namespace hostnic::cli {
namespace {

using Kind = TracedMoment::Kind;

constexpr uint32_t kNic = 0x7f4d0001, kQpn = 0x123456;

// Moments of one queue pair, whose clock counts nanoseconds.
class Times : public testing::Test {
 protected:
  void post(uint64_t at, uint32_t number, uint32_t first_psn, uint32_t psns, uint32_t sequence,
            bool signalled = true) {
    TracedMoment moment = moment_of(Kind::kPosted, at, 0);
    moment.number = number;
    moment.first_psn = first_psn;
    moment.psns = psns;
    moment.sequence = sequence;
    moment.signalled = signalled;
    moment.op = SendOp::kWrite;
    moment.type = QpType::kRc;
    moment.length_bytes = 64;
    times_.add(moment);
  }
  void poll(uint64_t at, uint32_t number, uint32_t sequence, uint32_t status = 0) {
    TracedMoment moment = moment_of(Kind::kPolled, at, 0);
    moment.number = number;
    moment.sequence = sequence;
    moment.status = status;
    times_.add(moment);
  }
  void say(Kind kind, uint64_t at, uint32_t until) { times_.add(moment_of(kind, at, until)); }
  // From sent to reported, with a step at each microsecond from `at` on.
  void go(uint64_t at, uint32_t until) {
    for (const Kind kind :
         {Kind::kSent, Kind::kArrived, Kind::kPlaced, Kind::kAcknowledged, Kind::kReported}) {
      say(kind, at, until);
      at += 1000;
    }
  }
  const Segment* segment(Step from, Step to) const {
    for (const Segment& each : times_.segments())
      if (each.from == from && each.to == to) return &each;
    return nullptr;
  }
  MessageTimes times_{1'000'000'000};

 private:
  static TracedMoment moment_of(Kind kind, uint64_t at, uint32_t until) {
    return {.kind = kind, .at = at, .nic = kNic, .qpn = kQpn, .until = until};
  }
};

TEST_F(Times, AMessageHasItsSteps) {
  post(1000, 1, 10, 1, 0);
  go(2000, 11);
  poll(9000, 1, 1);
  times_.finish(0);
  EXPECT_EQ(times_.counts().messages, 1u);
  EXPECT_EQ(times_.counts().complete, 1u);
  EXPECT_EQ(times_.counts().in_order, 1u);
  ASSERT_NE(segment(Step::kPosted, Step::kSent), nullptr);
  EXPECT_EQ(segment(Step::kPosted, Step::kSent)->median_ns, 1000u);
  EXPECT_EQ(segment(Step::kReported, Step::kPolled)->max_ns, 3000u);
  EXPECT_EQ(segment(Step::kPosted, Step::kPolled)->p99_ns, 8000u);
  EXPECT_EQ(segment(Step::kSent, Step::kAcknowledged), nullptr);  // the peer is traced
  EXPECT_NE(times_.to_text().find("1 message of 1 queue pair: 1 complete"), std::string::npos);
  EXPECT_NE(
      times_.to_json().find(R"("from":"reported","to":"polled","messages":1,"median_ns":3000)"),
      std::string::npos);
}

TEST_F(Times, WhatIsSaidOfAllIsSaidOfEach) {
  for (uint32_t i = 0; i < 100; ++i) post(1000 + i, i + 1, 0xffffff - 49 + i, 1, i);  // wraps
  for (uint32_t i = 0; i < 100; ++i) say(Kind::kArrived, 3000, 0xffffff - 49 + i + 1);
  say(Kind::kSent, 2000, 50 + 0);
  say(Kind::kPlaced, 4000, 50);
  say(Kind::kAcknowledged, 5000, 50);
  say(Kind::kReported, 6000, 50);
  for (uint32_t i = 0; i < 100; ++i) poll(7000 + i, i + 1, 100 + i);
  times_.finish(0);
  EXPECT_EQ(times_.counts().complete, 100u);
  EXPECT_EQ(times_.counts().in_order, 100u);
  EXPECT_EQ(segment(Step::kSent, Step::kArrived)->messages, 100u);
}

TEST_F(Times, AStepThatIsMissingMakesItIncomplete) {
  post(1000, 1, 0, 1, 0);
  post(1100, 2, 1, 1, 1);
  say(Kind::kSent, 2000, 2);
  say(Kind::kArrived, 3000, 1);
  say(Kind::kPlaced, 3500, 1);
  say(Kind::kAcknowledged, 4000, 2);
  say(Kind::kReported, 5000, 2);
  poll(6000, 1, 2);
  poll(6000, 2, 3);
  times_.finish(0);
  EXPECT_EQ(times_.counts().messages, 2u);
  EXPECT_EQ(times_.counts().complete, 1u);
  EXPECT_EQ(times_.counts().lacking[static_cast<size_t>(Step::kArrived)], 1u);
}

// A READ's request executes in its turn, and says nothing of the answers.
TEST_F(Times, MessagesBehindAReadArePlaced) {
  TracedMoment read{.kind = Kind::kPosted, .at = 1000, .nic = kNic, .qpn = kQpn};
  read.number = read.psns = 1;
  read.first_answer = 70;
  read.answers = 4;
  read.op = SendOp::kRead;
  read.type = QpType::kRc;
  read.signalled = true;
  times_.add(read);
  post(1000, 2, 1, 1, 1);
  say(Kind::kSent, 2000, 2);
  say(Kind::kArrived, 2100, 1);
  say(Kind::kArrived, 2200, 2);
  say(Kind::kPlaced, 2300, 2);
  say(Kind::kAcknowledged, 2400, 2);
  say(Kind::kAnswered, 2500, 73);
  say(Kind::kAnswered, 2600, 74);
  TracedMoment reported{.kind = Kind::kReported, .at = 2700, .nic = kNic, .qpn = kQpn};
  reported.until = 2;
  reported.answered = 74;
  times_.add(reported);
  poll(2800, 1, 2);
  poll(2800, 2, 3);
  times_.finish(0);
  EXPECT_EQ(times_.counts().complete, 2u);
  EXPECT_EQ(times_.messages()[0].at_step(Step::kPlaced), 2600u);
  EXPECT_EQ(times_.messages()[0].at_step(Step::kAcknowledged), 2600u);
  EXPECT_EQ(times_.messages()[1].at_step(Step::kPlaced), 2300u);
}

TEST_F(Times, StepsInAnotherOrderAreSeen) {
  post(1000, 1, 0, 1, 0);
  say(Kind::kSent, 2000, 1);
  say(Kind::kArrived, 1500, 1);
  say(Kind::kPlaced, 3500, 1);
  say(Kind::kAcknowledged, 4000, 1);
  say(Kind::kReported, 5000, 1);
  poll(6000, 1, 1);
  times_.finish(0);
  EXPECT_EQ(times_.counts().complete, 1u);
  EXPECT_EQ(times_.counts().in_order, 0u);
}

TEST_F(Times, AMessageWithoutCompletionOfItsOwnIsDoneWhenItIsReported) {
  post(1000, 1, 0, 1, 0, /*signalled=*/false);
  post(1000, 2, 1, 1, 1);
  say(Kind::kArrived, 2500, 1);
  say(Kind::kArrived, 2500, 2);
  say(Kind::kSent, 2000, 2);
  say(Kind::kPlaced, 3500, 2);
  say(Kind::kAcknowledged, 4000, 2);
  say(Kind::kReported, 5000, 2);
  poll(6000, 2, 2);
  times_.finish(0);
  EXPECT_EQ(times_.counts().complete, 2u);
  EXPECT_EQ(segment(Step::kPosted, Step::kPolled)->messages, 1u);
}

TEST_F(Times, TheLibraryMayLookBeforeItIsTold) {
  post(1000, 1, 0, 1, 0);
  go(2000, 1);
  poll(5500, 1, 1);  // reported at 6000
  times_.finish(0);
  EXPECT_EQ(times_.counts().complete, 1u);
  EXPECT_EQ(times_.counts().in_order, 1u);
  EXPECT_EQ(segment(Step::kReported, Step::kPolled)->max_ns, 0u);
}

TEST_F(Times, APeerThatIsNotTracedLeavesOneLongStep) {
  post(1000, 1, 0, 1, 0);
  say(Kind::kSent, 2000, 1);
  say(Kind::kAcknowledged, 4000, 1);
  say(Kind::kReported, 5000, 1);
  poll(6000, 1, 1);
  times_.finish(0);
  EXPECT_EQ(times_.counts().complete, 1u);
  ASSERT_NE(segment(Step::kSent, Step::kAcknowledged), nullptr);
  EXPECT_EQ(segment(Step::kSent, Step::kAcknowledged)->median_ns, 2000u);
}

TEST_F(Times, FailedMessagesAreCountedAndNotMeasured) {
  post(1000, 1, 0, 1, 0);
  say(Kind::kSent, 2000, 1);
  poll(6000, 1, 1, 12);
  times_.finish(0);
  EXPECT_EQ(times_.counts().failed, 1u);
  EXPECT_EQ(times_.counts().complete, 0u);
  EXPECT_TRUE(times_.segments().empty());
}

TEST_F(Times, AConnectionAnewEndsWhatWasUnderWay) {
  post(1000, 1, 100, 1, 0);
  say(Kind::kSent, 1500, 101);
  post(2000, 1, 5000, 1, 1);
  go(3000, 5001);
  poll(9000, 1, 2);
  times_.finish(0);
  EXPECT_EQ(times_.counts().messages, 2u);
  EXPECT_EQ(times_.counts().complete, 1u);
  EXPECT_TRUE(times_.messages()[0].is_cut);
}

TEST_F(Times, WhatProgramsCouldNotTellIsCounted) {
  post(1000, 1, 0, 1, 0xfffffffe);  // numbers wrap
  go(2000, 1);
  poll(9000, 1, 5);
  times_.finish(3);
  EXPECT_EQ(times_.counts().missed, 3u + 6);
}

TEST_F(Times, NothingIsNothing) {
  times_.finish(0);
  EXPECT_EQ(times_.counts().messages, 0u);
  EXPECT_FALSE(times_.to_text().empty());
  EXPECT_TRUE(times_.segments().empty());
}

// ---- files

constexpr const char* kMetadata = R"(/* CTF 1.8 */
typealias integer {size = 8; base = x;}:= uint8_t;
trace {
    major = 1;
    packet.header := struct {
        uint32_t magic;
        uint8_t uuid[16];
    };
};
clock {
    name = "dpdk";
    freq = 2000000000;
    offset_s = 1;
};
event {
    id = 3;
    name = "lib.eal.generic.str";
    fields := struct {
        string_bounded_t str[32];
        uint8_t tail;
    };
};

event {
    id = 260;
    name = "hostnic.sent";
    fields := struct {
        uint64_t at;
        uint32_t nic;
        uint32_t qpn;
        uint32_t until;
    };
};
/* hostnic: not traced: 17 */
)";

class Stream {
 public:
  Stream() {
    put<uint32_t>(0xC1FC1FC1);
    bytes_.resize(56);
  }
  template <typename T>
  Stream& put(T value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), from, from + sizeof(value));
    return *this;
  }
  Stream& event(uint64_t id) {
    while (bytes_.size() % 8 != 0) bytes_.push_back(std::byte{0xee});
    return put<uint64_t>(id << 48 | 12345);
  }
  Stream& sent(uint64_t at, uint32_t until) {
    return event(260).put<uint64_t>(at).put(kNic).put(kQpn).put(until);
  }
  std::vector<std::byte> bytes_;
};

TEST(Ctf, MetadataSaysWhatEventsAreLike) {
  const auto metadata = CtfMetadata::parse(kMetadata);
  ASSERT_TRUE(metadata) << metadata.error();
  EXPECT_EQ(metadata->frequency_hz, 2'000'000'000u);
  EXPECT_EQ(metadata->missed, 17u);
  ASSERT_EQ(metadata->kinds.size(), 2u);
  const CtfEventKind& sent = metadata->kinds.at(260);
  EXPECT_EQ(sent.name, "hostnic.sent");
  EXPECT_EQ(sent.bytes, 20u);
  ASSERT_NE(sent.find("until"), nullptr);
  EXPECT_EQ(sent.find("until")->offset, 16u);
  EXPECT_EQ(metadata->kinds.at(3).bytes, 33u);
}

TEST(Ctf, EventsOfOthersArePassedOver) {
  const auto metadata = CtfMetadata::parse(kMetadata);
  ASSERT_TRUE(metadata);
  Stream stream;
  stream.event(3).put(std::array<char, 33>{}).sent(1000, 7).sent(1001, 8);
  CtfStream events(*metadata, stream.bytes_);
  std::vector<std::string> names;
  for (;;) {
    const auto event = events.next();
    ASSERT_TRUE(event) << event.error();
    if (!*event) break;
    names.push_back((*event)->kind->name);
    if (names.size() == 3) {
      EXPECT_EQ((*event)->number("at"), 1001u);
      EXPECT_EQ((*event)->number("until"), 8u);
      EXPECT_FALSE((*event)->number("answered"));
    }
  }
  EXPECT_EQ(names,
            (std::vector<std::string>{"lib.eal.generic.str", "hostnic.sent", "hostnic.sent"}));
  MessageTimes times(metadata->frequency_hz);
  ASSERT_TRUE(add_stream(*metadata, 0, stream.bytes_, times));
  times.finish(0);
  EXPECT_EQ(times.counts().events, 2u);
}

TEST(Ctf, WhatIsCutOffIsLeftOut) {
  const auto metadata = CtfMetadata::parse(kMetadata);
  ASSERT_TRUE(metadata);
  Stream stream;
  stream.sent(1000, 7).sent(1001, 8);
  for (size_t bytes = 0; bytes <= stream.bytes_.size(); ++bytes) {
    CtfStream events(*metadata, std::span(stream.bytes_).first(bytes));
    size_t count = 0;
    bool is_bad = false;
    for (;;) {
      const auto event = events.next();
      is_bad = !event;
      if (!event || !*event) break;
      ++count;
    }
    EXPECT_EQ(is_bad, bytes < 56) << bytes;
    const size_t first_end = 56 + 8 + 20, second_begin = 56 + 32;
    EXPECT_EQ(count, bytes < first_end ? 0u : bytes < second_begin + 28 ? 1u : 2u) << bytes;
  }
}

TEST(Ctf, WhatDoesNotAgreeIsRefused) {
  const std::string good = kMetadata;
  const auto refused = [](const std::string& text) { return !CtfMetadata::parse(text); };
  const auto with = [&](const std::string& from, const std::string& to) {
    std::string text = good;
    text.replace(text.find(from), from.size(), to);
    return text;
  };
  EXPECT_FALSE(refused(good));
  EXPECT_TRUE(refused(""));
  EXPECT_TRUE(refused("CTF"));
  EXPECT_TRUE(refused(with("freq = 2000000000", "freq = 0")));
  EXPECT_TRUE(refused(with("uint64_t at", "uint65_t at")));
  EXPECT_TRUE(refused(with("str[32]", "str[99999999999]")));
  EXPECT_TRUE(refused(with("str[32]", "str[32")));
  EXPECT_TRUE(refused(with("id = 260", "id = 70000")));
  EXPECT_TRUE(refused(with("id = 260", "id = 3")));
  for (size_t bytes = 0; bytes < good.size(); ++bytes)
    static_cast<void>(CtfMetadata::parse(std::string_view(good).substr(0, bytes)));
  const auto metadata = CtfMetadata::parse(good);
  Stream unknown, other;
  unknown.event(99);
  CtfStream events(*metadata, unknown.bytes_);
  EXPECT_FALSE(events.next());
  other.bytes_[0] = std::byte{0};
  CtfStream swapped(*metadata, other.bytes_);
  EXPECT_FALSE(swapped.next());
}

}  // namespace
}  // namespace hostnic::cli
