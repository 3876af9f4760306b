// SPDX-License-Identifier: BSD-3-Clause
// What a completion must be, and what must have happened by then.
#include <fmt/format.h>

#include <cstring>

#include "tests/apps/stress/common.h"
#include "tests/apps/stress/connection.h"
#include "tests/apps/stress/crowd.h"

namespace hostnic::stress {
namespace {

constexpr uint64_t kGuard = 0x5aa5f00ff00fa55aULL;

uint64_t load_word(const std::byte* at) {
  uint64_t value = 0;
  std::memcpy(&value, at, sizeof value);
  return value;
}

const char* name_of(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
      return "WRITE";
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return "WRITE_WITH_IMM";
    case IBV_WR_SEND:
      return "SEND";
    case IBV_WR_SEND_WITH_IMM:
      return "SEND_WITH_IMM";
    case IBV_WR_RDMA_READ:
      return "READ";
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return "CMP_AND_SWP";
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return "FETCH_AND_ADD";
    case IBV_WR_BIND_MW:
      return "BIND_MW";
    default:
      return "LOCAL_INV";
  }
}

ibv_wc_opcode completion_of(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return IBV_WC_RDMA_WRITE;
    case IBV_WR_RDMA_READ:
      return IBV_WC_RDMA_READ;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return IBV_WC_COMP_SWAP;
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return IBV_WC_FETCH_ADD;
    case IBV_WR_BIND_MW:
      return IBV_WC_BIND_MW;
    case IBV_WR_LOCAL_INV:
      return IBV_WC_LOCAL_INV;
    default:
      return IBV_WC_SEND;
  }
}

}  // namespace

std::vector<End*> all_ends;

void dispatch(Cq& cq, const ibv_wc& wc) {
  const Id id = Id::of(wc.wr_id);
  if (id.kind == Kind::kLane) {
    Crowd::on_completion(id, wc, cq.ordered);
    return;
  }
  End* end = id.kind == Kind::kSharedReceive ? cq.device.find(wc.qp_num)
             : id.owner < all_ends.size()    ? all_ends[id.owner]
                                             : nullptr;
  if (end == nullptr)
    die(fmt::format("{}: completion {:#x} of QP {:#x} is nobody's", cq.device.name, wc.wr_id,
                    wc.qp_num));
  const std::lock_guard lock(end->connection.mutex);
  if (id.kind != Kind::kSharedReceive && id.life != (end->life & kLifeMask))
    die(fmt::format("{}: completion {:#x} of what was destroyed ({})", cq.device.name, wc.wr_id,
                    end->describe()));
  if (wc.qp_num != end->qpn)
    die(fmt::format("completion of QP {:#x} for {}", wc.qp_num, end->describe()));
  end->connection.happened();
  if (id.kind == Kind::kSend)
    end->on_send(id.number, wc, cq.ordered);
  else if (id.kind == Kind::kReceive)
    end->on_receive(id.number, wc, cq.ordered);
  else
    end->on_shared_receive(id.number, wc);
}

std::string End::describe() const {
  std::string text = fmt::format(
      "connection {} end {}: {} QP {:#x} to {} QP {:#x}, requests {} to {} and receives {} to {} "
      "outstanding, {} messages to come{}",
      connection.number, index % 2, shared == nullptr ? "-" : shared->device.name, qpn,
      peer.shared == nullptr ? "-" : peer.shared->device.name, peer.qpn, head_, tail_,
      receive_head_, receive_tail_, incoming_.size(), srq_ ? ", shared receives" : "");
  for (uint32_t i = head_; i != tail_; ++i) {
    const Request& request = requests_[i % requests_.size()];
    text += fmt::format("\n    {} {} of {} bytes{}{}{}", i, name_of(request.opcode), request.length,
                        request.signalled ? ", signalled" : "", request.done ? ", done" : "",
                        request.marker                       ? ", posted last"
                        : request.expected != IBV_WC_SUCCESS ? ", shall fail"
                                                             : "");
  }
  return text;
}

void End::wrong(const std::string& what) const {
  die(fmt::format("{}\n  {}\n  {}", what, describe(), peer.describe()));
}

void End::refused_a_request(ibv_event_type event) {
  if (!may_refuse_.load())
    die(fmt::format("{} on a queue pair whose peer does nothing wrong: connection {}",
                    ibv_event_type_str(event), connection.number));
}

// ---- requests

// What it was to do has happened.
void End::verify(uint32_t number, Request& request) {
  const auto check = [&](const Pieces& pieces, const char* where) {
    if (const auto at = difference(pieces, request.length, request.stream))
      wrong(fmt::format("{} {} of {} bytes is complete: wrong byte {} {}", name_of(request.opcode),
                        number, request.length, *at, where));
  };
  switch (request.opcode) {
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      check({{std::span(request.remote, request.length)}, 1}, "at the target");
      if (load_word(request.remote + request.length) != kGuard)
        wrong(fmt::format("{} {} of {} bytes wrote behind its end", name_of(request.opcode), number,
                          request.length));
      break;
    case IBV_WR_RDMA_READ:
      check(request.local, "here");
      break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      if (load_word(request.local.list[0].data()) != request.before ||
          load_word(request.remote) != request.after)
        wrong(fmt::format("{} {}: gave {:#x} and left {:#x}, not {:#x} and {:#x}",
                          name_of(request.opcode), number, load_word(request.local.list[0].data()),
                          load_word(request.remote), request.before, request.after));
      break;
    case IBV_WR_BIND_MW:
      request.window->usable = true;
      break;
    case IBV_WR_LOCAL_INV:
      retired_.push_back(std::move(window_));
      window_.reset();
      break;
    default:
      break;
  }
  if (request.message) {
    if (Message* message = peer.message_at(*request.message)) {
      message->sent = true;
      peer.retire_messages();
    }
  }
  count(tally().operations);
  count(tally().bytes, request.length);
}

void End::succeeded(uint32_t number) {
  Request& request = requests_[number % requests_.size()];
  verify(number, request);
  request.done = true;
}

// Unsignalled requests are complete when a later one is. Ordered: nothing else may be left.
void End::finish_before(uint32_t number, bool ordered) {
  uint32_t first = number;
  while (first != head_) {
    const Request& before = requests_[(first - 1) % requests_.size()];
    if (before.done || before.signalled) break;
    --first;
  }
  for (uint32_t i = first; i != number; ++i) succeeded(i);
  if (!ordered) return;
  for (uint32_t i = head_; i != number; ++i)
    if (!requests_[i % requests_.size()].done)
      wrong(fmt::format("request {} completes before {}", number, i));
}

void End::flushed(uint32_t number, Request& request, bool ordered) {
  if (!error_expected_) wrong(fmt::format("request {} is flushed, and nothing failed", number));
  if (ordered) {
    if (!first_flushed_)
      finish_before(number, true);
    else if (*last_flushed_ + 1 != number)
      wrong(fmt::format("request {} is flushed after {}", number, *last_flushed_));
  }
  last_flushed_ = number;
  if (!first_flushed_ || static_cast<int32_t>(number - *first_flushed_) < 0)
    first_flushed_ = number;
  request.done = true;
  if (request.marker)
    marker_sent_done_ = true;
  else
    count(tally().flushed);
}

void End::on_send(uint32_t number, const ibv_wc& wc, bool ordered) {
  if (number - head_ >= tail_ - head_)
    wrong(fmt::format("request {} completes and is not outstanding", number));
  Request& request = requests_[number % requests_.size()];
  if (request.done) wrong(fmt::format("request {} completes twice", number));
  if (wc.status == IBV_WC_WR_FLUSH_ERR && request.expected != IBV_WC_WR_FLUSH_ERR &&
      request.expected != IBV_WC_SUCCESS)
    wrong(fmt::format("request {} should fail by itself and is flushed", number));
  if (wc.status == IBV_WC_WR_FLUSH_ERR) {
    flushed(number, request, ordered);
  } else {
    if (wc.status != request.expected)
      wrong(fmt::format("{} {} completes with '{}' ({:#x}), not '{}'", name_of(request.opcode),
                        number, ibv_wc_status_str(wc.status), wc.vendor_err,
                        ibv_wc_status_str(request.expected)));
    if (!request.signalled) wrong(fmt::format("unsignalled request {} has a completion", number));
    if (ordered && first_flushed_)
      wrong(fmt::format("request {} completes after {} was flushed", number, *first_flushed_));
    finish_before(number, ordered);
    if (wc.status == IBV_WC_SUCCESS) {
      if (wc.opcode != completion_of(request.opcode))
        wrong(fmt::format("{} {} completes with opcode {}", name_of(request.opcode), number,
                          static_cast<int>(wc.opcode)));
      succeeded(number);
    } else {
      request.done = failed_ = true;
      count(tally().errors_expected);
    }
  }
  retire_requests();
}

void End::retire_requests() {
  for (; head_ != tail_ && requests_[head_ % requests_.size()].done; ++head_) {
    Request& request = requests_[head_ % requests_.size()];
    request.local_mr.reset();
    request.remote_mr.reset();
    request.window.reset();
  }
}

// ---- receives

Message* End::message_at(uint32_t number) {
  const uint32_t place = number - first_message_;
  return place < incoming_.size() ? &incoming_[place] : nullptr;
}

// A message is remembered until both sides have had their completion.
void End::retire_messages() {
  while (!incoming_.empty() && incoming_.front().received && incoming_.front().sent) {
    incoming_.pop_front();
    ++first_message_;
  }
}

void End::check_message(Message& message, const ibv_wc& wc, const Pieces& at) {
  if (message.received) wrong("a message is received twice");
  if (wc.status != message.expected)
    wrong(fmt::format("the receive of {} {} completes with '{}' ({:#x}), not '{}'",
                      name_of(message.opcode), message.request, ibv_wc_status_str(wc.status),
                      wc.vendor_err, ibv_wc_status_str(message.expected)));
  message.received = true;
  if (wc.status != IBV_WC_SUCCESS) {
    count(tally().errors_expected);
    return;
  }
  const bool write = message.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  const bool imm = message.opcode != IBV_WR_SEND;
  if (wc.opcode != (write ? IBV_WC_RECV_RDMA_WITH_IMM : IBV_WC_RECV) ||
      wc.byte_len != message.length || ((wc.wc_flags & IBV_WC_WITH_IMM) != 0) != imm ||
      (imm && wc.imm_data != message.imm))
    wrong(fmt::format("the receive of {} {} ({} bytes): opcode {}, {} bytes, flags {:#x}",
                      name_of(message.opcode), message.request, message.length,
                      static_cast<int>(wc.opcode), wc.byte_len, wc.wc_flags));
  if (write) {
    // Its target may be used again once its sender knows that it is complete.
    const uint32_t number = message.request;
    if (number - peer.head_ >= peer.tail_ - peer.head_ ||
        peer.requests_[number % peer.requests_.size()].done)
      return;
    std::byte* target = peer.requests_[number % peer.requests_.size()].remote;
    if (const auto byte =
            difference({{std::span(target, message.length)}, 1}, message.length, message.stream))
      wrong(fmt::format("WRITE_WITH_IMM {} is received: wrong byte {}", number, *byte));
  } else if (const auto byte = difference(at, message.length, message.stream)) {
    wrong(fmt::format("{} {} of {} bytes is received: wrong byte {}", name_of(message.opcode),
                      message.request, message.length, *byte));
  }
  count(tally().messages);
}

void End::on_receive(uint32_t number, const ibv_wc& wc, bool ordered) {
  if (number - receive_head_ >= receive_tail_ - receive_head_)
    wrong(fmt::format("receive {} completes and is not outstanding", number));
  if (ordered && number != receive_head_)
    wrong(fmt::format("receive {} completes before {}", number, receive_head_));
  Receive& receive = receives_[number % receives_.size()];
  if (receive.done) wrong(fmt::format("receive {} completes twice", number));
  receive.done = true;
  if (wc.status == IBV_WC_WR_FLUSH_ERR) {
    if (!error_expected_) wrong(fmt::format("receive {} is flushed, and nothing failed", number));
    receives_flushed_ = true;
    if (receive.marker)
      marker_received_done_ = true;
    else
      count(tally().flushed);
  } else {
    if (ordered && receives_flushed_)
      wrong(fmt::format("receive {} completes after others were flushed", number));
    // The n-th message takes the n-th receive.
    Message* message = message_at(number);
    if (message == nullptr)
      wrong(fmt::format("receive {} completes with '{}' and nothing was sent", number,
                        ibv_wc_status_str(wc.status)));
    check_message(*message, wc, receive.pieces);
    retire_messages();
  }
  for (; receive_head_ != receive_tail_; ++receive_head_) {
    Receive& front = receives_[receive_head_ % receives_.size()];
    if (!front.done) break;
    front.mr.reset();
  }
}

void End::on_shared_receive(uint32_t slot, const ibv_wc& wc) {
  if (!srq_) wrong("a shared receive completes, and it uses none");
  const auto bytes = srq_->take(slot);
  if (wc.status == IBV_WC_WR_FLUSH_ERR) {
    if (!error_expected_) wrong("a shared receive is flushed, and nothing failed");
    receives_flushed_ = true;
    count(tally().flushed);
  } else {
    if (receives_flushed_) wrong("a shared receive completes after others were flushed");
    Message* next = nullptr;
    for (Message& message : incoming_) {
      if (message.received) continue;
      next = &message;
      break;
    }
    if (next == nullptr) wrong("a shared receive completes and nothing was sent");
    check_message(*next, wc, {{bytes}, 1});
    retire_messages();
  }
  srq_->post(slot);
}

// ---- at the end of an error

void End::check_drained() {
  for (uint32_t i = head_; i != tail_; ++i) {
    Request& request = requests_[i % requests_.size()];
    if (request.done) continue;
    if (request.signalled || static_cast<int32_t>(i - first_flushed_.value_or(i)) >= 0)
      wrong(fmt::format("{} {} has no completion in ERR", name_of(request.opcode), i));
    succeeded(i);
  }
  retire_requests();
  if (receive_head_ != receive_tail_) wrong("a receive has no completion in ERR");
}

void End::forget(bool all_told) {
  for (const Message& message : incoming_)
    if (all_told && message.sent && !message.received && message.expected == IBV_WC_SUCCESS)
      wrong(fmt::format("{} {} is complete for its sender and was never received",
                        name_of(message.opcode), message.request));
  requests_.assign(requests_.size(), {});
  receives_.assign(receives_.size(), {});
  incoming_.clear();
  head_ = tail_ = receive_head_ = receive_tail_ = first_message_ = since_signalled_ = 0;
  error_expected_ = failed_ = stopped_ = receives_flushed_ = false;
  first_flushed_.reset();
  last_flushed_.reset();
  marker_sent_done_ = marker_received_done_ = false;
  last_wqe_ = false;
  if (window_) retired_.push_back(std::move(window_));
  window_.reset();
}

}  // namespace hostnic::stress
