// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/credit-channel/channel.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace hostnic::credit {
namespace {

using verify::Failure;

constexpr uint32_t kFirstPsn = 0x123456;
constexpr uint64_t kReceive = kShares;  // in a wr_id: what no Share stands for

uint64_t wr_id_of(uint64_t kind, uint32_t index) { return kind << 32 | index; }

verify::ConnectAttributes attributes_for(const verify::Device& device) {
  verify::ConnectAttributes how;
  how.mtu_bytes = std::min(device.active_mtu_bytes(), 4096U);
  how.rd_atomic = device.rd_atomic();
  // The first RNR NAK ends the connection: with credits there is none.
  how.rnr_retry = 0;
  how.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
  return how;
}

// What the ledger is told of a peer whose receives are to be ignored.
Depths without_limit(Depths depths) {
  depths.data = depths.immediate = UINT16_MAX;
  return depths;
}

}  // namespace

Channel::Channel(const verify::Device& device, const Options& options, Receiver& receiver)
    : device_(device), options_(options), receiver_(receiver), ledger_(options.depths, {}) {
  const Depths& depths = options.depths;
  // Receives first, then each share's buffers. Acknowledgements have no bytes.
  const uint16_t counts[kShares] = {depths.data, 0, depths.read, depths.write};
  uint32_t first = depths.max_recv_wr();
  for (size_t share = 0; share < kShares; ++share) {
    buffers_[share].first = first;
    buffers_[share].used_for.resize(counts[share]);
    for (uint32_t i = counts[share]; i > 0; --i) buffers_[share].free.push_back(i - 1);
    first += counts[share];
  }
  memory_.resize(size_t{first} * options.message_bytes);
  exposed_.resize(size_t{std::max(options.exposed_slots, 1U)} * options.message_bytes);
  memory_mr_ = device.register_memory(memory_, IBV_ACCESS_LOCAL_WRITE);
  exposed_mr_ = device.register_memory(
      exposed_, IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_WRITE);

  cq_ = device.create_cq(options.trials.cq_entries != 0 ? options.trials.cq_entries
                                                        : static_cast<int>(depths.cq_entries()),
                         nullptr);
  ibv_qp_cap caps{};
  caps.max_send_wr = depths.max_send_wr();
  caps.max_recv_wr = depths.max_recv_wr();
  caps.max_send_sge = caps.max_recv_sge = 1;
  qp_ = device.create_qp(cq_.get(), cq_.get(), caps);
}

Hello Channel::hello() const {
  return {device_.address_of(qp_.get(), kFirstPsn), options_.depths,
          reinterpret_cast<uintptr_t>(exposed_.data()), exposed_mr_->rkey};
}

void Channel::prepare(const Hello& peer) {
  if (!peer.depths.valid())
    throw Failure{"the peer's depths: at least 1 for data, 3 for immediates"};
  peer_ = peer;
  ledger_ = CreditLedger(options_.depths,
                         options_.trials.ignore_credits ? without_limit(peer.depths) : peer.depths);
  device_.to_init(qp_.get(), attributes_for(device_));
  for (uint32_t i = 0; i < options_.depths.max_recv_wr(); ++i) post_receive(i);
}

void Channel::start() { device_.to_ready(qp_.get(), attributes_for(device_), kFirstPsn, peer_.qp); }

// ---- Posting ----

void Channel::send(std::span<const std::byte> message) {
  if (waiting_data_.empty() && ledger_.take(Share::kData)) return post_data(message);
  ++totals_.waited;
  waiting_data_.emplace_back(message.begin(), message.end());
}

void Channel::write(uint32_t slot, std::span<const std::byte> bytes) {
  if (waiting_writes_.empty() && ledger_.take(Share::kWrite)) return post_write(slot, bytes);
  ++totals_.waited;
  waiting_writes_.push_back(
      {slot, static_cast<uint32_t>(bytes.size()), {bytes.begin(), bytes.end()}});
}

void Channel::read(uint32_t slot, uint32_t length) {
  if (waiting_reads_.empty() && ledger_.take(Share::kRead)) return post_read(slot, length);
  ++totals_.waited;
  waiting_reads_.push_back({slot, length, {}});
}

void Channel::post_what_may_go() {
  while (true) {
    const bool for_data = ledger_.uncounted().data >= CreditLedger::half(options_.depths.data);
    const auto ack = ledger_.take_acknowledgement();
    if (!ack) break;
    ++totals_.acks_sent;
    if (for_data) ++totals_.acks_for_data;
    check_receive_is_there();
    post(Share::kImmediate, 0, IBV_WR_SEND_WITH_IMM, 0, 0, ack->to_immediate());
  }
  while (!waiting_data_.empty() && ledger_.take(Share::kData)) {
    post_data(waiting_data_.front());
    waiting_data_.pop_front();
  }
  while (!waiting_writes_.empty() && ledger_.take(Share::kWrite)) {
    post_write(waiting_writes_.front().slot, waiting_writes_.front().bytes);
    waiting_writes_.pop_front();
  }
  while (!waiting_reads_.empty() && ledger_.take(Share::kRead)) {
    post_read(waiting_reads_.front().slot, waiting_reads_.front().length);
    waiting_reads_.pop_front();
  }
}

void Channel::post_data(std::span<const std::byte> message) {
  const uint32_t index = take_buffer(Share::kData);
  std::ranges::copy(message, buffer(index).begin());
  ++totals_.data_sent;
  check_receive_is_there();
  post(Share::kData, index, IBV_WR_SEND, static_cast<uint32_t>(message.size()), 0, 0);
}

void Channel::post_write(uint32_t slot, std::span<const std::byte> bytes) {
  const uint32_t index = take_buffer(Share::kWrite);
  const auto length = static_cast<uint32_t>(bytes.size());
  std::ranges::copy(bytes, buffer(index).begin());
  auto& of = buffers_[static_cast<size_t>(Share::kWrite)];
  of.used_for[index - of.first] = {slot, length, {}};
  post(Share::kWrite, index, IBV_WR_RDMA_WRITE, length, slot, 0);
}

void Channel::post_read(uint32_t slot, uint32_t length) {
  const uint32_t index = take_buffer(Share::kRead);
  auto& of = buffers_[static_cast<size_t>(Share::kRead)];
  of.used_for[index - of.first] = {slot, length, {}};
  post(Share::kRead, index, IBV_WR_RDMA_READ, length, slot, 0);
}

std::span<std::byte> Channel::buffer(uint32_t index) {
  return std::span(memory_).subspan(size_t{index} * options_.message_bytes, options_.message_bytes);
}

// There is one: the ledger lets no more requests through than there are buffers.
uint32_t Channel::take_buffer(Share share) {
  auto& of = buffers_[static_cast<size_t>(share)];
  const uint32_t index = of.free.back();
  of.free.pop_back();
  return of.first + index;
}

// Every request is signaled: its completion is what returns its share.
void Channel::post(Share share, uint32_t index, ibv_wr_opcode opcode, uint32_t length,
                   uint32_t slot, uint32_t immediate) {
  ibv_sge sge{reinterpret_cast<uintptr_t>(buffer(index).data()), length, memory_mr_->lkey};
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  wr.wr_id = wr_id_of(static_cast<uint64_t>(share), index);
  wr.opcode = opcode;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = length == 0 ? 0 : 1;
  if (opcode == IBV_WR_SEND_WITH_IMM) wr.imm_data = htonl(immediate);
  wr.wr.rdma.remote_addr = peer_.exposed_address + uint64_t{slot} * options_.message_bytes;
  wr.wr.rdma.rkey = peer_.exposed_rkey;
  if (const int error = ibv_post_send(qp_.get(), &wr, &bad); error != 0)
    throw Failure{fmt::format("ibv_post_send: {}; {}", strerror(error), describe())};
}

void Channel::post_receive(uint32_t index) {
  ibv_sge sge{reinterpret_cast<uintptr_t>(buffer(index).data()), options_.message_bytes,
              memory_mr_->lkey};
  ibv_recv_wr wr{};
  ibv_recv_wr* bad = nullptr;
  wr.wr_id = wr_id_of(kReceive, index);
  wr.sg_list = &sge;
  wr.num_sge = 1;
  if (const int error = ibv_post_recv(qp_.get(), &wr, &bad); error != 0)
    throw Failure{fmt::format("ibv_post_recv: {}; {}", strerror(error), describe())};
  receives_posted_.fetch_add(1, std::memory_order_release);
}

void Channel::check_receive_is_there() {
  if (watched_ == nullptr || options_.trials.ignore_credits) return;
  if (totals_.data_sent + totals_.acks_sent >
      watched_->receives_posted_.load(std::memory_order_acquire))
    throw Failure{"more messages than the peer has posted receives; " + describe()};
}

// ---- Completions ----

unsigned Channel::progress() {
  std::array<ibv_wc, 16> done;
  const int n = ibv_poll_cq(cq_.get(), done.size(), done.data());
  if (n < 0) throw Failure{"ibv_poll_cq failed; " + describe()};
  for (const ibv_wc& wc : std::span(done).first(static_cast<size_t>(n))) {
    if (wc.status != IBV_WC_SUCCESS)
      throw Failure{fmt::format("completion with status {}: {}; {}", static_cast<int>(wc.status),
                                ibv_wc_status_str(wc.status), describe())};
    if (wc.wr_id >> 32 == kReceive)
      finish_receive(wc);
    else
      finish_send(wc);
    post_what_may_go();
  }
  return static_cast<unsigned>(n);
}

// The receive is posted again before the ledger hears of it: only then may an acknowledgement
// return its credit.
void Channel::finish_receive(const ibv_wc& done) {
  const auto index = static_cast<uint32_t>(done.wr_id);
  bool agreed;
  if ((done.wc_flags & IBV_WC_WITH_IMM) != 0) {
    const auto ack = Acknowledgement::from_immediate(ntohl(done.imm_data));
    post_receive(index);
    agreed = done.byte_len == 0 && ledger_.received_acknowledgement(ack);
    ++totals_.acks_received;
    totals_.data_counted += ack.data;
    totals_.acks_counted += ack.acks;
  } else {
    receiver_.on_message(buffer(index).first(done.byte_len));
    post_receive(index);
    agreed = ledger_.received_data();
    ++totals_.data_received;
  }
  if (!agreed && !options_.trials.ignore_credits)
    throw Failure{"the peer sent or counted more than it could; " + describe()};
}

void Channel::finish_send(const ibv_wc& done) {
  const auto share = static_cast<Share>(done.wr_id >> 32);
  const auto index = static_cast<uint32_t>(done.wr_id);
  ledger_.completed(share);
  if (share == Share::kImmediate) return;
  auto& of = buffers_[static_cast<size_t>(share)];
  const Transfer transfer = of.used_for[index - of.first];
  if (share == Share::kRead) receiver_.on_read(transfer.slot, buffer(index).first(transfer.length));
  of.free.push_back(index - of.first);
  if (share == Share::kWrite) receiver_.on_written(transfer.slot);
}

bool Channel::idle() const {
  return waiting_data_.empty() && waiting_writes_.empty() && waiting_reads_.empty() &&
         ledger_.posted() == 0;
}

std::span<const std::byte> Channel::exposed(uint32_t slot) const {
  return std::span(exposed_).subspan(size_t{slot} * options_.message_bytes, options_.message_bytes);
}

std::string Channel::describe() const {
  return fmt::format(
      "QP 0x{:x}: posted {} data, {} acknowledgements, {} READs, {} WRITEs; credit {} data, {} "
      "immediate; received and not counted {} data, {} acknowledgements; waiting {} data, {} "
      "READs, {} WRITEs; sent {}, received {}",
      qp_->qp_num, ledger_.posted(Share::kData), ledger_.posted(Share::kImmediate),
      ledger_.posted(Share::kRead), ledger_.posted(Share::kWrite), ledger_.remote(Share::kData),
      ledger_.remote(Share::kImmediate), ledger_.uncounted().data, ledger_.uncounted().acks,
      waiting_data_.size(), waiting_reads_.size(), waiting_writes_.size(), totals_.data_sent,
      totals_.data_received);
}

}  // namespace hostnic::credit
