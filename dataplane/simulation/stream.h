// SPDX-License-Identifier: BSD-3-Clause
// A steady load on one direction of a connection: so many messages of one size outstanding, until
// a number of them has completed. For measurements; what memory holds is random_test's business.
#pragma once

#include <deque>
#include <vector>

#include "dataplane/simulation/world.h"

namespace hostnic::sim {

struct StreamSettings {
  SendOp op = SendOp::kWrite;    // or kSend, kRead
  SendOp every_other_op = op;    // not kSend
  bool every_other_key = false;  // every other request has another key of the target
  uint32_t message_bytes = 65536;
  uint32_t depth = 1;  // outstanding
  uint32_t messages = 100;
};

class Stream final : public World::Program {
 public:
  // `near` needs room for `depth` requests, `far` of a SEND for as many receives.
  Stream(Endpoint& near, Endpoint& far, const StreamSettings& settings);

  bool turn(TimeNs now_ns) override;
  TimeNs next_ns() const override { return UINT64_MAX; }
  // All messages have completed, or one of them failed.
  bool finished() const { return failed_ || timings_.size() == settings_.messages; }
  bool failed() const { return failed_; }
  driver::WcStatus status() const { return status_; }
  struct Timing {
    TimeNs posted_ns, completed_ns;
  };
  // Of the messages that succeeded, in order.
  const std::vector<Timing>& timings() const { return timings_; }

 private:
  uint32_t add_target();
  void post_receive();
  void post(TimeNs now_ns);

  Endpoint& near_;
  Endpoint& far_;
  const StreamSettings settings_;
  Memory source_, target_;
  uint32_t lkey_, rkey_, every_other_rkey_;
  std::deque<TimeNs> posted_ns_;
  uint32_t posted_ = 0, receives_posted_ = 0;
  std::vector<Timing> timings_;
  bool failed_ = false;
  driver::WcStatus status_ = driver::WcStatus::kSuccess;
};

}  // namespace hostnic::sim
