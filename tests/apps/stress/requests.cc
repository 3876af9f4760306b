// SPDX-License-Identifier: BSD-3-Clause
// Work requests: what is chosen, how it is remembered, how it is posted.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/apps/stress/common.h"
#include "tests/apps/stress/connection.h"
#include "tests/apps/verify/content.h"

namespace hostnic::stress {
namespace {

constexpr uint32_t kBadKey = 0x7fbadbad;
constexpr uint64_t kGuard = 0x5aa5f00ff00fa55aULL;
// Of a slot: for offsets, the guard word, and the space between pieces.
constexpr uint32_t kSlotReserve = 128;
constexpr unsigned kMostAtOnce = 4;

bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}
bool takes_a_receive(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM ||
         opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
}
bool is_send(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_SEND || opcode == IBV_WR_SEND_WITH_IMM;
}

ibv_wr_opcode choose_opcode(Rng& rng) {
  const uint64_t choice = rng.below(100);
  if (choice < 30) return IBV_WR_RDMA_WRITE;
  if (choice < 40) return IBV_WR_RDMA_WRITE_WITH_IMM;
  if (choice < 55) return IBV_WR_SEND;
  if (choice < 65) return IBV_WR_SEND_WITH_IMM;
  if (choice < 85) return IBV_WR_RDMA_READ;
  return choice < 93 ? IBV_WR_ATOMIC_FETCH_AND_ADD : IBV_WR_ATOMIC_CMP_AND_SWP;
}

uint32_t choose_length(uint32_t most, Rng& rng) {
  if (rng.percent(5)) return 0;
  return static_cast<uint32_t>(rng.between(1, rng.percent(50) ? std::min(most, 256U) : most));
}

void set_remote(ibv_send_wr& wr, uint64_t address, uint32_t rkey) {
  if (is_atomic(wr.opcode)) {
    wr.wr.atomic.remote_addr = address;
    wr.wr.atomic.rkey = rkey;
  } else if (!is_send(wr.opcode)) {
    wr.wr.rdma.remote_addr = address;
    wr.wr.rdma.rkey = rkey;
  }
}

void store_word(std::byte* at, uint64_t value) { std::memcpy(at, &value, sizeof value); }

}  // namespace

void fill(const Pieces& pieces, uint64_t stream) {
  uint64_t position = 0;
  for (unsigned i = 0; i < pieces.count; ++i) {
    verify::generate({stream, position, 0}, pieces.list[i]);
    position += pieces.list[i].size();
  }
}

std::optional<uint64_t> difference(const Pieces& pieces, uint32_t length, uint64_t stream) {
  uint64_t position = 0;
  for (unsigned i = 0; i < pieces.count && position < length; ++i) {
    const auto piece =
        pieces.list[i].first(std::min<uint64_t>(pieces.list[i].size(), length - position));
    if (const auto at = verify::first_difference(piece, {stream, position, 0}))
      return position + *at;
    position += piece.size();
  }
  return std::nullopt;
}

Pieces cut(std::byte* slot, uint32_t length, Rng& rng) {
  Pieces pieces;
  if (length == 0) return pieces;
  pieces.count = static_cast<unsigned>(rng.between(1, kMaxPieces));
  std::array<uint32_t, kMaxPieces> lengths{};
  uint32_t left = length;
  for (unsigned i = 0; i + 1 < pieces.count; ++i) {
    lengths[i] = static_cast<uint32_t>(rng.below(left + 1));
    left -= lengths[i];
  }
  lengths[pieces.count - 1] = left;
  // The last piece lies first.
  std::byte* at = slot;
  for (unsigned i = pieces.count; i-- > 0;) {
    at += rng.below(8);
    pieces.list[i] = {at, lengths[i]};
    at += lengths[i];
  }
  return pieces;
}

std::byte* End::local_slot(uint32_t number) const {
  return memory_->data() + size_t{number % slots_} * slot_bytes_;
}
std::byte* End::target_slot(uint32_t number) const {
  return memory_->data() + (size_t{slots_} + number % slots_) * slot_bytes_;
}
std::byte* End::receive_slot(uint32_t number) const {
  return memory_->data() + (2 * size_t{slots_} + number % slots_) * slot_bytes_;
}

Request& End::next_request() {
  Request& request = requests_[tail_ % requests_.size()];
  request = {};
  request.stream = next_stream_++;
  request.local_mr = mr_;
  return request;
}

void End::name_remote(Request& request, ibv_send_wr& wr) {
  uint32_t rkey = 0;
  if (peer.window_ && peer.window_->usable) {
    request.window = peer.window_;
    rkey = peer.window_->rkey;
  } else {
    request.remote_mr = peer.mr_;
    rkey = peer.mr_->mr->rkey;
  }
  set_remote(wr, reinterpret_cast<uint64_t>(request.remote), rkey);
}

void End::choose_operation(Request& request, ibv_send_wr& wr, Rng& rng) {
  request.opcode = wr.opcode = choose_opcode(rng);
  const uint32_t most = slot_bytes_ - kSlotReserve;
  request.length = is_atomic(request.opcode) ? 8 : choose_length(most, rng);
  request.signalled = rng.percent(50) || since_signalled_ + 1 >= slots_ / 2;
  since_signalled_ = request.signalled ? 0 : since_signalled_ + 1;
  wr.send_flags = request.signalled ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0U;
  if (rng.percent(10)) wr.send_flags |= IBV_SEND_FENCE;
  if (rng.percent(10)) wr.send_flags |= IBV_SEND_SOLICITED;
  const bool reads = request.opcode == IBV_WR_RDMA_READ || is_atomic(request.opcode);
  if (!reads && request.length <= max_inline_ && rng.percent(60)) wr.send_flags |= IBV_SEND_INLINE;
}

// Writes what the request shall move, and what it must not touch.
void End::choose_memory(Request& request, Rng& rng) {
  const bool atomic = is_atomic(request.opcode);
  request.local = atomic ? Pieces{{std::span(local_slot(tail_), 8)}, 1}
                         : cut(local_slot(tail_), request.length, rng);
  if (is_send(request.opcode)) {
    fill(request.local, request.stream);
    return;
  }
  request.remote = peer.target_slot(tail_) + (atomic ? rng.below(8) * 8 : rng.below(64));
  if (atomic) {
    request.before = rng.next();
    store_word(request.remote, request.before);
  } else if (request.opcode == IBV_WR_RDMA_READ) {
    fill({{std::span(request.remote, request.length)}, 1}, request.stream);
  } else {
    fill(request.local, request.stream);
    store_word(request.remote + request.length, kGuard);
  }
}

void End::fill_in(Request& request, ibv_send_wr& wr, ibv_sge* sges, Rng& rng) {
  choose_memory(request, rng);
  wr.wr_id = Id{Kind::kSend, index, life, tail_}.word();
  wr.sg_list = sges;
  wr.num_sge = static_cast<int>(request.local.count);
  for (unsigned i = 0; i < request.local.count; ++i) {
    const auto piece = request.local.list[i];
    sges[i] = {reinterpret_cast<uint64_t>(piece.data()), static_cast<uint32_t>(piece.size()),
               mr_->mr->lkey};
  }
  if (!is_send(request.opcode)) name_remote(request, wr);
  if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    wr.wr.atomic.compare_add = rng.next();
    request.after = request.before + wr.wr.atomic.compare_add;
  } else if (request.opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
    const bool equal = rng.percent(50);
    wr.wr.atomic.compare_add = equal ? request.before : ~request.before;
    wr.wr.atomic.swap = rng.next();
    request.after = equal ? wr.wr.atomic.swap : request.before;
  }
  if (takes_a_receive(request.opcode)) {
    const auto imm = static_cast<uint32_t>(rng.next());
    wr.imm_data = imm;
    request.message = peer.expect_message(request, imm, IBV_WC_SUCCESS);
    peer.incoming_.back().request = tail_;
  }
}

uint32_t End::expect_message(const Request& request, uint32_t imm, ibv_wc_status status) {
  Message message;
  message.opcode = request.opcode;
  message.length = request.length;
  message.imm = imm;
  message.stream = request.stream;
  message.expected = status;
  incoming_.push_back(message);
  return first_message_ + static_cast<uint32_t>(incoming_.size()) - 1;
}

void End::post(ibv_send_wr* first) {
  ibv_send_wr* bad = nullptr;
  if (const int error = ibv_post_send(qp, first, &bad); error != 0)
    wrong(fmt::format("ibv_post_send: {}", strerror(error)));
}

bool End::post_some(Rng& rng) {
  const uint32_t room = slots_ - outstanding();
  const auto wanted = static_cast<uint32_t>(rng.between(1, kMostAtOnce));
  const uint32_t amount = std::min(room, wanted);
  if (amount == 0) return false;
  std::array<ibv_send_wr, kMostAtOnce> wrs{};
  std::array<ibv_sge, kMostAtOnce * kMaxPieces> sges{};
  const uint32_t first = tail_;
  for (uint32_t i = 0; i < amount; ++i) {
    Request& request = next_request();
    choose_operation(request, wrs[i], rng);
    fill_in(request, wrs[i], &sges[size_t{i} * kMaxPieces], rng);
    wrs[i].next = i + 1 < amount ? &wrs[i + 1] : nullptr;
    ++tail_;
  }
  post(wrs.data());
  // Inline bytes have been taken: their place may be used at once.
  for (uint32_t i = 0; i < amount; ++i) {
    if ((wrs[i].send_flags & IBV_SEND_INLINE) == 0) continue;
    const Pieces& pieces = requests_[(first + i) % requests_.size()].local;
    for (unsigned k = 0; k < pieces.count; ++k) std::ranges::fill(pieces.list[k], std::byte{0xee});
  }
  return true;
}

// A signalled request of no bytes, so that all before it is known to be complete.
void End::post_last() {
  if (since_signalled_ == 0 || outstanding() == slots_) return;
  Request& request = next_request();
  request.remote = peer.target_slot(tail_);
  store_word(request.remote, kGuard);
  ibv_send_wr wr{};
  wr.wr_id = Id{Kind::kSend, index, life, tail_++}.word();
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  name_remote(request, wr);
  since_signalled_ = 0;
  post(&wr);
}

void End::post_break(Break how, Rng& rng) {
  Request& request = next_request();
  ibv_send_wr wr{};
  const bool misaligned = how == Break::kMisaligned, reads = rng.percent(50);
  request.opcode = wr.opcode = misaligned                        ? IBV_WR_ATOMIC_FETCH_AND_ADD
                               : how == Break::kTooLong          ? IBV_WR_SEND
                               : how == Break::kBadRkeyWithImm   ? IBV_WR_RDMA_WRITE_WITH_IMM
                               : reads && how != Break::kBadLkey ? IBV_WR_RDMA_READ
                                                                 : IBV_WR_RDMA_WRITE;
  request.expected = misaligned || how == Break::kTooLong ? IBV_WC_REM_INV_REQ_ERR
                     : how == Break::kBadLkey             ? IBV_WC_LOC_PROT_ERR
                                                          : IBV_WC_REM_ACCESS_ERR;
  const uint32_t too_long = (peer.srq_ ? Srq::kSlotBytes : slot_bytes_) + 1;
  request.length = how == Break::kTooLong ? too_long : 8;
  request.remote_mr = peer.mr_;
  // The first slots may be the source of others: these bytes are read and go nowhere.
  std::byte* local = how == Break::kTooLong ? memory_->data() : local_slot(tail_);
  ibv_sge sge{reinterpret_cast<uint64_t>(local), request.length,
              how == Break::kBadLkey ? kBadKey : mr_->mr->lkey};
  wr.wr_id = Id{Kind::kSend, index, life, tail_}.word();
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  const bool bad_rkey = how == Break::kBadRkey || how == Break::kBadRkeyWithImm;
  uint64_t address = reinterpret_cast<uint64_t>(peer.target_slot(tail_));
  if (misaligned) address += 4;
  if (how == Break::kOutOfBounds)
    address = reinterpret_cast<uint64_t>(peer.memory_->data()) + peer.memory_->size() - 7;
  set_remote(wr, address, bad_rkey ? kBadKey : peer.mr_->mr->rkey);
  if (how == Break::kTooLong || how == Break::kBadRkeyWithImm)
    peer.expect_message(request, 0,
                        how == Break::kTooLong ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_ACCESS_ERR);
  if (how != Break::kBadLkey) peer.may_refuse_ = true;
  since_signalled_ = 0;
  ++tail_;
  post(&wr);
}

// What flushes last: both queues are behind all that was posted.
void End::post_markers() {
  stop_receives();
  Request& request = next_request();
  request.opcode = IBV_WR_SEND;
  request.marker = true;
  request.expected = IBV_WC_WR_FLUSH_ERR;
  ibv_send_wr wr{};
  wr.wr_id = Id{Kind::kSend, index, life, tail_++}.word();
  wr.opcode = IBV_WR_SEND;
  wr.send_flags = IBV_SEND_SIGNALED;
  post(&wr);
  if (srq_) {
    marker_received_done_ = true;
    return;
  }
  Receive& receive = receives_[receive_tail_ % receives_.size()];
  receive = {};
  receive.marker = true;
  ibv_recv_wr recv{Id{Kind::kReceive, index, life, receive_tail_++}.word(), nullptr, nullptr, 0};
  ibv_recv_wr* bad = nullptr;
  if (const int error = ibv_post_recv(qp, &recv, &bad); error != 0)
    wrong(fmt::format("ibv_post_recv in ERR: {}", strerror(error)));
}

void End::refill(Rng& rng) {
  if (srq_ || stopped_ || receives_flushed_) return;
  while (receive_tail_ - receive_head_ < slots_) {
    Receive& receive = receives_[receive_tail_ % receives_.size()];
    receive = {};
    receive.pieces = cut(receive_slot(receive_tail_), slot_bytes_ - 32, rng);
    receive.mr = mr_;
    std::array<ibv_sge, kMaxPieces> sges{};
    for (unsigned i = 0; i < receive.pieces.count; ++i) {
      const auto piece = receive.pieces.list[i];
      sges[i] = {reinterpret_cast<uint64_t>(piece.data()), static_cast<uint32_t>(piece.size()),
                 mr_->mr->lkey};
    }
    ibv_recv_wr wr{Id{Kind::kReceive, index, life, receive_tail_}.word(), nullptr, sges.data(),
                   static_cast<int>(receive.pieces.count)};
    ibv_recv_wr* bad = nullptr;
    if (const int error = ibv_post_recv(qp, &wr, &bad); error != 0)
      wrong(fmt::format("ibv_post_recv: {}", strerror(error)));
    ++receive_tail_;
  }
}

// ---- windows and regions while work goes on

void End::post_bind() {
  const auto type = next_stream_ % 2 == 0 ? IBV_MW_TYPE_1 : IBV_MW_TYPE_2;
  auto window = std::make_shared<Window>(mr_, type);
  const ibv_mw_bind_info info{
      mr_->mr, reinterpret_cast<uint64_t>(memory_->data()), memory_->size(),
      IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC};
  Request& request = next_request();
  request.opcode = IBV_WR_BIND_MW;
  request.window = window_ = window;
  const uint64_t id = Id{Kind::kSend, index, life, tail_++}.word();
  since_signalled_ = 0;
  if (type == IBV_MW_TYPE_1) {
    ibv_mw_bind bind{id, IBV_SEND_SIGNALED, info};
    must(ibv_bind_mw(qp, window->mw, &bind), "ibv_bind_mw");
    window->rkey = window->mw->rkey;
    return;
  }
  ibv_send_wr wr{};
  wr.wr_id = id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.bind_mw = {window->mw, ibv_inc_rkey(window->mw->rkey), info};
  window->rkey = wr.bind_mw.rkey;
  post(&wr);
}

void End::post_invalidate() {
  Request& request = next_request();
  request.opcode = IBV_WR_LOCAL_INV;
  request.window = window_;
  ibv_send_wr wr{};
  wr.wr_id = Id{Kind::kSend, index, life, tail_++}.word();
  wr.opcode = IBV_WR_LOCAL_INV;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.invalidate_rkey = window_->rkey;
  window_->usable = false;
  since_signalled_ = 0;
  post(&wr);
}

void End::window_step(Rng& rng) {
  if (outstanding() == slots_) return;
  if (!window_) {
    post_bind();
    return;
  }
  // A bound region can't be deregistered.
  if (window_->usable && rng.percent(20)) {
    if (const int error = ibv_dereg_mr(window_->mr->mr); error != EBUSY)
      wrong(fmt::format("ibv_dereg_mr of a region with a window gives {}, not EBUSY", error));
    count(tally().calls_refused);
  }
  // Nobody uses it (windows are in requests of both ends, under one mutex).
  if (window_.use_count() != 1 || !window_->usable) return;
  if (window_->mw->type == IBV_MW_TYPE_2) {
    post_invalidate();
  } else {
    retired_.push_back(std::move(window_));
    window_.reset();
  }
}

// The same memory under new keys; the old ones go with the last request that names them.
void End::region_step() {
  auto fresh = std::make_shared<Mr>(pd_, *memory_);
  retired_.push_back(std::move(mr_));
  mr_ = std::move(fresh);
}

std::vector<std::shared_ptr<void>> End::take_retired() {
  std::vector<std::shared_ptr<void>> unused;
  std::erase_if(retired_, [&](std::shared_ptr<void>& one) {
    if (one.use_count() != 1) return false;
    unused.push_back(std::move(one));
    return true;
  });
  return unused;
}

}  // namespace hostnic::stress
