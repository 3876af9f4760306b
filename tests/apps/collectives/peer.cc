// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/collectives/peer.h"

#include <arpa/inet.h>
#include <fmt/format.h>

#include <cerrno>
#include <cstring>

#include "tests/apps/verify/rng.h"
#include "tests/support/verbs_pair.h"

namespace hostnic::collectives {
namespace {

constexpr int kLocalWrite = IBV_ACCESS_LOCAL_WRITE;

// As gloo has them.
verbs::ConnectOptions connect_options(ibv_mtu mtu) {
  return {.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
          .mtu = mtu,
          .timeout = 14,
          .retry_cnt = 7,
          .rnr_retry = 7,
          .min_rnr_timer = 12,
          .hop_limit = 1};
}

uint32_t choose_psn(const Place& place, unsigned peer) {
  return verify::mix64(place.options.seed ^ (place.rank * kMaxRanks + peer)) & 0xffffff;
}

ibv_sge element(const ibv_mr* region, const void* data, uint64_t bytes) {
  return {reinterpret_cast<uint64_t>(data), static_cast<uint32_t>(bytes), region->lkey};
}

}  // namespace

void die_of_errno(const char* what) { die(fmt::format("{}: {}", what, strerror(errno))); }

void must(int error, const char* what) {
  if (error > 0) errno = error;
  if (error != 0) die_of_errno(what);
}

Peer::Peer(Place& place, const Device& device, unsigned rank)
    : place_(place), device_(device), rank_(rank), psn_(choose_psn(place, rank)) {
  // Room for just what can be outstanding: neither queue may hold more than it was asked for.
  cq_ = must(ibv_create_cq(device.context, kSends + kReceives, this, device.channel, 0),
             "ibv_create_cq");
  must(ibv_req_notify_cq(cq_, 0), "ibv_req_notify_cq");
  ibv_qp_init_attr wanted{};
  wanted.send_cq = wanted.recv_cq = cq_;
  wanted.cap = {kSends, kReceives, 1, 1, 0};
  wanted.qp_type = IBV_QPT_RC;
  qp_ = must(ibv_create_qp(device.pd, &wanted), "ibv_create_qp");
  must(verbs::to_init(qp_, connect_options(device.mtu)), "ibv_modify_qp to INIT");
  inbox_region_ =
      must(ibv_reg_mr(device.pd, inbox_.data(), sizeof inbox_, kLocalWrite), "ibv_reg_mr");
  outbox_region_ =
      must(ibv_reg_mr(device.pd, outbox_.data(), sizeof outbox_, kLocalWrite), "ibv_reg_mr");
  while (receives_posted_ < kReceives) post_receive(receives_posted_);
}

Peer::~Peer() {
  if (events_to_acknowledge_ > 0) ibv_ack_cq_events(cq_, events_to_acknowledge_);
  must(ibv_destroy_qp(qp_), "ibv_destroy_qp");
  must(ibv_destroy_cq(cq_), "ibv_destroy_cq");
  must(ibv_dereg_mr(inbox_region_), "ibv_dereg_mr");
  must(ibv_dereg_mr(outbox_region_), "ibv_dereg_mr");
}

Address Peer::address() const {
  Address address{qp_->qp_num, psn_, {}};
  std::memcpy(address.gid, device_.gid.raw, sizeof address.gid);
  return address;
}

void Peer::connect(const Address& remote) {
  verbs::QpAddress address{remote.qpn, remote.psn};
  std::memcpy(address.gid.raw, remote.gid, sizeof remote.gid);
  const verbs::ConnectOptions how = connect_options(device_.mtu);
  must(verbs::to_rtr(qp_, how, address), "ibv_modify_qp to RTR");
  must(verbs::to_rts(qp_, how, psn_), "ibv_modify_qp to RTS");
}

void Peer::post_receive(uint64_t number) {
  Announcement& slot = inbox_[number % kReceives];
  slot = {};
  ibv_sge sge = element(inbox_region_, &slot, sizeof slot);
  ibv_recv_wr request{number, nullptr, &sge, 1};
  ibv_recv_wr* bad = nullptr;
  must(ibv_post_recv(qp_, &request, &bad), "ibv_post_recv");
  ++receives_posted_;
}

void Peer::wrong(const std::string& what) const {
  die(fmt::format("rank {}: {} from rank {}", place_.rank, what, rank_));
}

template <typename Done>
void Peer::wait(std::unique_lock<std::mutex>& lock, Doing why, uint64_t number, Done done) {
  if (done()) return;
  place_.doing(why, rank_, number);
  moved_.wait(lock, done);
}

// Each is signaled, so that its place in the queue and its part of the outbox are free in order.
void Peer::post_send(std::unique_lock<std::mutex>& lock, ibv_send_wr& request) {
  wait(lock, Doing::kWaitSendQueue, sends_posted_,
       [this] { return sends_posted_ - sends_completed_ < kSends; });
  request.wr_id = sends_posted_++;
  request.send_flags |= IBV_SEND_SIGNALED;
  ibv_send_wr* bad = nullptr;
  must(ibv_post_send(qp_, &request, &bad), "ibv_post_send");
  place_.progress().posted.fetch_add(1, std::memory_order_relaxed);
}

uint64_t Peer::announce(const ibv_mr* region, const void* data, uint64_t bytes) {
  std::unique_lock lock(mutex_);
  wait(lock, Doing::kWaitSendQueue, sends_posted_,
       [this] { return sends_posted_ - sends_completed_ < kSends; });
  Announcement& slot = outbox_[sends_posted_ % kSends];
  slot = {reinterpret_cast<uint64_t>(data), region->rkey, static_cast<uint32_t>(bytes)};
  bytes_expected_.push_back(bytes);
  ibv_sge sge = element(outbox_region_, &slot, sizeof slot);
  ibv_send_wr request{};
  request.sg_list = &sge;
  request.num_sge = 1;
  request.opcode = IBV_WR_SEND_WITH_IMM;
  request.imm_data = htonl(announcements_sent_++ & kNumbers);
  post_send(lock, request);
  return announcements_sent_;
}

void Peer::write(const ibv_mr* region, const void* data, uint64_t bytes) {
  std::unique_lock lock(mutex_);
  wait(lock, Doing::kWaitAnnouncement, writes_sent_, [this] { return !announced_.empty(); });
  const Announcement target = announced_.front();
  announced_.pop_front();
  if (target.bytes != bytes)
    wrong(
        fmt::format("a buffer of {} bytes for write {} of {}", target.bytes, writes_sent_, bytes));
  ibv_sge sge = element(region, data, bytes);
  ibv_send_wr request{};
  request.sg_list = &sge;
  request.num_sge = bytes > 0 ? 1 : 0;
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.imm_data = htonl(writes_sent_++ & kNumbers);
  request.wr.rdma = {target.address, target.rkey};
  post_send(lock, request);
}

void Peer::notify() {
  std::unique_lock lock(mutex_);
  ibv_send_wr request{};
  request.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
  request.imm_data = htonl(kNotice | (notices_sent_++ & kNumbers));
  post_send(lock, request);
}

void Peer::wait_data(uint64_t number) {
  std::unique_lock lock(mutex_);
  wait(lock, Doing::kWaitData, number, [&] { return writes_received_ >= number; });
}

void Peer::wait_notice(uint64_t number) {
  std::unique_lock lock(mutex_);
  wait(lock, Doing::kWaitNotice, number, [&] { return notices_received_ >= number; });
}

void Peer::wait_sent() {
  std::unique_lock lock(mutex_);
  wait(lock, Doing::kWaitSent, sends_posted_, [&] { return sends_completed_ == sends_posted_; });
}

// Gloo's order: armed first, then drained, so that what comes between raises another event.
void Peer::on_event() {
  // Half of the peers as gloo: acknowledged when all is over.
  if (rank_ % 2 == 0)
    ibv_ack_cq_events(cq_, 1);
  else
    ++events_to_acknowledge_;
  must(ibv_req_notify_cq(cq_, 0), "ibv_req_notify_cq");
  const std::lock_guard lock(mutex_);
  std::array<ibv_wc, kSends> completions;
  for (;;) {
    const int count = ibv_poll_cq(cq_, completions.size(), completions.data());
    if (count < 0) die_of_errno("ibv_poll_cq");
    if (count == 0) break;
    for (int i = 0; i < count; ++i) complete(completions[static_cast<size_t>(i)]);
  }
  moved_.notify_all();
  place_.progress().events.fetch_add(1, std::memory_order_relaxed);
}

void Peer::complete(const ibv_wc& completion) {
  if (completion.status != IBV_WC_SUCCESS)
    wrong(fmt::format("completion with error {} ({}), wr_id {}, vendor {:#x}, {} of {} sends done,",
                      ibv_wc_status_str(completion.status), static_cast<int>(completion.status),
                      completion.wr_id, completion.vendor_err, sends_completed_, sends_posted_));
  if ((completion.opcode & IBV_WC_RECV) != 0) return received(completion);
  if (completion.wr_id != sends_completed_)
    wrong(fmt::format("completion of send {} instead of {}", completion.wr_id, sends_completed_));
  ++sends_completed_;
  place_.progress().completed.fetch_add(1, std::memory_order_relaxed);
}

void Peer::received(const ibv_wc& completion) {
  if (completion.wr_id != receives_completed_)
    wrong(fmt::format("receive {} instead of {}", completion.wr_id, receives_completed_));
  if ((completion.wc_flags & IBV_WC_WITH_IMM) == 0) wrong("a message without immediate data");
  const uint32_t immediate = ntohl(completion.imm_data);
  uint64_t expected = 0, bytes = 0;
  if (completion.opcode == IBV_WC_RECV) {
    announced_.push_back(inbox_[completion.wr_id % kReceives]);
    expected = announcements_received_++ & kNumbers;
    bytes = sizeof(Announcement);
  } else if ((immediate & kNotice) != 0) {
    expected = kNotice | (notices_received_++ & kNumbers);
  } else {
    if (bytes_expected_.empty()) wrong("a write without a buffer");
    expected = writes_received_++ & kNumbers;
    bytes = bytes_expected_.front();
    bytes_expected_.pop_front();
  }
  if (immediate != expected || completion.byte_len != bytes)
    wrong(fmt::format("immediate {:#x} and {} bytes instead of {:#x} and {}", immediate,
                      completion.byte_len, expected, bytes));
  ++receives_completed_;
  post_receive(receives_posted_);
  place_.progress().received.fetch_add(1, std::memory_order_relaxed);
  place_.shared.beats.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace hostnic::collectives
