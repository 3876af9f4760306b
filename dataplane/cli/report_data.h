// SPDX-License-Identifier: BSD-3-Clause
// What a report says of a capture: packets come in as the file has them, in the order of time, and
// become counts, histograms, and the arrows of a ladder diagram. Pure. Bounded, however long the
// capture: of many packets the arrows of those that something happened to are kept, and a sample of
// the others; all counts are of all packets. One thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "dataplane/cli/time_histogram.h"
#include "protocol/types.h"
#include "protocol/wire/packet.h"

namespace hostnic {
class JsonWriter;
}

namespace hostnic::cli {

// A packet as an interface saw it.
struct ReportPacket {
  uint32_t interface = 0;
  TimeNs wall_ns = 0;
  bool sent = false;
  std::optional<wire::Packet> headers;  // nothing: it is none that can be read
  std::string_view comment;             // the verdict, then "[counters that changed]"
};

enum class Verb : uint8_t { kSend, kWrite, kRead, kAtomic, kOther };
inline constexpr size_t kVerbs = 5;

// What happened to a packet, for the ladder: these bits.
enum ArrowFlag : uint32_t {
  kArrowLost = 1,         // it did not arrive, or was dropped on purpose
  kArrowAgain = 2,        // sent again
  kArrowRefused = 4,      // the receiver dropped or refused it, or said NAK
  kArrowDuplicate = 8,    // it had come before, or is a copy
  kArrowOutOfOrder = 16,  // ahead of what is missing
  kArrowNoSender = 32,    // its sending was not captured
  kArrowNoReceiver = 64,  // what became of it was not captured
};

class ReportData {
 public:
  // The most arrows: half of them for packets that something happened to.
  static constexpr size_t kMostArrows = 100'000;
  static constexpr size_t kMostHosts = 256, kMostFlows = 4096, kMostTexts = 4096;

  // Interfaces are numbered from 0, in the order of the calls.
  void add_interface(std::string name, std::string description);
  void add(const ReportPacket& packet);
  void add_statistics(uint32_t interface, uint64_t seen, uint64_t not_kept,
                      const std::string& counters);
  // Ends the capture: what has not arrived until now is lost.
  void finish();

  struct Facts {
    std::string title;     // what the report is of
    std::string made_by;   // "hostnic 1.2"
    bool is_cut = false;   // the file ends within a block
    std::string programs;  // JSON of `show dead`; empty: nothing is known
    std::string errors;    // JSON of `show errors`; empty: nothing is known
    std::string times;     // JSON of MessageTimes; empty: no messages were traced
  };
  // The report's data as JSON; docs/operate.md, "Report", says what is shown. After
  // finish().
  std::string to_json(const Facts& facts) const;

  uint64_t packets() const { return packets_; }

 private:
  static constexpr size_t kBins = 256, kHistory = 8192;
  static constexpr size_t kMostPending = 200'000;

  struct Arrow {
    uint32_t from = 0, to = 0;  // hosts
    uint8_t opcode = 0;
    uint32_t psn = 0, qpn = 0, source_qpn = 0, bytes = 0;
    TimeNs sent_ns = 0, received_ns = 0;
    uint32_t flags = 0;
    uint32_t text = 0;
  };
  struct Host {
    std::string address;
    std::set<std::string> interfaces;
  };
  // What became of a PSN that was sent.
  struct Sent {
    uint32_t psn = UINT32_MAX;
    TimeNs first_ns = 0;
    uint32_t fate = 0;  // index of a text; 0: nothing is known yet
    bool arrived = false;
  };
  // A message that waits for its acknowledgement.
  struct Message {
    Verb verb{};
    Psn last;
    TimeNs sent_ns = 0;
  };
  // Packets of one direction towards one queue pair.
  struct Flow {
    uint32_t from = 0, to = 0, qpn = 0, source_qpn = 0;
    bool responses = false;
    bool native = false;  // its packets are of the native transport
    uint64_t packets = 0, bytes = 0, again = 0, lost = 0;
    std::vector<Sent> history;  // by PSN, modulo kHistory
    std::deque<Message> outstanding;
    std::optional<TimeNs> message_began;  // of the message whose packets leave
  };
  struct Pending {
    Arrow arrow;
    size_t flow = 0;
    uint64_t number = 0;
  };
  struct VerbCounts {
    uint64_t messages = 0, bytes = 0;
    TimeHistogram latency;
  };
  struct Bin {
    uint64_t good_bytes = 0, lost = 0, again = 0;
  };
  struct Cause {
    uint64_t count = 0, total_ns = 0, max_ns = 0;
  };
  struct Interface {
    std::string name, description;
    std::optional<uint32_t> host;
    uint64_t seen = 0, not_kept = 0;
    std::string counters;
  };

  uint32_t host_of(Ipv4Address ip);
  size_t flow_of(const Arrow& arrow, bool responses);
  uint32_t text_of(std::string_view text);
  Bin& bin_at(TimeNs wall_ns);
  void take_sent(const ReportPacket& packet, Arrow arrow, size_t flow, std::string_view verdict);
  void take_received(const ReportPacket& packet, Arrow arrow, size_t flow,
                     std::string_view verdict);
  void note_sent(const ReportPacket& packet, const Arrow& arrow, size_t flow);
  void note_fate(size_t flow, uint32_t psn, uint32_t fate, bool arrived);
  void note_acknowledged(const ReportPacket& packet);
  void complete(Flow& flow, Psn next, TimeNs now_ns);
  void lose(Pending pending, std::string_view why);
  void draw(Arrow arrow);
  void count_verdict(std::string_view verdict);
  // Sections of to_json().
  void write_ends(JsonWriter& json) const;
  void write_verbs(JsonWriter& json) const;
  void write_over_time(JsonWriter& json) const;
  void write_reasons(JsonWriter& json) const;
  void write_arrows(JsonWriter& json) const;

  TimeNs first_ns_ = 0, last_ns_ = 0;
  uint64_t packets_ = 0, unreadable_ = 0, lost_ = 0, again_ = 0;
  std::vector<Interface> interfaces_;
  std::vector<Host> hosts_;
  std::map<uint32_t, uint32_t> host_numbers_;
  std::vector<Flow> flows_;
  std::map<std::array<uint32_t, 4>, size_t> flow_numbers_;
  std::array<VerbCounts, kVerbs> verbs_;
  std::vector<Bin> bins_ = std::vector<Bin>(kBins);
  uint64_t bin_ns_ = 1000;
  std::map<std::string, Cause> causes_;
  std::map<std::string, std::pair<uint64_t, std::string>> verdicts_;  // by kind: count, example
  std::vector<std::string> texts_{""};
  std::unordered_map<std::string, uint32_t> text_numbers_;
  // Packets that were seen on one side only so far, by what identifies them.
  std::unordered_map<uint64_t, std::deque<Pending>> in_flight_, early_;
  std::deque<std::pair<uint64_t, uint64_t>> in_flight_order_;  // key, number
  uint64_t next_number_ = 1;
  size_t in_flight_count_ = 0, early_count_ = 0;
  std::vector<Arrow> eventful_, ordinary_;
  uint64_t eventful_left_out_ = 0, ordinary_seen_ = 0, stride_ = 1;
};

// The verb that a packet is of, an answer that of its request; kOther: acknowledgements and the
// like.
Verb verb_of(wire::Opcode opcode);
const char* name_of(Verb verb);

}  // namespace hostnic::cli
