// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/impair/rule_state.h"

#include <algorithm>

namespace hostnic::impair {

namespace {

// A QP uses a PSN again after 2^24 packets of its own, so a note younger than this is about the
// present use, and an older one is not needed any more.
constexpr uint64_t kPsnReusePackets = uint64_t{1} << 23;
constexpr uint64_t kNoAge = ~uint64_t{0};

uint64_t flow_of(const PacketInfo& info) {
  return uint64_t{raw(info.peer)} << 24 | (raw(info.qpn) & 0xffffff);
}

// Requests, responses and ACKs number their packets independently.
uint32_t psn_space(PacketKind kind) {
  switch (kind) {
    case PacketKind::kWrite:
    case PacketKind::kSend:
    case PacketKind::kReadRequest:
    case PacketKind::kAtomicRequest:
      return 0;
    case PacketKind::kReadResponse:
    case PacketKind::kAtomicResponse:
      return 1;
    case PacketKind::kAck:
      return 2;
    case PacketKind::kOther:
      return 3;
  }
  return 3;
}

ScriptTable::Key packet_key(const PacketInfo& info) {
  return {flow_of(info), psn_space(info.kind) << 24 | info.psn.value()};
}

}  // namespace

RuleState::RuleState(const Rule& rule, uint64_t seed) : rule_(rule), random_(seed) {
  if (rule.trigger.per_qp) per_qp_counts_.emplace();
  if (rule.selectors.once) hit_once_.emplace();
  if (rule.action == Action::kRate) {
    rate_limiter_.emplace(std::max(rule.rate_bits_per_second, kMinRateBitsPerSecond),
                          std::max(rule.queue_packets, 1u));
  }
}

bool RuleState::matches(const PacketInfo& info) const {
  const Selectors& want = rule_.selectors;
  return (want.kinds & mask_of(info.kind)) != 0 && (!want.peer || *want.peer == info.peer) &&
         (!want.qpn || *want.qpn == info.qpn) && (!want.path || *want.path == info.path) &&
         (!want.plane || *want.plane == info.plane) &&
         (!want.source_port || *want.source_port == info.source_port) &&
         (!want.last_packet || info.last_of_message) && (!want.first_attempt || info.first_attempt);
}

bool RuleState::triggers(const PacketInfo& info, TimeNs elapsed_ns, uint64_t packet_number) {
  if (elapsed_ns < rule_.selectors.from_ns || elapsed_ns >= rule_.selectors.to_ns) return false;
  if (!hit_once_) return chooses(info, packet_number);
  const ScriptTable::Key key = packet_key(info);
  if (hit_once_->find(key, packet_number, kPsnReusePackets) != nullptr) return false;
  if (!chooses(info, packet_number)) return false;
  hit_once_->insert(key, packet_number);
  return true;
}

bool RuleState::chooses(const PacketInfo& info, uint64_t packet_number) {
  const Trigger& trigger = rule_.trigger;
  switch (trigger.kind) {
    case TriggerKind::kAlways:
      return true;
    case TriggerKind::kUniform:
      return random_.chance(trigger.probability_ppb);
    case TriggerKind::kBurst:
      if (random_.chance(bad_state_ ? trigger.to_good_ppb : trigger.to_bad_ppb)) {
        bad_state_ = !bad_state_;
      }
      return random_.chance(bad_state_ ? trigger.hit_bad_ppb : trigger.hit_good_ppb);
    case TriggerKind::kNth:
      return count_packet(info, packet_number) == trigger.count;
    case TriggerKind::kEvery:
      return count_packet(info, packet_number) % std::max<uint64_t>(trigger.count, 1) == 0;
    case TriggerKind::kFirst:
      return count_packet(info, packet_number) <= trigger.count;
  }
  return false;
}

uint64_t RuleState::count_packet(const PacketInfo& info, uint64_t packet_number) {
  if (!per_qp_counts_) return ++count_;
  const ScriptTable::Key key{flow_of(info), 0};
  uint64_t* count = per_qp_counts_->find(key, packet_number, kNoAge);
  if (count == nullptr) count = &per_qp_counts_->insert(key, packet_number);
  return ++*count;
}

uint64_t RuleState::draw_delay_ns() {
  const DelayModel& delay = rule_.delay;
  if (delay.jitter_ns == 0) return delay.base_ns;
  switch (delay.distribution) {
    case Distribution::kUniform:
      return random_.uniform(delay.base_ns, delay.jitter_ns);
    case Distribution::kNormal:
      return random_.normal(delay.base_ns, delay.jitter_ns);
    case Distribution::kExponential:
      return random_.exponential(delay.base_ns, delay.jitter_ns);
  }
  return delay.base_ns;
}

uint64_t RuleState::script_forgotten() const {
  return (per_qp_counts_ ? per_qp_counts_->forgotten() : 0) +
         (hit_once_ ? hit_once_->forgotten() : 0);
}

}  // namespace hostnic::impair
