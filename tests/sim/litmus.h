// SPDX-License-Identifier: BSD-3-Clause
// Litmus programs: a few requests of one or two queue pairs that touch two words of a peer, and all
// outcomes that a model permits. An outcome is what each READ and atomic has read, what the peer
// sees when a message's completion comes, what somebody sees who looks at both words at some
// moment, and what is there at the end.
//
// The model is of hostnic's NICs with `ordering = "adversarial"`, which take less liberty than
// InfiniBand leaves (docs/ordering.md). It knows nothing of packets: events that have an order, or
// have none.
#pragma once

#include <array>
#include <cstdint>
#include <set>
#include <string>
#include <vector>

namespace hostnic::sim::litmus {

// kWriteX and kWriteY change a word each, kWriteImmX one, and tells of it, as kSend does; kReadX
// and kAddX are of the first word.
enum class Kind : uint8_t { kWriteX, kWriteY, kSend, kReadX, kAddX, kWriteImmX };
inline constexpr std::array kAllKinds = {Kind::kWriteX, Kind::kWriteY, Kind::kSend,
                                         Kind::kReadX,  Kind::kAddX,   Kind::kWriteImmX};

struct Op {
  Kind kind = Kind::kWriteX;
  bool fence = false;
  uint32_t queue_pair = 0;
  bool reads() const { return kind == Kind::kReadX || kind == Kind::kAddX; }
  bool writes() const {
    return kind == Kind::kWriteX || kind == Kind::kWriteY || kind == Kind::kWriteImmX;
  }
  bool tells() const { return kind == Kind::kSend || kind == Kind::kWriteImmX; }
};
using Program = std::vector<Op>;

// What the two words are.
struct Words {
  uint64_t x = 0, y = 0;
};
// What the op at this place writes, or adds.
constexpr uint64_t value_of(size_t place) { return (place + 1) * 100; }
inline constexpr uint64_t kAdded = 1;

struct Outcome {
  std::vector<Words> seen;  // by op: what it read (x), or what was there when it told
  Words looked, left;       // at some moment; at the end
};
std::string to_string(const Program& program, const Outcome& outcome);
std::string to_string(const Program& program);

// All outcomes that are permitted, as text.
std::set<std::string> permitted(const Program& program);

// All programs of so many ops by one queue pair, with and without the fences that mean anything;
// `queue_pairs` 2: by two, all assignments but those to one.
std::vector<Program> all_programs(size_t ops, uint32_t queue_pairs);

}  // namespace hostnic::sim::litmus
