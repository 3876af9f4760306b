// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/egress/impaired_departures.h"

#include <algorithm>
#include <bit>
#include <utility>

#include "dataplane/nic/packet/packet_release.h"

namespace hostnic {

ImpairedDepartures::~ImpairedDepartures() {
  for (rte_mbuf* packet; released_.pop(&packet, 1) != 0;) release_packet(packet, nic_.references);
  for (Row& row : rows_)
    for (uint32_t i = 0; i < row.count; ++i) release_packet(row.packets[i], nic_.references);
}

void ImpairedDepartures::set(const impair::Spec& spec, uint64_t seed) {
  const std::vector<rte_mbuf*> held = packets_.replace(spec, seed);
  PacketQueue queue(std::bit_ceil(released_.size() + static_cast<uint32_t>(held.size()) + 1));
  for (rte_mbuf* packet; released_.pop(&packet, 1) != 0;) queue.push(packet);
  for (rte_mbuf* each : held) queue.push(each);
  released_ = std::move(queue);
  if (rows_.empty()) rows_.resize(kMaxPeers + 1);
}

bool ImpairedDepartures::has_ready() const {
  return !released_.empty() ||
         std::ranges::any_of(rows_, [](const Row& row) { return row.count != 0; });
}

bool ImpairedDepartures::send(size_t peer) {
  Row& row = rows_[peer];
  uint32_t sent = 0;
  while (sent < row.count) {
    const uint16_t n = port_.transmit(static_cast<uint16_t>(peer), row.packets.data() + sent,
                                      static_cast<uint16_t>(row.count - sent));
    if (n == 0) break;
    sent += n;
  }
  std::copy(row.packets.begin() + sent, row.packets.begin() + row.count, row.packets.begin());
  row.count -= sent;
  return row.count == 0;
}

bool ImpairedDepartures::has_room(size_t peer) {
  if (rows_[peer].room() == 0) send(peer);
  return rows_[peer].room() != 0;
}

void ImpairedDepartures::let_go(rte_mbuf* buffer) {
  Row& row = rows_[buffer->port];
  row.packets[row.count++] = buffer;
}

void ImpairedDepartures::let_due_go() {
  if (!packets_.holds_back()) return;
  while (depart_due()) {
  }
}

uint16_t ImpairedDepartures::transmit(uint16_t peer, rte_mbuf** packets, uint16_t count) {
  uint16_t taken = 0;
  for (; taken < count && has_room(peer); ++taken) {
    packets[taken]->port = peer;
    packets_.impair(packets[taken]);
  }
  send(peer);
  return taken;
}

// Lets some packets go that are due. Returns false if there was none, or no room. No more are taken
// from the stage than surely find room: nobody knows before for whom the next one is.
bool ImpairedDepartures::depart_due() {
  std::array<void*, kBurst> due;
  size_t room = due.size();
  for (size_t peer = 0; peer < rows_.size(); ++peer) {
    if (rows_[peer].count >= kBurst) send(peer);
    room = std::min<size_t>(room, rows_[peer].room());
  }
  size_t count = 0;
  for (rte_mbuf* packet = nullptr; count < room && released_.pop(&packet, 1) != 0; ++count)
    let_go(packet);
  if (count < room) {
    const size_t popped = packets_.pop({due.data(), room - count});
    for (size_t i = 0; i < popped; ++i) let_go(static_cast<rte_mbuf*>(due[i]));
    count += popped;
  }
  return count != 0;
}

void ImpairedDepartures::send_due() {
  while (depart_due()) {
  }
  bool empty = !packets_.any() && released_.empty();
  for (size_t peer = 0; peer < rows_.size(); ++peer)
    if (rows_[peer].count != 0 && !send(peer)) empty = false;
  if (empty) rows_.clear();
}

}  // namespace hostnic
