// SPDX-License-Identifier: BSD-3-Clause
// hostnic-verify against a NIC that is right, and against NICs that each do one thing wrong.
#include <gtest/gtest.h>
#include <sys/socket.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <latch>
#include <optional>
#include <string>
#include <thread>

#include "tests/apps/verify/rng.h"
#include "tests/apps/verify/selftest/fake_verbs.h"
#include "tests/apps/verify/session.h"

namespace hostnic::verify {
namespace {

using fake::Fault;

Options small_options() {
  Options o;
  o.workload.max_bytes = 20000;
  o.workload.rounds = 6;
  o.workload.qps = 4;
  o.workload.ops = 60;
  o.workload.depth = 16;
  return o;
}

struct Result {
  std::string error;
  Totals totals;
};

// Both sides in threads. Neither lets go of its memory before both have ended: the fake NIC has no
// notion of a deregistered one.
std::array<Result, 2> run_both(const Options& options, unsigned patience_s = 60) {
  int fds[2];
  EXPECT_EQ(socketpair(AF_UNIX, SOCK_STREAM, 0, fds), 0);
  std::array<Result, 2> results;
  std::latch ended(2);
  const auto side = [&](uint32_t which) {
    Channel channel(fds[which]);
    const Device device("", -1);
    run_with_stack(Regions::stack_bytes(options), [&](StackArena& stack) {
      std::optional<Session> session;
      try {
        session.emplace(options, device, channel, which, stack);
        Watchdog watchdog(patience_s, [&] { return session->dump(); });
        session->run(watchdog);
        results[which].totals = session->totals();
      } catch (const Failure& failure) {
        results[which].error = failure.text;
        shutdown(fds[which], SHUT_RDWR);  // the other side ends, too
      }
      ended.arrive_and_wait();
    });
  };
  std::thread other(side, 1);
  side(0);
  other.join();
  return results;
}

void expect_accepted(const Options& options) {
  fake::set_fault(Fault::kNone, 0);
  const auto results = run_both(options);
  EXPECT_EQ(results[0].error, "");
  EXPECT_EQ(results[1].error, "");
  const uint64_t expected =
      uint64_t{options.workload.rounds} * options.workload.qps * options.workload.ops;
  EXPECT_EQ(results[0].totals.operations, expected);
}

void expect_found(const Options& options, Fault fault, unsigned after) {
  fake::set_fault(fault, after);
  const auto results = run_both(options);
  EXPECT_GT(fake::struck(), 0u);
  EXPECT_FALSE(results[0].error.empty() && results[1].error.empty())
      << "fault " << static_cast<int>(fault) << " was not found";
  const std::string gone = "the other side is gone";
  EXPECT_FALSE(results[0].error.starts_with(gone) && results[1].error.starts_with(gone));
}

TEST(VerifySelfTest, AcceptsARightNic) { expect_accepted(small_options()); }

TEST(VerifySelfTest, AcceptsARightNicWithEvents) {
  Options o = small_options();
  o.events = true;
  expect_accepted(o);
}

TEST(VerifySelfTest, AcceptsARightNicForEverySeedAndMemory) {
  Options o = small_options();
  o.workload.rounds = 2;
  o.memory = {MemoryKind::kMalloc,        MemoryKind::kMmap, MemoryKind::kShm,
              MemoryKind::kMemfd,         MemoryKind::kSysv, MemoryKind::kHuge,
              MemoryKind::kStackUnaligned};
  for (uint64_t seed = 1; seed <= 10; ++seed) {
    o.workload.seed = seed;
    expect_accepted(o);
  }
}

TEST(VerifySelfTest, AcceptsARightNicWithOneLargeMr) {
  Options o = small_options();
  o.workload.mr_bytes = 32u << 20;
  expect_accepted(o);
}

TEST(VerifySelfTest, AcceptsEveryOperationAlone) {
  Options o = small_options();
  o.workload.rounds = 2;
  for (unsigned kind = 0; kind < kOpKinds; ++kind) {
    o.workload.mix = 1u << kind;
    expect_accepted(o);
  }
}

TEST(VerifySelfTest, AcceptsARightNicWithoutFences) {
  Options o = small_options();
  o.workload.fences = 0;
  expect_accepted(o);
}

class VerifyFaultTest : public ::testing::TestWithParam<Fault> {};

TEST_P(VerifyFaultTest, IsFound) {
  Options o = small_options();
  for (unsigned after : {0u, 5u}) expect_found(o, GetParam(), after);
}

// Needs a program that sleeps often, and messages that come singly.
TEST(VerifySelfTest, EventWithoutASolicitedCompletionIsFound) {
  Options o = small_options();
  o.events = true;
  o.workload.qps = 1;
  o.workload.ops = 16;
  o.workload.rounds = 300;
  o.workload.max_bytes = 64;
  o.workload.mix = 1u << static_cast<unsigned>(OpKind::kSend);
  expect_found(o, Fault::kEventUnsolicited, 0);
}

INSTANTIATE_TEST_SUITE_P(Faults, VerifyFaultTest,
                         ::testing::Values(Fault::kLoseByte, Fault::kWriteBeyond, Fault::kLosePiece,
                                           Fault::kWrongReadByte, Fault::kAddTwice,
                                           Fault::kAddNever, Fault::kLateWrite,
                                           Fault::kSendOvertakes, Fault::kReadSource,
                                           Fault::kWrongImm, Fault::kWrongLength, Fault::kWrongWrId,
                                           Fault::kRepeatCompletion));

// If another completion or event of the same queue follows, it tells; if none does, only waiting
// can, and the watchdog ends the process.
class VerifyLossDeathTest : public ::testing::TestWithParam<Fault> {};

TEST_P(VerifyLossDeathTest, IsFound) {
  GTEST_FLAG_SET(death_test_style, "threadsafe");
  Options o = small_options();
  o.events = GetParam() == Fault::kLoseEvent;
  for (unsigned after : {0u, 5u}) {
    EXPECT_EXIT(
        {
          fake::set_fault(GetParam(), after);
          const auto results = run_both(o, /*patience_s=*/10);
          std::exit(results[0].error.empty() && results[1].error.empty() ? 0 : 1);
        },
        testing::ExitedWithCode(1), "");
  }
}

INSTANTIATE_TEST_SUITE_P(Faults, VerifyLossDeathTest,
                         ::testing::Values(Fault::kLoseCompletion, Fault::kLoseEvent));

TEST(VerifyContentTest, GeneratesTheSameBytesFromAnyPosition) {
  std::array<std::byte, 100> whole;
  generate({5, 0, 0}, whole);
  for (size_t at = 0; at < whole.size(); ++at) {
    std::array<std::byte, 100> part;
    generate({5, at, 0}, {part.data(), whole.size() - at});
    EXPECT_EQ(std::memcmp(part.data(), whole.data() + at, whole.size() - at), 0);
  }
}

TEST(VerifyContentTest, MapEqualsPlainBytes) {
  constexpr size_t kLength = 997;
  Rng rng(7);
  ContentMap map(1, kLength);
  std::array<std::byte, kLength> plain;
  generate({1, 0, 0}, plain);
  for (uint64_t i = 0; i < 2000; ++i) {
    const uint64_t length = rng.below(100);
    const uint64_t at = rng.below(kLength - length + 1);
    const Content content{2 + i, rng.below(50), 0};
    map.write(at, {content, length});
    generate(content, std::span(plain).subspan(at, length));
    ASSERT_FALSE(map.check(plain, 0, kLength).has_value());
  }
  plain[500] ^= std::byte{1};
  EXPECT_EQ(map.check(plain, 0, kLength)->offset, 500u);
}

TEST(VerifyPlanTest, StaysWithinItsRegions) {
  Workload w = small_options().workload;
  const Limits limits{8, 8, 64, 1024};
  for (uint32_t round = 0; round < 200; ++round) {
    for (const Op& op : make_plan(w, limits, 0, 1, round)) {
      uint64_t total = 0;
      for (const Piece& piece : op.pieces) {
        ASSERT_LE(piece.offset + piece.length, region_bytes(w, op.local));
        total += piece.length;
      }
      ASSERT_EQ(total, op.length);
      ASSERT_LE(op.pieces.size(), limits.max_send_sge);
      ASSERT_LE(op.receive.size(), limits.max_recv_sge);
      for (const Piece& piece : op.receive)
        ASSERT_LE(piece.offset + piece.length, region_bytes(w, Use::kReceive));
      if (!op.is_send() && !op.is_atomic()) {
        ASSERT_LE(op.remote_offset + op.length, region_bytes(w, op.remote));
      }
      if (op.inline_data) {
        ASSERT_LE(op.length, limits.max_inline_bytes);
      }
    }
  }
}

TEST(VerifyPlanTest, WithoutFencesReadsOnlyWhatNothingWrites) {
  Workload w = small_options().workload;
  w.fences = 0;
  for (uint32_t round = 0; round < 200; ++round) {
    for (const Op& op : make_plan(w, Limits{8, 8, 64, 1024}, 0, 1, round)) {
      ASSERT_FALSE(op.fence);
      if (op.kind == OpKind::kRead) {
        ASSERT_EQ(op.remote, Use::kSource);
      }
    }
  }
}

}  // namespace
}  // namespace hostnic::verify
