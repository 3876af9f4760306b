// SPDX-License-Identifier: BSD-3-Clause
// What the hardware half knows about one queue pair. Owned by the NIC's lcore alone
// (docs/transport.md rule 12).
#pragma once

#include <rte_mbuf.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>

#include "dataplane/nic/counters.h"
#include "dataplane/nic/memory/access_scope.h"
#include "dataplane/nic/packet/qp_packets.h"
#include "dataplane/nic/qp/message_state.h"
#include "dataplane/nic/qp/mrc_connection.h"
#include "dataplane/nic/qp/read_order.h"
#include "dataplane/nic/qp/refused_request.h"
#include "dataplane/nic/qp/reorder_buffer.h"
#include "dataplane/nic/qp/repeat_tally.h"
#include "dataplane/nic/qp/roce_connection.h"
#include "dataplane/nic/qp/silent_drops.h"
#include "protocol/hostif/descriptors.h"
#include "protocol/hostif/segment.h"
#include "protocol/prefetch.h"
#include "protocol/transport/message_arrivals.h"
#include "protocol/transport_kind.h"
#include "protocol/wire/packet.h"

namespace hostnic {

class ClientChannel;
struct MemoryRegionEntry;

// Atomic results kept for replay; bounds max_dest_rd_atomic (rule 19).
inline constexpr uint32_t kAtomicRecords = 16;

// What a receive ended with.
struct ReceiveEnd {
  uint32_t byte_len = 0;
  uint32_t imm_data = 0;
  uint32_t flags = 0;    // RecvFlag
  uint32_t src_qpn = 0;  // the sender's QP; UD only
};

// The message of a UC queue pair whose packets arrive (rule 36, UC and UD).
struct UnreliableMessage {
  enum class State : uint8_t {
    kNone,
    kTaking,    // its First has come, and nothing is missing so far
    kDropping,  // counted as lost; what still comes of it is dropped
  };
  Psn expected;  // next PSN in order
  State state = State::kNone;
  MessageState parts;
};

// A WRITE's packet that is acknowledged before its bytes are placed, by a NIC whose `ordering` is
// adversarial (docs/ordering.md). The region stays, and its deregistration waits: it counts as
// referred to.
struct UnseenWrite {
  MemoryRegionEntry* region = nullptr;
  uint64_t iova = 0;
  TimeNs until_ns = 0;
};

// The part of a context that a packet needs besides the first line.
enum class QpPart : uint8_t { kSends, kReceives, kAnswers };

// With thousands of queue pairs each packet finds another one's context in no cache near, so what
// most packets need lies together: three lines for a packet that leaves and its ACK, three for one
// that arrives (and the receives, if it takes one). QpDirectory::prefetch() asks for them.
struct alignas(kCacheLineBytes) QpContext {
  // The members from here on are needed for each packet, either way.
  uint32_t qpn = 0;
  QpType type = QpType::kRc;
  QpState state = QpState::kReset;
  uint16_t status_index = 0;
  Transport transport = Transport::kHostnic;
  bool tagged = true;  // the peer is a hostnic, whose packets have the connection's flow tag
  uint32_t client_id = 0;
  ClientChannel* client = nullptr;
  QpStatus* status = nullptr;
  uint32_t pd = 0;
  // The connection, from kModifyQp.
  uint32_t dest_qpn = 0;
  uint32_t dest_ip = 0;
  uint32_t access = 0;
  int16_t peer = 0;        // Port::peer_of, or kLoopbackPeer
  int16_t neighbour = -1;  // ARP entry on Ethernet ports
  uint32_t flows_made_for =
      0;  // ARP generation that the flow templates were built from; 0: not built
  uint16_t mtu_bytes = 0;
  uint16_t incoming_request_tag = 0;  // flow_tag() of the UDP source ports that the peer must use
  uint16_t incoming_response_tag = 0;
  bool on_report_list = false;
  bool on_advance_list = false;  // the window can advance further in the next turn (rule 8)
  bool repair_pending = false;   // what was sent again last is not acknowledged
  // These are for people who ask: since the queue pair was made, or was in RESET. Bytes are
  // payload of requests that have left, repetitions included; of READs, how many were asked for.
  uint64_t request_bytes = 0;
  uint64_t retransmitted_packets = 0;
  uint64_t heard_ns = 0;  // when the peer last answered; 0: never
  // Since when what is outstanding waits for progress: the last acknowledgement of something new,
  // or when a request left and nothing was outstanding.
  uint64_t waits_since_ns = 0;

  // Packets up to `last` have left once more. That is rare, and must not keep those who call it
  // from being inlined where packets leave for the first time.
  [[gnu::noinline, gnu::cold]] void note_sent_again(Counters& counters, RepeatCause cause,
                                                    uint32_t count, Psn last, TimeNs now_ns) {
    counters.add(Counter::retransmitted_packets, count);
    counters.add(counter_of(cause), count);
    retransmitted_packets += count;
    repeats.note(cause, count, last, now_ns);
    repair_pending = true;
  }
  // Requests leave for the first time; `transmitted` is still what it was.
  void note_sent_first(uint64_t now_ns) {
    if (unlikely(una == transmitted)) waits_since_ns = now_ns;
  }
  // Something new is acknowledged: `una` has moved.
  void note_progress(uint64_t now_ns) {
    waits_since_ns = now_ns;
    if (unlikely(repair_pending)) repair_pending = repeats.note_acknowledged(una, now_ns);
  }

  // The scope of memory that the queue pair's packets may touch.
  AccessScope scope() const { return {client_id, pd, access, qpn}; }
  // Whether the queue pair takes operations that need this right (AccessFlag), whatever their key
  // and length. An RC responder refuses others as it would an opcode that it does not support: with
  // the NAK "invalid request", as adapters and rxe do. A UC responder drops their message.
  bool takes(uint32_t right) const { return (access & right) != 0; }
  // The scope of memory that its receives name.
  AccessScope receive_scope() const { return {client_id, recv_pd, access, qpn}; }

  // The members from here on are the requester's.
  alignas(kCacheLineBytes) QpPackets packets;
  Psn transmitted;                  // next request PSN never transmitted
  Psn una;                          // every PSN before it has been acknowledged
  wire::FlowTemplate request_flow;  // flow of the requests and pulls that we send
  bool send_failed =
      false;  // a local error was reported: work at or after send_failed_psn is discarded
  uint8_t stamps_used = 0;         // how many of `stamps` have a time
  bool responses_changed = false;  // not yet reported in the status
  // When a packet that asks for an ACK left, from which round trip times are measured.
  class SendStamp {
   public:
    SendStamp() = default;
    SendStamp(Psn psn, uint8_t attempt, uint64_t now_ns)
        : word_(now_ns << kTimeShift | uint64_t{psn.value()} << kPsnShift |
                uint64_t{attempt} << kAttemptShift | 1) {}
    bool used() const { return word_ != 0; }
    Psn psn() const { return Psn(static_cast<uint32_t>(word_ >> kPsnShift)); }
    uint8_t attempt() const { return word_ >> kAttemptShift & 3; }
    // The age, modulo 137 seconds, which is long after a connection has given up.
    uint64_t age_ns(uint64_t now_ns) const {
      return ((now_ns << kTimeShift) - (word_ >> kTimeShift << kTimeShift)) >> kTimeShift;
    }

   private:
    static constexpr int kAttemptShift = 1, kPsnShift = 3, kTimeShift = 27;
    uint64_t word_ = 0;
  };
  alignas(kCacheLineBytes) std::array<SendStamp, 8> stamps{};

  // The members from here on are the responder's.
  alignas(kCacheLineBytes) wire::FlowTemplate response_flow;  // flow of the ACKs and READ answers
                                                              // that we send
  bool ack_owed = false;                                      // an ACK is to leave at the end of
                                                              // this burst
  bool on_ack_list = false;
  uint32_t msn = 0;
  uint32_t unacknowledged = 0;  // packets accepted since the last ACK
  Psn echo_psn;
  uint8_t echo_attempt = 0;
  uint8_t answer_path = 0;  // by which the packet came that the next ACK answers
  bool echo_valid = false, echo_duplicate = false;
  wire::AckKind ack_kind = wire::AckKind::kAck;
  bool congestion_seen = false;  // the network (ECN) marked packets since the last ACK
  bool comm_established = false;
  bool takes_receives = false;  // a SEND or WRITE_IMM has been seen since RESET
  bool unseen = false;  // the expected packet is acknowledged, and waits as `unseen_write` says
  bool fatal = false;  // a NAK that ends the connection was sent; repeated for anything at or after
                       // the expected PSN
  uint32_t recv_next_sn = 0;  // receive SN that completes next
  uint32_t rnr_sn = 0;
  uint32_t answers_in_line = 0;  // its places in its client's line of answers (AnswerLines)
  uint32_t reads_answered = 0;   // READs and atomics with lower numbers were answered to their end
  uint32_t recv_entries = 0;
  SrqHeader* srq = nullptr;  // shared receive queue, or null: receives are then bound to SNs as
                             // messages arrive (rule 13)
  ReceiveSpace requests;

  // The receives: segment arrays, bounds-checked when the QP was created.
  alignas(kCacheLineBytes) std::byte* recv_slots = nullptr;
  RecvCompletion* recv_completions = nullptr;  // shared receive queue: by slot
  uint32_t* recv_names = nullptr;              // which slot each SN has taken
  const std::atomic<uint32_t>* srq_queue = nullptr;
  uint32_t recv_max_sge = 0;
  uint32_t recv_pd = 0;        // protection domain of the memory that receives name
  uint32_t recv_bound_sn = 0;  // shared receive queue: first SN without a receive
  uint32_t read_destination_entries = 0;
  ReadDestination* read_destinations = nullptr;
  QpPackets answers;  // answers that refer to memory and have not been placed yet

  // The members from here on are needed for few packets.
  uint32_t sq_psn = 0, rq_psn = 0;
  uint8_t responder_resources = 0;  // READs and atomics that the peer may have outstanding
  uint8_t min_rnr_timer = 0;
  uint32_t source_ip = 0;  // the own address that it sends from
  uint8_t traffic_class = 0, hop_limit = 64;
  uint32_t qkey = 0;  // UD
  // The datagram destination that request_flow leads to (UD): several datagrams to one peer in a
  // row need it made once.
  uint32_t flow_qpn = 0;
  uint8_t flow_traffic_class = 0, flow_hop_limit = 0, flow_source_index = 0;
  Psn send_failed_psn;
  wire::NakCode fatal_code = wire::NakCode::kInvalidRequest;
  Psn fatal_psn;  // the PSN that was refused: the expected one, or a READ before it whose key was
                  // revoked
  RefusedRequest refused;  // if `fatal`
  Psn old_read_psn;
  bool old_read_refused = false;  // the next ACK is a NAK about the READ at old_read_psn
  struct AtomicRecord {
    bool valid = false;
    Psn psn;
    uint64_t result = 0;
  };
  std::array<AtomicRecord, kAtomicRecords> atomics{};
  uint32_t atomic_next = 0;
  uint8_t read_epoch = 0;                // newest epoch in which the peer has pulled
  ReadOrder read_order;                  // what it has been answered in that
  MessageArrivals messages;              // used under the whole-message policy only (rule 30)
  UnreliableMessage message;             // UC only
  uint16_t held_packets = 0;             // UC, UD: packets that wait for its memory (HeldPackets)
  bool held_packets_wait = false;        // one of them was tried in vain in this turn
  std::unique_ptr<RoceConnection> roce;  // the standard's RC only
  std::unique_ptr<MrcConnection> mrc;    // MRC only
  RepeatTally repeats;
  UnseenWrite unseen_write;  // if `unseen`
  SilentDrops drops;         // since it was connected, or was in RESET

  // The members from here on are about answers to what we asked for.
  ReceiveSpace responses;
  uint8_t epoch = 0;
  // The PSN at which `epoch` began. Answers to earlier PSNs that the epoch before asked for count
  // as well.
  Psn epoch_keep_until;
  bool epoch_follows = false;  // the previous epoch was epoch - 1
  bool epoch_refused = false;  // the peer has refused a pull of `epoch`
  bool response_congestion_seen = false;
  bool response_bits_published = false;  // the status's bitmap is not all zero
};

}  // namespace hostnic
