// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/impair/stage.h"

#include <algorithm>
#include <bit>
#include <cassert>

namespace hostnic::impair {

uint64_t derive_seed(uint64_t seed, uint32_t nic_index, Direction direction) {
  return Random::mix(seed + Random::mix(uint64_t{nic_index} * 2 + (direction == Direction::kTx)));
}

ImpairmentStage::ImpairmentStage(const Spec& spec, uint64_t seed, PacketOps& ops, size_t capacity)
    : ops_(ops), capacity_(std::max<size_t>(capacity, 1)) {
  assert(spec.rules.size() <= kMaxRules);
  const size_t rule_count = std::min(spec.rules.size(), kMaxRules);
  bool holds_by_distance = false;
  rules_.reserve(rule_count);
  for (size_t i = 0; i < rule_count; ++i) {
    rules_.emplace_back(spec.rules[i], Random::mix(seed ^ Random::mix(i + 1)));
    holds_by_distance |= spec.rules[i].distance != 0;
    looks_at_packets_ |= rules_.back().looks_at_packets();
  }
  plain_loss_ = rule_count == 1 && spec.rules[0].is_plain_loss();
  holds_.resize(rule_count);
  timed_.reserve(capacity_);
  if (!holds_by_distance) return;
  held_.resize(capacity_);
  for (size_t i = capacity_; i-- > 0;) {
    held_[i].next = free_held_;
    free_held_ = static_cast<uint32_t>(i);
  }
}

ImpairmentStage::~ImpairmentStage() {
  void* packet = nullptr;
  while (drain({&packet, 1}) != 0) ops_.release(packet);
}

void ImpairmentStage::push(void* packet, const PacketInfo& info, TimeNs now) {
  run(packet, info, now, /*may_pass=*/false);
}

bool ImpairmentStage::run(void* packet, const PacketInfo& info, TimeNs now, bool may_pass) {
  begin_packet(now);
  now = last_now_ns_;
  flush_held(now);  // release packets whose time came before this packet
  copy_count_ = 0;
  Plan plan;
  plan.packet = packet;
  plan.release_ns = now;
  plan.may_pass = may_pass;
  const bool passes = run_rules(plan, info, now, 0);
  for (size_t i = 0; i < copy_count_; ++i) {
    run_rules(copies_[i].plan, info, now, copies_[i].next_rule);
  }
  return passes;
}

// Runs the rules from `first_rule` on; returns true if the packet goes on at once and is the
// caller's again.
bool ImpairmentStage::run_rules(Plan plan, const PacketInfo& info, TimeNs now, size_t first_rule) {
  for (size_t i = first_rule; i < rules_.size(); ++i) {
    if (rules_[i].matches(info) && !apply_rule(i, plan, info, now)) return false;
  }
  if (goes_on(plan, now)) {
    note_passed(plan.passes_rules, now, now);
    return true;
  }
  finish(plan, now);
  return false;
}

// Whether nothing is to happen to the packet, and nothing that is due waits before it.
bool ImpairmentStage::goes_on(const Plan& plan, TimeNs now) const {
  return plan.may_pass && plan.hold_rule == kNone &&
         plan.release_ns + plan.reorder_delay_ns <= now && !plan.delayed && !has_due(now);
}

// Applies one rule; returns false if the packet is gone.
bool ImpairmentStage::apply_rule(size_t index, Plan& plan, const PacketInfo& info, TimeNs now) {
  RuleState& state = rules_[index];
  rule_at_work_ = static_cast<uint8_t>(index + 1);
  const bool triggered = state.triggers(info, now - first_packet_ns_, packet_number_);
  switch (state.rule().action) {
    case Action::kDrop:
      if (triggered) drop(plan, Loss::Reason::kRule, counters_.dropped);
      return !triggered;
    case Action::kDuplicate:
      if (triggered) apply_duplicate(index, plan);
      return true;
    case Action::kCorrupt:
      return !triggered || apply_corrupt(state, plan);
    case Action::kMark:
      return !triggered || apply_mark(plan);
    case Action::kRate:
      return !triggered || apply_rate(state, plan, info, now);
    case Action::kDelay:
      apply_delay(state, plan, triggered);
      return true;
    case Action::kReorder:
      apply_reorder(index, plan, triggered);
      return true;
  }
  return true;
}

void ImpairmentStage::apply_duplicate(size_t index, const Plan& plan) {
  if (plan.is_copy) return;
  void* clone = ops_.clone(plan.packet);
  if (clone == nullptr) return;
  ++counters_.duplicated;
  Copy& copy = copies_[copy_count_++];
  copy = {plan, index + 1};
  copy.plan.packet = clone;
  copy.plan.is_copy = true;
  copy.plan.may_pass = false;
  copy.plan.passes_rules = 0;  // the original counts for the rules it has passed
}

bool ImpairmentStage::apply_corrupt(RuleState& state, Plan& plan) {
  const uint64_t random = state.random().next();
  if (!detach(plan)) return false;
  plan.may_pass = false;
  ops_.corrupt(plan.packet, static_cast<uint32_t>(random >> 32),
               static_cast<uint8_t>(1 + (random & 0xffff) % 255));
  ++counters_.corrupted;
  return true;
}

bool ImpairmentStage::apply_mark(Plan& plan) {
  if (!detach(plan)) return false;
  plan.may_pass = false;
  counters_.marked += ops_.mark(plan.packet);
  return true;
}

bool ImpairmentStage::apply_rate(RuleState& state, Plan& plan, const PacketInfo& info, TimeNs now) {
  const auto departure = state.rate_limiter()->admit(info.bytes, now);
  if (!departure) {
    drop(plan, Loss::Reason::kRate, counters_.rate_dropped);
    return false;
  }
  const uint32_t marks_from = state.rule().marks_from_packets;
  if (marks_from != 0 && state.rate_limiter()->queued() > marks_from && !apply_mark(plan))
    return false;
  const TimeNs wait_ns = *departure - now;
  plan.delayed |= wait_ns > 0;
  if (wait_ns > 0) plan.by_rule = rule_at_work_;
  // A link keeps order also where an earlier rule's delay shrank between two packets.
  plan.release_ns = state.in_order(plan.release_ns + wait_ns);
  return true;
}

void ImpairmentStage::apply_delay(RuleState& state, Plan& plan, bool triggered) {
  const TimeNs wanted_ns = plan.release_ns + (triggered ? state.draw_delay_ns() : 0);
  const TimeNs release_ns = state.in_order(wanted_ns);
  plan.delayed |= release_ns > plan.release_ns;
  if (release_ns > plan.release_ns) plan.by_rule = rule_at_work_;
  plan.release_ns = release_ns;
}

void ImpairmentStage::apply_reorder(size_t index, Plan& plan, bool triggered) {
  RuleState& state = rules_[index];
  const uint32_t rule = static_cast<uint32_t>(index);
  if (state.rule().distance == 0) {
    if (triggered) {
      plan.reorder_delay_ns += state.draw_delay_ns();
      plan.by_rule = rule_at_work_;
    }
  } else if (triggered && plan.hold_rule == kNone) {
    plan.hold_rule = rule;
    plan.by_rule = rule_at_work_;
  } else {
    plan.passes_rules |= 1u << rule;
  }
}

bool ImpairmentStage::detach(Plan& plan) {
  plan.packet = ops_.detach(plan.packet);
  if (plan.packet != nullptr) return true;
  ++counters_.queue_dropped;
  note_loss(plan, Loss::Reason::kQueue);
  return false;
}

void ImpairmentStage::drop(Plan& plan, Loss::Reason reason, uint64_t& counter) {
  if (plan.packet != nullptr) ops_.release(plan.packet);
  ++counter;
  note_loss(plan, reason);
}

void ImpairmentStage::note_loss(const Plan& plan, Loss::Reason reason) {
  losses_[loss_count_++] = {.reason = reason, .rule = rule_at_work_, .is_copy = plan.is_copy};
}

// Puts the packet, after all rules have spoken, where it waits for its time.
void ImpairmentStage::finish(Plan& plan, TimeNs now) {
  rule_at_work_ = plan.by_rule;
  if (queued_ == capacity_) {
    drop(plan, Loss::Reason::kQueue, counters_.queue_dropped);
    return;
  }
  const bool held = plan.hold_rule != kNone;
  const TimeNs release_ns = plan.release_ns + plan.reorder_delay_ns;
  if ((held || release_ns > now || plan.packet == nullptr) && !detach(plan)) return;
  counters_.reordered += held || plan.reorder_delay_ns > 0;
  counters_.delayed += plan.delayed;
  if (plan.by_rule != 0) ops_.held_back(plan.packet);
  ++queued_;
  if (held) {
    plan.release_ns = release_ns;
    hold(plan, now);
    return;
  }
  timed_.insert(plan.packet, release_ns);
  note_passed(plan.passes_rules, release_ns, now);
}

void ImpairmentStage::hold(const Plan& plan, TimeNs now) {
  HoldList& list = holds_[plan.hold_rule];
  const uint32_t entry = free_held_;  // there is a free entry: held_ is as large as the capacity
  free_held_ = held_[entry].next;
  const uint64_t distance = rules_[plan.hold_rule].rule().distance;
  held_[entry] = {plan.packet, now, plan.release_ns, list.passed + distance, kNone};
  (list.first == kNone ? list.first : held_[list.last].next) = entry;
  list.last = entry;
  ++held_count_;
}

// Counts a packet that will be released at `release_ns`: it overtakes the packets that the given
// rules delay by distance, and who has been overtaken often enough follows it.
void ImpairmentStage::note_passed(uint32_t rules, TimeNs release_ns, TimeNs now) {
  for (; rules != 0; rules &= rules - 1) {
    HoldList& list = holds_[static_cast<size_t>(std::countr_zero(rules))];
    ++list.passed;
    list.last_passed_ns = now;
    while (list.first != kNone && held_[list.first].release_at_count <= list.passed) {
      release_front(list, release_ns);
    }
  }
}

void ImpairmentStage::release_front(HoldList& list, TimeNs not_before_ns) {
  const uint32_t entry = list.first;
  Held& held = held_[entry];
  list.first = held.next;
  held.next = free_held_;
  free_held_ = entry;
  --held_count_;
  timed_.insert(held.packet, std::max(held.release_ns, not_before_ns));
}

TimeNs ImpairmentStage::flush_deadline_ns(size_t rule) const {
  const HoldList& list = holds_[rule];
  if (list.first == kNone) return kForever;
  const TimeNs last_event_ns = std::max(held_[list.first].arrival_ns, list.last_passed_ns);
  return last_event_ns + rules_[rule].rule().flush_ns;
}

void ImpairmentStage::flush_held(TimeNs now) {
  if (held_count_ == 0) return;
  for (size_t i = 0; i < holds_.size(); ++i) {
    for (TimeNs due = flush_deadline_ns(i); due <= now; due = flush_deadline_ns(i)) {
      release_front(holds_[i], due);
    }
  }
}

void* ImpairmentStage::take_first_timed() {
  --queued_;
  return timed_.take_first();
}

size_t ImpairmentStage::pop(std::span<void*> out, TimeNs now) {
  now = last_now_ns_ = std::max(now, last_now_ns_);
  flush_held(now);
  size_t count = 0;
  while (count < out.size() && !timed_.empty() && timed_.first_ns() <= now) {
    out[count++] = take_first_timed();
  }
  return count;
}

TimeNs ImpairmentStage::next_deadline_ns() const {
  TimeNs next_ns = timed_.first_ns();
  if (held_count_ == 0) return next_ns;
  for (size_t i = 0; i < holds_.size(); ++i) next_ns = std::min(next_ns, flush_deadline_ns(i));
  return next_ns;
}

size_t ImpairmentStage::drain(std::span<void*> out) {
  for (HoldList& list : holds_) {
    while (list.first != kNone) {
      const Held& front = held_[list.first];
      release_front(list, std::max(front.arrival_ns, list.last_passed_ns));
    }
  }
  size_t count = 0;
  while (count < out.size() && !timed_.empty()) out[count++] = take_first_timed();
  return count;
}

namespace {

uint64_t forgotten_notes(std::span<const RuleState> rules) {
  uint64_t sum = 0;
  for (const RuleState& state : rules) sum += state.script_forgotten();
  return sum;
}

}  // namespace

Counters ImpairmentStage::counters() const {
  Counters counters = counters_;
  counters.script_forgotten = forgotten_notes(rules_) - forgotten_before_clear_;
  return counters;
}

void ImpairmentStage::clear_counters() {
  counters_ = {};
  forgotten_before_clear_ = forgotten_notes(rules_);
}

}  // namespace hostnic::impair
