// SPDX-License-Identifier: BSD-3-Clause
// Litmus programs on NICs whose `ordering` is adversarial: each outcome that the model permits is
// met with some seed, and none that it forbids with any (docs/ordering.md).
#include "tests/sim/litmus.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>

#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

using litmus::Kind;
using litmus::Op;
using litmus::Outcome;
using litmus::Program;
using litmus::Words;

constexpr uint64_t kX = 0, kY = 4096, kReceives = 8192;  // offsets of the peer's memory
constexpr uint64_t kLandings = 4096;                     // offset of what READs get
constexpr uint32_t kWord = 8;

WorldSettings settings_of(Ordering ordering, uint64_t seed) {
  WorldSettings settings;
  settings.ordering = ordering;
  settings.adversary_seed = seed;
  settings.trace = false;
  return settings;
}

// Two connections between two hosts, on which programs are run again and again.
class Bench {
 public:
  explicit Bench(Ordering ordering, uint64_t seed = 1)
      : pair_({}, settings_of(ordering, seed)), random_(seed) {
    near_ = {pair_.near.get(), (second_near_ = pair_.world.make_endpoint(0)).get()};
    far_ = {pair_.far.get(), (second_far_ = pair_.world.make_endpoint(1)).get()};
    pair_.world.connect(*near_[1], *far_[1]);
  }

  Outcome run(const Program& program) {
    begin(program);
    const uint64_t looks_at = random_.below(40);
    turns_ = 0;
    constexpr std::array<uint32_t, 3> kPercent = {4, 40, 90};
    polls_percent_ = kPercent[random_.below(kPercent.size())];
    // Where nothing happens any more, the program still has to look.
    constexpr uint32_t kMostLooks = 1000;
    bool ended = false;
    for (uint32_t i = 0; i < kMostLooks && !ended; ++i)
      ended = pair_.world.run_until([&] { return turn(looks_at) == program.size() + tellers_; },
                                    Pair::kLimitNs, /*idle_is_a_bug=*/false);
    EXPECT_TRUE(ended) << to_string(program);
    // What is acknowledged and not to be seen yet comes now.
    pair_.world.run_for(kMillisecond);
    if (turns_ <= looks_at) outcome_.looked = words();
    for (size_t op = 0; op < program.size(); ++op)
      if (program[op].reads()) outcome_.seen[op].x = load(pair_.local, landing(op));
    outcome_.left = words();
    return outcome_;
  }

  Pair& pair() { return pair_; }

 private:
  static uint64_t landing(size_t op) { return kLandings + op * kWord; }
  static uint64_t load(const Memory& memory, uint64_t offset) {
    uint64_t word = 0;
    memcpy(&word, memory.data() + offset, sizeof(word));
    return word;
  }
  static void store(Memory& memory, uint64_t offset, uint64_t word) {
    memcpy(memory.data() + offset, &word, sizeof(word));
  }
  Words words() const { return {load(pair_.remote, kX), load(pair_.remote, kY)}; }

  // What both programs do in a turn. Returns how many completions there were so far.
  size_t turn(uint64_t looks_at) {
    // The end that is told looks when it likes.
    const bool polls = random_.percent(polls_percent_);
    for (size_t i = 0; i < 2; ++i) {
      completed_ += near_[i]->poll(*near_[i]->send_cq).size();
      if (!polls) continue;
      driver::Completion told;
      if (far_[i]->recv_cq->poll(&told, 1) == 1) note_told(told.wr_id);
    }
    if (turns_++ == looks_at) outcome_.looked = words();
    return completed_ + told_;
  }

  void note_told(uint64_t op) {
    outcome_.seen[op] = words();
    ++told_;
  }

  void begin(const Program& program) {
    outcome_ = {};
    outcome_.seen.resize(program.size());
    completed_ = told_ = tellers_ = 0;
    store(pair_.remote, kX, 0);
    store(pair_.remote, kY, 0);
    for (size_t op = 0; op < program.size(); ++op) {
      if (!program[op].tells()) continue;
      ++tellers_;
      const Sge sge{pair_.remote.address(kReceives + op * kWord), kWord, pair_.rkey};
      EXPECT_EQ(far_[program[op].queue_pair]->post_recv({.wr_id = op, .sges = {&sge, 1}}), 0);
    }
    for (size_t op = 0; op < program.size(); ++op) post(program[op], op);
  }

  void post(const Op& op, size_t place) {
    constexpr SendOp kOps[] = {SendOp::kWrite, SendOp::kWrite,    SendOp::kSend,
                               SendOp::kRead,  SendOp::kFetchAdd, SendOp::kWriteImm};
    store(pair_.local, place * kWord, litmus::value_of(place));
    if (op.reads()) store(pair_.local, landing(place), ~uint64_t{0});
    const Sge sge = pair_.at(op.reads() ? landing(place) : place * kWord, kWord);
    const uint64_t to = pair_.remote.address(op.kind == Kind::kWriteY ? kY : kX);
    driver::SendRequest request =
        Pair::request(kOps[static_cast<size_t>(op.kind)], place, sge, to, pair_.rkey);
    request.fence = op.fence;
    request.compare_add = litmus::kAdded;
    EXPECT_EQ(near_[op.queue_pair]->post_send(request), 0);
  }

  Pair pair_;
  Random random_;
  std::unique_ptr<Endpoint> second_near_, second_far_;
  std::array<Endpoint*, 2> near_{}, far_{};
  Outcome outcome_;
  size_t completed_ = 0, told_ = 0, tellers_ = 0;
  uint64_t turns_ = 0;
  uint32_t polls_percent_ = 0;
};

// Runs a program until all that is permitted has been met, and some more, or `most` times. Returns
// what has not been met; what is forbidden fails.
std::set<std::string> not_met(Bench& bench, const Program& program, size_t least, size_t most) {
  const std::set<std::string> permitted = litmus::permitted(program);
  std::set<std::string> missing = permitted;
  for (size_t i = 0; i < most && (i < least || !missing.empty()); ++i) {
    const std::string met = to_string(program, bench.run(program));
    missing.erase(met);
    EXPECT_TRUE(permitted.contains(met)) << to_string(program) << ": " << met;
    if (testing::Test::HasFailure()) break;
  }
  return missing;
}

void expect_all_met(const std::vector<Program>& programs) {
  Bench bench(Ordering::kAdversarial);
  for (const Program& program : programs) {
    const auto missing = not_met(bench, program, 50, 50'000);
    for (const std::string& outcome : missing)
      ADD_FAILURE() << to_string(program) << ": never met: " << outcome;
    if (testing::Test::HasFailure()) break;
  }
}

TEST(Litmus, TwoRequestsHaveAllPermittedOutcomesAndNoOthers) {
  expect_all_met(litmus::all_programs(2, 1));
}

TEST(Litmus, TwoRequestsOfTwoQueuePairsHaveAllPermittedOutcomesAndNoOthers) {
  expect_all_met(litmus::all_programs(2, 2));
}

TEST(Litmus, ThreeRequestsHaveAllPermittedOutcomesAndNoOthers) {
  expect_all_met(litmus::all_programs(3, 1));
}

TEST(Litmus, ThreeRequestsOfTwoQueuePairsHaveNoForbiddenOutcome) {
  Bench bench(Ordering::kAdversarial, 7);
  for (const Program& program : litmus::all_programs(3, 2)) {
    not_met(bench, program, 10, 10);
    if (HasFailure()) return;
  }
}

// What programs get used to, without an adversary: of some outcomes they never hear.
TEST(Litmus, ByDefaultNothingForbiddenHappensAndNotAllThatIsPermitted) {
  Bench bench(Ordering::kTail);
  for (const Program& program : litmus::all_programs(2, 1)) {
    not_met(bench, program, 50, 50);
    if (HasFailure()) return;
  }
  const auto never = [&](const Program& program, const char* outcome) {
    EXPECT_TRUE(not_met(bench, program, 200, 200).contains(outcome)) << to_string(program);
  };
  never({{Kind::kWriteX}, {Kind::kWriteY}}, "looked 0 200, left 100 200");
  never({{Kind::kWriteY}, {Kind::kWriteImmX}}, "1 told of 200 100, looked 200 0, left 200 100");
  never({{Kind::kAddX}, {Kind::kWriteX}}, "0 read 200, looked 0 0, left 201 0");
  never({{Kind::kReadX}, {Kind::kWriteX}}, "0 read 200, looked 0 0, left 200 0");
  never({{Kind::kReadX}, {Kind::kWriteX}}, "0 read 200, looked 200 0, left 200 0");
}

// A seed makes the same run each time.
TEST(Litmus, ASeedIsARun) {
  const auto outcomes_of = [](uint64_t seed) {
    Bench bench(Ordering::kAdversarial, seed);
    const Program program = {{Kind::kReadX}, {Kind::kWriteX}, {Kind::kWriteY}, {Kind::kSend}};
    std::vector<std::string> outcomes;
    for (int i = 0; i < 50; ++i) outcomes.push_back(to_string(program, bench.run(program)));
    return outcomes;
  };
  EXPECT_EQ(outcomes_of(1), outcomes_of(1));
  EXPECT_NE(outcomes_of(1), outcomes_of(2));
}

}  // namespace
}  // namespace hostnic::sim
