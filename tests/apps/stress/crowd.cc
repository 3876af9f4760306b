// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/stress/crowd.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "tests/apps/stress/common.h"
#include "tests/apps/verify/content.h"
#include "tests/support/verbs_pair.h"

namespace hostnic::stress {
namespace {

constexpr uint32_t kFirstPsn = 0xfffff0;

}  // namespace

std::vector<Crowd*>& Crowd::all() {
  static auto& crowds = *new std::vector<Crowd*>;
  return crowds;
}

Crowd::Crowd(uint16_t number, Shared& near, Shared& far, Rng& rng)
    : number_(number), near_(near), far_(far) {
  make(rng);
}

Crowd::~Crowd() {
  Rng rng(number_);
  drain_and_unmake(rng);
}

void Crowd::make(Rng& rng) {
  constexpr size_t kBytes = size_t{kLanes} * kSlots * kSlotBytes + sizeof(uint64_t);
  near_pd_ = near_.pd(rng);
  far_pd_ = far_.pd(rng);
  near_memory_ = std::make_unique<Memory>(kBytes, rng);
  far_memory_ = std::make_unique<Memory>(kBytes, rng);
  std::memset(counter(), 0, sizeof(uint64_t));
  near_mr_ = std::make_unique<Mr>(near_pd_, *near_memory_);
  far_mr_ = std::make_unique<Mr>(far_pd_, *far_memory_);
  constexpr unsigned kRequests = kLanes * kSlots;
  near_cq_ = std::make_unique<Cq>(near_.device, kRequests, rng.percent(50), false);
  far_cq_ = std::make_unique<Cq>(far_.device, 1, true, false);
  ibv_qp_init_attr init{};
  init.cap = {kRequests, 1, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  init.send_cq = init.recv_cq = near_cq_->cq();
  near_qp_ = must(ibv_create_qp(near_pd_->pd, &init), "ibv_create_qp");
  init.send_cq = init.recv_cq = far_cq_->cq();
  far_qp_ = must(ibv_create_qp(far_pd_->pd, &init), "ibv_create_qp");
  count(tally().qps, 2);
  connect();
  added_ = 0;
  seen_.clear();
}

void Crowd::connect() {
  constexpr const char* kWhat = "ibv_modify_qp of a crowd";
  const verbs::ConnectOptions how{
      .access = kAllAccess, .timeout = 19, .min_rnr_timer = 1, .rd_atomic = 16};
  for (ibv_qp* qp : {near_qp_, far_qp_}) must(verbs::to_init(qp, how), kWhat);
  must(verbs::to_rtr(near_qp_, how, {far_qp_->qp_num, kFirstPsn, far_.device.gid}), kWhat);
  must(verbs::to_rts(near_qp_, how, kFirstPsn), kWhat);
  must(verbs::to_rtr(far_qp_, how, {near_qp_->qp_num, kFirstPsn, near_.device.gid}), kWhat);
  must(verbs::to_rts(far_qp_, how, kFirstPsn), kWhat);
}

std::byte* Crowd::slot(const Memory& memory, unsigned lane, uint32_t number) const {
  return memory.data() + (size_t{lane} * kSlots + number % kSlots) * kSlotBytes;
}

void Crowd::work(unsigned lane, Rng& rng) {
  // Whoever wants it for itself goes before those who come.
  gate_.lock();
  const std::shared_lock lock(alive_);
  gate_.unlock();
  post(lane % kLanes, rng);
  near_cq_->poll(rng);
}

void Crowd::post(unsigned which, Rng& rng) {
  Lane& lane = lanes_[which];
  const std::lock_guard lock(lane.mutex);
  while (lane.tail - lane.head < kSlots && !rng.percent(30)) {
    const uint32_t number = lane.tail;
    Request& request = lane.requests[number % kSlots];
    request = {};
    request.done = false;
    const uint64_t choice = rng.below(3);
    request.opcode = choice == 0   ? IBV_WR_RDMA_WRITE
                     : choice == 1 ? IBV_WR_RDMA_READ
                                   : IBV_WR_ATOMIC_FETCH_AND_ADD;
    const bool atomic = request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
    request.length = atomic ? 8 : static_cast<uint32_t>(rng.between(1, kSlotBytes));
    request.signalled = rng.percent(60) || lane.since_signalled == kSlots / 2;
    lane.since_signalled = request.signalled ? 0 : lane.since_signalled + 1;
    request.stream = rng.next();
    std::byte* local = slot(*near_memory_, which, number);
    std::byte* remote = atomic ? counter() : slot(*far_memory_, which, number);
    if (!atomic)
      verify::generate({request.stream, 0, 0},
                       {request.opcode == IBV_WR_RDMA_READ ? remote : local, request.length});
    ibv_sge sge{reinterpret_cast<uint64_t>(local), request.length, near_mr_->mr->lkey};
    ibv_send_wr wr{};
    wr.wr_id = Id{Kind::kLane, number_, life_, which << 24 | (number & 0xffffff)}.word();
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.opcode = request.opcode;
    wr.send_flags = request.signalled ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0U;
    if (atomic) {
      wr.wr.atomic.remote_addr = reinterpret_cast<uint64_t>(remote);
      wr.wr.atomic.rkey = far_mr_->mr->rkey;
      wr.wr.atomic.compare_add = 1;
      ++added_;
    } else {
      wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(remote);
      wr.wr.rdma.rkey = far_mr_->mr->rkey;
    }
    ++lane.tail;
    ibv_send_wr* bad = nullptr;
    must(ibv_post_send(near_qp_, &wr, &bad), "ibv_post_send of several threads");
  }
}

// Whoever polls holds alive_: the queue pairs are those of the completion.
void Crowd::on_completion(Id id, const ibv_wc& wc, bool ordered) {
  if (id.owner >= all().size()) die("a completion of a crowd that there never was");
  Crowd& crowd = *all()[id.owner];
  if (wc.status != IBV_WC_SUCCESS)
    die(fmt::format("crowd {}: a request of lane {} completes with '{}'", id.owner, id.number >> 24,
                    ibv_wc_status_str(wc.status)));
  if (id.life != (crowd.life_ & kLifeMask) || wc.qp_num != crowd.near_qp_->qp_num)
    die(fmt::format("crowd {}: a completion of what was destroyed", id.owner));
  crowd.complete(id.number >> 24, id.number & 0xffffff, wc, ordered);
}

void Crowd::complete(unsigned which, uint32_t number, const ibv_wc& wc, bool ordered) {
  Lane& lane = lanes_[which];
  const std::lock_guard lock(lane.mutex);
  const auto wrong = [&](const char* what) {
    die(fmt::format("crowd {} lane {}: request {} {} ({} to {} outstanding, QP {:#x})", number_,
                    which, number, what, lane.head, lane.tail, wc.qp_num));
  };
  if (number - lane.head >= lane.tail - lane.head) wrong("completes and is not outstanding");
  if (lane.requests[number % kSlots].done) wrong("completes twice");
  if (!lane.requests[number % kSlots].signalled) wrong("is unsignalled and has a completion");
  uint32_t first = number;
  while (first != lane.head) {
    const Request& before = lane.requests[(first - 1) % kSlots];
    if (before.done || before.signalled) break;
    --first;
  }
  if (ordered && first != lane.head) wrong("completes before an earlier one");
  for (uint32_t i = first; i != number + 1; ++i) {
    verify(which, i, lane.requests[i % kSlots]);
    lane.requests[i % kSlots].done = true;
  }
  while (lane.head != lane.tail && lane.requests[lane.head % kSlots].done) ++lane.head;
}

void Crowd::verify(unsigned lane, uint32_t number, const Request& request) {
  const std::byte* local = slot(*near_memory_, lane, number);
  count(tally().operations);
  count(tally().bytes, request.length);
  if (request.opcode == IBV_WR_ATOMIC_FETCH_AND_ADD) {
    uint64_t got = 0;
    std::memcpy(&got, local, sizeof got);
    const std::lock_guard lock(seen_mutex_);
    if (got >= added_) die(fmt::format("crowd {}: a fetch-and-add gives {}", number_, got));
    if (seen_.size() <= got) seen_.resize(got + 1);
    if (seen_[got]) die(fmt::format("crowd {}: two fetch-and-adds give {}", number_, got));
    seen_[got] = true;
    return;
  }
  const std::byte* at =
      request.opcode == IBV_WR_RDMA_READ ? local : slot(*far_memory_, lane, number);
  if (const auto byte = verify::first_difference({at, request.length}, {request.stream, 0, 0}))
    die(fmt::format("crowd {} lane {}: request {} of {} bytes is complete: wrong byte {}", number_,
                    lane, number, request.length, *byte));
}

void Crowd::drain_and_unmake(Rng& rng) {
  const uint64_t start = now_ns();
  for (Lane& lane : lanes_) {
    // The last may be unsignalled, and complete when the queue pair is gone.
    for (;;) {
      near_cq_->poll(rng);
      const std::lock_guard one(lane.mutex);
      if (lane.tail - lane.head == lane.since_signalled) break;
      if (now_ns() - start > 60'000'000'000)
        die(fmt::format("crowd {}: QP {:#x} makes no progress, requests {} to {} of a lane",
                        number_, near_qp_->qp_num, lane.head, lane.tail));
    }
  }
  must(ibv_destroy_qp(near_qp_), "ibv_destroy_qp");
  must(ibv_destroy_qp(far_qp_), "ibv_destroy_qp");
  uint64_t sum = 0;
  std::memcpy(&sum, counter(), sizeof sum);
  const auto told = static_cast<uint64_t>(std::ranges::count(seen_, true));
  if (sum > added_ || sum < told)
    die(fmt::format("crowd {}: {} fetch-and-adds, {} of them complete, counted to {}", number_,
                    added_.load(), told, sum));
  near_cq_.reset();
  far_cq_.reset();
  near_mr_.reset();
  far_mr_.reset();
  near_pd_.reset();
  far_pd_.reset();
}

void Crowd::replace(Rng& rng) {
  const std::lock_guard first(gate_);
  const std::lock_guard lock(alive_);
  drain_and_unmake(rng);
  ++life_;
  for (Lane& lane : lanes_) lane.head = lane.tail = lane.since_signalled = 0;
  make(rng);
}

}  // namespace hostnic::stress
