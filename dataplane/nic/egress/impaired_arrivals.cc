// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/egress/impaired_arrivals.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>
#include <vector>

#include "dataplane/nic/limits.h"
#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/packet_release.h"

namespace hostnic {
namespace {

// Slots for arrivals: a burst of bundles, taken apart, finds room behind what a caller did not
// take.
constexpr uint32_t kArrivals = 8192;
static_assert(kArrivals / 2 >= kBurst * kMaxBundlePackets);

}  // namespace

ImpairedArrivals::~ImpairedArrivals() {
  for (rte_mbuf* packet; arrived_.pop(&packet, 1) != 0;) release_packet(packet, nic_.references);
}

void ImpairedArrivals::set(const impair::Spec& spec, uint64_t seed) {
  const std::vector<rte_mbuf*> held = packets_.replace(spec, seed);
  std::vector<rte_mbuf*> passed;
  for (rte_mbuf* packet; arrived_.pop(&packet, 1) != 0;) packets_.copy_answers(packet, passed);
  PacketQueue queue(std::bit_ceil(static_cast<uint32_t>(passed.size() + held.size()) + kArrivals));
  for (rte_mbuf* each : passed) queue.push(each);
  for (rte_mbuf* each : held) queue.push(each);
  arrived_ = std::move(queue);
}

void ImpairedArrivals::take_arrivals(uint16_t queue, size_t wanted) {
  std::array<rte_mbuf*, kBurst> burst;
  while (arrived_.size() < wanted && arrived_.room() >= kArrivals / 2) {
    const uint16_t count = port_.receive(queue, burst.data(), kBurst);
    for (uint16_t i = 0; i < count; ++i) packets_.impair(burst[i]);
    if (count == 0) return;
  }
}

uint16_t ImpairedArrivals::receive(uint16_t queue, rte_mbuf** packets, uint16_t max) {
  take_arrivals(queue, max);
  uint16_t count = arrived_.pop(packets, max);
  // Due packets come behind what has just arrived: to come first they would have had to be let go
  // first.
  std::array<void*, kBurst> due;
  while (packets_.any() && count < max) {
    const size_t room = std::min<size_t>(due.size(), static_cast<size_t>(max - count));
    const size_t popped = packets_.pop({due.data(), room});
    for (size_t i = 0; i < popped; ++i) packets[count++] = static_cast<rte_mbuf*>(due[i]);
    if (popped < room) break;
  }
  return count;
}

void ImpairedArrivals::let_go(rte_mbuf* buffer) {
  if (arrived_.push(buffer)) return;
  nic_.counters.add(Counter::rx_no_buffer, packets_in(buffer));
  release_packet(buffer, nic_.references);
}

void ImpairedArrivals::let_due_go() {
  if (!packets_.holds_back()) return;
  std::array<void*, kBurst> due;
  for (size_t popped = due.size(); popped == due.size() && arrived_.room() >= kArrivals / 4;) {
    popped = packets_.pop(due);
    for (size_t i = 0; i < popped; ++i) let_go(static_cast<rte_mbuf*>(due[i]));
  }
}

}  // namespace hostnic
