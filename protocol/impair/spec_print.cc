// SPDX-License-Identifier: BSD-3-Clause
// Specs and errors as text.
#include "protocol/impair/spec.h"
#include "protocol/impair/spec_kinds.h"
#include "protocol/impair/spec_values.h"

namespace hostnic::impair {

namespace {

std::string percent(uint32_t ppb) { return format_decimal(ppb, kPercentDecimals) + "%"; }

std::string time(uint64_t ns) { return with_unit(ns, kTimeUnits); }

std::string to_string(const Trigger& trigger) {
  std::string text;
  switch (trigger.kind) {
    case TriggerKind::kAlways:
      return " all";
    case TriggerKind::kUniform:
      return " " + percent(trigger.probability_ppb);
    case TriggerKind::kBurst:
      text = " burst p " + percent(trigger.to_bad_ppb) + " r " + percent(trigger.to_good_ppb);
      if (trigger.hit_bad_ppb != 1'000'000'000) text += " bad " + percent(trigger.hit_bad_ppb);
      if (trigger.hit_good_ppb != 0) text += " good " + percent(trigger.hit_good_ppb);
      return text;
    case TriggerKind::kNth:
      text = " nth ";
      break;
    case TriggerKind::kEvery:
      text = " every ";
      break;
    case TriggerKind::kFirst:
      text = " first ";
      break;
  }
  return text + std::to_string(trigger.count) + (trigger.per_qp ? " per-qp" : "");
}

std::string to_string(const DelayModel& delay) {
  std::string text = time(delay.base_ns);
  if (delay.jitter_ns == 0) return text;
  text += " jitter " + time(delay.jitter_ns);
  if (delay.distribution == Distribution::kNormal) text += " normal";
  if (delay.distribution == Distribution::kExponential) text += " exponential";
  return text;
}

std::string kind_list(KindMask kinds) {
  std::string text;
  for (const KindName& kind : kKindNames) {
    if ((kinds & kind.mask) != kind.mask) continue;
    text += (text.empty() ? "" : ",") + std::string(kind.name);
    kinds &= static_cast<KindMask>(~kind.mask);
  }
  return text;
}

std::string to_string(const Selectors& selectors) {
  std::string text;
  if (selectors.kinds != kAnyKind) text += " kind " + kind_list(selectors.kinds);
  if (selectors.peer) text += " peer " + format_ipv4(*selectors.peer);
  if (selectors.qpn) text += " qpn " + std::to_string(raw(*selectors.qpn));
  if (selectors.path) text += " path " + std::to_string(*selectors.path);
  if (selectors.plane) text += " plane " + std::to_string(*selectors.plane);
  if (selectors.source_port) text += " source-port " + std::to_string(*selectors.source_port);
  if (selectors.last_packet) text += " last-packet";
  if (selectors.first_attempt) text += " first-attempt";
  if (selectors.once) text += " once";
  if (selectors.from_ns != 0) text += " from " + time(selectors.from_ns);
  if (selectors.to_ns != kForever) text += " to " + time(selectors.to_ns);
  return text;
}

}  // namespace

std::string to_string(const Rule& rule) {
  const std::string which = to_string(rule.trigger);
  const std::string selectors = to_string(rule.selectors);
  switch (rule.action) {
    case Action::kDrop:
      return "drop" + which + selectors;
    case Action::kDuplicate:
      return "duplicate" + which + selectors;
    case Action::kCorrupt:
      return "corrupt" + which + selectors;
    case Action::kMark:
      return "mark" + which + selectors;
    case Action::kReorder:
      if (rule.distance == 0)
        return "reorder" + which + " delay " + to_string(rule.delay) + selectors;
      return "reorder" + which + " distance " + std::to_string(rule.distance) +
             (rule.flush_ns == kDefaultFlushNs ? "" : " flush " + time(rule.flush_ns)) + selectors;
    case Action::kDelay:
      return "delay " + to_string(rule.delay) +
             (rule.trigger.kind == TriggerKind::kAlways ? "" : which) + selectors;
    case Action::kRate:
      return "rate " + with_unit(rule.rate_bits_per_second, kRateUnits) + " queue " +
             std::to_string(rule.queue_packets) +
             (rule.marks_from_packets == 0 ? ""
                                           : " ecn " + std::to_string(rule.marks_from_packets)) +
             selectors;
  }
  return {};
}

std::string to_string(const Spec& spec) {
  std::string text;
  if (spec.direction) text = *spec.direction == Direction::kRx ? "rx " : "tx ";
  if (spec.rules.empty()) return text + "none";
  for (size_t i = 0; i < spec.rules.size(); ++i) {
    text += (i == 0 ? "" : "; ") + to_string(spec.rules[i]);
  }
  return text;
}

std::string SpecError::message() const {
  std::string shown;
  for (const char c : found) shown += c >= ' ' && c <= '~' ? c : '?';
  if (shown != "the end") shown = "\"" + shown + "\"";
  return "column " + std::to_string(column) + ": found " + shown + ", expected " + expected;
}

std::string_view spec_help() {
  return R"(An impairment is "none" or rules separated by ";", applied in order:
  drop 1%                                drop burst p 0.1% r 20%  (Gilbert-Elliott)
  drop nth 3 kind ack per-qp             drop last-packet once
  duplicate 0.5%                         corrupt 0.1%
  reorder 5% distance 8                  reorder 1% delay 100us jitter 50us normal
  delay 50us jitter 10us                 rate 10Gbit queue 256
  blackhole from 2s to 2.5s              mark 5% kind data  (ECN)
  rate 10Gbit queue 128 ecn 32  (a port of a switch)
Which packets: N%, all, burst, nth N, every N, first N; kind any|data|write|send|read-request|
read-response|atomic|ack|other, peer IPV4, qpn N, path N or plane N (of a switch),
source-port N, last-packet, first-attempt, once, from T to T.
)";
}

}  // namespace hostnic::impair
