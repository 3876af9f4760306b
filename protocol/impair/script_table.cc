// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/impair/script_table.h"

#include "protocol/impair/random.h"

namespace hostnic::impair {

ScriptTable::Entry* ScriptTable::set_of(const Key& key) const {
  const uint64_t hash = Random::mix(Random::mix(key.flow) + key.packet);
  return &entries_[hash % (kEntries / kWays) * kWays];
}

uint64_t* ScriptTable::find(const Key& key, uint64_t now_packets, uint64_t max_age_packets) {
  Entry* set = set_of(key);
  for (size_t way = 0; way < kWays; ++way) {
    Entry& entry = set[way];
    if (entry.last_used == 0 || Key{entry.flow, entry.packet} != key) continue;
    if (now_packets - entry.last_used > max_age_packets) {
      entry.last_used = 0;
      return nullptr;
    }
    entry.last_used = now_packets;
    return &entry.note;
  }
  return nullptr;
}

uint64_t& ScriptTable::insert(const Key& key, uint64_t now_packets) {
  Entry* set = set_of(key);
  Entry* oldest = &set[0];
  for (size_t way = 1; way < kWays; ++way) {
    if (set[way].last_used < oldest->last_used) oldest = &set[way];
  }
  forgotten_ += oldest->last_used != 0;
  *oldest = {key.flow, now_packets, 0, key.packet};
  return oldest->note;
}

}  // namespace hostnic::impair
