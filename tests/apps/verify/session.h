// SPDX-License-Identifier: BSD-3-Clause
// One side of the whole workload: its queues, the rounds, and the polling of completions.
#pragma once

#include <array>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "tests/apps/verify/channel.h"
#include "tests/apps/verify/flow.h"
#include "tests/apps/verify/watchdog.h"

namespace hostnic::verify {

struct Totals {
  uint64_t operations = 0, bytes = 0, receives = 0, events = 0;
};

// Constructor and run() throw Failure. One thread.
class Session {
 public:
  Session(const Options& options, const Device& device, Channel& channel, uint32_t side,
          StackArena& stack);
  ~Session();

  void run(Watchdog& watchdog);
  const Totals& totals() const { return totals_; }
  // For the watchdog's thread, while the session is stuck.
  std::string dump() const;

 private:
  // Completion queues: each QP has either both directions in the first, or one in each other.
  enum { kMixed, kSends, kReceives, kCqs };
  struct Queue {
    Owned<ibv_cq> cq;
    bool armed = false, armed_solicited = false;
    bool drained = false;     // found empty since it was armed: what comes now owes an event
    bool event_owed = false;  // such a completion was polled, its event is still to come
    uint64_t solicited_since_arm = 0;
    unsigned unacknowledged = 0;
  };
  struct Flow {
    Owned<ibv_qp> qp;
    std::unique_ptr<FlowProgress> progress;
    std::unique_ptr<Requester> requester;
    std::unique_ptr<Responder> responder;
    int recv_queue = kMixed;
  };

  void create_queues();
  void create_flow(uint32_t index);
  void agree_on_limits();
  void connect();
  void run_round(uint32_t round, Watchdog& watchdog);
  bool post_some();
  bool poll_all();
  bool poll_queue(Queue& queue);
  void dispatch(const ibv_wc& wc, Queue& queue);
  void wait_for_event();
  bool may_arm_solicited(const Queue& queue) const;
  void take_event();
  void look_for_lost_events();
  bool all_done() const;
  void check_round(uint32_t round);
  void check_shared_adds(uint32_t round);
  void check_shared_words(uint32_t round);

  const Options& options_;
  const Device& device_;
  Channel& channel_;
  const uint32_t side_;
  Regions regions_;
  Limits limits_;
  ibv_qp_cap caps_{};
  Rng pace_;
  Owned<ibv_comp_channel> events_;  // destroyed after the queues
  std::array<Queue, kCqs> queues_;
  std::vector<Flow> flows_;
  std::unordered_map<uint32_t, uint32_t> flow_of_qpn_;
  std::array<uint64_t, kSharedCounters> own_shared_{}, peer_shared_{};
  Totals totals_;
};

}  // namespace hostnic::verify
