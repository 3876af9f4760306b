// SPDX-License-Identifier: BSD-3-Clause
// Which IPv6 address each stand-in (protocol/gid.h) stands for: all of a process's NICs share one
// book, so that they may tell each other of hosts. IPv4 addresses need no entry.
//
// An entry that somebody holds stays. Others, of hosts that packets came from and nobody has named,
// are used anew when there is no other room, the oldest first. Bounded; sized at the start.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "protocol/gid.h"

namespace hostnic {

class AddressBook {
 public:
  static constexpr uint32_t kCapacity = 16'384;
  static constexpr uint32_t kOfUser = kCapacity / 2, kOfUsers = kCapacity - kCapacity / 8;

  AddressBook();

  // Gives the number by which NICs name a host, and keeps it until it is released as often.
  // Nothing: all entries are held. Any thread but lcores, which never wait.
  // In a user's name, by whose programs no more than kOfUser are held at a time, and no more than
  // kOfUsers by all users' who are named.
  std::optional<Ipv4Address> acquire(const Gid& address,
                                     std::optional<uint32_t> user = std::nullopt);
  void release(Ipv4Address number, std::optional<uint32_t> user = std::nullopt);

  // Gives the number of a host that a packet came from, which may mean another later. Nothing: all
  // entries are held, or another thread is at the book. For lcores: it never waits.
  std::optional<Ipv4Address> meet(const Gid& address);

  // What a number stands for. An entry that is just being used anew stands for ::. Any thread;
  // never waits.
  Gid address_of(Ipv4Address number) const;
  // Prints what it stands for: "fd00::1".
  std::string text_of(Ipv4Address number) const;

 private:
  static constexpr uint32_t kBuckets = 2 * kCapacity;
  static constexpr uint32_t kNone = UINT32_MAX;

  struct Entry {
    // Odd while the address is being written.
    std::atomic<uint32_t> version{0};
    std::atomic<uint64_t> first_half{0}, second_half{0};
    uint32_t holders = 0;
    uint32_t next = kNone;  // in its bucket
    bool waits = false;     // it is in the queue of those to be used anew
  };

  static uint32_t bucket_of(const Gid& address);
  uint32_t find(const Gid& address) const;
  uint32_t take_entry();
  void unlink(uint32_t index);
  uint32_t find_or_add(const Gid& address);
  void let_wait(uint32_t index);
  Gid read(const Entry& entry) const;

  mutable std::mutex mutex_;  // of all but reading an entry's address
  std::unique_ptr<Entry[]> entries_;
  std::vector<uint32_t> buckets_;
  uint32_t used_ = 0;  // entries that have been used at all
  // A queue of entries that nobody held when they came in, oldest first.
  std::vector<uint32_t> waiting_;
  uint32_t first_waiting_ = 0, waiting_count_ = 0;
  std::map<uint32_t, uint32_t> held_by_user_;  // how often, by user id
  uint32_t held_by_users_ = 0;                 // by all of them
};

// What a number stands for where there may be no book, as in tests: IPv4 addresses are themselves.
inline Gid address_of(const AddressBook* book, Ipv4Address number) {
  return book != nullptr && is_stand_in(number) ? book->address_of(number) : gid_of(number);
}

}  // namespace hostnic
