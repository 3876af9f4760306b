// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/egress/impaired_port.h"

#include <rte_branch_prediction.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <type_traits>

#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/packet/packet_release.h"
#include "protocol/impair/classify.h"
#include "protocol/wire/packet.h"

namespace hostnic {
namespace {

using impair::Direction;

// Slots for arrivals: a burst of bundles, taken apart, finds room behind what a caller did not
// take.
constexpr uint32_t kArrivals = 8192;
static_assert(kArrivals / 2 >= kBurst * kMaxBundlePackets);

// Whether a packet of this process is an answer to a READ; false for what is too short to say.
bool is_read_answer(rte_mbuf* packet) {
  constexpr uint32_t kBth = wire::kEthernetBytes + wire::kIpv4Bytes + wire::kUdpBytes;
  if (packet->data_len < kBth + wire::kBthBytes) return false;
  const wire::BthView bth(std::span<const std::byte, wire::kBthBytes>(
      rte_pktmbuf_mtod_offset(packet, const std::byte*, kBth), wire::kBthBytes));
  return wire::Opcode{bth.opcode()} == wire::Opcode::kReadResponse;
}

}  // namespace

ImpairedPort::~ImpairedPort() {
  rx_stage_.reset();
  tx_stage_.reset();
  rte_mbuf* packet = nullptr;
  while (arrived_.pop(&packet, 1) != 0) release(packet);
  while (released_.pop(&packet, 1) != 0) release(packet);
  for (Departures& to : departures_)
    for (uint32_t i = 0; i < to.count; ++i) release(to.packets[i]);
}

void ImpairedPort::set(Direction direction, const impair::Spec& spec, uint64_t seed) {
  auto& stage = direction == Direction::kRx ? rx_stage_ : tx_stage_;
  auto& let_go = direction == Direction::kRx ? arrived_ : released_;
  const std::unique_ptr<impair::ImpairmentStage> old = std::move(stage);
  if (!spec.rules.empty())
    stage.reset(new impair::ImpairmentStage(spec, seed, *this));  // private base
  (direction == Direction::kRx ? holds_back_arrived_ : holds_back_sent_) = std::ranges::any_of(
      spec.rules, [](const impair::Rule& rule) { return rule.action != impair::Action::kDrop; });
  const uint32_t held = old == nullptr ? 0 : static_cast<uint32_t>(old->queued());
  std::vector<rte_mbuf*> passed;
  rte_mbuf* packet = nullptr;
  while (let_go.pop(&packet, 1) != 0) {
    if (direction == Direction::kRx)
      copy_answers(packet, passed);
    else
      passed.push_back(packet);
  }
  PacketQueue queue(std::bit_ceil(static_cast<uint32_t>(passed.size()) + held + kArrivals));
  for (rte_mbuf* each : passed) queue.push(each);
  for (void* each = nullptr; old != nullptr && old->drain({&each, 1}) != 0;)
    queue.push(static_cast<rte_mbuf*>(each));
  let_go = std::move(queue);
  if (direction == Direction::kTx && departures_.empty()) departures_.resize(kMaxPeers + 1);
}

std::optional<impair::Counters> ImpairedPort::impairment_counters(Direction direction) const {
  const auto& stage = direction == Direction::kRx ? rx_stage_ : tx_stage_;
  if (stage == nullptr) return std::nullopt;
  return stage->counters();
}

void ImpairedPort::clear_counters() {
  for (auto* stage : {rx_stage_.get(), tx_stage_.get()})
    if (stage != nullptr) stage->clear_counters();
}

TimeNs ImpairedPort::next_deadline_ns() const {
  TimeNs earliest = UINT64_MAX;
  for (const auto* stage : {rx_stage_.get(), tx_stage_.get()})
    if (stage != nullptr) earliest = std::min(earliest, stage->next_deadline_ns());
  return earliest;
}

uint32_t ImpairedPort::held() const {
  uint32_t count = 0;
  for (const auto* stage : {rx_stage_.get(), tx_stage_.get()})
    if (stage != nullptr) count += static_cast<uint32_t>(stage->queued());
  return count;
}

bool ImpairedPort::has_ready() const {
  if (!arrived_.empty() || !released_.empty()) return true;
  return std::ranges::any_of(departures_, [](const Departures& to) { return to.count != 0; });
}

// The description always names the other end's address, because rules may ask for it.
impair::PacketInfo ImpairedPort::describe(Direction direction, rte_mbuf* packet) const {
  const auto& stage = direction == Direction::kRx ? rx_stage_ : tx_stage_;
  wire::Packet p;
  if (stage->looks_at_packets() && parse_packet(packet, p) == wire::ParseError::kNone)
    return impair::describe(p, direction == Direction::kRx ? p.src_ip : p.dst_ip, packet->pkt_len);
  impair::PacketInfo info;
  info.bytes = packet->pkt_len;
  return info;
}

// The description of a packet of a bundle of one message; `front` is that of the first.
impair::PacketInfo info_in_bundle(rte_mbuf* bundle, impair::PacketInfo front, uint32_t number) {
  const ExternalPayload& payload = *external_payload(bundle);
  impair::PacketInfo info = front;
  info.psn += number;
  if (number == payload.packets_behind) {
    info.bytes = uint32_t{bundle->data_len} + payload.last_payload_bytes;
    info.last_of_message = (mask_of(info.kind) & impair::kDataKinds) != 0 && !payload.last_more;
  }
  return info;
}

// ---- both ways

// Decides what becomes of the packets of a buffer, and lets go what goes on.
void ImpairedPort::impair(Direction direction, rte_mbuf* buffer) {
  if (unlikely(is_lost(buffer))) return let_go(direction, buffer);
  if (!is_bundle(buffer)) return impair_packet(direction, buffer);
  if (stage_of(direction) == nullptr) return let_go(direction, buffer);
  const bool is_left =
      direction == Direction::kTx && holds_back(direction) && is_read_answer(buffer);
  if (unlikely(tap_ != nullptr) && !is_left) return take_apart(direction, buffer);
  if (has_bundled_packets(buffer)) {
    if (holds_back(direction))
      take_apart(direction, buffer);
    else
      impair_bundled(direction, buffer);
  } else if (!holds_back(direction) || !is_read_answer(buffer)) {
    impair_in_runs(direction, buffer);
  } else if (direction == Direction::kRx) {
    take_apart(direction, buffer);
  } else {
    // Where answers that leave may be held back none is in a bundle: this one is left from before.
    let_go(direction, buffer);
  }
}

void ImpairedPort::impair_packet(Direction direction, rte_mbuf* packet) {
  if (direction == Direction::kRx && holds_back_arrived_) packet = copy_answer(packet);
  if (packet == nullptr) return;
  impair::ImpairmentStage* const stage = stage_of(direction);
  if (stage == nullptr) return let_go(direction, packet);
  // What has to be read in its turn stays in its place when it is lost.
  const bool stays = is_noted_when_read(packet) && !holds_back(direction);
  const bool passes = unlikely(tap_ != nullptr) ? pass_captured(direction, packet, stays)
                                                : stage->pass(stays ? nullptr : packet, now_, [&] {
                                                    return describe(direction, packet);
                                                  });
  if (passes) {
    let_go(direction, packet);
  } else if (stays) {
    lose(direction, packet);
  }
}

// Asks the stage about a packet, and records it if it is lost.
bool ImpairedPort::pass_captured(Direction direction, rte_mbuf* packet, bool stays) {
  impair::ImpairmentStage& stage = *stage_of(direction);
  direction_ = direction;
  tap_->begin_impaired(direction, packet);
  const bool passes =
      stage.pass(stays ? nullptr : packet, now_, [&] { return describe(direction, packet); });
  tap_->end_impaired(stage.losses());
  return passes;
}

// Lets go what is lost, for its receiver to read in its turn.
void ImpairedPort::lose(Direction direction, rte_mbuf* buffer) {
  buffer->ol_flags |= lost_flag();
  let_go(direction, buffer);
}

// Impairs the packets of a bundle of one message.
void ImpairedPort::impair_in_runs(Direction direction, rte_mbuf* bundle) {
  const uint32_t packets = packets_in(bundle);
  impair::BundlePassage passage(*stage_of(direction), packets);
  const impair::PacketInfo front = describe(direction, bundle);
  const bool lost_stay = is_noted_when_read(bundle) && !holds_back(direction);
  passing_ = {bundle, &passage};
  let_due_go(direction);
  bool left = false;
  while (!passage.done()) {
    const impair::PacketRun run = passage.next_run(
        now_, [&](uint32_t number) { return info_in_bundle(bundle, front, number); });
    if (run.count != 0 && run.first + run.count == packets) {
      // The last run keeps the buffer.
      if (run.first != 0) cut_bundle(*bundle, run.first, run.count);
      let_go(direction, bundle);
      left = true;
    } else if (run.count != 0) {
      if (rte_mbuf* part = copy_run(bundle, run); part != nullptr) let_go(direction, part);
    }
    if (const uint32_t behind = run.first + run.count; lost_stay && behind != passage.current()) {
      if (rte_mbuf* part = copy_run(bundle, {behind, passage.current() - behind}); part != nullptr)
        lose(direction, part);
    }
    let_due_go(direction);
  }
  passing_ = {};
  if (!left) release(bundle);
}

// Impairs the packets of a bundle of many messages by rules that do no more than drop: the others
// stay together.
void ImpairedPort::impair_bundled(Direction direction, rte_mbuf* bundle) {
  impair::ImpairmentStage& stage = *stage_of(direction);
  wire::Packet p = valid_headers(bundle);
  uint32_t kept = 0, number = 0;
  const auto decide = [&](uint32_t bytes) {
    const bool passes = stage.pass(nullptr, now_, [&] {
      return impair::describe(p, direction == Direction::kRx ? p.src_ip : p.dst_ip, bytes);
    });
    kept |= uint32_t{passes} << number++;
  };
  decide(bundle->pkt_len);
  with_bundled(bundle, p.opcode, [&](const auto& bundled) {
    static_assert(std::remove_cvref_t<decltype(bundled)>::kCapacity < 32);
    for (uint32_t i = bundled.next; i < bundled.count; ++i) {
      bundled.all[i].apply_to(p);
      decide(bundle->data_len + p.payload_bytes);
    }
  });
  if (rte_mbuf* rest = keep_bundled(bundle, kept, references_); rest != nullptr)
    let_go(direction, rest);
}

// Takes a bundle apart: each of its packets gets a buffer of its own. A packet that finds no buffer
// is lost, as on a network.
void ImpairedPort::take_apart(Direction direction, rte_mbuf* bundle) {
  bool more = true;
  while (more && is_bundle(bundle)) {
    if (rte_mbuf* single = copy_front(bundle, pools_.header, references_); single != nullptr) {
      counters_.add(Counter::bundle_parts);
      impair_packet(direction, single);
    } else {
      counters_.add(Counter::rx_no_buffer);
      if (tap_ != nullptr) {
        tap_->begin_impaired(direction, bundle);
        const impair::Loss loss{.reason = impair::Loss::Reason::kQueue};
        tap_->end_impaired({&loss, 1});
      }
    }
    more = step_bundle(bundle, references_);
  }
  impair_packet(direction, bundle);
}

// Returns null if there is no buffer; then the packets are lost, as on a network.
rte_mbuf* ImpairedPort::copy_run(rte_mbuf* bundle, impair::PacketRun run) {
  rte_mbuf* const part = copy_part(bundle, run.first, run.count, pools_.header, references_);
  if (part == nullptr)
    counters_.add(Counter::rx_no_buffer, run.count);
  else
    counters_.add(Counter::bundle_parts);
  return part;
}

void ImpairedPort::let_go(Direction direction, rte_mbuf* buffer) {
  if (direction == Direction::kTx) {
    depart(buffer);
  } else if (!arrived_.push(buffer)) {
    counters_.add(Counter::rx_no_buffer, packets_in(buffer));
    release(buffer);
  }
}

// Lets go what is due in front of the next packet of a bundle, which otherwise would have to wait
// behind it, and so become a packet of its own.
void ImpairedPort::let_due_go(Direction direction) {
  if (!holds_back(direction)) return;
  if (direction == Direction::kTx) {
    while (depart_due()) {
    }
    return;
  }
  std::array<void*, kBurst> due;
  for (size_t popped = due.size(); popped == due.size() && arrived_.room() >= kArrivals / 4;) {
    popped = rx_stage_->pop(due, now_);
    for (size_t i = 0; i < popped; ++i) let_go(direction, static_cast<rte_mbuf*>(due[i]));
  }
}

// Appends a buffer that has arrived, or if it is answers to READs a copy of each. What is lost has
// been read now, and is done with.
void ImpairedPort::copy_answers(rte_mbuf* buffer, std::vector<rte_mbuf*>& out) {
  if (!is_read_answer(buffer) || external_payload(buffer) == nullptr) return out.push_back(buffer);
  for (bool more = true; more; more = step_bundle(buffer, references_)) {
    rte_mbuf* const copy = copy_packet(buffer, pools_.copies);
    if (copy == nullptr)
      counters_.add(Counter::rx_no_buffer);
    else if (is_lost(buffer))
      rte_pktmbuf_free(copy);
    else
      out.push_back(copy);
  }
  release(buffer);
}

// ---- receiving

// Copies an answer to a READ that refers to the memory which is read: answers are read in the order
// in which they have come, and one that is held back is copied at once (rule 18). Returns null if
// there is no buffer.
rte_mbuf* ImpairedPort::copy_answer(rte_mbuf* packet) {
  if (!is_read_answer(packet)) return packet;
  auto* const copy = static_cast<rte_mbuf*>(detach(packet));
  if (copy == nullptr) counters_.add(Counter::rx_no_buffer);
  return copy;
}

void ImpairedPort::take_arrivals(uint16_t queue, size_t wanted) {
  std::array<rte_mbuf*, kBurst> burst;
  while (arrived_.size() < wanted && arrived_.room() >= kArrivals / 2) {
    const uint16_t count = port_.receive(queue, burst.data(), kBurst);
    for (uint16_t i = 0; i < count; ++i) impair(Direction::kRx, burst[i]);
    if (count == 0) return;
  }
}

uint16_t ImpairedPort::receive_impaired(uint16_t queue, rte_mbuf** packets, uint16_t max) {
  take_arrivals(queue, max);
  uint16_t count = arrived_.pop(packets, max);
  // Due packets come behind what has just arrived: to come first they would have had to be let go
  // first.
  std::array<void*, kBurst> due;
  while (rx_stage_ != nullptr && count < max) {
    const size_t room = std::min<size_t>(due.size(), static_cast<size_t>(max - count));
    const size_t popped = rx_stage_->pop({due.data(), room}, now_);
    for (size_t i = 0; i < popped; ++i) packets[count++] = static_cast<rte_mbuf*>(due[i]);
    if (popped < room) break;
  }
  return count;
}

// ---- sending

bool ImpairedPort::send(size_t peer) {
  Departures& to = departures_[peer];
  uint32_t sent = 0;
  while (sent < to.count) {
    const uint16_t n = port_.transmit(static_cast<uint16_t>(peer), to.packets.data() + sent,
                                      static_cast<uint16_t>(to.count - sent));
    if (n == 0) break;
    sent += n;
  }
  std::copy(to.packets.begin() + sent, to.packets.begin() + to.count, to.packets.begin());
  to.count -= sent;
  return to.count == 0;
}

bool ImpairedPort::has_room(size_t peer) {
  if (departures_[peer].room() == 0) send(peer);
  return departures_[peer].room() != 0;
}

void ImpairedPort::depart(rte_mbuf* packet) {
  Departures& to = departures_[packet->port];
  to.packets[to.count++] = packet;
}

uint16_t ImpairedPort::transmit_impaired(uint16_t peer, rte_mbuf** packets, uint16_t count) {
  uint16_t taken = 0;
  for (; taken < count && has_room(peer); ++taken) {
    packets[taken]->port = peer;
    impair(Direction::kTx, packets[taken]);
  }
  send(peer);
  return taken;
}

// Lets some packets go that are due. Returns false if there was none, or no room. No more are taken
// from the stage than surely find room: nobody knows before for whom the next one is.
bool ImpairedPort::depart_due() {
  std::array<void*, kBurst> due;
  size_t room = due.size();
  for (size_t peer = 0; peer < departures_.size(); ++peer) {
    if (departures_[peer].count >= kBurst) send(peer);
    room = std::min<size_t>(room, departures_[peer].room());
  }
  size_t count = 0;
  for (rte_mbuf* packet = nullptr; count < room && released_.pop(&packet, 1) != 0; ++count)
    depart(packet);
  if (tx_stage_ != nullptr && count < room) {
    const size_t popped = tx_stage_->pop({due.data(), room - count}, now_);
    for (size_t i = 0; i < popped; ++i) depart(static_cast<rte_mbuf*>(due[i]));
    count += popped;
  }
  return count != 0;
}

void ImpairedPort::send_due() {
  while (depart_due()) {
  }
  bool empty = tx_stage_ == nullptr && released_.empty();
  for (size_t peer = 0; peer < departures_.size(); ++peer)
    if (departures_[peer].count != 0 && !send(peer)) empty = false;
  if (empty) departures_.clear();
}

// ---- what a stage does to a packet

// Copies the current packet of the bundle that is being decided about. Returns null if there is no
// buffer.
rte_mbuf* ImpairedPort::copy_passing() {
  rte_mbuf* const part =
      copy_part(passing_.bundle, passing_.passage->current(), 1, pools_.header, references_);
  if (part == nullptr) return nullptr;
  counters_.add(Counter::bundle_parts);
  rte_mbuf* const copy = copy_packet(part, pools_.copies);
  release(part);
  return copy;
}

void* ImpairedPort::clone(void* packet) {
  rte_mbuf* const copy = packet == nullptr
                             ? copy_passing()
                             : copy_packet(static_cast<rte_mbuf*>(packet), pools_.copies);
  mark_for_tap(copy, kImpairedCopy);
  return copy;
}

// Returns a copy: nothing that waits may refer to memory that its owner can change (rule 31,
// external payload).
void* ImpairedPort::detach(void* packet) {
  if (packet == nullptr) return copy_passing();
  auto* original = static_cast<rte_mbuf*>(packet);
  if (external_payload(original) == nullptr) return original;
  rte_mbuf* copy = copy_packet(original, pools_.copies);
  release(original);
  return copy;
}

void ImpairedPort::held_back(void* packet) { mark_for_tap(packet, kImpairedHeldBack); }

// Everything behind the Ethernet header may be hit; the ICRC, which packets within this process get
// only now, must catch it. The IPv4 header is left alone: the network would have dropped the packet
// at the next hop already.
void ImpairedPort::corrupt(void* packet, uint32_t byte_selector, uint8_t xor_mask) {
  auto* mbuf = static_cast<rte_mbuf*>(packet);
  if ((mbuf->ol_flags & icrc_flag()) == 0) add_icrc_in_place(mbuf);
  constexpr uint32_t kFirst = wire::kEthernetBytes + wire::kIpv4Bytes + wire::kUdpBytes;
  if (mbuf->data_len <= kFirst) return;
  mark_for_tap(packet, kImpairedCorrupted);
  auto* bytes = rte_pktmbuf_mtod(mbuf, uint8_t*);
  bytes[kFirst + byte_selector % (mbuf->data_len - kFirst)] ^= xor_mask;
}

bool ImpairedPort::mark(void* packet) {
  auto* mbuf = static_cast<rte_mbuf*>(packet);
  const bool marked = wire::mark_congestion({rte_pktmbuf_mtod(mbuf, std::byte*), mbuf->data_len});
  if (marked) mark_for_tap(packet, kImpairedMarked);
  return marked;
}

void ImpairedPort::release(void* packet) {
  release_packet(static_cast<rte_mbuf*>(packet), references_);
}

}  // namespace hostnic
