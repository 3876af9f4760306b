// SPDX-License-Identifier: BSD-3-Clause
// The driver half of one device context: queue pairs, completion queues, the rings to the NIC, and
// all timers. It owns no thread, clock, socket or EAL; time comes in, decisions go into the rings.
// tests/sim runs it on virtual time.
//
// Locking: `mutex()` covers queue pairs and rings. Methods marked [locks] take it; those marked
// [locked] want it held. CQs have their own lock, always taken inside this one, never the other way
// round.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "protocol/expected.h"
#include "protocol/hostif/control_message.h"
#include "protocol/hostif/segment_memory.h"
#include "protocol/hostif/use_board.h"
#include "protocol/wire/bth.h"
#include "verbs-shim/driver/cq.h"
#include "verbs-shim/driver/object_list.h"
#include "verbs-shim/driver/types.h"

namespace hostnic::driver {

class Qp;
class SegmentMap;
class Srq;
class Arena;

// What hostnicd knows: a cause, in one line; empty: none. With a ticket it is being found out.
struct Why {
  std::string text;
  uint32_t ticket = 0;
};

// A line about a failure or a wait whose cause is being found out: the question with its ticket,
// what comes before the cause, and what is said if there is none (empty: then nothing is).
struct OwedLine {
  ExplainRequest request{};
  std::string before, fallback;
};
// Says a line, with its cause.
void say(const OwedLine& line, const std::string& cause);

// The edges of the driver: how to reach the other side of the segment.
class NicLink {
 public:
  virtual ~NicLink() = default;
  // Called when work was published: rings the doorbell if the NIC sleeps. This includes what lies
  // between publishing and looking (rule 34, wake-ups): a full fence, or a shared one.
  virtual void kick() = 0;
  // Called repeatedly while a command's response is awaited: sleep, yield, or (simulation) run the
  // NIC.
  virtual void wait_for_response() = 0;
  // Called without the lock while the NIC asks where a host is or what it speaks: lets that time
  // pass, at most.
  virtual void pause(uint32_t pause_ns) = 0;
  // Asks hostnicd why something failed, or why nothing comes: one line; empty: nothing is known, or
  // it can't be asked now. Called with the driver's lock, on no path that is hot, while people want
  // to know (base/explanation.h).
  // Nothing: asking would take too long for that lock, and may be left to owe_line().
  virtual std::optional<Why> ask_why(const ExplainRequest&) { return Why{}; }
  // Takes a line whose cause is being found out, or is to be asked for (ticket 0), and says it when
  // it is known, on another thread.
  virtual void owe_line(const OwedLine& line) { say(line, {}); }
};

struct DriverSettings {
  uint32_t max_qps = 16384;
  uint32_t max_rd_atomic = kReadDestinationEntries;  // of a queue pair, READs and atomics
  uint32_t mtu_bytes = 4096;
  uint32_t window = 1024;  // PSNs in flight per QP at most; the peer's window bounds it too
  wire::Policy policy = wire::Policy::kSelective;
  uint32_t paths = 1;             // of a native queue pair; more than 1: `policy` is kSelective
  bool relaxed_ordering = false;  // the NIC's: READs may overtake each other (rule 18)
  // What is drawn from where the NIC's ordering is adversarial: then also what is posted behind a
  // READ goes (rule 18). 0: it is another one.
  uint32_t adversary_seed = 0;
  uint64_t congestion_allowance_ns = 250'000;  // growth of a round trip that counts as a queue
  uint32_t line_rate_mbps = 0;  // what the port carries; 0: unknown (docs/roce.md, congestion)
  uint32_t timescale = 1;       // the program's timeouts pass so many times as fast
  uint64_t min_rto_ns = 4'000'000;
  uint64_t min_probe_ns = 500'000;  // time before the tail-loss probe
  // Bytes handed to the NIC and not yet transmitted, per QP: while others send as well, and alone.
  // The second limit is what keeps the NIC busy when the program is without a core for a moment.
  uint32_t queued_bytes_limit = 256 * 1024;
  uint32_t sole_queued_bytes_limit = 4096 * 1024;
  TrafficCounts* traffic = nullptr;  // what is done with success counts there; null: nowhere
};

// The settings with all their timeouts so many times as fast. What is shorter than a program's wait
// for a processor would only repeat packets that nobody has lost, and stays.
inline DriverSettings with_timescale(DriverSettings settings, uint32_t timescale) {
  constexpr uint64_t kLeastNs = 200'000;
  settings.timescale = timescale;
  settings.min_rto_ns = std::max(settings.min_rto_ns / timescale, kLeastNs);
  settings.min_probe_ns = std::max(settings.min_probe_ns / timescale, kLeastNs);
  return settings;
}

struct SrqInit {
  uint32_t pd = 0;  // protection domain of the memory that its receives name
  uint32_t max_wr = 0, max_sge = 0;
  void* user = nullptr;  // the ABI layer's object, for events
};

struct QpInit {
  QpType type = QpType::kRc;
  uint32_t pd = 0;
  Cq* send_cq = nullptr;
  Cq* recv_cq = nullptr;
  Srq* srq = nullptr;  // if set, the caps for receives are without meaning
  QpCaps caps;
  bool signal_all = false;
  uint32_t max_message_bytes = kMaxMessageBytes;
  bool fails_send_with_inv = false;  // SEND_WITH_INV is taken, and fails in its turn
  void* user = nullptr;              // the ABI layer's object, for events
  // The addresses in that object that each post reads, or null: prefetched before the queue pair is
  // likely to be posted to.
  std::array<const void*, 2> read_by_posts{};
};

// Sums over the context's QPs; `hostnic ctl show counters` has the NIC's own.
struct DriverCounters {
  uint64_t retransmitted_packets = 0;
  uint64_t timeouts = 0;  // retransmission timeouts (RTO) that fired
  uint64_t probes = 0;    // tail-loss probes
  uint64_t rnr_waits = 0;
  uint64_t read_repulls = 0;
  uint64_t rate_cuts = 0;        // congestion notifications that lowered a rate
  uint64_t rate_recoveries = 0;  // rates that are the line's again
};

// What a queue pair has outstanding at one moment.
struct QpGauges {
  uint32_t requests_in_flight = 0, responses_in_flight = 0;  // PSNs
  uint32_t request_window = 0, response_window = 0;          // the most that may be in flight
  uint64_t rto_ns = 0;                                       // as it is backed off now
};

struct DriverCore;

class Driver {
 public:
  // `user` is that of the queue pair or shared receive queue that the event is about.
  using AsyncFn = void (*)(void* argument, AsyncEvent event, void* user, Cq* cq);

  // `memory` is the mapped client segment, which stays; error() says whether this succeeded.
  Driver(NicLink& link, SegmentMemory& memory, const DriverSettings& settings);
  ~Driver();
  int error() const { return error_; }  // 0, or errno of what failed in the constructor

  // Sets the handler of asynchronous events, which is called with the driver lock taken: it must
  // queue, not call back.
  void set_async_handler(AsyncFn fn, void* argument);

  std::unique_ptr<Cq> create_cq(uint32_t entries, Cq::EventFn event,
                                void* argument);  // [any thread]
  // [locks] Requests that were posted and will complete in this queue.
  uint32_t outstanding_sends(const Cq& cq);
  // [locks] EINVAL for sizes beyond the limits, ENOMEM when the arena is used up.
  Expected<Srq*, int> create_srq(const SrqInit& init);
  int destroy_srq(Srq* srq);  // [locks] EBUSY while queue pairs use it
  // [locks] Arms the limit event; 0 disarms. EINVAL above the queue's length. If fewer receives
  // than that wait already, the event comes at once.
  int arm_srq(Srq* srq, uint32_t limit);
  uint32_t srq_limit(Srq* srq);                             // [locks] 0: not armed
  int post_srq_recv(Srq* srq, const RecvRequest& request);  // [locks] 0, EINVAL, ENOMEM

  // [locks] EINVAL for caps beyond the limits, ENOMEM when QPs or arena are used up.
  Expected<Qp*, int> create_qp(const QpInit& init);
  // [locks] Waits until the NIC has let go of the QP.
  int destroy_qp(Qp* qp);
  // [locks] EINVAL for a transition or attribute mask that the state table refuses; see
  // docs/verbs.md.
  // To RTR it may take the time of a question to the peer (docs/roce.md, "auto"), for which it lets
  // go of the lock.
  int modify_qp(Qp* qp, const QpAttr& attr, uint32_t mask);
  void query_qp(Qp* qp, QpAttr& attr, QpCaps& caps);  // [locks]
  // [locks] Takes effect at the next transition to RTS; on queue pairs that do not speak MRC, none.
  // The values are the caller's to check.
  void set_mrc_limits(Qp* qp, const MrcLimits& limits);
  // [locks] Has the NIC find out where a host is that datagrams will be for, so that the first of
  // them is not lost. Returns 0 when it knows, or nobody has answered for a second; letting go of
  // the lock meanwhile.
  int find_host(Ipv4Address ip);
  // [locks] The key of a new memory window, not bound to anything.
  Expected<uint32_t, int> create_window(uint32_t pd, WindowType type);
  // [locks] Destroys a window and unbinds it. `key` is any that the window ever had.
  int destroy_window(uint32_t key);
  // [locks] A datagram queue pair receives what is sent to the group, once however often it is
  // attached, or no more. EINVAL: not a datagram queue pair, no group, not attached; ENOMEM: too
  // many groups in the NIC, or too many of its queue pairs in this one.
  int attach_group(Qp* qp, Ipv4Address group);
  int detach_group(Qp* qp, Ipv4Address group);
  QpGauges gauges(Qp* qp);  // [locks]

  // [locks] Posts a request. Returns 0, EINVAL (state, operation not of this service, too many
  // SGEs, inline too long, no address), ENOMEM (send queue full). Issues what may go now.
  int post_send(Qp* qp, const SendRequest& request, TimeNs now_ns);
  // [locks] Posts a receive. Returns 0, EINVAL, ENOMEM.
  int post_recv(Qp* qp, const RecvRequest& request);
  // [locks] How many more requests post_send() takes now; only other posts make it fewer. For
  // ibv_wr_complete(), which posts all of a batch or nothing.
  uint32_t free_send_slots(Qp* qp);

  // Handles reports and timers, issues work. [locked]
  void progress(TimeNs now_ns);
  // As progress(), unless another thread has the lock. Returns false in that case. [locks]
  bool try_progress(TimeNs now_ns);
  // Tells people who has been waiting for longer than a second, and for what, once each. To be
  // called about once a second while explanations are wanted. Returns false if another thread has
  // the lock. [locks]
  bool try_look_at_waits(TimeNs now_ns);
  // When the earliest timer is due; UINT64_MAX: none. [any thread]
  TimeNs next_deadline_ns() const { return next_deadline_ns_.load(std::memory_order_acquire); }
  // Whether meta reports wait. [any thread]
  bool reports_waiting() const;
  // Whether a queue pair could not hand over all it wanted and waits for the NIC to take what is
  // queued. [any thread]
  bool turn_wanted() const { return turn_wanted_.load(std::memory_order_relaxed); }
  // Whether progress() has something to do. [any thread]
  bool turn_due(TimeNs now_ns) const {
    return turn_wanted() || now_ns >= next_deadline_ns() || reports_waiting();
  }

  // Raises PORT_ACTIVE or PORT_ERR. [locks]
  void port_changed(bool up);
  // [locks] Raises IBV_EVENT_GID_CHANGE.
  void gid_changed();
  // The NIC is gone: everything outstanding is flushed, DEVICE_FATAL raised once. [locks]
  void device_fatal();

  // The program ends: what was posted on any queue pair leaves first, as before a queue pair is
  // destroyed, and what is in memory that goes with the program has been read. Takes 100 ms at
  // most, and waits for no thread that has the lock for longer.
  void let_all_leave();

  BiasedMutex& mutex() { return mutex_; }
  // Where people see the objects that the NIC does not know. [any thread, without the lock]
  ObjectList& objects() { return objects_; }
  DriverCounters counters();  // [locks]
  const DriverSettings& settings() const { return settings_; }

 private:
  void let_posted_leave(Qp* qp);
  template <typename Ask>
  int ask_until_known(const Ask& ask);

  friend class Qp;
  friend struct DriverCore;
  BiasedMutex mutex_;
  ObjectList objects_;
  DriverSettings settings_;
  std::atomic<uint64_t> next_deadline_ns_{UINT64_MAX};
  std::atomic<bool> turn_wanted_{false};
  int error_ = 0;
  TimeNs last_now_ns_ = 0;  // newest time anybody brought
  std::unique_ptr<DriverCore> core_;
};

uint32_t qpn_of(const Qp& qp);
// For tests, with the driver lock taken: request PSNs in flight, and how many may be (rule 27,
// congestion window).
uint32_t packets_in_flight(const Qp& qp);
uint32_t congestion_window(const Qp& qp);

}  // namespace hostnic::driver
