// SPDX-License-Identifier: BSD-3-Clause
// The plan of a round: what each side will post, drawn from the seed alone, so that both sides
// know what each byte of both memories must be afterwards.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "tests/apps/verify/content.h"
#include "tests/apps/verify/options.h"

namespace hostnic::verify {

// The regions that each side has per QP.
enum class Use : uint8_t {
  kSource,   // never changes: SENDs and WRITEs gather from it, the peer READs it
  kFresh,    // filled anew for a request, overwritten as soon as that is complete
  kArena,    // the peer WRITEs and READs it; WRITEs may overlap
  kReceive,  // where receives point
  kLanding,  // where READs and atomics land
};
inline constexpr unsigned kUses = 5;
std::string_view to_string(Use use);

// Limits agreed by both sides before the first plan: the smaller of both.
struct Limits {
  uint32_t max_send_sge = 1, max_recv_sge = 1, max_inline_bytes = 0, mtu_bytes = 1024;
  bool operator==(const Limits&) const = default;
};

uint64_t region_bytes(const Workload& workload, Use use);

// 8-byte words of a side that the peer's atomics target: first words that all QPs add to, then
// four of each QP alone (two added to, two compared and swapped).
inline constexpr uint32_t kSharedCounters = 8;
inline constexpr uint32_t kCountersPerQp = 4;
inline constexpr uint32_t kAddersPerQp = 2;
constexpr uint32_t counter_words(uint32_t qps) { return kSharedCounters + kCountersPerQp * qps; }
constexpr uint32_t own_counter(uint32_t qp, uint32_t i) {
  return kSharedCounters + qp * kCountersPerQp + i;
}

// Names of the pseudo-random streams.
uint64_t region_stream(uint64_t seed, uint32_t side, uint32_t qp, Use use);
uint64_t fresh_stream(uint64_t seed, uint32_t side, uint32_t qp, uint32_t round, uint32_t op);
inline constexpr uint64_t kScribbledStream = 0x5c1bb1ed;

struct Op {
  OpKind kind = OpKind::kWrite;
  uint64_t length = 0;
  Use local = Use::kSource;   // region of `pieces`
  std::vector<Piece> pieces;  // gather list, or where a READ or an atomic lands
  Use remote = Use::kArena;   // WRITE: arena; READ: arena or source
  uint64_t remote_offset = 0;
  uint32_t counter = 0;  // atomics
  uint64_t compare_add = 0, swap = 0;
  uint32_t imm = 0;
  bool signalled = false, solicited = false, inline_data = false, fence = false;
  std::vector<Piece> receive;  // the receiver's scatter list, if the operation takes a receive

  bool is_write() const { return kind == OpKind::kWrite || kind == OpKind::kWriteImm; }
  bool is_send() const { return kind == OpKind::kSend || kind == OpKind::kSendImm; }
  bool is_atomic() const { return kind == OpKind::kFetchAdd || kind == OpKind::kCompareSwap; }
  bool has_imm() const { return kind == OpKind::kWriteImm || kind == OpKind::kSendImm; }
  bool takes_receive() const { return is_send() || kind == OpKind::kWriteImm; }
};

// What side `side` posts on QP `qp` in round `round`, in order. The last one is signalled, and at
// least one of every `workload.depth / 2`.
std::vector<Op> make_plan(const Workload& workload, const Limits& limits, uint32_t side,
                          uint32_t qp, uint32_t round);

}  // namespace hostnic::verify
