// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/simulation/stream.h"

namespace hostnic::sim {

Stream::Stream(Endpoint& near, Endpoint& far, const StreamSettings& settings)
    : near_(near),
      far_(far),
      settings_(settings),
      source_(settings.message_bytes),
      // Messages that are outstanding together have each a place of their own.
      target_(uint64_t{settings.message_bytes} * settings.depth),
      lkey_(near.host->add_mr(source_)),
      rkey_(add_target()),
      every_other_rkey_(settings.every_other_key ? add_target() : rkey_) {
  timings_.reserve(settings.messages);
  if (settings_.op == SendOp::kSend)
    while (receives_posted_ < settings_.depth) post_receive();
}

uint32_t Stream::add_target() {
  constexpr uint32_t kPd = 1;
  return far_.host->add_mr(target_, kAllAccess, Reach::kMapped, kPd, target_.address());
}

void Stream::post_receive() {
  const uint64_t place = receives_posted_ % settings_.depth;
  const Sge sge{target_.address(place * settings_.message_bytes), settings_.message_bytes, rkey_};
  if (far_.post_recv({.wr_id = receives_posted_, .sges = {&sge, 1}}) == 0) ++receives_posted_;
}

void Stream::post(TimeNs now_ns) {
  const uint64_t place = posted_ % settings_.depth;
  const Sge sge{source_.address(), settings_.message_bytes, lkey_};
  driver::SendRequest request;
  request.op = posted_ % 2 == 0 ? settings_.op : settings_.every_other_op;
  request.wr_id = posted_;
  request.signalled = true;
  request.sges = {&sge, 1};
  request.remote_va = target_.address(place * settings_.message_bytes);
  request.rkey = posted_ % 2 == 0 ? rkey_ : every_other_rkey_;
  if (near_.post_send(request) != 0) return;  // the queue is full: the next turn tries again
  ++posted_;
  posted_ns_.push_back(now_ns);
}

bool Stream::turn(TimeNs now_ns) {
  bool worked = false;
  for (const driver::Completion& completion : near_.poll(*near_.send_cq)) {
    worked = true;
    if (completion.status != driver::WcStatus::kSuccess) {
      if (!failed_) status_ = completion.status;
      failed_ = true;
      continue;
    }
    timings_.push_back({posted_ns_.front(), now_ns});
    posted_ns_.pop_front();
  }
  if (settings_.op == SendOp::kSend) {
    for (size_t n = far_.poll(*far_.recv_cq).size(); n != 0; --n) post_receive();
  }
  while (!failed_ && posted_ < settings_.messages && posted_ns_.size() < settings_.depth) {
    const uint32_t before = posted_;
    post(now_ns);
    if (posted_ == before) break;
    worked = true;
  }
  return worked;
}

}  // namespace hostnic::sim
