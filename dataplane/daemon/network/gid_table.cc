// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/network/gid_table.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

namespace hostnic {
namespace {

// Whether each address is there as RoCEv1 and as RoCEv2.
bool has_both_types(config::Gids layout) {
  return layout == config::Gids::kMlx5 || layout == config::Gids::kLinkLocal;
}

size_t places_of(config::Gids layout) {
  if (layout == config::Gids::kOne) return 1;
  return has_both_types(layout) ? kMaxGids / 2 : kMaxGids;
}

}  // namespace

Gid link_local_of(const wire::MacAddress& mac) {
  const uint8_t bytes[16] = {
      0xfe,   0x80,   0,    0,    0,      0,      0,     0, static_cast<uint8_t>(mac[0] ^ 2),
      mac[1], mac[2], 0xff, 0xfe, mac[3], mac[4], mac[5]};
  Gid gid;
  memcpy(gid.data(), bytes, sizeof bytes);
  return gid;
}

bool begins_with_link_local(config::Gids layout) {
  return has_both_types(layout) || layout == config::Gids::kRxe;
}

GidTable::GidTable(config::Gids layout, const Gid& own, Ipv4Address number)
    : layout_(layout),
      begins_with_second_(begins_with_link_local(layout) && !is_link_local(own)),
      places_(places_of(layout)) {
  places_[0] = {.address = own, .number = number, .used = true, .there = true};
  publish();
}

const GidTable::Place* GidTable::find(const Gid& address) const {
  const auto found = std::ranges::find_if(
      places_, [&](const Place& place) { return place.there && place.address == address; });
  return found == places_.end() ? nullptr : &*found;
}

// Where an address that is not there would be; null: nowhere.
GidTable::Place* GidTable::place_for(const Gid& address) {
  Place* best = nullptr;
  for (size_t i = 1; i < places_.size(); ++i) {
    Place& place = places_[i];
    if (place.there) continue;
    if (place.used && place.address == address) return &place;
    if (kept(i) && !is_link_local(address)) continue;
    if (best != nullptr && kept(static_cast<size_t>(best - places_.data()))) continue;
    // One that was never used has gone never, which is before all others.
    if (best == nullptr || place.went < best->went) best = &place;
  }
  return best;
}

std::optional<Ipv4Address> GidTable::add(const Gid& address, Ipv4Address number) {
  Place* const place = place_for(address);
  if (place == nullptr) return std::nullopt;
  const Ipv4Address before = place->number;
  *place = {.address = address, .number = number, .used = true, .there = true};
  return before;
}

void GidTable::remove(const Gid& address) {
  for (size_t i = 1; i < places_.size(); ++i) {
    Place& place = places_[i];
    if (!place.there || place.address != address) continue;
    place.there = false;
    place.went = ++gone_;
  }
}

void GidTable::publish() {
  const std::lock_guard lock(mutex_);
  shown_ = places_;
}

Ipv4Address GidTable::number_of(const Gid& address) const {
  const Place* const place = find(address);
  return place == nullptr ? Ipv4Address{} : place->number;
}

std::vector<Gid> GidTable::others() const {
  std::vector<Gid> addresses;
  for (size_t i = 1; i < places_.size(); ++i)
    if (places_[i].there) addresses.push_back(places_[i].address);
  return addresses;
}

std::vector<Ipv4Address> GidTable::more_numbers() const {
  std::vector<Ipv4Address> numbers;
  for (size_t i = 1; i < places_.size(); ++i) {
    if (!places_[i].there) continue;
    numbers.resize(i);
    numbers[i - 1] = places_[i].number;
  }
  return numbers;
}

std::vector<size_t> GidTable::order() const {
  std::vector<size_t> order(places_.size());
  std::iota(order.begin(), order.end(), size_t{0});
  if (begins_with_second_) std::swap(order[0], order[1]);
  const size_t first = begins_with_second_ ? 1 : 0;
  std::swap(order[first], order[first + moves() % (order.size() - first)]);
  return order;
}

void GidTable::move() { moves_.fetch_add(1, std::memory_order_relaxed); }

std::vector<GidEntry> GidTable::entries(const wire::MacAddress& mac) const {
  const std::lock_guard lock(mutex_);
  const std::vector<size_t> order = this->order();
  size_t places = begins_with_second_ ? 2 : 1;
  for (size_t i = places; i < order.size(); ++i)
    if (shown_[order[i]].used) places = i + 1;
  if (layout_ == config::Gids::kLinkLocal) places = 1;
  std::vector<GidEntry> table;
  for (size_t i = 0; i < places; ++i) {
    const size_t source = order[i];
    const Place& place = shown_[source];
    GidEntry entry{.gid = {},
                   .type = GidType::kRoceV2,
                   .usable = place.there ? uint8_t{1} : uint8_t{0},
                   .source_index = static_cast<uint8_t>(source),
                   .reserved = 0};
    const Gid address = place.there                   ? place.address
                        : kept(source) && !place.used ? link_local_of(mac)
                                                      : Gid{};
    memcpy(entry.gid, address.data(), address.size());
    if (has_both_types(layout_)) {
      entry.type = GidType::kRoceV1;
      table.push_back(entry);
      entry.type = GidType::kRoceV2;
    }
    table.push_back(entry);
  }
  return table;
}

}  // namespace hostnic
