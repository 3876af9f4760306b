// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/verify/session.h"

#include <fmt/format.h>
#include <poll.h>
#include <sched.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>

namespace hostnic::verify {
namespace {

constexpr int kPollBatch = 16;
constexpr int kEventWaitMs = 20;
constexpr int kEventOwedMs = 3000;
constexpr uint32_t kLongestList = 8;
// Above that, whole memories are compared only now and then; what was touched, always.
constexpr uint64_t kAlwaysCheckBytes = 64u << 20;
constexpr uint32_t kCheckEvery = 8;

uint64_t now_ns() {
  return static_cast<uint64_t>(std::chrono::steady_clock::now().time_since_epoch().count());
}

}  // namespace

Session::Session(const Options& options, const Device& device, Channel& channel, uint32_t side,
                 StackArena& stack)
    : options_(options),
      device_(device),
      channel_(channel),
      side_(side),
      regions_(options, device, side, stack),
      pace_(options.workload.seed * 2 + side) {
  create_queues();
  flows_.resize(options.workload.qps);
  for (uint32_t i = 0; i < flows_.size(); ++i) create_flow(i);
  agree_on_limits();
  connect();
  for (uint32_t i = 0; i < kSharedCounters; ++i) {
    own_shared_[i] = Regions::first_value(options.workload.seed, side, i);
    peer_shared_[i] = Regions::first_value(options.workload.seed, 1 - side, i);
  }
}

Session::~Session() {
  for (Queue& queue : queues_)
    if (queue.unacknowledged > 0) ibv_ack_cq_events(queue.cq.get(), queue.unacknowledged);
}

void Session::create_queues() {
  const Workload& w = options_.workload;
  const auto entries = static_cast<int>(w.qps * 2 * w.depth + 16);
  if (options_.events) {
    events_.reset(ibv_create_comp_channel(device_.context()));
    if (!events_) throw Failure{fmt::format("ibv_create_comp_channel: {}", strerror(errno))};
  }
  for (Queue& queue : queues_) queue.cq = device_.create_cq(entries, events_.get());
}

void Session::create_flow(uint32_t index) {
  const Workload& w = options_.workload;
  const bool mixed = index % 3 == 2;
  ibv_cq* send_cq = queues_[mixed ? kMixed : kSends].cq.get();
  ibv_cq* recv_cq = queues_[mixed ? kMixed : kReceives].cq.get();
  const auto max_sge = static_cast<uint32_t>(device_.attributes().max_sge);
  Flow& flow = flows_[index];
  for (uint32_t inline_bytes : {256u, 128u, 64u, 0u}) {  // there is no attribute to ask for it
    caps_ = {w.depth, w.depth, max_sge, max_sge, inline_bytes};
    try {
      flow.qp = device_.create_qp(send_cq, recv_cq, caps_);
      break;
    } catch (const Failure&) {
      if (inline_bytes == 0) throw;
    }
  }
  flow.progress = std::make_unique<FlowProgress>();
  flow.recv_queue = mixed ? kMixed : kReceives;
  flow_of_qpn_[flow.qp->qp_num] = index;
}

void Session::agree_on_limits() {
  const uint32_t mtu =
      options_.workload.mtu != 0 ? options_.workload.mtu : device_.active_mtu_bytes();
  const Limits mine{caps_.max_send_sge, caps_.max_recv_sge, caps_.max_inline_data, mtu};
  const Limits theirs = channel_.exchange(mine);
  limits_ = {std::min(mine.max_send_sge, theirs.max_send_sge),
             std::min(mine.max_recv_sge, theirs.max_recv_sge),
             std::min(mine.max_inline_bytes, theirs.max_inline_bytes),
             std::min(mine.mtu_bytes, theirs.mtu_bytes)};
}

void Session::connect() {
  ConnectAttributes how;
  how.mtu_bytes = limits_.mtu_bytes;
  how.timeout = options_.ack_timeout;
  how.rd_atomic = device_.rd_atomic();
  const std::vector<RemoteAddress> remote = channel_.exchange(regions_.addresses());
  for (uint32_t i = 0; i < flows_.size(); ++i) {
    Flow& flow = flows_[i];
    const auto psn = static_cast<uint32_t>(pace_.percent(30) ? 0xfffff0 : pace_.next());
    device_.to_init(flow.qp.get(), how);
    const QpAddress peer = channel_.exchange(device_.address_of(flow.qp.get(), psn));
    device_.to_ready(flow.qp.get(), how, psn, peer);
    const FlowSetup setup{&options_.workload, flow.qp.get(),      caps_, side_, i,
                          &regions_,          flow.progress.get()};
    flow.requester =
        std::make_unique<Requester>(setup, remote[2 * i + 1], remote[2 * i], remote.back());
    flow.responder = std::make_unique<Responder>(setup);
  }
}

void Session::run(Watchdog& watchdog) {
  for (uint32_t round = 0; round < options_.workload.rounds; ++round) {
    run_round(round, watchdog);
    if (options_.verbose)
      fmt::print("side {} round {}: {} operations, {:.1f} MiB so far\n", side_, round,
                 totals_.operations, static_cast<double>(totals_.bytes) / (1 << 20));
  }
}

void Session::run_round(uint32_t round, Watchdog& watchdog) {
  const Workload& w = options_.workload;
  for (uint32_t i = 0; i < flows_.size(); ++i) {
    flows_[i].requester->begin(round, make_plan(w, limits_, side_, i, round));
    flows_[i].responder->begin(round, make_plan(w, limits_, 1 - side_, i, round), pace_);
  }
  watchdog.phase("waiting for the other side to start a round");
  channel_.barrier(2 * round);
  watchdog.phase("moving data");
  uint64_t gone_checked_ns = now_ns();
  while (!all_done()) {
    const bool polled = poll_all();
    if (post_some() || polled) {
      watchdog.progress();
      continue;
    }
    if (now_ns() - gone_checked_ns > 100'000'000) {
      if (channel_.peer_gone()) throw Failure{"the other side is gone (its own message says why)"};
      gone_checked_ns = now_ns();
    }
    if (options_.events)
      wait_for_event();
    else
      sched_yield();
  }
  watchdog.phase("waiting for the other side to end a round");
  channel_.barrier(2 * round + 1);
  watchdog.phase("comparing memory");
  if (poll_all()) throw Failure{fmt::format("round {}: a completion too many", round)};
  check_round(round);
}

bool Session::all_done() const {
  return std::ranges::all_of(
      flows_, [](const Flow& f) { return f.requester->done() && f.responder->done(); });
}

bool Session::post_some() {
  bool any = false;
  const uint64_t now = now_ns();
  for (Flow& flow : flows_) {
    any |= flow.responder->post(pace_, now);
    any |= flow.requester->post(static_cast<uint32_t>(pace_.between(1, kLongestList)));
  }
  return any;
}

bool Session::poll_all() {
  bool any = false;
  for (Queue& queue : queues_) any |= poll_queue(queue);
  return any;
}

bool Session::poll_queue(Queue& queue) {
  ibv_wc wcs[kPollBatch];
  bool any = false;
  for (;;) {
    const int n = ibv_poll_cq(queue.cq.get(), kPollBatch, wcs);
    if (n < 0) throw Failure{fmt::format("ibv_poll_cq: {}", n)};
    for (int i = 0; i < n; ++i) dispatch(wcs[i], queue);
    any |= n > 0;
    if (n < kPollBatch) return any;
  }
}

void Session::dispatch(const ibv_wc& wc, Queue& queue) {
  const auto found = flow_of_qpn_.find(wc.qp_num);
  if (found == flow_of_qpn_.end())
    throw Failure{fmt::format("completion of wr_id {:#x} names QP {:#x}, which is none of ours",
                              wc.wr_id, wc.qp_num)};
  Flow& flow = flows_[found->second];
  // A failed completion's opcode means nothing; the wr_id tells the direction.
  const bool receive =
      wc.status == IBV_WC_SUCCESS ? (wc.opcode & IBV_WC_RECV) != 0 : wc.wr_id >> 63 != 0;
  if (queue.drained && !queue.armed_solicited) queue.event_owed = true;
  if (!receive) {
    flow.requester->on_completion(wc);
    return;
  }
  const uint32_t k = flow.responder->received();
  flow.responder->on_receive(wc);
  if (flow.responder->op_of(k).solicited) {
    ++queue.solicited_since_arm;
    queue.event_owed |= queue.drained;
  }
  ++totals_.receives;
}

// Sleeping on a solicited event is safe if only receives end here and one of those posted will
// bring it: everything else that this side must do for the peer waits for such an event.
bool Session::may_arm_solicited(const Queue& queue) const {
  if (&queue != &queues_[kReceives]) return false;
  return std::ranges::all_of(flows_, [](const Flow& f) {
    return f.recv_queue != kReceives || f.responder->done() || f.responder->solicited_ahead();
  });
}

void Session::wait_for_event() {
  for (Queue& queue : queues_) {
    if (queue.armed) continue;
    queue.armed_solicited = may_arm_solicited(queue) && pace_.percent(50);
    queue.solicited_since_arm = 0;
    if (const int error = ibv_req_notify_cq(queue.cq.get(), queue.armed_solicited); error != 0)
      throw Failure{fmt::format("ibv_req_notify_cq: {}", strerror(error))};
    queue.armed = true;
  }
  const bool arrived = poll_all();  // perhaps before it was armed
  for (Queue& queue : queues_) queue.drained = true;
  if (arrived) return;
  pollfd wait{events_->fd, POLLIN, 0};
  // A receiver that starves its peer on purpose wakes by itself; anything else owes an event.
  if (::poll(&wait, 1, kEventWaitMs) > 0)
    take_event();
  else
    look_for_lost_events();
}

void Session::look_for_lost_events() {
  poll_all();
  for (;;) {
    const auto owing =
        std::ranges::find_if(queues_, [](const Queue& q) { return q.armed && q.event_owed; });
    if (owing == queues_.end()) return;
    pollfd wait{events_->fd, POLLIN, 0};
    if (::poll(&wait, 1, kEventOwedMs) <= 0)
      throw Failure{
          fmt::format("a completion arrived in queue {} after ibv_req_notify_cq, but no "
                      "event in {} ms",
                      owing - queues_.begin(), kEventOwedMs)};
    take_event();
  }
}

void Session::take_event() {
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  if (ibv_get_cq_event(events_.get(), &cq, &context) != 0)
    throw Failure{fmt::format("ibv_get_cq_event: {}", strerror(errno))};
  const auto queue =
      std::ranges::find_if(queues_, [cq](const Queue& q) { return q.cq.get() == cq; });
  if (queue == queues_.end()) throw Failure{"an event of a completion queue that is not ours"};
  if (!queue->armed) throw Failure{"two events for one ibv_req_notify_cq"};
  queue->armed = queue->drained = queue->event_owed = false;
  ++totals_.events;
  if (++queue->unacknowledged == 16) {
    ibv_ack_cq_events(cq, queue->unacknowledged);
    queue->unacknowledged = 0;
  }
  poll_queue(*queue);
  if (queue->armed_solicited && queue->solicited_since_arm == 0)
    throw Failure{"an event for a solicited completion, but none was found in the queue"};
}

void Session::check_round(uint32_t round) {
  const Workload& w = options_.workload;
  for (Flow& flow : flows_) {
    flow.responder->end_round();
    totals_.operations += flow.requester->plan().size();
    for (const Op& op : flow.requester->plan()) totals_.bytes += op.length;
  }
  check_shared_adds(round);
  check_shared_words(round);
  const std::string why = fmt::format("seed {} after round {} side {}", w.seed, round, side_);
  const bool whole = regions_.total_bytes() <= kAlwaysCheckBytes || round + 1 == w.rounds ||
                     round % kCheckEvery == kCheckEvery - 1;
  if (whole)
    regions_.check_all(why);
  else
    regions_.check_guards(why);
}

// The peer's shared words: each add must have seen exactly the sum of those before it.
void Session::check_shared_adds(uint32_t round) {
  std::array<std::vector<SharedAdd>, kSharedCounters> adds;
  for (Flow& flow : flows_) {
    for (const SharedAdd& add : flow.requester->shared_adds()) adds[add.counter].push_back(add);
    flow.requester->shared_adds().clear();
  }
  for (uint32_t word = 0; word < kSharedCounters; ++word) {
    std::ranges::sort(adds[word], {}, &SharedAdd::original);
    for (const SharedAdd& add : adds[word]) {
      if (add.original != peer_shared_[word])
        throw Failure{fmt::format(
            "seed {} round {} side {}: an add to shared word {} returned {}, "
            "expected {}: some add was lost or executed twice",
            options_.workload.seed, round, side_, word, add.original, peer_shared_[word])};
      peer_shared_[word] += add.added;
    }
  }
}

// This side's shared words, after all that the peer's plans added.
void Session::check_shared_words(uint32_t round) {
  for (const Flow& flow : flows_)
    for (const Op& op : flow.responder->plan())
      if (op.kind == OpKind::kFetchAdd && op.counter < kSharedCounters)
        own_shared_[op.counter] += op.compare_add;
  for (uint32_t word = 0; word < kSharedCounters; ++word)
    if (const uint64_t found = regions_.counters()[word]; found != own_shared_[word])
      throw Failure{fmt::format("seed {} round {} side {}: shared word {} is {}, expected {}",
                                options_.workload.seed, round, side_, word, found,
                                own_shared_[word])};
}

std::string Session::dump() const {
  std::string text;
  for (uint32_t i = 0; i < flows_.size(); ++i) {
    const Flow& f = flows_[i];
    const FlowProgress& p = *f.progress;
    const std::vector<Op>& plan = f.requester->plan();
    text += fmt::format(
        "  side {} qp {} ({:#x}): {} of {} sends posted, {} done; {} receives posted, {} done\n",
        side_, i, f.qp->qp_num, p.sends_posted.load(), plan.size(), p.sends_done.load(),
        p.receives_posted.load(), p.receives_done.load());
    if (const uint32_t first = p.sends_done; first < p.sends_posted && first < plan.size())
      text += fmt::format("    oldest: op {} ({})\n", first, describe(plan[first]));
  }
  return text;
}

}  // namespace hostnic::verify
