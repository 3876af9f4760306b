// SPDX-License-Identifier: BSD-3-Clause
// A queue pair's messages while they are traced (message_log.h): when each was posted, told once
// its PSNs are known.
#include "verbs-shim/driver/qp.h"

namespace hostnic::driver {

// Notes when the newest request was posted.
void Qp::stamp_post(uint32_t session, uint64_t ticks) {
  if (stamps_.empty()) stamps_.allocate(wqe_mask_ + size_t{1});
  const uint32_t index = tail_ - 1;
  stamps_[index & wqe_mask_] = {.ticks = ticks, .index = index, .session = session};
}

void Qp::tell_posted(uint32_t session) {
  if (stamps_.empty()) return;
  if (told_session_ != session) {
    told_session_ = session;
    told_ = head_;
  }
  // What was posted before, and is complete, can't be told of any more.
  if (serial_distance(told_, head_) > 0) told_ = head_;
  for (; told_ != tail_; ++told_) {
    const Wqe& w = wqe(told_);
    if (!w.started) break;
    const PostStamp& stamp = stamps_[told_ & wqe_mask_];
    if (stamp.index != told_ || stamp.session != session || is_local(w.op)) continue;
    host.messages.add({.kind = MessageEventKind::kPosted,
                       .op = w.op,
                       .signalled = w.signalled ? uint8_t{1} : uint8_t{0},
                       .reserved = 0,
                       .qpn = qpn,
                       .ticks = stamp.ticks,
                       .wr_id = w.wr_id,
                       .number = told_ + 1,
                       .sequence = 0,
                       .session = 0,
                       .status = 0,
                       .first_psn = w.first_psn.value(),
                       .psns = w.psn_count,
                       .first_answer = w.first_response_psn.value(),
                       .answers = w.response_count,
                       .length_bytes = w.length_bytes,
                       .reserved_word = 0},
                      session);
  }
}

}  // namespace hostnic::driver
