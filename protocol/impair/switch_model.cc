// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/impair/switch_model.h"

#include <algorithm>

namespace hostnic::impair {

SwitchModel::SwitchModel(const SwitchSpec& spec, Ops& ops)
    : spec_(spec), ops_(ops), port_(spec.rate_bits_per_second, spec.queue_packets) {
  paths_.reserve(spec.plan.paths);
  for (uint32_t i = 0; i < spec.plan.paths; ++i)
    paths_.emplace_back(spec.path_bits_per_second, spec.path_queue_packets);
  // Trimmed packets have a queue of their own, of the same length.
  on_paths_.reserve(size_t{2} * spec.plan.paths * spec.path_queue_packets);
  at_port_.reserve(size_t{2} * spec.queue_packets);
}

SwitchModel::~SwitchModel() {
  while (!on_paths_.empty()) ops_.release(on_paths_.take_first().packet);
  while (!at_port_.empty()) ops_.release(at_port_.take_first().packet);
}

void SwitchModel::arrive(void* packet, uint32_t bytes, uint32_t path, TimeNs now) {
  last_now_ns_ = now = std::max(now, last_now_ns_);
  ++waiting_;
  // What has left its path before comes to the port before.
  move_on(now);
  const Entry entry{packet, bytes, false};
  if (path == 0 || path > paths_.size())
    enter(port_, at_port_, entry, now);
  else
    enter(paths_[path - 1], on_paths_, entry, now);
}

void SwitchModel::enter(Link& link, ReleaseHeapOf<Entry>& behind, Entry entry, TimeNs now) {
  if (entry.trimmed) {
    if (!enter_trimmed(link, behind, entry, now)) drop(link, entry);
    return;
  }
  const auto departure = link.queue.admit(entry.bytes, now);
  if (!departure) {
    const uint32_t left = spec_.trims ? ops_.trim(entry.packet) : 0;
    if (left != 0 && enter_trimmed(link, behind, {entry.packet, left, true}, now))
      ++link.counters.trimmed;
    else
      drop(link, entry);
    return;
  }
  const size_t queued = link.queue.queued();
  link.counters.longest_queue = std::max<uint64_t>(link.counters.longest_queue, queued);
  if (spec_.marks_from_packets != 0 && queued > spec_.marks_from_packets)
    link.counters.marked += ops_.mark(entry.packet);
  ++link.counters.packets;
  link.counters.bytes += entry.bytes;
  behind.insert(entry, *departure);
}

// Returns false if there is no room even for its headers.
bool SwitchModel::enter_trimmed(Link& link, ReleaseHeapOf<Entry>& behind, const Entry& entry,
                                TimeNs now) {
  const auto departure = link.trimmed.admit(entry.bytes, now);
  if (!departure) return false;
  link.queue.overtake(entry.bytes, now);
  ++link.counters.packets;
  link.counters.bytes += entry.bytes;
  behind.insert(entry, *departure);
  return true;
}

void SwitchModel::drop(Link& link, const Entry& entry) {
  ++link.counters.dropped;
  --waiting_;
  ops_.release(entry.packet);
}

// Has those packets that have left their paths until now come to the port, each at its time.
void SwitchModel::move_on(TimeNs now) {
  while (on_paths_.first_ns() <= now) {
    const TimeNs at_ns = on_paths_.first_ns();
    enter(port_, at_port_, on_paths_.take_first(), at_ns);
  }
}

size_t SwitchModel::take(std::span<void*> out, TimeNs now) {
  last_now_ns_ = now = std::max(now, last_now_ns_);
  move_on(now);
  size_t count = 0;
  while (count < out.size() && at_port_.first_ns() <= now)
    out[count++] = at_port_.take_first().packet;
  waiting_ -= count;
  return count;
}

TimeNs SwitchModel::next_deadline_ns() const {
  return std::min(on_paths_.first_ns(), at_port_.first_ns());
}

void SwitchModel::clear_counters() {
  port_.counters = {};
  for (Link& path : paths_) path.counters = {};
}

}  // namespace hostnic::impair
