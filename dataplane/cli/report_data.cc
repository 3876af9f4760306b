// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/report_data.h"

#include <algorithm>

#include "protocol/impair/spec_values.h"

namespace hostnic::cli {
namespace {

using wire::is_response;
using wire::Opcode;

constexpr std::string_view kNotSeen = "it was not seen to arrive";
constexpr std::string_view kArrived = "it had arrived: its acknowledgement was late, or lost";
constexpr std::string_view kUnknown = "not known: the capture has no earlier packet of this PSN";

bool has(std::string_view text, std::string_view words) {
  return text.find(words) != std::string_view::npos;
}

// The verdict in front of the counters that changed.
std::string_view verdict_in(std::string_view comment) {
  return comment.substr(0, comment.find(" ["));
}

bool is_lost(std::string_view verdict) {
  return has(verdict, "dropped by rx impairment") || has(verdict, "dropped by tx impairment");
}

bool is_refused(std::string_view verdict) {
  return has(verdict, "refused") || has(verdict, "dropped:") || has(verdict, "is dropped") ||
         has(verdict, "receiver not ready") || has(verdict, "fatal NAK") ||
         has(verdict, "not for this NIC");
}

bool is_ack(Opcode opcode) { return opcode == Opcode::kAck || opcode == Opcode::kRcAck; }

bool is_native(Opcode opcode) { return static_cast<uint8_t>(opcode) >= 0xc0; }

bool is_reliable_request(Opcode opcode) {
  const auto value = static_cast<uint8_t>(opcode);
  return (value <= 0x17 || is_native(opcode)) && !is_response(opcode) && !is_ack(opcode);
}

// Numbers are not part of a kind of verdict.
std::string kind_of(std::string_view verdict) {
  std::string kind;
  for (const char c : verdict) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit)
      kind += c;
    else if (kind.empty() || kind.back() != 'N')
      kind += 'N';
  }
  return kind;
}

uint64_t mixed(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9e3779b97f4a7c15u + (hash << 6) + (hash >> 2);
  return hash * 0xff51afd7ed558ccdu;
}

// What is alike where a packet leaves and where it arrives.
uint64_t identity_of(const wire::Packet& p) {
  uint64_t hash = 0;
  hash = mixed(hash, uint64_t{raw(p.src_ip)} << 32 | raw(p.dst_ip));
  hash = mixed(hash, uint64_t{raw(p.dest_qpn)} << 32 | p.psn.value());
  hash = mixed(hash,
               static_cast<uint64_t>(p.opcode) << 32 | uint64_t{p.attempt} << 24 | p.payload_bytes);
  if (p.opcode == Opcode::kAck)
    hash = mixed(hash, uint64_t{p.sack.base.value()} << 32 | p.sack.echo_psn.value());
  return hash;
}

}  // namespace

Verb verb_of(Opcode opcode) {
  switch (opcode) {
    case Opcode::kRcReadRequest:
    case Opcode::kRcReadFirst:
    case Opcode::kRcReadMiddle:
    case Opcode::kRcReadLast:
    case Opcode::kRcReadOnly:
    case Opcode::kReadRequest:
    case Opcode::kReadResponse:
      return Verb::kRead;
    case Opcode::kRcAtomicAck:
    case Opcode::kRcCompareSwap:
    case Opcode::kRcFetchAdd:
    case Opcode::kCompareSwap:
    case Opcode::kFetchAdd:
    case Opcode::kAtomicResponse:
      return Verb::kAtomic;
    case Opcode::kAck:
    case Opcode::kRcAck:
    case Opcode::kCnp:
      return Verb::kOther;
    default:
      break;
  }
  const std::string_view name = wire::to_string(opcode);
  return has(name, "SEND") ? Verb::kSend : has(name, "WRITE") ? Verb::kWrite : Verb::kOther;
}

const char* name_of(Verb verb) {
  static constexpr const char* kNames[kVerbs] = {"SEND", "WRITE", "READ", "atomic", "other"};
  return kNames[static_cast<size_t>(verb)];
}

// ---- what packets belong to

void ReportData::add_interface(std::string name, std::string description) {
  interfaces_.push_back(
      {.name = std::move(name), .description = std::move(description), .host = {}});
}

uint32_t ReportData::host_of(Ipv4Address ip) {
  const auto known = host_numbers_.find(raw(ip));
  if (known != host_numbers_.end()) return known->second;
  const bool full = hosts_.size() == kMostHosts;
  const auto number = static_cast<uint32_t>(full ? kMostHosts - 1 : hosts_.size());
  // The last one is everybody whom there is no place for.
  if (full) return number;
  hosts_.push_back(
      {.address = number + 1 == kMostHosts ? "others" : impair::format_ipv4(ip), .interfaces = {}});
  host_numbers_.emplace(raw(ip), number);
  return number;
}

size_t ReportData::flow_of(const Arrow& arrow, bool responses) {
  const std::array<uint32_t, 4> key = {arrow.from, arrow.to, arrow.qpn, responses ? 1u : 0u};
  const auto known = flow_numbers_.find(key);
  if (known != flow_numbers_.end()) return known->second;
  if (flows_.size() == kMostFlows) return kMostFlows - 1;
  flows_.push_back({.from = arrow.from,
                    .to = arrow.to,
                    .qpn = arrow.qpn,
                    .source_qpn = arrow.source_qpn,
                    .responses = responses,
                    .history = {},
                    .outstanding = {},
                    .message_began = {}});
  flow_numbers_.emplace(key, flows_.size() - 1);
  return flows_.size() - 1;
}

uint32_t ReportData::text_of(std::string_view text) {
  const auto known = text_numbers_.find(std::string(text));
  if (known != text_numbers_.end()) return known->second;
  if (texts_.size() == kMostTexts) return 0;
  texts_.emplace_back(text);
  text_numbers_.emplace(text, static_cast<uint32_t>(texts_.size() - 1));
  return static_cast<uint32_t>(texts_.size() - 1);
}

// The part of the time that a moment is in. Parts are made wider as the capture goes on, so that
// there are always as many.
ReportData::Bin& ReportData::bin_at(TimeNs wall_ns) {
  const uint64_t since_ns = wall_ns - std::min(wall_ns, first_ns_);
  while (since_ns / bin_ns_ >= kBins) {
    for (size_t i = 0; i < kBins; ++i) {
      const Bin a = 2 * i < kBins ? bins_[2 * i] : Bin{};
      const Bin b = 2 * i + 1 < kBins ? bins_[2 * i + 1] : Bin{};
      bins_[i] = {a.good_bytes + b.good_bytes, a.lost + b.lost, a.again + b.again};
    }
    bin_ns_ *= 2;
  }
  return bins_[since_ns / bin_ns_];
}

// ---- packets

void ReportData::add(const ReportPacket& packet) {
  if (packets_++ == 0) first_ns_ = packet.wall_ns;
  last_ns_ = std::max(last_ns_, packet.wall_ns);
  const std::string_view verdict = verdict_in(packet.comment);
  if (!packet.sent) count_verdict(verdict);
  if (!packet.headers) {
    ++unreadable_;
    return;
  }
  const wire::Packet& p = *packet.headers;
  Arrow arrow;
  arrow.from = host_of(p.src_ip);
  arrow.to = host_of(p.dst_ip);
  arrow.opcode = static_cast<uint8_t>(p.opcode);
  arrow.psn = p.psn.value();
  arrow.qpn = raw(p.dest_qpn);
  arrow.source_qpn = raw(p.src_qpn);
  arrow.bytes = p.payload_bytes;
  arrow.text = text_of(verdict);
  if (packet.interface < interfaces_.size()) {
    Interface& interface = interfaces_[packet.interface];
    interface.host = packet.sent ? arrow.from : arrow.to;
    hosts_[*interface.host].interfaces.insert(interface.name);
  }
  const size_t flow = flow_of(arrow, is_response(p.opcode));
  if (packet.sent)
    take_sent(packet, arrow, flow, verdict);
  else
    take_received(packet, arrow, flow, verdict);
}

void ReportData::take_sent(const ReportPacket& packet, Arrow arrow, size_t flow,
                           std::string_view verdict) {
  arrow.sent_ns = packet.wall_ns;
  if (has(verdict, "retransmission")) arrow.flags |= kArrowAgain;
  note_sent(packet, arrow, flow);
  Pending pending{arrow, flow, next_number_++};
  if (is_lost(verdict)) return lose(pending, verdict);
  const uint64_t key = identity_of(*packet.headers);
  // The receiver's lcore may have had the earlier clock.
  if (const auto early = early_.find(key); early != early_.end()) {
    Arrow whole = early->second.front().arrow;
    whole.sent_ns = arrow.sent_ns;
    whole.flags = (whole.flags & ~uint32_t{kArrowNoSender}) | arrow.flags;
    early->second.pop_front();
    --early_count_;
    if (early->second.empty()) early_.erase(early);
    return draw(whole);
  }
  in_flight_[key].push_back(pending);
  in_flight_order_.emplace_back(key, next_number_ - 1);
  ++in_flight_count_;
  // The order still names packets that have arrived; one that has not for so long is lost.
  while (in_flight_order_.size() > 2 * kMostPending || in_flight_count_ > kMostPending) {
    const auto [oldest, number] = in_flight_order_.front();
    in_flight_order_.pop_front();
    const auto found = in_flight_.find(oldest);
    if (found == in_flight_.end() || found->second.front().number != number) continue;
    Pending lost = found->second.front();
    found->second.pop_front();
    if (found->second.empty()) in_flight_.erase(found);
    --in_flight_count_;
    lose(lost, kNotSeen);
  }
}

void ReportData::take_received(const ReportPacket& packet, Arrow arrow, size_t flow,
                               std::string_view verdict) {
  const wire::Packet& p = *packet.headers;
  arrow.received_ns = packet.wall_ns;
  const bool lost = is_lost(verdict);
  const bool copy = has(verdict, "copy made");
  const bool refused = is_refused(verdict);
  const bool duplicate = has(verdict, "duplicate");
  if (refused) arrow.flags |= kArrowRefused;
  if (duplicate || copy) arrow.flags |= kArrowDuplicate;
  if (has(verdict, "ahead of") || has(verdict, "a gap opens") || has(verdict, "held"))
    arrow.flags |= kArrowOutOfOrder;
  bool is_early = false;
  const uint64_t key = identity_of(p);
  const auto found = copy ? in_flight_.end() : in_flight_.find(key);
  if (found != in_flight_.end()) {
    const Arrow& began = found->second.front().arrow;
    arrow.sent_ns = began.sent_ns;
    arrow.flags |= began.flags;
    found->second.pop_front();
    if (found->second.empty()) in_flight_.erase(found);
    --in_flight_count_;
  } else {
    arrow.sent_ns = arrow.received_ns;
    arrow.flags |= kArrowNoSender;
    is_early = !copy && !hosts_[arrow.from].interfaces.empty();
  }
  if (lost) return lose({arrow, flow, 0}, verdict);
  note_fate(flow, arrow.psn, arrow.text, !refused);
  if (!refused && !duplicate) {
    bin_at(packet.wall_ns).good_bytes += arrow.bytes;
    // Where the sender was not captured, what arrives is all that is known of what was sent.
    if ((arrow.flags & kArrowNoSender) != 0 && !is_early) note_sent(packet, arrow, flow);
    note_acknowledged(packet);
  }
  if (is_early && early_count_ < kMostPending) {
    early_[key].push_back({arrow, flow, 0});
    ++early_count_;
    return;
  }
  draw(arrow);
}

// Counts a packet that leaves, or has left, and begins its message.
void ReportData::note_sent(const ReportPacket& packet, const Arrow& arrow, size_t flow_number) {
  const wire::Packet& p = *packet.headers;
  Flow& flow = flows_[flow_number];
  ++flow.packets;
  if (arrow.source_qpn != 0) flow.source_qpn = arrow.source_qpn;
  flow.native = flow.native || is_native(p.opcode);
  const bool again = (arrow.flags & kArrowAgain) != 0;
  if (flow.history.empty()) flow.history.resize(kHistory);
  Sent& sent = flow.history[arrow.psn % kHistory];
  if (again) {
    ++again_;
    ++flow.again;
    ++bin_at(packet.wall_ns).again;
    const bool known = sent.psn == arrow.psn;
    std::string why(kUnknown);
    if (known && sent.arrived)
      why = kArrived;
    else if (known && sent.fate != 0)
      why = kind_of(texts_[sent.fate]);
    else if (known)
      why = hosts_[flow.to].interfaces.empty() ? kUnknown : kNotSeen;
    Cause& cause = causes_[why];
    ++cause.count;
    const uint64_t took_ns = known ? packet.wall_ns - std::min(packet.wall_ns, sent.first_ns) : 0;
    cause.total_ns += took_ns;
    cause.max_ns = std::max(cause.max_ns, took_ns);
  }
  if (sent.psn != arrow.psn) sent = {.psn = arrow.psn, .first_ns = packet.wall_ns};
  sent.fate = 0;
  sent.arrived = false;
  if (again) return;
  flow.bytes += arrow.bytes;
  const Verb verb = verb_of(p.opcode);
  if (verb == Verb::kOther || is_ack(p.opcode)) return;
  VerbCounts& counts = verbs_[static_cast<size_t>(verb)];
  counts.bytes += arrow.bytes;
  if (is_response(p.opcode)) return;
  if (!flow.message_began || !p.cont) flow.message_began = packet.wall_ns;
  if (p.more) return;
  ++counts.messages;
  if (is_reliable_request(p.opcode) && flow.outstanding.size() < kHistory)
    flow.outstanding.push_back({verb, p.psn, *flow.message_began});
  flow.message_began.reset();
}

void ReportData::note_fate(size_t flow_number, uint32_t psn, uint32_t fate, bool arrived) {
  Flow& flow = flows_[flow_number];
  if (flow.history.empty()) return;
  Sent& sent = flow.history[psn % kHistory];
  if (sent.psn != psn || sent.arrived) return;
  sent.fate = fate;
  sent.arrived = arrived;
}

// An acknowledgement, or an answer, that has come to the requester.
void ReportData::note_acknowledged(const ReportPacket& packet) {
  const wire::Packet& p = *packet.headers;
  const bool response = is_response(p.opcode);
  if (!response && !is_ack(p.opcode)) return;
  const uint32_t requester = host_of(p.dst_ip), responder = host_of(p.src_ip);
  // READs of the native transport end with their last answer, others with what acknowledges them.
  // The answers' PSNs are another space there.
  const bool native = is_native(p.opcode);
  if (response && p.more) return;
  for (Flow& flow : flows_) {
    if (flow.responses || flow.from != requester || flow.to != responder ||
        flow.outstanding.empty())
      continue;
    if (native ? flow.source_qpn != raw(p.dest_qpn)
               : flow.source_qpn != 0 && flow.source_qpn != raw(p.dest_qpn))
      continue;
    if (native && response) {
      const auto read = std::ranges::find_if(flow.outstanding, [&](const Message& message) {
        return message.verb == verb_of(p.opcode);
      });
      if (read == flow.outstanding.end()) return;
      verbs_[static_cast<size_t>(read->verb)].latency.add(packet.wall_ns - read->sent_ns);
      flow.outstanding.erase(read);
      return;
    }
    if (native) return complete(flow, p.sack.base, packet.wall_ns);
    // The standard's answers do not name the queue pair that they come from: it is the one that
    // has such a PSN outstanding.
    const int32_t into = distance(flow.outstanding.front().last, p.psn);
    if (into < 0 || into >= static_cast<int32_t>(kHistory)) continue;
    if (p.aeth.kind != wire::AckKind::kAck && is_ack(p.opcode)) return;
    flow.source_qpn = raw(p.dest_qpn);
    return complete(flow, p.psn + 1, packet.wall_ns);
  }
}

// Ends the messages all of whose PSNs are before `next`. READs and atomics of the native transport
// end with their answers.
void ReportData::complete(Flow& flow, Psn next, TimeNs now_ns) {
  std::erase_if(flow.outstanding, [&](const Message& message) {
    const bool waits = message.verb == Verb::kRead || message.verb == Verb::kAtomic;
    if ((waits && flow.native) || !before(message.last, next)) return false;
    verbs_[static_cast<size_t>(message.verb)].latency.add(now_ns - message.sent_ns);
    return true;
  });
}

void ReportData::lose(Pending pending, std::string_view why) {
  Arrow& arrow = pending.arrow;
  const uint32_t fate = text_of(why);
  const bool known = !hosts_[arrow.to].interfaces.empty() || why != kNotSeen;
  if (!known) {
    arrow.flags |= kArrowNoReceiver;
    return draw(arrow);
  }
  ++lost_;
  ++flows_[pending.flow].lost;
  ++bin_at(arrow.received_ns != 0 ? arrow.received_ns : arrow.sent_ns).lost;
  arrow.flags |= kArrowLost;
  arrow.text = fate;
  note_fate(pending.flow, arrow.psn, fate, false);
  draw(arrow);
}

// Keeps an arrow, or leaves it out where there are too many.
void ReportData::draw(Arrow arrow) {
  constexpr uint32_t kEventful =
      kArrowLost | kArrowAgain | kArrowRefused | kArrowDuplicate | kArrowOutOfOrder;
  if ((arrow.flags & kEventful) != 0) {
    if (eventful_.size() < kMostArrows / 2)
      eventful_.push_back(arrow);
    else
      ++eventful_left_out_;
    return;
  }
  if (ordinary_seen_++ % stride_ != 0) return;
  if (ordinary_.size() == kMostArrows / 2) {
    // Every second one goes.
    for (size_t i = 0; i < ordinary_.size() / 2; ++i) ordinary_[i] = ordinary_[2 * i];
    ordinary_.resize(ordinary_.size() / 2);
    stride_ *= 2;
  }
  ordinary_.push_back(arrow);
}

void ReportData::count_verdict(std::string_view verdict) {
  if (!is_refused(verdict) && !is_lost(verdict) && !has(verdict, "duplicate")) return;
  std::string kind = kind_of(verdict);
  if (verdicts_.size() >= kMostTexts && !verdicts_.contains(kind)) return;
  auto& [count, example] = verdicts_[std::move(kind)];
  if (count++ == 0) example = verdict;
}

void ReportData::add_statistics(uint32_t interface, uint64_t seen, uint64_t not_kept,
                                const std::string& counters) {
  if (interface >= interfaces_.size()) return;
  interfaces_[interface].seen = seen;
  interfaces_[interface].not_kept = not_kept;
  interfaces_[interface].counters = counters;
}

void ReportData::finish() {
  for (auto& [key, waiting] : in_flight_)
    for (Pending& pending : waiting) lose(pending, kNotSeen);
  for (auto& [key, waiting] : early_)
    for (Pending& pending : waiting) draw(pending.arrow);
  in_flight_.clear();
  early_.clear();
  in_flight_order_.clear();
  in_flight_count_ = early_count_ = 0;
}

}  // namespace hostnic::cli
