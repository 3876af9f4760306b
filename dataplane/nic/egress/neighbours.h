// SPDX-License-Identifier: BSD-3-Clause
// Who has which MAC address on an Ethernet port: a bounded ARP table (RFC 826). Pure bookkeeping;
// packets and time come in.
#pragma once

#include <cstdint>
#include <vector>

#include "protocol/types.h"
#include "protocol/wire/packet.h"

namespace hostnic {

class Neighbours {
 public:
  static constexpr uint32_t kCapacity = 1024;
  static constexpr uint64_t kFirstRetryNs = 10'000'000;
  static constexpr uint64_t kMaxRetryNs = 1'000'000'000;
  static constexpr uint64_t kRefreshNs = 60'000'000'000;
  // A neighbour that stops answering is asked for again, but not sooner after it was last heard.
  static constexpr uint64_t kDoubtNs = 1'000'000'000;

  struct Entry {
    Ipv4Address ip{};
    wire::MacAddress mac{};
    uint32_t generation = 0;  // 0: unresolved; raised when the MAC changes
    uint64_t learned_ns = 0;
    uint64_t next_request_ns = 0;
    uint64_t retry_ns = kFirstRetryNs;
  };

  // Index of the entry for `ip`, made if there is none. -1: the table is full.
  int find_or_add(Ipv4Address ip);
  const Entry& entry(int index) const { return entries_[static_cast<size_t>(index)]; }
  // Takes in what an ARP packet said. Only addresses that we asked for are kept.
  void learn(Ipv4Address ip, const wire::MacAddress& mac, uint64_t now_ns);
  // Says that a packet had to be repeated: the address may have moved, or somebody may have lied.
  void doubt(int index, uint64_t now_ns);
  // Says that the own MAC address has changed: flows are made anew, and all are asked, who learn
  // the new one by that.
  void own_mac_changed(uint64_t now_ns);
  // The next address to ask for at `now_ns`, or -1. Schedules its next request.
  int due(uint64_t now_ns);
  uint64_t next_deadline_ns() const;

 private:
  std::vector<Entry> entries_;
};

}  // namespace hostnic
