// SPDX-License-Identifier: BSD-3-Clause
// What a NIC is told when it is made.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "dataplane/nic/address_book.h"
#include "protocol/cm/peer.h"
#include "protocol/hostif/descriptors.h"
#include "protocol/impair/switch_spec.h"
#include "protocol/transport_kind.h"
#include "protocol/types.h"
#include "protocol/wire/packet.h"

namespace hostnic {

// docs/transport.md rule 10 (tails wait), docs/ordering.md.
enum class Ordering : uint8_t { kTail, kRelaxed, kStrict, kAdversarial };
constexpr bool tails_wait(Ordering ordering) {
  return ordering == Ordering::kTail || ordering == Ordering::kStrict;
}

// Hosts with which connections speak a certain transport, or what both can: those whose address
// begins with the `bits` first bits of `address`.
struct TransportPrefix {
  Gid address{};
  uint32_t bits = 0;
  Transport transport = Transport::kHostnic;
};

struct NicSettings {
  std::string name = "hnic0";
  uint32_t index = 0;
  // The NIC's addresses by number (protocol/gid.h), the first of them being `ip`; others may go and
  // come (0: there is none at that index). Unless it is null, the book says what they stand for.
  Ipv4Address ip{};
  std::vector<Ipv4Address> more_addresses;
  const AddressBook* address_book = nullptr;
  uint32_t prefix_length = 24;  // of `ip`'s network: 32 bits at most, or 128
  Ipv4Address gateway{};        // 0: there is none
  wire::MacAddress mac{};
  uint32_t mtu_bytes = 4096;  // IB MTU
  uint32_t window = 1024;     // PSNs, power of two, 32..4096
  wire::Policy policy = wire::Policy::kSelective;
  // How much a round trip may grow before senders slow down (rule 27, congestion window); drivers
  // are told.
  uint32_t congestion_allowance_us = 250;
  uint32_t line_rate_mbps = 0;  // the port's; 0: it has none, or nobody knows
  Ordering ordering = Ordering::kTail;
  // Draws what kAdversarial does here; 0: it is another ordering. How packets arrive is the
  // business of the port's impairments (protocol/impair/adversary.h).
  uint64_t adversary_seed = 0;
  // What connections speak: the longest prefix that the peer's address has says it, else this.
  Transport transport = Transport::kHostnic;
  std::vector<TransportPrefix> transports;
  // How many entropy values, by which packets choose paths, a queue pair has by MRC.
  uint32_t mrc_entropy_values = 16;
  uint32_t mrc_planes = 1;  // that these are spread over: a power of two
  // Over how many paths a native queue pair sprays its packets; also: answers take the path of what
  // they answer (docs/transport.md rule 37).
  uint32_t paths = 1;
  uint32_t max_qps = 16384;  // of one client
  uint32_t nic_qps = 32768;  // of all clients
  // What numbers of queue pairs begin with, and keys of windows are made of; 0: what nobody can
  // guess.
  uint64_t random_seed = 1;
  bool always_icrc = false;  // also on the in-process wire
  // The switch that the NIC hangs on; by default there is none.
  impair::SwitchSpec network_switch;
  // Segmentation offload (bundle.h) where nobody needs packets one by one.
  bool segmentation = true;

  Gid address_of(Ipv4Address number) const { return hostnic::address_of(address_book, number); }
  std::string text_of(Ipv4Address number) const { return to_string(address_of(number)); }
  // Whether a number is one of the NIC's addresses; and the address of that index, 0 being `ip`.
  // An index that had an address once has none: number 0.
  bool is_own(Ipv4Address number) const {
    return number == ip ||
           (raw(number) != 0 && std::ranges::find(more_addresses, number) != more_addresses.end());
  }
  Transport wanted_to(Ipv4Address number) const;
  // Whether there are hosts that are asked what they speak.
  bool asks_peers() const;
  // The own address that packets to a host leave from, where nobody says which: of the same family,
  // and to a link-local one from a link-local one, if there is one.
  Ipv4Address own_for(Ipv4Address destination) const;
  Ipv4Address own_address(uint32_t index) const {
    if (index == 0) return ip;
    return index > more_addresses.size() ? Ipv4Address{} : more_addresses[index - 1];
  }
};

}  // namespace hostnic
