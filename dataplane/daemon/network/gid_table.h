// SPDX-License-Identifier: BSD-3-Clause
// A NIC's addresses, and the GID table by which programs choose the one that they send from. No
// system calls.
//
// Addresses come and go while indices stay: an address that went leaves an entry of zeros, which
// waits for its return, and gets another address only when no unused one is left, the one that has
// waited longest first.
//
// The control thread; entries() is for any thread and shows what was last published.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <optional>
#include <vector>

#include "config/config.h"
#include "protocol/gid.h"
#include "protocol/hostif/control_message.h"
#include "protocol/wire/ethernet.h"

namespace hostnic {

// The link-local address that an interface with this MAC address makes for itself (RFC 4291).
Gid link_local_of(const wire::MacAddress& mac);

// Whether a table of this layout begins with the link-local address.
bool begins_with_link_local(config::Gids layout);

class GidTable {
 public:
  // `own` is the NIC's own address, which is always there; `number` is how the NIC knows it.
  GidTable(config::Gids layout, const Gid& own, Ipv4Address number);

  // Gives an address that is not there a place. Returns the number of the one that had the place
  // last, perhaps the same, which the table no longer needs (0: there was none). Nothing: the table
  // is full.
  std::optional<Ipv4Address> add(const Gid& address, Ipv4Address number);
  // Says that an address is gone.
  void remove(const Gid& address);
  // Shows the table as it is now.
  void publish();
  // Shows the NIC's own address at another index from now on, and nothing, or another address,
  // where it was: the next free entries after a port was down, as adapters' drivers take them.
  void move();
  uint32_t moves() const { return moves_.load(std::memory_order_relaxed); }  // [any thread]

  bool has(const Gid& address) const { return find(address) != nullptr; }
  // The number of an address that is there.
  Ipv4Address number_of(const Gid& address) const;
  // The addresses that are there beside the NIC's own.
  std::vector<Gid> others() const;
  // For NicSettings::more_addresses: their numbers by place, 0 where none is there.
  std::vector<Ipv4Address> more_numbers() const;

  // The entries, up to the last that has been used. Drivers' tables (mlx5, rxe, link-local) begin
  // with the link-local address: where the NIC has had none, `mac`'s is there, and can't be used.
  std::vector<GidEntry> entries(const wire::MacAddress& mac) const;  // [any thread]

 private:
  // A place's index is the GidEntry::source_index of its address.
  struct Place {
    Gid address{};  // the one that is or was there
    Ipv4Address number{};
    bool used = false, there = false;
    uint64_t went = 0;  // the count of addresses that had gone when this one did
  };

  const Place* find(const Gid& address) const;
  // Whether the place is kept for a link-local address.
  bool kept(size_t place) const { return place == 1 && begins_with_second_; }
  Place* place_for(const Gid& address);
  // The places in the order in which the table shows them.
  std::vector<size_t> order() const;

  const config::Gids layout_;
  const bool begins_with_second_;  // the table shows the second place before the first
  std::vector<Place> places_;      // the NIC's own first
  uint64_t gone_ = 0;
  std::atomic<uint32_t> moves_{0};
  mutable std::mutex mutex_;
  std::vector<Place> shown_;  // under mutex_
};

}  // namespace hostnic
