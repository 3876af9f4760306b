// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/verify/plan.h"

#include <algorithm>
#include <bit>

#include "tests/apps/verify/rng.h"

namespace hostnic::verify {
namespace {

constexpr uint64_t kSlackBytes = 64u << 10;

// Hands out disjoint parts of a region in rising order with random gaps: small ones if the region
// is just large enough, up to the whole rest divided by the operations to come if it is not.
class Carver {
 public:
  explicit Carver(uint64_t length) : length_(length) {}

  uint64_t free_bytes() const { return length_ - at_; }
  // `length` must not exceed free_bytes().
  uint64_t take(Rng& rng, uint64_t length, uint32_t operations_to_come) {
    const uint64_t spare = free_bytes() - length;
    at_ +=
        rng.below(std::min(spare, std::max<uint64_t>(spare / (2 * operations_to_come + 2), 1)) + 1);
    const uint64_t here = at_;
    at_ += length;
    return here;
  }

 private:
  uint64_t length_;
  uint64_t at_ = 0;
};

class PlanMaker {
 public:
  PlanMaker(const Workload& workload, const Limits& limits, uint32_t side, uint32_t qp,
            uint32_t round)
      : workload_(workload),
        limits_(limits),
        qp_(qp),
        rng_(mix64(workload.seed) ^ mix64((uint64_t{round} << 20) + (qp << 1) + side + 1)),
        fresh_(region_bytes(workload, Use::kFresh)),
        receive_(region_bytes(workload, Use::kReceive)),
        landing_(region_bytes(workload, Use::kLanding)) {
    for (unsigned k = 0; k < kOpKinds; ++k)
      if (workload.mix & (1u << k)) kinds_.push_back(static_cast<OpKind>(k));
  }

  std::vector<Op> make() {
    const uint32_t every = std::max(1u, workload_.depth / 2);
    for (uint32_t i = 0; i < workload_.ops; ++i) {
      to_come_ = workload_.ops - i - 1;
      Op op = make_op(kinds_[rng_.below(kinds_.size())]);
      op.signalled = rng_.percent(60) || i % every == every - 1 || to_come_ == 0;
      ops_.push_back(std::move(op));
    }
    return std::move(ops_);
  }

 private:
  bool may_be(OpKind kind) const { return std::ranges::find(kinds_, kind) != kinds_.end(); }

  uint64_t draw_length() {
    const uint64_t max = workload_.max_bytes;
    const uint64_t kind = rng_.below(100);
    if (kind < 6) return 0;
    if (kind < 16) return std::min(max, rng_.below(17));
    if (kind < 40) {  // a few packets, give or take a byte
      const uint64_t multiple = limits_.mtu_bytes * rng_.between(1, 1 + rng_.below(33));
      return std::min(max, multiple + rng_.below(3) - 1);
    }
    const unsigned bits = static_cast<unsigned>(rng_.below(std::bit_width(max) + 1));
    return rng_.below(std::min(max, (uint64_t{1} << bits) - 1) + 1);
  }

  // Cuts `length` bytes at `offset` into 1 to max_sge pieces, some of length 0, and shuffles where
  // the cuts lie: adjoining pieces of one region, which need not be used in that order.
  std::vector<Piece> cut(uint64_t offset, uint64_t length, uint32_t max_sge) {
    const uint32_t count = rng_.percent(50) ? 1 : static_cast<uint32_t>(rng_.between(1, max_sge));
    std::vector<uint64_t> cuts{0, length};
    for (uint32_t i = 1; i < count; ++i) cuts.push_back(rng_.below(length + 1));
    std::ranges::sort(cuts);
    std::vector<Piece> pieces;
    for (size_t i = 0; i + 1 < cuts.size(); ++i)
      pieces.push_back({offset + cuts[i], cuts[i + 1] - cuts[i]});
    for (size_t i = pieces.size(); i > 1; --i) std::swap(pieces[i - 1], pieces[rng_.below(i)]);
    return pieces;
  }

  uint64_t random_offset(Use use, uint64_t length) {
    return rng_.below(region_bytes(workload_, use) - length + 1);
  }

  // Gathers from the source region, each piece from anywhere in it.
  void gather_from_source(Op& op) {
    op.pieces = cut(0, op.length, limits_.max_send_sge);
    for (Piece& piece : op.pieces) piece.offset = random_offset(Use::kSource, piece.length);
    op.inline_data = op.length <= limits_.max_inline_bytes && rng_.percent(60);
  }

  void choose_local(Op& op) {
    if (op.length > 0 && op.length <= fresh_.free_bytes() && rng_.percent(25)) {
      op.local = Use::kFresh;
      op.pieces = cut(fresh_.take(rng_, op.length, to_come_), op.length, limits_.max_send_sge);
    } else {
      gather_from_source(op);
    }
  }

  // Half of the WRITEs land near an earlier one, so that they overlap.
  uint64_t write_offset(uint64_t length) {
    const uint64_t last = region_bytes(workload_, Use::kArena) - length;
    if (last_write_.length == 0 || rng_.percent(50)) return rng_.below(last + 1);
    const uint64_t low = last_write_.offset > length ? last_write_.offset - length : 0;
    return std::min(last, low + rng_.below(length + last_write_.length + 1));
  }

  void make_write(Op& op) {
    choose_local(op);
    op.remote = Use::kArena;
    op.remote_offset = write_offset(op.length);
    if (op.length > 0) last_write_ = {op.remote_offset, op.length};
  }

  void make_receive(Op& op) {
    if (op.kind == OpKind::kWriteImm) {  // its receive is consumed, its list is not looked at
      if (rng_.percent(50)) return;
      op.receive = cut(receive_.take(rng_, 0, to_come_), 0, 1);
      return;
    }
    const uint64_t slack =
        std::min(receive_.free_bytes() - op.length, rng_.percent(50) ? 0 : rng_.below(100));
    const uint64_t capacity = op.length + slack;
    op.receive = cut(receive_.take(rng_, capacity, to_come_), capacity, limits_.max_recv_sge);
    if (capacity == 0 && rng_.percent(50)) op.receive.clear();
  }

  void make_read(Op& op) {
    op.length = std::min(op.length, landing_.free_bytes());
    op.local = Use::kLanding;
    op.pieces = cut(landing_.take(rng_, op.length, to_come_), op.length, limits_.max_send_sge);
    op.remote = rng_.percent(50) && workload_.fences != 0 ? Use::kArena : Use::kSource;
    op.remote_offset = op.remote == Use::kArena && op.length > 0 && rng_.percent(50)
                           ? write_offset(op.length)
                           : random_offset(op.remote, op.length);
  }

  // false: there is no room for its result.
  bool make_atomic(Op& op) {
    if (landing_.free_bytes() < 8) return false;
    op.length = 8;
    op.local = Use::kLanding;
    op.pieces = {{landing_.take(rng_, 8, to_come_), 8}};
    if (op.kind == OpKind::kFetchAdd) {
      const bool shared = rng_.percent(50);
      op.counter = static_cast<uint32_t>(shared ? rng_.below(kSharedCounters)
                                                : own_counter(qp_, rng_.below(kAddersPerQp)));
      op.compare_add = shared ? 1 + rng_.below(1u << 30) : rng_.next();
    } else {
      op.counter =
          own_counter(qp_, static_cast<uint32_t>(rng_.between(kAddersPerQp, kCountersPerQp - 1)));
      op.compare_add = rng_.percent(60) ? 0 : rng_.next();
      op.swap = rng_.next();
    }
    return true;
  }

  Op make_op(OpKind kind) {
    Op op;
    op.kind = kind;
    // WRITEs before it are there when a READ is answered, and by the letter not before (FLUSH).
    if (to_come_ == 0 && workload_.fences == 0 && may_be(OpKind::kRead)) op.kind = OpKind::kRead;
    if (op.is_atomic() && !make_atomic(op)) op.kind = OpKind::kWrite;
    if (!op.is_atomic()) op.length = draw_length();
    if (op.kind == OpKind::kRead) make_read(op);
    if (op.is_send()) {
      op.length = std::min(op.length, receive_.free_bytes());
      choose_local(op);
    }
    if (op.is_write()) make_write(op);
    if (op.takes_receive()) make_receive(op);
    if (op.has_imm()) op.imm = static_cast<uint32_t>(rng_.next());
    op.solicited = op.takes_receive() && rng_.percent(30);
    // READs have what was there before what is behind them, with and without fences.
    op.fence = rng_.percent(4) && workload_.fences != 0;
    return op;
  }

  const Workload& workload_;
  const Limits& limits_;
  uint32_t qp_;
  Rng rng_;
  Carver fresh_, receive_, landing_;
  uint32_t to_come_ = 0;
  std::vector<OpKind> kinds_;
  Piece last_write_;
  std::vector<Op> ops_;
};

}  // namespace

std::string_view to_string(Use use) {
  constexpr std::array<std::string_view, kUses> kNames = {"source", "fresh", "arena", "receive",
                                                          "landing"};
  return kNames[static_cast<size_t>(use)];
}

uint64_t region_bytes(const Workload& workload, Use use) {
  // In 32nds of the share of a QP, or of the largest message.
  constexpr std::array<uint64_t, kUses> kShare = {7, 3, 8, 6, 7};
  constexpr std::array<uint64_t, kUses> kOfLargest = {36, 16, 48, 48, 48};
  const auto i = static_cast<size_t>(use);
  if (workload.mr_bytes == 0) return workload.max_bytes * kOfLargest[i] / 32 + kSlackBytes;
  return workload.mr_bytes / workload.qps / 32 * kShare[i] / 64 * 64;
}

uint64_t region_stream(uint64_t seed, uint32_t side, uint32_t qp, Use use) {
  return mix64(mix64(seed) + 1000003ULL * side + 65537ULL * qp + static_cast<uint64_t>(use)) | 1;
}

uint64_t fresh_stream(uint64_t seed, uint32_t side, uint32_t qp, uint32_t round, uint32_t op) {
  return mix64(region_stream(seed, side, qp, Use::kFresh) + (uint64_t{round} << 32) + op) & ~1ULL;
}

std::vector<Op> make_plan(const Workload& workload, const Limits& limits, uint32_t side,
                          uint32_t qp, uint32_t round) {
  return PlanMaker(workload, limits, side, qp, round).make();
}

}  // namespace hostnic::verify
