// SPDX-License-Identifier: BSD-3-Clause
// Random work on one direction of a connection, with a reference that executes every request at
// once and in order when it is posted. What completions report, what memory holds at each
// completion and at the end is compared with the reference.
//
// Both directions run at the same time; each has memory of its own at both ends, so that the
// reference is exact:
//   requester: source (read only), landing (READ answers, atomic results)
//   responder: target (WRITEs, READs), counters (atomics), receive buffers (SENDs)
#pragma once

#include <deque>
#include <string>
#include <vector>

#include "dataplane/simulation/world.h"

namespace hostnic::sim {

struct TrafficSettings {
  uint32_t requests = 120;
  uint32_t max_bytes = 256 * 1024;
  bool late_receives = false;  // posted after random delays: RNR and credit
  uint32_t signalled_percent = 50;
  uint32_t fence_percent = 10;
  uint32_t pause_us = 20;  // at most, between batches of posts
  Reach reach = Reach::kMapped;
  // Every request and receive names regions of its own, at both ends, that are deregistered the
  // moment it completes: what still waits or travels of it must not find that an error.
  bool short_lived_regions = false;
  // Memory that was received into is unmapped at that moment, before it is deregistered, and other
  // memory comes to its address. Short-lived regions that the mem fd reaches only.
  bool memory_comes_back = false;
};

class Traffic final : public World::Program {
 public:
  Traffic(World& world, Endpoint& requester, Endpoint& responder, const TrafficSettings& settings,
          uint64_t seed);

  bool turn(TimeNs now_ns) override;
  TimeNs next_ns() const override;
  bool finished() const { return completed_ == wanted_; }
  // The program does its duty and then no more: all receives get posted, and at most one request,
  // which shows that those before it are done.
  void stop();
  // Everything has completed and the network is quiet: memory must equal the reference.
  void check_memory();
  std::string progress() const;
  uint64_t atomics_posted() const { return atomics_posted_; }
  uint64_t unfinished_bytes() const;
  // From posting a signalled request to its completion, at most.
  uint64_t longest_ns() const { return longest_ns_; }
  // How long the requester waits for an answer before it sends something again.
  uint64_t rto_ns() const { return requester_.host->driver().gauges(requester_.qp).rto_ns; }

 private:
  struct Request {
    SendOp op;
    bool signalled = false, fence = false;
    uint32_t length_bytes = 0;
    uint64_t remote_offset = 0;   // in target or counters
    uint64_t landing_offset = 0;  // READ, atomic
    uint64_t landing_span = 0;
    std::vector<uint8_t> expected;  // WRITE, SEND: what was sent; READ: target when it was posted
    uint64_t atomic_result = 0;
    uint32_t imm_data = 0;
    uint32_t recv_number = 0;
    bool solicited = false;
    TimeNs posted_ns = 0;
    std::vector<uint32_t> near_keys, far_keys;  // short-lived regions
  };
  struct Receive {
    uint64_t offset = 0;
  };

  static constexpr uint32_t kReceives = 20;
  static constexpr uint32_t kCounters = 32;
  static constexpr uint8_t kUntouched = 0xEE;

  bool post_batch(TimeNs now_ns);
  bool post_one();
  uint32_t random_length();
  void choose_data(Request& r, driver::SendRequest& request, std::vector<Sge>& sges);
  void choose_read(Request& r, driver::SendRequest& request, std::vector<Sge>& sges);
  void choose_atomic(Request& r, driver::SendRequest& request, std::vector<Sge>& sges);
  uint32_t near_key(Request& r, const Memory& memory, uint32_t access, uint32_t lasting_key);
  uint32_t far_key(Request& r, const Memory& memory, uint32_t lasting_key);
  void deregister(Request& r);
  void reuse(Host& host, uint8_t* memory, uint64_t length_bytes, uint8_t fill);
  std::vector<Sge> split(uint64_t address, uint32_t length_bytes, uint32_t key);
  uint64_t take_landing(Request& r, uint32_t length_bytes);
  bool post_receives(TimeNs now_ns);
  bool take_completions();
  bool take_receive_completions();
  void check_completed(uint32_t number);
  void check_read(uint32_t number);
  void check_bytes(const char* what, uint32_t number, const uint8_t* actual, uint32_t newer_end);
  void check_receive(const driver::Completion& completion);
  void check_windows();
  uint64_t source_sum() const;
  void fail(const std::string& what);

  World& world_;
  Endpoint& requester_;
  Endpoint& responder_;
  const TrafficSettings settings_;
  Random random_;
  const uint32_t receive_bytes_;
  const uint64_t target_bytes_, source_bytes_, landing_bytes_;
  Memory source_, landing_, target_, counters_, receives_;
  uint32_t source_key_, landing_key_, target_keys_[2], counters_key_, receives_key_;

  // The reference.
  std::vector<uint8_t> target_reference_, landing_reference_, receives_reference_;
  std::vector<uint64_t> counters_reference_;

  uint64_t source_sum_ = 0;

  std::vector<Request> requests_;
  uint32_t wanted_;
  uint32_t completed_ = 0;
  uint64_t atomics_posted_ = 0;
  uint64_t longest_ns_ = 0;
  uint32_t sent_messages_ = 0;  // requests that consume a receive
  std::vector<uint32_t> message_requests_;
  uint64_t landing_head_ = 0, landing_outstanding_ = 0;
  TimeNs next_post_ns_ = 0, next_receive_ns_ = 0;
  uint32_t unsignalled_run_ = 0;

  uint32_t turns_ = 0;

  uint32_t receives_posted_ = 0, receives_done_ = 0;
  std::deque<uint32_t> receive_keys_;  // short-lived: of those that are posted
  uint32_t receives_allowed_ = 0;
  uint32_t visible_checked_ = 0;  // WRITEs before this were visible at some receive completion
};

}  // namespace hostnic::sim
