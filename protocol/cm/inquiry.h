// SPDX-License-Identifier: BSD-3-Clause
// What hostnics tell each other about a connection that fails or waits, so that the end which has
// the trouble can say why (docs/errors.md): a question about one queue pair, and an answer of fixed
// size. Both are messages of InfiniBand's service ID resolution, as the question what a host speaks
// is (peer.h), for a service of their own: who does not have it says so, or nothing.
//
//   question: magic "HNIQ" 32 | format 8 (1) | 0 24 | asker's QPN 32 | QPN 32 | bytes of datagram
//   32
//
// The datagram may be longer than its MAD, by zeros: so a path's MTU is tried. It then says its
// length. Pure functions, any thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "protocol/cm/mad.h"
#include "protocol/cm/peer.h"

namespace hostnic::cm {

// Beside kPeerService.
inline constexpr uint64_t kInquiryService = 0x1002'686e'6963'0002;
// The longest datagram that tries a path's MTU.
inline constexpr uint32_t kMostInquiryBytes = 4096;

struct Inquiry {
  uint64_t transaction_id = 0;
  uint32_t request_id = 0;
  uint32_t asker_qpn = 0;  // 24 bits; 0, as the other: about the host alone
  uint32_t qpn = 0;        // 24 bits
  uint32_t datagram_bytes = kMadBytes;
  bool operator==(const Inquiry&) const = default;
};

// What the answering host has of the queue pair that was asked about.
enum class Standing : uint8_t {
  kHost,   // none was asked about
  kNone,   // it is not there, or has long been another's
  kGone,   // it was the asker's peer, and is no more
  kOther,  // it is another queue pair's peer
  kAlone,  // it has no peer yet
  kPeer,   // it is the asker's peer
};

// What is told of it. Numbers are as the other headers' enums have them; the values that a parser
// lets pass are below. Of a queue pair that is not the asker's peer: state, type, and its peer's
// QPN if that is on the asker's host. PSNs are told of connections that have carried nothing yet.
struct ToldQp {
  uint8_t type = 0;         // QpType
  uint8_t state = 0;        // QpState
  uint8_t transport = 0;    // Transport
  bool is_stopped = false;  // its program is, by a signal or a debugger
  bool shared_receives = false;
  bool has_refused = false;           // ToldRefusal says what
  bool with_its_program = false;      // gone: it went when its program ended
  bool names_asker_host = false;      // its peer is on the asker's host
  bool has_psns = false;              // rq_psn and expected are told
  uint32_t dest_qpn = 0;              // 24 bits
  uint32_t rq_psn = 0, expected = 0;  // 24 bits
  uint32_t sent_packets = 0;
  uint32_t mtu_bytes = 0;
  uint32_t responder_resources = 0;
  uint32_t receives_waiting = 0;
  uint32_t pid = 0;
  uint32_t gone_ms = 0;    // ago
  uint32_t other_qpn = 0;  // none: a queue pair that names the asker as its peer; 0: none
  std::string program;     // 15 printable characters
  bool operator==(const ToldQp&) const = default;
};

// The asker's request that it has refused, and what is wrong with that. Addresses are those that
// the asker has sent, but for the region's, which its key names.
struct ToldRefusal {
  uint8_t op = 0;     // SendOp
  uint8_t code = 0;   // wire::NakCode
  uint8_t fault = 0;  // KeyFault of the request's key
  bool is_window = false;
  bool bad_receive = false;  // the receive's own memory is wrong
  uint32_t key = 0;
  uint64_t va = 0, length_bytes = 0;
  uint64_t region_va = 0, region_bytes = 0;
  uint64_t receive_bytes = 0;  // room of the receive that was next
  uint32_t packet_bytes = 0;
  uint8_t qp_access = 0, region_access = 0, wanted_access = 0;  // AccessFlag
  bool operator==(const ToldRefusal&) const = default;
};

struct InquiryAnswer {
  uint64_t transaction_id = 0;
  uint32_t request_id = 0;
  PeerFacts facts;           // what the host speaks to the asker's
  std::string version;       // hostnic's, 15 printable characters
  std::string nic;           // the NIC's name there, as many
  uint32_t heard_bytes = 0;  // of the question's datagram
  Standing standing = Standing::kHost;
  ToldQp qp;
  ToldRefusal refusal;
  bool operator==(const InquiryAnswer&) const = default;
};

inline constexpr size_t kToldNameBytes = 16;  // with the zero at the end
inline constexpr uint8_t kFirstToldType = 2, kLastToldType = 4, kLastToldState = 6;
inline constexpr uint8_t kLastToldTransport = 4, kLastToldOp = 11, kLastToldCode = 3;
inline constexpr uint8_t kLastToldFault = 7;

// A name as it may be told: printable, and cut.
std::string told_name(std::string_view name);

// What a management datagram is of these; nothing: another one, or one that says the impossible.
std::optional<Inquiry> inquiry_in(const Mad& mad);
// An answer; `known` is false where whoever answered has no such service, or speaks a later format.
struct HeardAnswer {
  bool known = false;
  InquiryAnswer answer;  // of one that is not known: the numbers alone
};
std::optional<HeardAnswer> inquiry_answer_in(const Mad& mad);

Mad mad_of(const Inquiry& inquiry);
// Values that have more bits than their field are cut.
Mad mad_of(const InquiryAnswer& answer);

}  // namespace hostnic::cm
