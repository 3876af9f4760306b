// SPDX-License-Identifier: BSD-3-Clause
// One QP during a round, from its two ends: what this side posts (Requester) and what the peer's
// requests do here (Responder). Neither waits; the session drives both.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/apps/verify/regions.h"
#include "tests/apps/verify/rng.h"

namespace hostnic::verify {

// Where a QP is, readable from the watchdog's thread.
struct FlowProgress {
  std::atomic<uint32_t> sends_posted{0}, sends_done{0}, receives_posted{0}, receives_done{0};
};

// What both ends of a QP's round need to know.
struct FlowSetup {
  const Workload* workload = nullptr;
  ibv_qp* qp = nullptr;
  ibv_qp_cap caps{};
  uint32_t side = 0, index = 0;
  Regions* regions = nullptr;
  FlowProgress* progress = nullptr;
};

std::string describe(const Op& op);

// An atomic that touched a counter shared by all QPs: checked when the round is over.
struct SharedAdd {
  uint32_t counter;
  uint64_t original, added;
};

class Requester {
 public:
  Requester(const FlowSetup& setup, const RemoteAddress& arena, const RemoteAddress& source,
            const RemoteAddress& counters);

  void begin(uint32_t round, std::vector<Op> plan);
  // Posts up to `batch` requests as one list, as the send queue has room. False: nothing posted.
  bool post(uint32_t batch);
  void on_completion(const ibv_wc& wc);
  bool done() const { return done_ == plan_.size(); }
  const std::vector<Op>& plan() const { return plan_; }
  std::vector<SharedAdd>& shared_adds() { return shared_adds_; }

 private:
  struct Posted {                  // beside each op of the plan
    std::vector<Extent> expected;  // READ: what must land
    uint64_t original = 0;         // atomic on a word of this QP's own
  };
  void fill_request(uint32_t i, ibv_send_wr& wr, std::vector<ibv_sge>& sges);
  void fill_fresh(const Op& op, uint32_t i);
  void fill_pieces(const Op& op, std::vector<ibv_sge>& sges);
  void fill_target(const Op& op, Posted& posted, ibv_send_wr& wr);
  void model_write(const Op& op, uint32_t i);
  void finish(uint32_t i);
  void finish_atomic(uint32_t i, Region& landing);
  std::string where(uint32_t i) const;
  uint64_t wr_id(uint32_t i) const;

  FlowSetup setup_;
  RemoteAddress arena_, source_, counters_;
  ContentMap arena_model_, source_model_;
  std::vector<uint64_t> own_words_;  // the peer's words that only this QP touches, in order
  uint32_t round_ = 0;
  std::vector<Op> plan_;
  std::vector<Posted> posted_;
  std::vector<SharedAdd> shared_adds_;
  std::vector<std::byte> inline_bytes_;
  uint32_t next_ = 0, done_ = 0;
};

class Responder {
 public:
  explicit Responder(const FlowSetup& setup);

  void begin(uint32_t round, std::vector<Op> peer_plan, Rng& pace);
  // Posts receives as the pace allows. False: nothing posted.
  bool post(Rng& pace, uint64_t now_ns);
  void on_receive(const ibv_wc& wc);
  bool done() const { return received_ == takers_.size(); }
  // After the peer's requests are all complete: its last WRITEs and its atomics.
  void end_round();
  // A solicited message will use a receive that is posted; or none is posted at all.
  bool solicited_ahead() const;
  const Op& op_of(uint32_t receive) const { return plan_[takers_[receive]]; }
  uint32_t received() const { return received_; }
  const std::vector<Op>& plan() const { return plan_; }

 private:
  void check_receive(const ibv_wc& wc, uint32_t i) const;
  void apply_writes(uint32_t end);
  void check_visible(uint32_t first, uint32_t end);
  std::string where(uint32_t i) const;
  uint64_t wr_id(uint32_t receive) const;

  FlowSetup setup_;
  uint32_t peer_;
  std::vector<uint64_t> words_;  // this side's counters that only this QP touches
  uint32_t round_ = 0;
  std::vector<Op> plan_;
  std::vector<uint32_t> takers_;  // the operations that consume receives
  uint32_t posted_ = 0, received_ = 0, applied_ = 0;
  uint32_t window_ = 1;
  uint64_t start_after_ns_ = 0, delay_ns_ = 0;
};

// The content of the message that `op` number `i` of `side` sends.
std::vector<Extent> message_of(const Workload& workload, uint32_t side, uint32_t qp, uint32_t round,
                               uint32_t i, const Op& op);

}  // namespace hostnic::verify
