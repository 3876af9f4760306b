// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/egress/neighbours.h"

#include <algorithm>

namespace hostnic {

Neighbours::Neighbours() : entries_(kCapacity + 1), buckets_(kBuckets, kNobody) {
  for (uint32_t i = kCapacity; i > 0; --i) {
    entries_[i].next = free_;
    free_ = i;
  }
}

uint32_t Neighbours::bucket_of(Ipv4Address ip) {
  constexpr uint32_t kOdd = 0x9e3779b1;  // 2^32 / the golden ratio
  return (raw(ip) * kOdd >> 16) % kBuckets;
}

uint16_t Neighbours::share_of(uint32_t name) {
  if (name == kSender) return kClientShares + kUserShares;
  const bool is_user = (name & kUsers) != 0;
  return static_cast<uint16_t>(is_user ? kClientShares + (name & ~kUsers) % kUserShares
                                       : name % kClientShares);
}

uint32_t Neighbours::find(Ipv4Address ip) const {
  uint32_t i = buckets_[bucket_of(ip)];
  while (i != kNobody && entries_[i].ip != ip) i = entries_[i].next;
  return i;
}

void Neighbours::ask_at(Entry& entry, uint64_t at_ns) {
  entry.next_request_ns = at_ns;
  earliest_ns_ = std::min(earliest_ns_, at_ns);
}

int Neighbours::find_or_add(Ipv4Address ip, uint32_t name, uint64_t now_ns, bool connects) {
  if (const uint32_t known = find(ip); known != kNobody) {
    Entry& entry = entries_[known];
    entry.used_ns = now_ns;
    if (connects && entry.generation == 0 && entry.next_request_ns > entry.asked_ns + kTrialNs)
      ask_at(entry, std::max(now_ns, entry.asked_ns + kTrialNs));
    return static_cast<int>(known);
  }
  const uint16_t share = share_of(name);
  const int place =
      find_place(share, now_ns, connects ? 2 * kUnresolvedEach : uint32_t{kUnresolvedEach});
  if (place <= kNobody) return place;
  Entry& entry = entries_[static_cast<size_t>(place)];
  free_ = entry.next;
  uint32_t& bucket = buckets_[bucket_of(ip)];
  entry = {.ip = ip, .share = share, .used_ns = now_ns, .added_ns = now_ns, .next = bucket};
  bucket = static_cast<uint32_t>(place);
  ++size_;
  ++unresolved_;
  of_users_ += is_users(share);
  ++shares_[share].entries;
  ++shares_[share].unresolved;
  ask_at(entry, now_ns);
  return place;
}

// The first free entry, freed for this if need be; kNobody or kFull.
int Neighbours::find_place(uint16_t share, uint64_t now_ns, uint32_t unresolved_limit) {
  const Share& own = shares_[share];
  const bool too_many_unresolved = own.unresolved >= unresolved_limit;
  const bool has_enough = too_many_unresolved || own.entries >= kEntriesEach;
  const bool have_users_enough = is_users(share) && of_users_ >= kEntriesOfUsers;
  if (!has_enough && !have_users_enough && free_ != kNobody) return static_cast<int>(free_);
  if (now_ns < next_search_ns_) return kNobody;
  next_search_ns_ = now_ns + kSearchNs;
  const uint32_t place = has_enough ? own_place(share, now_ns, too_many_unresolved)
                                    : any_place(share, now_ns, have_users_enough);
  if (place == kNobody) return has_enough ? kNobody : kFull;
  remove(place);
  return static_cast<int>(free_);
}

// The entry that a share with enough entries gives for a new one: what it used least recently of
// those that were asked for long enough, or that are idle.
uint32_t Neighbours::own_place(uint16_t share, uint64_t now_ns, bool unresolved_only) const {
  uint32_t best = kNobody;
  for (uint32_t i = 1; i <= kCapacity; ++i) {
    const Entry& entry = entries_[i];
    if (entry.next_request_ns == UINT64_MAX || entry.share != share) continue;
    const bool tried = entry.generation == 0 && now_ns - entry.added_ns >= kTrialNs;
    if (!tried && (unresolved_only || !is_idle(entry, now_ns))) continue;
    if (best == kNobody || entry.used_ns < entries_[best].used_ns) best = i;
  }
  return best;
}

// The entry that makes room for a share's new one: the one that was used least recently, if it is
// idle, or else an unanswered one of the share that has most of them; `of_users`: of theirs alone.
uint32_t Neighbours::any_place(uint16_t share, uint64_t now_ns, bool of_users) const {
  const auto first = shares_.begin() + (of_users ? kClientShares : 0);
  const auto last = of_users ? first + kUserShares : shares_.end();
  const auto most = std::ranges::max_element(first, last, {}, &Share::unresolved);
  const auto greediest = static_cast<uint32_t>(most - shares_.begin());
  uint32_t idle = kNobody, unanswered = kNobody;
  for (uint32_t i = 1; i <= kCapacity; ++i) {
    const Entry& entry = entries_[i];
    if (of_users && !is_users(entry.share)) continue;
    const auto is_older_than = [&](uint32_t other) {
      return other == kNobody || entry.used_ns < entries_[other].used_ns;
    };
    if (is_idle(entry, now_ns) && is_older_than(idle)) idle = i;
    if (entry.generation == 0 && entry.share == greediest && is_older_than(unanswered))
      unanswered = i;
  }
  if (idle != kNobody) return idle;
  return most->unresolved > shares_[share].unresolved + 1 ? unanswered : uint32_t{kNobody};
}

void Neighbours::remove(uint32_t index) {
  Entry& entry = entries_[index];
  uint32_t* link = &buckets_[bucket_of(entry.ip)];
  while (*link != index) link = &entries_[*link].next;
  *link = entry.next;
  Share& share = shares_[entry.share];
  --size_;
  of_users_ -= is_users(entry.share);
  --share.entries;
  if (entry.generation == 0) {
    --unresolved_;
    --share.unresolved;
  }
  entry = {.next = free_};
  free_ = index;
}

void Neighbours::learn(Ipv4Address ip, const wire::MacAddress& mac, uint64_t now_ns) {
  const uint32_t index = find(ip);
  if (index == kNobody) return;
  Entry& entry = entries_[index];
  if (entry.generation == 0) {
    --unresolved_;
    --shares_[entry.share].unresolved;
  }
  if (entry.generation == 0 || entry.mac != mac) {
    if (++last_generation_ == 0) ++last_generation_;
    entry.generation = last_generation_;
  }
  entry.mac = mac;
  entry.learned_ns = now_ns;
  entry.attempts = 0;
  ask_at(entry, now_ns + kRefreshNs);
}

void Neighbours::doubt(int index, uint64_t now_ns) {
  Entry& entry = entries_[static_cast<size_t>(index)];
  // Unless it is being asked for already.
  if (entry.generation == 0 || entry.attempts != 0) return;
  const uint64_t at_ns = std::max(now_ns, entry.learned_ns + kDoubtNs);
  if (at_ns < entry.next_request_ns) ask_at(entry, at_ns);
}

void Neighbours::own_mac_changed(uint64_t now_ns) {
  for (Entry& entry : entries_) {
    if (entry.generation == 0) continue;
    if (++last_generation_ == 0) ++last_generation_;
    entry.generation = last_generation_;
    entry.attempts = 0;
    entry.used_ns = now_ns;  // who is idle has to learn it as well
    ask_at(entry, now_ns);
  }
}

// Whether an entry whose time has come is not to be asked for, since nobody uses it.
bool Neighbours::pass_over(uint32_t index, uint64_t now_ns) {
  Entry& entry = entries_[index];
  if (!is_idle(entry, now_ns)) return false;
  if (entry.generation == 0) {
    remove(index);
  } else {
    entry.attempts = 0;
    entry.next_request_ns = now_ns + kRefreshNs;
  }
  return true;
}

Neighbours::Request Neighbours::due(uint64_t now_ns) {
  if (now_ns < earliest_ns_) return {};
  const bool may_ask_all = broadcasts_until_ns_ <= now_ns + (kBroadcastBurst - 1) * kBroadcastNs;
  uint32_t best = kNobody;
  uint64_t earliest_ns = UINT64_MAX;
  for (uint32_t i = 1; i <= kCapacity; ++i) {
    const Entry& entry = entries_[i];
    if (entry.next_request_ns <= now_ns && !pass_over(i, now_ns)) {
      if (!may_ask_all && asks_all(entry)) {
        earliest_ns = std::min(earliest_ns, now_ns + kBroadcastNs);
        continue;
      }
      // The address that was asked for less often comes first, so that a peer that answers does not
      // wait for those that do not.
      const Entry& other = entries_[best];
      const bool is_first = entry.attempts != other.attempts
                                ? entry.attempts < other.attempts
                                : entry.next_request_ns < other.next_request_ns;
      if (best != kNobody) earliest_ns = now_ns;
      if (best == kNobody || is_first) best = i;
      continue;
    }
    earliest_ns = std::min(earliest_ns, entry.next_request_ns);
  }
  earliest_ns_ = earliest_ns;
  if (best == kNobody) return {};
  Entry& entry = entries_[best];
  const bool to_all = asks_all(entry);
  if (to_all) broadcasts_until_ns_ = std::max(broadcasts_until_ns_, now_ns) + kBroadcastNs;
  entry.asked_ns = now_ns;
  ask_at(entry, now_ns + std::min(kFirstRetryNs << std::min(entry.attempts, 10u), kMaxRetryNs));
  ++entry.attempts;
  return {static_cast<int>(best), to_all};
}

}  // namespace hostnic
