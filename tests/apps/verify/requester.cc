// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/apps/verify/flow.h"

namespace hostnic::verify {
namespace {

constexpr ibv_wr_opcode kOpcodes[kOpKinds] = {
    IBV_WR_RDMA_WRITE,        IBV_WR_RDMA_WRITE_WITH_IMM, IBV_WR_SEND,
    IBV_WR_SEND_WITH_IMM,     IBV_WR_RDMA_READ,           IBV_WR_ATOMIC_FETCH_AND_ADD,
    IBV_WR_ATOMIC_CMP_AND_SWP};
constexpr ibv_wc_opcode kCompletionOpcodes[kOpKinds] = {
    IBV_WC_RDMA_WRITE, IBV_WC_RDMA_WRITE, IBV_WC_SEND,     IBV_WC_SEND,
    IBV_WC_RDMA_READ,  IBV_WC_FETCH_ADD,  IBV_WC_COMP_SWAP};

// A wrong key where none is needed: inline data has no lkey.
constexpr uint32_t kNoKey = 0xdeadbeef;

}  // namespace

std::string describe(const Op& op) {
  std::string text =
      fmt::format("{} of {} bytes, {} SGEs", to_string(op.kind), op.length, op.pieces.size());
  if (op.is_atomic())
    text += fmt::format(", word {}", op.counter);
  else if (!op.is_send())
    text += fmt::format(", remote {}+{}", to_string(op.remote), op.remote_offset);
  if (op.is_send()) text += fmt::format(", into {} SGEs", op.receive.size());
  if (op.inline_data) text += ", inline";
  if (op.fence) text += ", fence";
  if (op.solicited) text += ", solicited";
  if (!op.signalled) text += ", unsignalled";
  return text;
}

std::vector<Extent> message_of(const Workload& workload, uint32_t side, uint32_t qp, uint32_t round,
                               uint32_t i, const Op& op) {
  if (op.local == Use::kFresh)
    return {{{fresh_stream(workload.seed, side, qp, round, i), 0, 0}, op.length}};
  const uint64_t stream = region_stream(workload.seed, side, qp, Use::kSource);
  std::vector<Extent> message;
  for (const Piece& piece : op.pieces) message.push_back({{stream, piece.offset, 0}, piece.length});
  return message;
}

Requester::Requester(const FlowSetup& setup, const RemoteAddress& arena,
                     const RemoteAddress& source, const RemoteAddress& counters)
    : setup_(setup),
      arena_(arena),
      source_(source),
      counters_(counters),
      arena_model_(region_stream(setup.workload->seed, 1 - setup.side, setup.index, Use::kArena),
                   arena.length),
      source_model_(region_stream(setup.workload->seed, 1 - setup.side, setup.index, Use::kSource),
                    source.length),
      own_words_(kCountersPerQp) {
  for (uint32_t i = 0; i < kCountersPerQp; ++i)
    own_words_[i] =
        Regions::first_value(setup.workload->seed, 1 - setup.side, own_counter(setup.index, i));
}

uint64_t Requester::wr_id(uint32_t i) const {
  return uint64_t{round_} << 32 | uint64_t{setup_.index} << 16 | i;
}

std::string Requester::where(uint32_t i) const {
  return fmt::format("seed {} round {} side {} qp {} op {} ({})", setup_.workload->seed, round_,
                     setup_.side, setup_.index, i, describe(plan_[i]));
}

void Requester::begin(uint32_t round, std::vector<Op> plan) {
  round_ = round;
  plan_ = std::move(plan);
  posted_.assign(plan_.size(), {});
  next_ = done_ = 0;
  setup_.progress->sends_posted = 0;
  setup_.progress->sends_done = 0;
}

void Requester::fill_fresh(const Op& op, uint32_t i) {
  Region& fresh = setup_.regions->of(setup_.index, Use::kFresh);
  const std::vector<Extent> message =
      message_of(*setup_.workload, setup_.side, setup_.index, round_, i, op);
  scatter(message, op.pieces, fresh.model);
  uint64_t position = 0;
  for (const Piece& piece : op.pieces) {
    generate(message[0].content.advanced(position), {fresh.at(piece.offset), piece.length});
    position += piece.length;
  }
}

void Requester::fill_pieces(const Op& op, std::vector<ibv_sge>& sges) {
  const Region& region = setup_.regions->of(setup_.index, op.local);
  for (const Piece& piece : op.pieces) {
    const std::byte* address = region.at(piece.offset);
    uint32_t key = region.lkey;
    if (op.inline_data) {  // from memory that is no MR, and is overwritten after the post
      const size_t at = inline_bytes_.size();
      inline_bytes_.resize(at + piece.length);
      if (piece.length > 0) std::memcpy(inline_bytes_.data() + at, address, piece.length);
      address = inline_bytes_.data() + at;
      key = kNoKey;
    }
    sges.push_back({reinterpret_cast<uint64_t>(address), static_cast<uint32_t>(piece.length), key});
  }
}

// In the order of posting, which is the order of execution.
void Requester::fill_target(const Op& op, Posted& posted, ibv_send_wr& wr) {
  if (op.is_atomic()) {
    wr.wr.atomic.remote_addr = counters_.va + 8 * op.counter;
    wr.wr.atomic.rkey = counters_.rkey;
    wr.wr.atomic.compare_add = op.compare_add;
    wr.wr.atomic.swap = op.swap;
    if (op.counter < kSharedCounters) return;
    uint64_t& word = own_words_[op.counter - own_counter(setup_.index, 0)];
    posted.original = word;
    if (op.kind == OpKind::kFetchAdd) {
      word += op.compare_add;
    } else {  // the plan says by how much the comparison is off: 0 swaps
      wr.wr.atomic.compare_add = word ^ op.compare_add;
      if (op.compare_add == 0) word = op.swap;
    }
    return;
  }
  if (op.is_send()) return;
  const RemoteAddress& target = op.remote == Use::kArena ? arena_ : source_;
  wr.wr.rdma.remote_addr = target.va + op.remote_offset;
  wr.wr.rdma.rkey = target.rkey;
  if (op.kind == OpKind::kRead)
    (op.remote == Use::kArena ? arena_model_ : source_model_)
        .read(op.remote_offset, op.length, posted.expected);
}

void Requester::model_write(const Op& op, uint32_t i) {
  const Piece target{op.remote_offset, op.length};
  scatter(message_of(*setup_.workload, setup_.side, setup_.index, round_, i, op), {&target, 1},
          arena_model_);
}

void Requester::fill_request(uint32_t i, ibv_send_wr& wr, std::vector<ibv_sge>& sges) {
  const Op& op = plan_[i];
  wr = {};
  wr.wr_id = wr_id(i);
  wr.opcode = kOpcodes[static_cast<size_t>(op.kind)];
  if (op.signalled) wr.send_flags |= IBV_SEND_SIGNALED;
  if (op.solicited) wr.send_flags |= IBV_SEND_SOLICITED;
  if (op.inline_data) wr.send_flags |= IBV_SEND_INLINE;
  if (op.fence) wr.send_flags |= IBV_SEND_FENCE;
  wr.imm_data = op.imm;
  if (op.local == Use::kFresh) fill_fresh(op, i);
  fill_pieces(op, sges);
  wr.sg_list = sges.data();
  wr.num_sge = static_cast<int>(sges.size());
  fill_target(op, posted_[i], wr);
  if (op.is_write()) model_write(op, i);
}

bool Requester::post(uint32_t batch) {
  const uint32_t room = setup_.caps.max_send_wr - (next_ - done_);
  const uint32_t count = std::min({batch, room, static_cast<uint32_t>(plan_.size()) - next_});
  if (count == 0) return false;
  std::vector<ibv_send_wr> list(count);
  std::vector<std::vector<ibv_sge>> sges(count);
  inline_bytes_.clear();
  inline_bytes_.reserve(size_t{count} * setup_.caps.max_inline_data);  // the SGEs point into it
  for (uint32_t k = 0; k < count; ++k) {
    fill_request(next_ + k, list[k], sges[k]);
    if (k > 0) list[k - 1].next = &list[k];
  }
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(setup_.qp, list.data(), &bad);
  if (error != 0) {
    const auto at = bad == nullptr ? 0 : static_cast<uint32_t>(bad - list.data());
    throw Failure{fmt::format("{}: ibv_post_send: {}, at number {} of a list of {}",
                              where(next_ + std::min(at, count - 1)), strerror(error), at, count)};
  }
  std::ranges::fill(inline_bytes_, std::byte{0xee});
  next_ += count;
  setup_.progress->sends_posted = next_;
  return true;
}

void Requester::on_completion(const ibv_wc& wc) {
  uint32_t i = done_;
  while (i < next_ && !plan_[i].signalled) ++i;
  if (i == next_)
    throw Failure{
        fmt::format("round {} side {} qp {}: completion of wr_id {:#x} ({}), but no "
                    "signalled request is outstanding",
                    round_, setup_.side, setup_.index, wc.wr_id, ibv_wc_status_str(wc.status))};
  const Op& op = plan_[i];
  const ibv_wc_opcode opcode = kCompletionOpcodes[static_cast<size_t>(op.kind)];
  const auto wrong = [&](const char* what, uint64_t expected, uint64_t found) {
    throw Failure{fmt::format("{}: completion with {} {:#x}, expected {:#x}", where(i), what, found,
                              expected)};
  };
  if (wc.status != IBV_WC_SUCCESS)
    throw Failure{fmt::format("{}: completed with {} (vendor error {})", where(i),
                              ibv_wc_status_str(wc.status), wc.vendor_err)};
  if (wc.wr_id != wr_id(i)) wrong("wr_id", wr_id(i), wc.wr_id);
  if (wc.opcode != opcode) wrong("opcode", opcode, wc.opcode);
  if (wc.qp_num != setup_.qp->qp_num) wrong("qp_num", setup_.qp->qp_num, wc.qp_num);
  // Other devices say here once more what was asked for.
  const unsigned flags = wc.wc_flags & ~unsigned{IBV_WC_WITH_IMM};
  if (flags != 0) wrong("wc_flags", 0, flags);
  if ((op.kind == OpKind::kRead || op.is_atomic()) && wc.byte_len != op.length)
    wrong("byte_len", op.length, wc.byte_len);
  while (done_ <= i) finish(done_++);
  setup_.progress->sends_done = done_;
}

void Requester::finish_atomic(uint32_t i, Region& landing) {
  const Op& op = plan_[i];
  uint64_t original = 0;
  std::memcpy(&original, landing.at(op.pieces[0].offset), 8);
  landing.model.write(op.pieces[0].offset, {Content::of_literal(original), 8});
  if (op.counter < kSharedCounters) {
    shared_adds_.push_back({op.counter, original, op.compare_add});
  } else if (original != posted_[i].original) {
    throw Failure{
        fmt::format("{}: returned {:#x}, expected {:#x}", where(i), original, posted_[i].original)};
  }
}

// The request is complete: its result is here, and its source may be overwritten.
void Requester::finish(uint32_t i) {
  const Op& op = plan_[i];
  if (op.local == Use::kFresh) {
    Region& fresh = setup_.regions->of(setup_.index, Use::kFresh);
    for (const Piece& piece : op.pieces) {
      const Content scribble{kScribbledStream, piece.offset, 0};
      generate(scribble, {fresh.at(piece.offset), piece.length});
      fresh.model.write(piece.offset, {scribble, piece.length});
    }
  }
  if (op.local != Use::kLanding) return;
  Region& landing = setup_.regions->of(setup_.index, Use::kLanding);
  if (op.is_atomic()) return finish_atomic(i, landing);
  scatter(posted_[i].expected, op.pieces, landing.model);
  for (const Piece& piece : op.pieces)
    landing.check(piece.offset, piece.length, where(i) + " at its completion");
}

}  // namespace hostnic::verify
