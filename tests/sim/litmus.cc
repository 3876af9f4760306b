// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/litmus.h"

#include <fmt/format.h>

#include <bit>

namespace hostnic::sim::litmus {
namespace {

// Something that happens at one moment: a word is written, read, read by an atomic, written by an
// atomic, a completion comes, or somebody looks.
struct Event {
  enum class What : uint8_t { kWrite, kRead, kAddRead, kAddWrite, kTell, kLook };
  What what = What::kLook;
  size_t op = 0;
  uint32_t after = 0;  // events that come first, as bits
};

class Model {
 public:
  explicit Model(const Program& program) : program_(program) {
    for (size_t op = 0; op < program.size(); ++op) {
      if (program[op].writes()) add(Event::What::kWrite, op);
      if (program[op].kind == Kind::kReadX) add(Event::What::kRead, op);
      if (program[op].kind == Kind::kAddX) {
        add(Event::What::kAddRead, op);
        add(Event::What::kAddWrite, op);
      }
      if (program[op].tells()) add(Event::What::kTell, op);
    }
    add(Event::What::kLook, program.size());
    for (Event& later : events_)
      for (size_t i = 0; i < events_.size(); ++i)
        if (comes_first(events_[i], later)) later.after |= 1u << i;
  }

  std::set<std::string> run() {
    Outcome outcome;
    outcome.seen.resize(program_.size());
    go_on(0, {}, outcome);
    return std::move(outcomes_);
  }

 private:
  void add(Event::What what, size_t op) { events_.push_back({what, op, 0}); }

  // Whether a fence between the two, or the later one's, has all READs before it come first.
  bool is_fenced(size_t earlier, size_t later) const {
    for (size_t i = earlier + 1; i <= later; ++i)
      if (program_[i].fence && program_[i].queue_pair == program_[earlier].queue_pair) return true;
    return false;
  }

  // Whether an atomic between the two, or the later one, has the READ come first, since its answer
  // could not be asked for again behind it.
  bool is_behind_atomic(size_t read, size_t later) const {
    for (size_t i = read + 1; i <= later; ++i)
      if (program_[i].kind == Kind::kAddX && program_[i].queue_pair == program_[read].queue_pair)
        return true;
    return false;
  }

  bool comes_first(const Event& one, const Event& other) const {
    using What = Event::What;
    if (one.what == What::kLook || other.what == What::kLook) return false;
    if (one.op == other.op)
      return (one.what == What::kWrite && other.what == What::kTell) ||
             (one.what == What::kAddRead && other.what == What::kAddWrite);
    if (one.op > other.op) return false;
    const Op &first = program_[one.op], &second = program_[other.op];
    if (first.queue_pair != second.queue_pair) return false;
    switch (one.what) {
      case What::kWrite:
        // READs, atomics and messages behind a WRITE find it done; WRITEs need not.
        return other.what != What::kWrite;
      case What::kAddRead:
        return false;  // what it keeps out: is_kept_out()
      case What::kAddWrite:
        return other.what != What::kWrite || is_fenced(one.op, other.op);
      case What::kRead:
        return second.reads() || is_fenced(one.op, other.op) || is_behind_atomic(one.op, other.op);
      case What::kTell:
        return other.what == What::kTell;
      case What::kLook:
        break;
    }
    return false;
  }

  // Whether an atomic that has read its word, and not written it yet, keeps the event from
  // happening: other atomics, and WRITEs of its own queue pair, come before or behind it.
  bool is_kept_out(const Event& event, uint32_t done) const {
    using What = Event::What;
    if (event.what != What::kWrite && event.what != What::kAddRead) return false;
    for (size_t i = 0; i < events_.size(); ++i) {
      if (events_[i].what != What::kAddRead || (done >> i & 3) != 1) continue;
      if (event.what == What::kAddRead ||
          program_[event.op].queue_pair == program_[events_[i].op].queue_pair)
        return true;
    }
    return false;
  }

  // Whether a WRITE of the same word that was posted behind this one has been done: then nobody
  // sees this one.
  bool is_overwritten(size_t op, uint32_t done) const {
    for (size_t i = 0; i < events_.size(); ++i) {
      if (events_[i].what != Event::What::kWrite || events_[i].op <= op || (done >> i & 1) == 0)
        continue;
      const Op &first = program_[op], &second = program_[events_[i].op];
      if (first.queue_pair == second.queue_pair &&
          (first.kind == Kind::kWriteY) == (second.kind == Kind::kWriteY))
        return true;
    }
    return false;
  }

  void happen(const Event& event, uint32_t done, Words& words, Outcome& outcome) const {
    using What = Event::What;
    const size_t op = event.op;
    if (event.what == What::kLook) outcome.looked = words;
    if (event.what == What::kTell) outcome.seen[op] = words;
    if (event.what == What::kRead || event.what == What::kAddRead) outcome.seen[op] = {words.x, 0};
    if (event.what == What::kAddWrite) words.x = outcome.seen[op].x + kAdded;
    if (event.what == What::kWrite && !is_overwritten(op, done))
      (program_[op].kind == Kind::kWriteY ? words.y : words.x) = value_of(op);
  }

  void go_on(uint32_t done, const Words& words, const Outcome& outcome) {
    if (done + 1 == 1u << events_.size()) {
      Outcome ended = outcome;
      ended.left = words;
      outcomes_.insert(to_string(program_, ended));
      return;
    }
    for (size_t i = 0; i < events_.size(); ++i) {
      if ((done >> i & 1) != 0 || (events_[i].after & ~done) != 0) continue;
      if (is_kept_out(events_[i], done)) continue;
      Words next = words;
      Outcome so_far = outcome;
      happen(events_[i], done, next, so_far);
      go_on(done | 1u << i, next, so_far);
    }
  }

  const Program& program_;
  std::vector<Event> events_;
  std::set<std::string> outcomes_;
};

constexpr const char* kNames[] = {"WRITE x", "WRITE y", "SEND", "READ x", "ADD x", "WRITE_IMM x"};

// A fence means something behind a READ or atomic of the same queue pair, and not to those.
bool may_fence(const Program& program) {
  const Op& last = program.back();
  if (last.reads()) return false;
  for (size_t i = 0; i + 1 < program.size(); ++i)
    if (program[i].reads() && program[i].queue_pair == last.queue_pair) return true;
  return false;
}

void add_programs(Program& program, size_t ops, uint32_t queue_pairs, std::vector<Program>& all) {
  if (program.size() == ops) {
    uint32_t used = 0;
    for (const Op& op : program) used |= 1u << op.queue_pair;
    // The first op is the first queue pair's: the other half is the same.
    if (program.front().queue_pair == 0 && std::popcount(used) == static_cast<int>(queue_pairs))
      all.push_back(program);
    return;
  }
  for (const Kind kind : kAllKinds)
    for (uint32_t queue_pair = 0; queue_pair < queue_pairs; ++queue_pair) {
      program.push_back({kind, false, queue_pair});
      add_programs(program, ops, queue_pairs, all);
      if (may_fence(program)) {
        program.back().fence = true;
        add_programs(program, ops, queue_pairs, all);
      }
      program.pop_back();
    }
}

}  // namespace

std::string to_string(const Program& program) {
  std::string text;
  for (const Op& op : program)
    text += fmt::format("{}{}{}{}", text.empty() ? "" : "; ", kNames[static_cast<size_t>(op.kind)],
                        op.fence ? " fenced" : "", op.queue_pair != 0 ? " by the second" : "");
  return text;
}

std::string to_string(const Program& program, const Outcome& outcome) {
  std::string text;
  for (size_t op = 0; op < program.size(); ++op) {
    if (program[op].reads()) text += fmt::format("{} read {}, ", op, outcome.seen[op].x);
    if (program[op].tells())
      text += fmt::format("{} told of {} {}, ", op, outcome.seen[op].x, outcome.seen[op].y);
  }
  return text + fmt::format("looked {} {}, left {} {}", outcome.looked.x, outcome.looked.y,
                            outcome.left.x, outcome.left.y);
}

std::set<std::string> permitted(const Program& program) { return Model(program).run(); }

std::vector<Program> all_programs(size_t ops, uint32_t queue_pairs) {
  std::vector<Program> all;
  Program program;
  add_programs(program, ops, queue_pairs, all);
  return all;
}

}  // namespace hostnic::sim::litmus
