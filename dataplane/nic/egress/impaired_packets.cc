// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/egress/impaired_packets.h"

#include <rte_branch_prediction.h>

#include <algorithm>
#include <type_traits>
#include <utility>

#include "dataplane/nic/packet/bundle.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/nic/packet/packet_release.h"
#include "protocol/impair/classify.h"
#include "protocol/wire/packet.h"

namespace hostnic {
namespace {

using impair::Direction;

// Whether a packet of this process is an answer to a READ; false for what is too short to say.
bool is_read_answer(rte_mbuf* packet) {
  constexpr uint32_t kBth = wire::kEthernetBytes + wire::kIpv4Bytes + wire::kUdpBytes;
  if (packet->data_len < kBth + wire::kBthBytes) return false;
  const wire::BthView bth(std::span<const std::byte, wire::kBthBytes>(
      rte_pktmbuf_mtod_offset(packet, const std::byte*, kBth), wire::kBthBytes));
  return wire::Opcode{bth.opcode()} == wire::Opcode::kReadResponse;
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

}  // namespace

// The stage gives back to these functions what it holds.
ImpairedPackets::~ImpairedPackets() { stage_.reset(); }

std::vector<rte_mbuf*> ImpairedPackets::replace(const impair::Spec& spec, uint64_t seed) {
  const std::unique_ptr<impair::ImpairmentStage> old = std::move(stage_);
  if (!spec.rules.empty())
    stage_.reset(new impair::ImpairmentStage(spec, seed, *this));  // private base
  holds_back_ = std::ranges::any_of(
      spec.rules, [](const impair::Rule& rule) { return rule.action != impair::Action::kDrop; });
  std::vector<rte_mbuf*> held;
  for (void* each = nullptr; old != nullptr && old->drain({&each, 1}) != 0;)
    held.push_back(static_cast<rte_mbuf*>(each));
  return held;
}

std::optional<impair::Counters> ImpairedPackets::counters() const {
  if (stage_ == nullptr) return std::nullopt;
  return stage_->counters();
}

void ImpairedPackets::clear_counters() {
  if (stage_ != nullptr) stage_->clear_counters();
}

TimeNs ImpairedPackets::next_deadline_ns() const {
  return stage_ == nullptr ? UINT64_MAX : stage_->next_deadline_ns();
}

uint32_t ImpairedPackets::held() const {
  return stage_ == nullptr ? 0 : static_cast<uint32_t>(stage_->queued());
}

void ImpairedPackets::mark_for_tap(void* packet, CaptureImpairment what) {
  if (tap_ != nullptr && packet != nullptr)
    tap_->mark_impaired(direction_, static_cast<rte_mbuf*>(packet), what, stage_->rule_at_work());
}

// The description always names the other end's address, because rules may ask for it.
impair::PacketInfo ImpairedPackets::describe(const wire::Packet& p, uint32_t bytes) const {
  return impair::describe(p, direction_ == Direction::kRx ? p.src_ip : p.dst_ip, bytes, nic_.plan);
}

impair::PacketInfo ImpairedPackets::describe(rte_mbuf* packet) const {
  wire::Packet p;
  if (stage_->looks_at_packets() && parse_packet(packet, p) == wire::ParseError::kNone)
    return describe(p, packet->pkt_len);
  impair::PacketInfo info;
  info.bytes = packet->pkt_len;
  return info;
}

// ---- decisions

// Decides what becomes of the packets of a buffer, and lets go what goes on.
void ImpairedPackets::impair(rte_mbuf* buffer) {
  // What is lost already, or trimmed, is no packet to be impaired.
  if (unlikely(is_set_aside(buffer))) return outlet_.let_go(buffer);
  if (!is_bundle(buffer)) return impair_packet(buffer);
  if (stage_ == nullptr) return outlet_.let_go(buffer);
  const bool is_left = direction_ == Direction::kTx && holds_back_ && is_read_answer(buffer);
  if (unlikely(tap_ != nullptr) && !is_left) return take_apart(buffer);
  if (has_bundled_packets(buffer)) {
    if (holds_back_)
      take_apart(buffer);
    else
      impair_bundled(buffer);
  } else if (!holds_back_ || !is_read_answer(buffer)) {
    impair_in_runs(buffer);
  } else if (direction_ == Direction::kRx) {
    take_apart(buffer);
  } else {
    // Where answers that leave may be held back none is in a bundle: this one is left from before.
    outlet_.let_go(buffer);
  }
}

void ImpairedPackets::impair_packet(rte_mbuf* packet) {
  if (direction_ == Direction::kRx && holds_back_) packet = copy_answer(packet);
  if (packet == nullptr) return;
  if (stage_ == nullptr) return outlet_.let_go(packet);
  // What has to be read in its turn stays in its place when it is lost.
  const bool stays = is_noted_when_read(packet) && !holds_back_;
  const bool passes = unlikely(tap_ != nullptr) ? pass_captured(packet, stays)
                                                : stage_->pass(stays ? nullptr : packet, nic_.now,
                                                               [&] { return describe(packet); });
  if (passes) {
    outlet_.let_go(packet);
  } else if (stays) {
    lose(packet);
  }
}

// Asks the stage about a packet, and records it if it is lost.
bool ImpairedPackets::pass_captured(rte_mbuf* packet, bool stays) {
  tap_->begin_impaired(direction_, packet);
  const bool passes =
      stage_->pass(stays ? nullptr : packet, nic_.now, [&] { return describe(packet); });
  tap_->end_impaired(stage_->losses());
  return passes;
}

// Lets go what is lost, for its receiver to read in its turn.
void ImpairedPackets::lose(rte_mbuf* buffer) {
  buffer->ol_flags |= lost_flag();
  outlet_.let_go(buffer);
}

// Impairs the packets of a bundle of one message.
void ImpairedPackets::impair_in_runs(rte_mbuf* bundle) {
  const uint32_t packets = packets_in(bundle);
  impair::BundlePassage passage(*stage_, packets);
  const impair::PacketInfo front = describe(bundle);
  const bool lost_stay = is_noted_when_read(bundle) && !holds_back_;
  passing_ = {bundle, &passage};
  outlet_.let_due_go();
  bool left = false;
  while (!passage.done()) {
    const impair::PacketRun run = passage.next_run(
        nic_.now, [&](uint32_t number) { return info_in_bundle(bundle, front, number); });
    if (run.count != 0 && run.first + run.count == packets) {
      // The last run keeps the buffer.
      if (run.first != 0) cut_bundle(*bundle, run.first, run.count);
      outlet_.let_go(bundle);
      left = true;
    } else if (run.count != 0) {
      if (rte_mbuf* part = copy_run(bundle, run); part != nullptr) outlet_.let_go(part);
    }
    if (const uint32_t behind = run.first + run.count; lost_stay && behind != passage.current()) {
      if (rte_mbuf* part = copy_run(bundle, {behind, passage.current() - behind}); part != nullptr)
        lose(part);
    }
    outlet_.let_due_go();
  }
  passing_ = {};
  if (!left) release(bundle);
}

// Impairs the packets of a bundle of many messages by rules that do no more than drop: the others
// stay together.
void ImpairedPackets::impair_bundled(rte_mbuf* bundle) {
  wire::Packet p = valid_headers(bundle);
  uint32_t kept = 0, number = 0;
  const auto decide = [&](uint32_t bytes) {
    const bool passes = stage_->pass(nullptr, nic_.now, [&] { return describe(p, bytes); });
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
  if (rte_mbuf* rest = keep_bundled(bundle, kept, nic_.references); rest != nullptr)
    outlet_.let_go(rest);
}

// Takes a bundle apart: each of its packets gets a buffer of its own. A packet that finds no buffer
// is lost, as on a network.
void ImpairedPackets::take_apart(rte_mbuf* bundle) {
  bool more = true;
  while (more && is_bundle(bundle)) {
    if (rte_mbuf* single = copy_front(bundle, nic_.pools.header, nic_.references);
        single != nullptr) {
      nic_.counters.add(Counter::bundle_parts);
      impair_packet(single);
    } else {
      nic_.counters.add(Counter::rx_no_buffer);
      if (tap_ != nullptr) {
        tap_->begin_impaired(direction_, bundle);
        const impair::Loss loss{.reason = impair::Loss::Reason::kQueue};
        tap_->end_impaired({&loss, 1});
      }
    }
    more = step_bundle(bundle, nic_.references);
  }
  impair_packet(bundle);
}

// Returns null if there is no buffer; then the packets are lost, as on a network.
rte_mbuf* ImpairedPackets::copy_run(rte_mbuf* bundle, impair::PacketRun run) {
  rte_mbuf* const part =
      copy_part(bundle, run.first, run.count, nic_.pools.header, nic_.references);
  if (part == nullptr)
    nic_.counters.add(Counter::rx_no_buffer, run.count);
  else
    nic_.counters.add(Counter::bundle_parts);
  return part;
}

void ImpairedPackets::copy_answers(rte_mbuf* buffer, std::vector<rte_mbuf*>& out) {
  if (!is_read_answer(buffer) || external_payload(buffer) == nullptr) return out.push_back(buffer);
  for (bool more = true; more; more = step_bundle(buffer, nic_.references)) {
    rte_mbuf* const copy = copy_packet(buffer, nic_.pools.copies);
    if (copy == nullptr)
      nic_.counters.add(Counter::rx_no_buffer);
    else if (is_lost(buffer))
      rte_pktmbuf_free(copy);
    else
      out.push_back(copy);
  }
  release(buffer);
}

// Copies an answer to a READ that refers to the memory which is read: answers are read in the order
// in which they have come, and one that is held back is copied at once (rule 18). Returns null if
// there is no buffer.
rte_mbuf* ImpairedPackets::copy_answer(rte_mbuf* packet) {
  if (!is_read_answer(packet)) return packet;
  auto* const copy = static_cast<rte_mbuf*>(detach(packet));
  if (copy == nullptr) nic_.counters.add(Counter::rx_no_buffer);
  return copy;
}

// ---- what a stage does to a packet

// Copies the current packet of the bundle that is being decided about. Returns null if there is no
// buffer.
rte_mbuf* ImpairedPackets::copy_passing() {
  rte_mbuf* const part = copy_part(passing_.bundle, passing_.passage->current(), 1,
                                   nic_.pools.header, nic_.references);
  if (part == nullptr) return nullptr;
  nic_.counters.add(Counter::bundle_parts);
  rte_mbuf* const copy = copy_packet(part, nic_.pools.copies);
  release(part);
  return copy;
}

void* ImpairedPackets::clone(void* packet) {
  rte_mbuf* const copy = packet == nullptr
                             ? copy_passing()
                             : copy_packet(static_cast<rte_mbuf*>(packet), nic_.pools.copies);
  mark_for_tap(copy, kImpairedCopy);
  return copy;
}

// Returns a copy: nothing that waits may refer to memory that its owner can change (rule 31,
// external payload).
void* ImpairedPackets::detach(void* packet) {
  if (packet == nullptr) return copy_passing();
  auto* original = static_cast<rte_mbuf*>(packet);
  if (external_payload(original) == nullptr) return original;
  rte_mbuf* copy = copy_packet(original, nic_.pools.copies);
  release(original);
  return copy;
}

void ImpairedPackets::held_back(void* packet) { mark_for_tap(packet, kImpairedHeldBack); }

// Everything behind the Ethernet header may be hit; the ICRC, which packets within this process get
// only now, must catch it. The IPv4 header is left alone: the network would have dropped the packet
// at the next hop already.
void ImpairedPackets::corrupt(void* packet, uint32_t byte_selector, uint8_t xor_mask) {
  auto* mbuf = static_cast<rte_mbuf*>(packet);
  if ((mbuf->ol_flags & icrc_flag()) == 0) add_icrc_in_place(mbuf);
  constexpr uint32_t kFirst = wire::kEthernetBytes + wire::kIpv4Bytes + wire::kUdpBytes;
  if (mbuf->data_len <= kFirst) return;
  mark_for_tap(packet, kImpairedCorrupted);
  auto* bytes = rte_pktmbuf_mtod(mbuf, uint8_t*);
  bytes[kFirst + byte_selector % (mbuf->data_len - kFirst)] ^= xor_mask;
}

bool ImpairedPackets::mark(void* packet) {
  auto* mbuf = static_cast<rte_mbuf*>(packet);
  const bool marked = wire::mark_congestion({rte_pktmbuf_mtod(mbuf, std::byte*), mbuf->data_len});
  if (marked) mark_for_tap(packet, kImpairedMarked);
  return marked;
}

void ImpairedPackets::release(void* packet) {
  release_packet(static_cast<rte_mbuf*>(packet), nic_.references);
}

}  // namespace hostnic
