// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/egress/neighbours.h"

#include <algorithm>

namespace hostnic {

int Neighbours::find_or_add(Ipv4Address ip) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    if (entries_[i].ip == ip) return static_cast<int>(i);
  }
  if (entries_.size() >= kCapacity) return -1;
  entries_.push_back({.ip = ip});
  return static_cast<int>(entries_.size() - 1);
}

void Neighbours::learn(Ipv4Address ip, const wire::MacAddress& mac, uint64_t now_ns) {
  for (Entry& entry : entries_) {
    if (entry.ip != ip) continue;
    if (entry.generation == 0 || entry.mac != mac) ++entry.generation;
    entry.mac = mac;
    entry.learned_ns = now_ns;
    entry.next_request_ns = now_ns + kRefreshNs;
    entry.retry_ns = kFirstRetryNs;
  }
}

void Neighbours::doubt(int index, uint64_t now_ns) {
  Entry& entry = entries_[static_cast<size_t>(index)];
  // Unless it is being asked for already.
  if (entry.generation == 0 || entry.next_request_ns != entry.learned_ns + kRefreshNs) return;
  entry.next_request_ns = std::max(now_ns, entry.learned_ns + kDoubtNs);
}

void Neighbours::own_mac_changed(uint64_t now_ns) {
  for (Entry& entry : entries_) {
    if (entry.generation == 0) continue;
    ++entry.generation;
    entry.next_request_ns = now_ns;
    entry.retry_ns = kFirstRetryNs;
  }
}

int Neighbours::due(uint64_t now_ns) {
  for (size_t i = 0; i < entries_.size(); ++i) {
    Entry& entry = entries_[i];
    if (now_ns < entry.next_request_ns) continue;
    entry.next_request_ns = now_ns + entry.retry_ns;
    entry.retry_ns = std::min(entry.retry_ns * 2, kMaxRetryNs);
    return static_cast<int>(i);
  }
  return -1;
}

uint64_t Neighbours::next_deadline_ns() const {
  uint64_t earliest = UINT64_MAX;
  for (const Entry& entry : entries_) earliest = std::min(earliest, entry.next_request_ns);
  return earliest;
}

}  // namespace hostnic
