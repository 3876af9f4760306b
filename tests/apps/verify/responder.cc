// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/apps/verify/flow.h"

namespace hostnic::verify {
namespace {

// How long a starved receiver keeps its peer's messages waiting.
constexpr uint64_t kStarveNs = 2'000'000;

// What is left of `range` outside of `cover`.
std::vector<Piece> subtract(const std::vector<Piece>& ranges, const Piece& cover) {
  std::vector<Piece> left;
  const uint64_t cover_end = cover.offset + cover.length;
  for (const Piece& r : ranges) {
    const uint64_t end = r.offset + r.length;
    if (cover.length == 0 || end <= cover.offset || cover_end <= r.offset) {
      left.push_back(r);
      continue;
    }
    if (r.offset < cover.offset) left.push_back({r.offset, cover.offset - r.offset});
    if (cover_end < end) left.push_back({cover_end, end - cover_end});
  }
  return left;
}

}  // namespace

Responder::Responder(const FlowSetup& setup)
    : setup_(setup), peer_(1 - setup.side), words_(kCountersPerQp) {
  for (uint32_t i = 0; i < kCountersPerQp; ++i)
    words_[i] = Regions::first_value(setup.workload->seed, setup.side, own_counter(setup.index, i));
}

uint64_t Responder::wr_id(uint32_t receive) const {
  return 1ULL << 63 | uint64_t{round_} << 32 | uint64_t{setup_.index} << 16 | receive;
}

std::string Responder::where(uint32_t i) const {
  return fmt::format("seed {} round {} side {} qp {}, received op {} ({})", setup_.workload->seed,
                     round_, setup_.side, setup_.index, i, describe(plan_[i]));
}

void Responder::begin(uint32_t round, std::vector<Op> peer_plan, Rng& pace) {
  round_ = round;
  plan_ = std::move(peer_plan);
  takers_.clear();
  for (uint32_t i = 0; i < plan_.size(); ++i)
    if (plan_[i].takes_receive()) takers_.push_back(i);
  posted_ = received_ = applied_ = 0;
  window_ = pace.percent(25) ? 1 : static_cast<uint32_t>(pace.between(1, setup_.caps.max_recv_wr));
  delay_ns_ = pace.percent(20) ? kStarveNs : 0;
  start_after_ns_ = 0;
  setup_.progress->receives_posted = 0;
  setup_.progress->receives_done = 0;
}

bool Responder::post(Rng& pace, uint64_t now_ns) {
  const uint32_t outstanding = posted_ - received_;
  uint32_t count = std::min(window_ - std::min(window_, outstanding),
                            static_cast<uint32_t>(takers_.size()) - posted_);
  if (count == 0) return false;
  if (outstanding == 0 && delay_ns_ != 0) {  // let the peer run dry
    if (start_after_ns_ == 0) start_after_ns_ = now_ns + delay_ns_;
    if (now_ns < start_after_ns_) return false;
    start_after_ns_ = 0;
  }
  count = static_cast<uint32_t>(pace.between(1, count));
  const Region& region = setup_.regions->of(setup_.index, Use::kReceive);
  std::vector<ibv_recv_wr> list(count);
  std::vector<std::vector<ibv_sge>> sges(count);
  for (uint32_t k = 0; k < count; ++k) {
    for (const Piece& piece : op_of(posted_ + k).receive)
      sges[k].push_back({reinterpret_cast<uint64_t>(region.at(piece.offset)),
                         static_cast<uint32_t>(piece.length), region.lkey});
    list[k] = {wr_id(posted_ + k), k + 1 < count ? &list[k + 1] : nullptr, sges[k].data(),
               static_cast<int>(sges[k].size())};
  }
  ibv_recv_wr* bad = nullptr;
  if (const int error = ibv_post_recv(setup_.qp, list.data(), &bad); error != 0)
    throw Failure{fmt::format("round {} qp {}: ibv_post_recv: {}, at number {} of a list of {}",
                              round_, setup_.index, strerror(error),
                              bad == nullptr ? -1 : bad - list.data(), count)};
  posted_ += count;
  setup_.progress->receives_posted = posted_;
  return true;
}

bool Responder::solicited_ahead() const {
  if (posted_ == received_) return posted_ == takers_.size();
  for (uint32_t r = received_; r < posted_; ++r)
    if (op_of(r).solicited) return true;
  return false;
}

void Responder::check_receive(const ibv_wc& wc, uint32_t i) const {
  const Op& op = plan_[i];
  const auto wrong = [&](const char* what, uint64_t expected, uint64_t found) {
    throw Failure{fmt::format("{}: receive completion with {} {:#x}, expected {:#x}", where(i),
                              what, found, expected)};
  };
  if (wc.status != IBV_WC_SUCCESS)
    throw Failure{fmt::format("{}: receive completed with {} (vendor error {})", where(i),
                              ibv_wc_status_str(wc.status), wc.vendor_err)};
  const ibv_wc_opcode opcode = op.is_send() ? IBV_WC_RECV : IBV_WC_RECV_RDMA_WITH_IMM;
  const unsigned flags = op.has_imm() ? unsigned{IBV_WC_WITH_IMM} : 0u;
  if (wc.wr_id != wr_id(received_)) wrong("wr_id", wr_id(received_), wc.wr_id);
  if (wc.opcode != opcode) wrong("opcode", opcode, wc.opcode);
  if (wc.qp_num != setup_.qp->qp_num) wrong("qp_num", setup_.qp->qp_num, wc.qp_num);
  // Whether there was a GRH means nothing on RC: other devices say so.
  const unsigned said = wc.wc_flags & ~unsigned{IBV_WC_GRH};
  if (said != flags) wrong("wc_flags", flags, said);
  if (wc.byte_len != op.length) wrong("byte_len", op.length, wc.byte_len);
  if (op.has_imm() && wc.imm_data != op.imm) wrong("imm_data", op.imm, wc.imm_data);
}

void Responder::on_receive(const ibv_wc& wc) {
  if (received_ == posted_)
    throw Failure{
        fmt::format("round {} side {} qp {}: receive completion of wr_id {:#x} ({}), but "
                    "no receive is outstanding",
                    round_, setup_.side, setup_.index, wc.wr_id, ibv_wc_status_str(wc.status))};
  const uint32_t i = takers_[received_];
  check_receive(wc, i);
  const Op& op = plan_[i];
  if (op.is_send()) {
    Region& region = setup_.regions->of(setup_.index, Use::kReceive);
    scatter(message_of(*setup_.workload, peer_, setup_.index, round_, i, op), op.receive,
            region.model);
    for (const Piece& piece : op.receive)
      region.check(piece.offset, piece.length, where(i) + " at its completion");
  }
  const uint32_t first = applied_;
  apply_writes(i + 1);
  check_visible(first, i + 1);
  ++received_;
  setup_.progress->receives_done = received_;
}

// Brings the models up to the state after operation `end` - 1.
void Responder::apply_writes(uint32_t end) {
  ContentMap& arena = setup_.regions->of(setup_.index, Use::kArena).model;
  for (; applied_ < end; ++applied_) {
    const Op& op = plan_[applied_];
    if (op.is_write()) {
      const Piece target{op.remote_offset, op.length};
      scatter(message_of(*setup_.workload, peer_, setup_.index, round_, applied_, op), {&target, 1},
              arena);
    } else if (op.is_atomic() && op.counter >= kSharedCounters) {
      uint64_t& word = words_[op.counter - own_counter(setup_.index, 0)];
      if (op.kind == OpKind::kFetchAdd)
        word += op.compare_add;
      else if (op.compare_add == 0)
        word = op.swap;
    }
  }
}

// A message's completion promises the bytes of the WRITEs before it, except where a WRITE after it
// may already have arrived.
void Responder::check_visible(uint32_t first, uint32_t end) {
  const Region& arena = setup_.regions->of(setup_.index, Use::kArena);
  for (uint32_t i = first; i < end; ++i) {
    if (!plan_[i].is_write()) continue;
    std::vector<Piece> ranges{{plan_[i].remote_offset, plan_[i].length}};
    for (uint32_t later = end; later < plan_.size(); ++later)
      if (plan_[later].is_write())
        ranges = subtract(ranges, {plan_[later].remote_offset, plan_[later].length});
    for (const Piece& range : ranges)
      arena.check(range.offset, range.length,
                  fmt::format("{} when op {} was received", where(i), end - 1));
  }
}

void Responder::end_round() {
  const uint32_t first = applied_;
  apply_writes(static_cast<uint32_t>(plan_.size()));
  check_visible(first, static_cast<uint32_t>(plan_.size()));
  for (uint32_t i = 0; i < kCountersPerQp; ++i) {
    const uint64_t found = setup_.regions->counters()[own_counter(setup_.index, i)];
    if (found != words_[i])
      throw Failure{fmt::format("seed {} round {} side {} qp {}: word {} is {:#x}, expected {:#x}",
                                setup_.workload->seed, round_, setup_.side, setup_.index, i, found,
                                words_[i])};
  }
}

}  // namespace hostnic::verify
