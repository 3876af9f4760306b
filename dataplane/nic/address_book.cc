// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/address_book.h"

#include <cstring>

namespace hostnic {
namespace {

constexpr uint32_t kFirstStandIn = 0xf0000000;

struct Halves {
  uint64_t first, second;
};
Halves halves_of(const Gid& address) {
  Halves halves;
  std::memcpy(&halves.first, address.data(), sizeof halves.first);
  std::memcpy(&halves.second, address.data() + sizeof halves.first, sizeof halves.second);
  return halves;
}

}  // namespace

AddressBook::AddressBook()
    : entries_(std::make_unique<Entry[]>(kCapacity)),
      buckets_(kBuckets, kNone),
      waiting_(kCapacity) {}

uint32_t AddressBook::bucket_of(const Gid& address) {
  const Halves halves = halves_of(address);
  constexpr uint64_t kOdd = 0x9e3779b97f4a7c15;  // 2^64 / the golden ratio
  return static_cast<uint32_t>(((halves.first * kOdd) ^ halves.second) * kOdd >> 49) % kBuckets;
}

Gid AddressBook::read(const Entry& entry) const {
  const Halves halves{entry.first_half.load(std::memory_order_relaxed),
                      entry.second_half.load(std::memory_order_relaxed)};
  Gid address;
  std::memcpy(address.data(), &halves.first, sizeof halves.first);
  std::memcpy(address.data() + sizeof halves.first, &halves.second, sizeof halves.second);
  return address;
}

uint32_t AddressBook::find(const Gid& address) const {
  for (uint32_t i = buckets_[bucket_of(address)]; i != kNone; i = entries_[i].next)
    if (read(entries_[i]) == address) return i;
  return kNone;
}

void AddressBook::unlink(uint32_t index) {
  uint32_t* link = &buckets_[bucket_of(read(entries_[index]))];
  while (*link != index) link = &entries_[*link].next;
  *link = entries_[index].next;
}

// An entry that nobody holds, out of its bucket; kNone: there is none.
uint32_t AddressBook::take_entry() {
  if (used_ < kCapacity) return used_++;
  while (waiting_count_ != 0) {
    const uint32_t index = waiting_[first_waiting_];
    first_waiting_ = (first_waiting_ + 1) % kCapacity;
    --waiting_count_;
    entries_[index].waits = false;
    if (entries_[index].holders != 0) continue;
    unlink(index);
    return index;
  }
  return kNone;
}

uint32_t AddressBook::find_or_add(const Gid& address) {
  const uint32_t known = find(address);
  if (known != kNone) return known;
  const uint32_t index = take_entry();
  if (index == kNone) return kNone;
  Entry& entry = entries_[index];
  const Halves halves = halves_of(address);
  const uint32_t version = entry.version.load(std::memory_order_relaxed);
  entry.version.store(version + 1, std::memory_order_relaxed);
  std::atomic_thread_fence(std::memory_order_release);
  entry.first_half.store(halves.first, std::memory_order_relaxed);
  entry.second_half.store(halves.second, std::memory_order_relaxed);
  entry.version.store(version + 2, std::memory_order_release);
  uint32_t& bucket = buckets_[bucket_of(address)];
  entry.next = bucket;
  bucket = index;
  return index;
}

void AddressBook::let_wait(uint32_t index) {
  Entry& entry = entries_[index];
  if (entry.holders != 0 || entry.waits) return;
  entry.waits = true;
  waiting_[(first_waiting_ + waiting_count_++) % kCapacity] = index;
}

std::optional<Ipv4Address> AddressBook::acquire(const Gid& address, std::optional<uint32_t> user) {
  if (const auto ipv4 = ipv4_of(address)) return ipv4;
  const std::lock_guard lock(mutex_);
  if (user && (held_by_users_ >= kOfUsers || held_by_user_[*user] >= kOfUser)) return std::nullopt;
  const uint32_t index = find_or_add(address);
  if (index == kNone) return std::nullopt;
  ++entries_[index].holders;
  if (user) {
    ++held_by_user_[*user];
    ++held_by_users_;
  }
  return Ipv4Address{kFirstStandIn + index};
}

void AddressBook::release(Ipv4Address number, std::optional<uint32_t> user) {
  const uint32_t index = raw(number) - kFirstStandIn;
  if (!is_stand_in(number) || index >= kCapacity) return;
  const std::lock_guard lock(mutex_);
  if (entries_[index].holders == 0) return;
  --entries_[index].holders;
  if (user) {
    --held_by_users_;
    if (--held_by_user_[*user] == 0) held_by_user_.erase(*user);
  }
  let_wait(index);
}

std::optional<Ipv4Address> AddressBook::meet(const Gid& address) {
  if (const auto ipv4 = ipv4_of(address)) return ipv4;
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock.owns_lock()) return std::nullopt;
  const uint32_t index = find_or_add(address);
  if (index == kNone) return std::nullopt;
  let_wait(index);
  return Ipv4Address{kFirstStandIn + index};
}

Gid AddressBook::address_of(Ipv4Address number) const {
  const uint32_t index = raw(number) - kFirstStandIn;
  if (!is_stand_in(number)) return gid_of(number);
  if (index >= kCapacity) return {};
  const Entry& entry = entries_[index];
  const uint32_t before = entry.version.load(std::memory_order_acquire);
  const Gid address = read(entry);
  std::atomic_thread_fence(std::memory_order_acquire);
  const bool whole = (before & 1) == 0 && entry.version.load(std::memory_order_relaxed) == before;
  return whole ? address : Gid{};
}

std::string AddressBook::text_of(Ipv4Address number) const {
  return hostnic::to_string(address_of(number));
}

}  // namespace hostnic
