// SPDX-License-Identifier: BSD-3-Clause
// Memory of scripted rules: "the 3rd of each QP" and "never the same packet twice" need a note per
// QP or packet, and a network has no bound on either. So the table has one: sets of eight entries,
// and a full set forgets the entry that was used longest ago. What is forgotten starts anew (a QP
// counts from 0, a packet may be hit again), and the table counts how often that happened.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>

namespace hostnic::impair {

class ScriptTable {
 public:
  static constexpr size_t kWays = 8;
  static constexpr size_t kEntries = 32768;  // a table takes 1 MiB per rule that needs one

  struct Key {
    uint64_t flow = 0;
    uint32_t packet = 0;
    bool operator==(const Key&) const = default;
  };

  ScriptTable() : entries_(std::make_unique<Entry[]>(kEntries)) {}

  // The note for `key`, or null. `now_packets` counts the stage's packets and ages the entries; an
  // entry not used for more than `max_age_packets` is absent.
  uint64_t* find(const Key& key, uint64_t now_packets, uint64_t max_age_packets);

  // The note for a key that find() did not find, 0 at first.
  uint64_t& insert(const Key& key, uint64_t now_packets);

  // The number of entries that were dropped to make room.
  uint64_t forgotten() const { return forgotten_; }

 private:
  struct Entry {
    uint64_t flow = 0;
    uint64_t last_used = 0;  // packet number; 0: the entry is free; the stage's first packet is
                             // number 1
    uint64_t note = 0;
    uint32_t packet = 0;
  };
  Entry* set_of(const Key& key) const;

  std::unique_ptr<Entry[]> entries_;
  uint64_t forgotten_ = 0;
};

}  // namespace hostnic::impair
