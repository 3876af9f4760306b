// SPDX-License-Identifier: BSD-3-Clause
// The MAC addresses of an Ethernet port's hosts: a bounded ARP table (RFC 826). Pure bookkeeping;
// packets and time come in.
//
// Addresses are looked for in somebody's name: a client's, or, for all clients of one user without
// privileges, that user's. Nobody can keep others from getting an entry: each name has so many that
// are unanswered and so many in all, such users leave a part to the others, entries that nobody
// uses make room, and then the unanswered ones of whoever has most of them. Whoever refers
// to an entry by its index therefore looks whether it still is the address's: by its generation,
// which no other entry has had.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <vector>

#include "protocol/types.h"
#include "protocol/wire/packet.h"

namespace hostnic {

class Neighbours {
 public:
  static constexpr uint32_t kCapacity = 2048;
  // The most entries of one name, and the most of them that have never been answered: so many for
  // datagrams, and as many more for connections. And the most of all users together.
  static constexpr uint32_t kEntriesEach = 1024;
  static constexpr uint32_t kEntriesOfUsers = kCapacity - kCapacity / 8;
  static constexpr uint32_t kUnresolvedEach = 128;
  static constexpr uint64_t kFirstRetryNs = 10'000'000;
  static constexpr uint64_t kMaxRetryNs = kFirstRetryNs << 10;
  static constexpr uint64_t kRefreshNs = 15'000'000'000;
  // A neighbour that stops answering is asked for again, but not sooner after it was last heard.
  static constexpr uint64_t kDoubtNs = 1'000'000'000;
  // An entry that nobody used for so long is not asked for, and makes room.
  static constexpr uint64_t kIdleNs = 10'000'000'000;
  // An unanswered entry makes room for another of the same name's after this time.
  static constexpr uint64_t kTrialNs = 1'000'000'000;
  // The most requests to all per second, and how many may come at once.
  static constexpr uint32_t kBroadcastsPerSecond = 512, kBroadcastBurst = 256;
  // A neighbour that was known is first asked alone, by so many requests.
  static constexpr uint32_t kAskedAlone = 2;

  // In whose name an address is looked for, beside clients by their ids and users: hostnicd's, and
  // that of whoever sent a packet to this NIC.
  static constexpr uint32_t kOwn = 0, kSender = UINT32_MAX;
  // The name for a client: its id, or that of its user, if that is one without privileges.
  static constexpr uint32_t name_of(uint32_t client_id, std::optional<uint32_t> stranger) {
    return stranger ? kUsers | *stranger : client_id;
  }
  // The entry of no address, which is never resolved: its users look for their address later.
  static constexpr int kNobody = 0;
  static constexpr int kFull = -1;

  struct Entry {
    Ipv4Address ip{};
    wire::MacAddress mac{};
    uint16_t share = 0;       // index of the share that it is counted in
    uint32_t generation = 0;  // 0: unresolved; another one when the MAC changes
    uint32_t attempts = 0;    // requests since it was last heard
    uint64_t used_ns = 0;     // when it was last looked for, or a packet to it was sent
    uint64_t added_ns = 0, asked_ns = 0, learned_ns = 0;
    uint64_t next_request_ns = UINT64_MAX;
    uint32_t next = kNobody;  // in its bucket, or in the list of free entries
  };

  // An address to ask for.
  struct Request {
    int index = kNobody;  // kNobody: there is none
    bool to_all = true;
  };

  Neighbours();

  // Index of the entry for `ip`, made if there is none. kNobody: not now, because the name has
  // too many, or because places were looked for a moment ago. kFull: all entries are in use. For a
  // connection who has not answered for long is asked again soon.
  int find_or_add(Ipv4Address ip, uint32_t name, uint64_t now_ns, bool connects = false);
  const Entry& entry(int index) const { return entries_[static_cast<size_t>(index)]; }
  // Whether nobody has answered yet who may: for a second, as long as Linux asks for adapters.
  bool is_on_trial(int index, uint64_t now_ns) const {
    const Entry& asked = entry(index);
    return asked.generation == 0 && now_ns - asked.added_ns < kTrialNs;
  }
  // Says that a packet goes to the entry's address; returns the entry's generation.
  uint32_t use(int index, uint64_t now_ns) {
    Entry& entry = entries_[static_cast<size_t>(index)];
    entry.used_ns = now_ns;
    return entry.generation;
  }
  // Takes in what an ARP packet said. Only addresses that we asked for are kept.
  void learn(Ipv4Address ip, const wire::MacAddress& mac, uint64_t now_ns);
  // Says that a packet had to be repeated: the address may have moved, or somebody may have lied.
  void doubt(int index, uint64_t now_ns);
  // Says that the own MAC address has changed: flows are made anew, and all are asked, who learn
  // the new one by that.
  void own_mac_changed(uint64_t now_ns);
  // The next address to ask for at `now_ns`. Schedules its next request, and forgets who never
  // answered and is of use to nobody.
  Request due(uint64_t now_ns);
  // When due() may have something to do. It can be too early, and then due() knows better.
  uint64_t next_deadline_ns() const { return earliest_ns_; }

  uint32_t size() const { return size_; }
  uint32_t unresolved() const { return unresolved_; }

 private:
  static constexpr uint32_t kBuckets = 2 * kCapacity;
  static constexpr uint32_t kUsers = 1u << 31;
  // Clients, and users, share them if there are more.
  static constexpr uint32_t kClientShares = 1024, kUserShares = 256;
  static constexpr uint64_t kBroadcastNs = 1'000'000'000 / kBroadcastsPerSecond;
  // Looking through all entries for a place takes microseconds: packets have it done so often.
  static constexpr uint64_t kSearchNs = 200'000;

  struct Share {
    uint32_t entries = 0, unresolved = 0;
  };

  static uint32_t bucket_of(Ipv4Address ip);
  static uint16_t share_of(uint32_t name);
  static bool is_users(uint16_t share) {
    return share >= kClientShares && share < kClientShares + kUserShares;
  }
  uint32_t find(Ipv4Address ip) const;
  int find_place(uint16_t share, uint64_t now_ns, uint32_t unresolved_limit);
  uint32_t own_place(uint16_t share, uint64_t now_ns, bool unresolved_only) const;
  uint32_t any_place(uint16_t share, uint64_t now_ns, bool of_users) const;
  void remove(uint32_t index);
  void ask_at(Entry& entry, uint64_t at_ns);
  bool pass_over(uint32_t index, uint64_t now_ns);
  bool is_idle(const Entry& entry, uint64_t now_ns) const {
    return now_ns - entry.used_ns >= kIdleNs;
  }
  static bool asks_all(const Entry& entry) {
    return entry.generation == 0 || entry.attempts >= kAskedAlone;
  }

  std::vector<Entry> entries_;     // the first is nobody's
  std::vector<uint32_t> buckets_;  // first entry of each; kNobody: none
  std::array<Share, kClientShares + kUserShares + 1> shares_{};
  uint32_t of_users_ = 0;
  uint32_t free_ = kNobody;  // first free entry
  uint32_t size_ = 0, unresolved_ = 0;
  uint32_t last_generation_ = 0;
  uint64_t earliest_ns_ = UINT64_MAX;
  uint64_t next_search_ns_ = 0;
  // Requests to all take a turn of kBroadcastNs each; this is when the turns that were taken end.
  uint64_t broadcasts_until_ns_ = 0;
};

}  // namespace hostnic
