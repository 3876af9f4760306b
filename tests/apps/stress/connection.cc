// SPDX-License-Identifier: BSD-3-Clause
// How a connection comes and goes.
#include "tests/apps/stress/connection.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <thread>
#include <utility>

#include "tests/apps/stress/common.h"

namespace hostnic::stress {
namespace {

constexpr uint32_t kPsnMask = 0xffffff;
// Behind the queues' own, for what is posted in ERR.
constexpr unsigned kMarkers = 2;

struct SlotSize {
  unsigned percent, slots;
  uint32_t bytes;
};
constexpr SlotSize kSlotSizes[] = {{50, 16, 1024}, {35, 16, 4096}, {12, 8, 16384}, {3, 4, 65536}};

}  // namespace

// ---- ends

void End::make(Shared& with, unsigned slot_count, uint32_t bytes_per_slot, Rng& rng) {
  shared = &with;
  slots_ = slot_count;
  slot_bytes_ = bytes_per_slot;
  next_stream_ = rng.next();
  pd_ = rng.percent(80) ? with.pd(rng) : std::make_shared<Pd>(with.device);
  memory_ = std::make_unique<Memory>(3 * size_t{slots_} * slot_bytes_, rng);
  mr_ = std::make_shared<Mr>(pd_, *memory_);
  const unsigned entries = slots_ + kMarkers;
  const auto queue = [&] {
    auto cq = with.cq(rng);
    if (rng.percent(60) && cq->reserve(entries)) return cq;
    cq = std::make_shared<Cq>(with.device, 2 * entries, rng.percent(70), rng.percent(30));
    cq->reserve(entries);
    return cq;
  };
  send_cq = queue();
  receive_cq = rng.percent(50) && send_cq->reserve(entries) ? send_cq : queue();
  // Which of a queue pair's messages a shared receive has got is known by their order alone.
  if (receive_cq->ordered && slot_bytes_ <= Srq::kSlotBytes && rng.percent(30))
    srq_ = with.srq(rng);
  requests_.assign(slots_ + kMarkers, {});
  receives_.assign(slots_ + kMarkers, {});
  max_inline_ = static_cast<uint32_t>(rng.below(3) * 128);
  ibv_qp_init_attr init{};
  init.qp_context = this;
  init.send_cq = send_cq->cq();
  init.recv_cq = receive_cq->cq();
  init.srq = srq_ ? srq_->srq() : nullptr;
  init.cap = {slots_ + kMarkers, slots_ + kMarkers, kMaxPieces, kMaxPieces, max_inline_};
  init.qp_type = IBV_QPT_RC;
  qp = must(ibv_create_qp(pd_->pd, &init), "ibv_create_qp");
  qpn = qp->qp_num;
  with.device.enter(qpn, this);
  count(tally().qps);
}

int End::modify_to(ibv_qp_state state) const {
  ibv_qp_attr attr{};
  attr.qp_state = state;
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

// Half a second each, and up to thirty-two of them: only what is really dead is given up, however
// busy the machine.
verbs::ConnectOptions End::connect_options() const {
  return {.access = kAllAccess, .timeout = 19, .rd_atomic = 16};
}

uint32_t End::first_psn() const { return (uint32_t{index} * 7919 + life * 65537U) & kPsnMask; }

void End::to_init() { must(verbs::to_init(qp, connect_options()), "ibv_modify_qp to INIT"); }

void End::to_rtr(ibv_mtu mtu, Rng& rng) {
  verbs::ConnectOptions how = connect_options();
  how.mtu = mtu;
  how.min_rnr_timer = static_cast<uint8_t>(rng.between(1, 8));
  const verbs::QpAddress address{peer.qpn, peer.first_psn(), peer.shared->device.gid};
  must(verbs::to_rtr(qp, how, address), "ibv_modify_qp to RTR");
}

void End::to_rts(Rng& rng) {
  verbs::ConnectOptions how = connect_options();
  how.rd_atomic = static_cast<uint8_t>(rng.between(1, 16));
  must(verbs::to_rts(qp, how, first_psn()), "ibv_modify_qp to RTS");
}

void End::destroy_qp() {
  // First: the number may have a new owner before ibv_destroy_qp returns.
  shared->device.leave(qpn);
  must(ibv_destroy_qp(qp), "ibv_destroy_qp");
}

void End::unmake() {
  retired_.clear();
  mr_.reset();
  memory_.reset();
  const unsigned entries = slots_ + kMarkers;
  send_cq->release(entries);
  receive_cq->release(entries);
  send_cq.reset();
  receive_cq.reset();
  srq_.reset();
  pd_.reset();
}

// ---- connections

Connection::Connection(unsigned connection_number)
    : number(connection_number),
      ends{End(*this, static_cast<uint16_t>(2 * number), ends[1]),
           End(*this, static_cast<uint16_t>(2 * number + 1), ends[0])} {}

uint64_t Connection::now_ns_for_watchdog() { return now_ns(); }

uint64_t Connection::stuck_ns(uint64_t now) const {
  const uint64_t then = happened_ns_.load(std::memory_order_relaxed);
  return waited_for_.load(std::memory_order_relaxed) && now > then ? now - then : 0;
}

std::string Connection::describe() {
  std::string text = fmt::format("connection {} is {}", number, phase_.load());
  const std::unique_lock lock(mutex, std::try_to_lock);
  if (!lock.owns_lock()) return text + " and locked\n";
  return text + fmt::format("\n  {}\n  {}\n", ends[0].describe(), ends[1].describe());
}

template <typename Condition>
void Connection::wait(const Serve& serve, const char* what, Condition condition) {
  const char* before = phase_.exchange(what);
  happened();
  waited_for_ = true;
  for (;;) {
    serve();
    const std::lock_guard lock(mutex);
    if (condition()) break;
  }
  waited_for_ = false;
  phase_ = before;
}

void Connection::open(Shared& near, Shared& far, Rng& rng) {
  uint64_t choice = rng.below(100);
  const SlotSize* size = kSlotSizes;
  while (choice >= size->percent) choice -= size++->percent;
  phase_ = "being made";
  ends[0].make(near, size->slots, size->bytes, rng);
  ends[1].make(far, size->slots, size->bytes, rng);
  connect(rng);
}

void Connection::connect(Rng& rng) {
  const auto mtu = static_cast<ibv_mtu>(rng.between(IBV_MTU_256, IBV_MTU_4096));
  for (End& end : ends) end.to_init();
  serve_receives(rng);
  for (End& end : ends) end.to_rtr(mtu, rng);
  for (End& end : ends) end.to_rts(rng);
  phase_ = "at work";
}

void Connection::serve_receives(Rng& rng) {
  const std::lock_guard lock(mutex);
  for (End& end : ends) end.refill(rng);
}

void Connection::post_some(Rng& rng) {
  const std::lock_guard lock(mutex);
  End& end = ends[rng.below(2)];
  end.post_some(rng);
}

void Connection::change_objects(Rng& rng) {
  End& end = ends[rng.below(2)];
  std::vector<std::shared_ptr<void>> unused;
  {
    const std::lock_guard lock(mutex);
    if (rng.percent(60))
      end.window_step(rng);
    else
      end.region_step();
    unused = end.take_retired();
  }
}

void Connection::quiesce() {
  for (End& end : ends) {
    end.send_cq->quiesce();
    end.receive_cq->quiesce();
  }
}

// One first, and time for the other to notice.
void Connection::destroy_qps(uint64_t first, const Serve& serve) {
  {
    const std::lock_guard lock(mutex);
    for (End& end : ends) end.stop_receives();
  }
  ends[first].destroy_qp();
  if (first == 0) serve();
  ends[1 - first].destroy_qp();
}

void Connection::unmake(bool all_told) {
  quiesce();
  {
    const std::lock_guard lock(mutex);
    for (End& end : ends) {
      end.qp = nullptr;
      end.qpn = 0;
      ++end.life;
      end.forget(all_told);
    }
  }
  for (End& end : ends) end.unmake();
  phase_ = "closed";
}

void Connection::close_quietly(Rng& rng, const Serve& serve) {
  wait(serve, "waiting for its last requests", [&] {
    for (End& end : ends) {
      end.refill(rng);
      end.post_last();
    }
    return ends[0].idle() && ends[1].idle();
  });
  destroy_qps(rng.below(2), serve);
  unmake(true);
}

void Connection::close_abruptly(Rng& rng, const Serve& serve) {
  // What a queue pair has taken from a shared queue and not completed goes with it, and its slot
  // would be lost to the others.
  if (ends[0].has_srq() || ends[1].has_srq()) {
    close_quietly(rng, serve);
    return;
  }
  {
    const std::lock_guard lock(mutex);
    for (End& end : ends) {
      end.post_some(rng);
      end.expect_errors();
    }
  }
  destroy_qps(rng.below(2), serve);
  unmake(false);
}

void Connection::flush(Rng& rng, const Serve& serve) {
  for (End& end : ends) must(end.modify_to(IBV_QPS_ERR), "ibv_modify_qp to ERR");
  {
    const std::lock_guard lock(mutex);
    for (End& end : ends) end.post_markers();
  }
  wait(serve, "being flushed", [&] { return ends[0].markers_done() && ends[1].markers_done(); });
  quiesce();
  for (End& end : ends)
    if (end.has_srq()) end.receive_cq->drain(rng);
  const std::lock_guard lock(mutex);
  for (End& end : ends) end.check_drained();
}

void Connection::break_it(Rng& rng, const Serve& serve) {
  const auto how = static_cast<Break>(rng.below(static_cast<uint64_t>(Break::kCount)));
  End& end = ends[rng.below(2)];
  wait(serve, "waiting for a free place", [&] { return end.has_room(); });
  {
    const std::lock_guard lock(mutex);
    for (End& one : ends) one.expect_errors();
    if (rng.percent(50)) end.peer.post_some(rng);
    if (how != Break::kModified) end.post_break(how, rng);
    if (rng.percent(50)) end.post_some(rng);
  }
  if (how != Break::kModified)
    wait(serve, "waiting for its error", [&] { return end.failed(); });
  else
    count(tally().errors_expected);
  flush(rng, serve);
  if (rng.percent(50)) {
    destroy_qps(rng.below(2), serve);
    unmake(true);
  } else {
    reset();
    connect(rng);
  }
}

// The same queue pairs, as new.
void Connection::reset() {
  for (End& end : ends) must(end.modify_to(IBV_QPS_RESET), "ibv_modify_qp to RESET");
  quiesce();
  std::vector<std::shared_ptr<void>> unused;
  const std::lock_guard lock(mutex);
  for (End& end : ends) {
    ++end.life;
    end.forget(true);
    for (auto& retired : end.take_retired()) unused.push_back(std::move(retired));
  }
}

}  // namespace hostnic::stress
