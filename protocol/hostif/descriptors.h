// SPDX-License-Identifier: BSD-3-Clause
// What travels through the rings of a client segment. All are plain values in host byte order; the
// NIC copies each one out of shared memory before it looks at it, and drops the client on the first
// that can't be right.
#pragma once

#include <cstddef>
#include <cstdint>
#include <type_traits>

#include "protocol/hostif/segment.h"
#include "protocol/repeat_cause.h"
#include "protocol/transport_kind.h"

namespace hostnic {

// ---- send and urgent ring
// ------------------------------------------------------------------------------------------

enum class SendOp : uint8_t {
  kWrite = 1,
  kWriteImm,
  kSend,
  kSendImm,
  kRead,
  kCompareSwap,
  kFetchAdd,
  // kCreditNotify has no packet of its own: receives were posted to a QP whose status says
  // credit_watched.
  kCreditNotify,
  kSendInv,
  // The following are work requests that are commands to the NIC, never in a ring.
  kBindWindow,
  kLocalInvalidate,
};

enum SendFlag : uint8_t {
  kSendCont = 1,          // the chunk does not start its message
  kSendMore = 2,          // the chunk does not end its message
  kSendAckRequest = 4,    // the chunk's last packet asks for an ACK
  kSendSolicited = 8,     // the message's last packet is solicited
  kSendInline = 16,       // payload follows in continuation elements instead of SGEs
  kSendRetransmit = 32,   // the packets are counted as resends; their PSNs were handed over before
  kSendRateChanged = 64,  // the status's rate_cuts or rate_recoveries have changed
};

// A descriptor is one chunk: at most kMaxChunkBytes of one work request, PSNs contiguous from
// `psn`. A READ or atomic chunk is one pull. Elements 1..extra_elements follow in the ring,
// enqueued in the same bulk: SGEs 1.. (four an element) or inline bytes.
struct SendDescriptor {
  SendOp op;
  uint8_t flags;    // SendFlag
  uint8_t attempt;  // 2 bits; of resends also why (attempt_with)
  uint8_t extra_elements;
  uint32_t qpn;
  uint32_t psn;           // PSN of the first packet
  uint32_t length_bytes;  // length of the chunk; READ: of this pull
  uint64_t va;   // WRITE: remote address of the chunk; SEND: offset in the message; READ, atomic:
                 // remote address of the whole
  uint32_t key;  // rkey; SEND: receive SN; UD: Q_Key
  uint32_t message_bytes;  // SEND: length of the whole message; READ: of the whole READ
  union {
    uint32_t imm_data;        // SEND_INV: the key to invalidate
    uint32_t keep_until_psn;  // READ, atomic: when `epoch` is new, response PSNs from here on are
                              // forgotten before it leaves
  };
  union {
    uint32_t
        recv_sn;  // WRITE_IMM: receive SN (MRC: modulo 2^16, its RQMSN); READ, atomic: read number
    uint32_t dest_qpn;  // UD
  };
  union {
    uint32_t first_response_psn;  // READ, atomic: response PSN of this pull's first packet
    uint32_t msn;                 // WRITE by MRC: which message of its queue pair it is
    uint32_t dest_ip;             // UD
  };
  union {
    uint8_t epoch;      // READ, atomic
    uint8_t hop_limit;  // UD
  };
  uint8_t sge_count;
  union {
    uint8_t traffic_class;  // UD
    uint8_t path;  // the native transport: by which of the connection's paths (path_table.h)
  };
  uint8_t source_index;  // UD: which of the NIC's addresses it leaves from
  union {
    Sge sge0;
    struct {
      uint64_t swap_or_add;
      uint64_t compare;
    } atomic;
    uint32_t read_offset_bytes;  // READ: offset of this pull inside the READ
  };
};
static_assert(sizeof(SendDescriptor) == 64 && std::is_trivially_copyable_v<SendDescriptor>);

// Why a descriptor's packets leave once more; kNone: for the first time.
inline RepeatCause repeat_cause_of(const SendDescriptor& d) {
  return (d.flags & kSendRetransmit) != 0 ? cause_in(d.attempt) : RepeatCause::kNone;
}

inline constexpr uint32_t kSgesPerElement = 4;
inline constexpr uint32_t kMaxExtraElements = kMaxInlineBytes / 64;
static_assert(kMaxExtraElements * kSgesPerElement >= kMaxSge - 1);

struct RingElement {
  alignas(8) std::byte bytes[64];
};

// ---- command and response ring

enum class CommandKind : uint32_t {
  kCreateQp = 1,
  kModifyQp,
  kDestroyQp,
  kCreateWindow,
  kDestroyWindow,
  kBindWindow,
  kInvalidateWindow,
  kAttachGroup,
  kDetachGroup,
  kFindHost,
};

// The types of queue pairs, with the verbs' values.
enum class QpType : uint32_t { kRc = 2, kUc = 3, kUd = 4 };

// The transport of a queue pair of that type; an RC connection speaks `spoken`: the native one, the
// standard's or MRC.
constexpr Transport transport_of(QpType type, Transport spoken) {
  if (type != QpType::kRc) return Transport::kUnreliable;
  return spoken == Transport::kRoce || spoken == Transport::kMrc ? spoken : Transport::kHostnic;
}

enum class WindowType : uint32_t { k1 = 1, k2 = 2 };

// QP states in the verbs' order, so that the ABI layer can cast.
enum class QpState : uint32_t { kReset, kInit, kRtr, kRts, kSqd, kSqe, kErr };

enum AccessFlag : uint32_t {  // with the verbs' values
  kAccessLocalWrite = 1,
  kAccessRemoteWrite = 2,
  kAccessRemoteRead = 4,
  kAccessRemoteAtomic = 8,
  kAccessMwBind = 16,
  kAccessZeroBased = 32,
  kAccessOnDemand = 64,
  kAccessRelaxedOrdering = 1u << 20,
  // No verb's: memory that somebody else may take away (a dma-buf). A page that its file has lost
  // is
  // none, and is not made anew.
  kAccessRevocable = 1u << 30,
};

struct CreateQpCommand {
  uint32_t status_index;
  uint32_t pd;
  uint64_t recv_queue_offset;  // segment offsets, 16-byte aligned
  uint64_t recv_completion_offset;
  uint64_t read_destination_offset;
  uint64_t srq_offset;    // SrqHeader of the slots at recv_queue_offset; 0: the QP's own queue
  uint32_t recv_entries;  // powers of two; recv may be 0
  uint16_t recv_max_sge;
  uint16_t read_destination_entries;
  QpType type;
  uint32_t recv_pd;  // protection domain of the memory that receives name: the QP's, or the shared
                     // receive queue's
};

struct ModifyQpCommand {
  uint32_t qpn;
  QpState state;
  uint32_t dest_qpn;
  uint32_t dest_ip;  // as NICs name hosts (protocol/gid.h)
  uint32_t sq_psn;
  uint32_t rq_psn;
  uint32_t access;  // AccessFlag
  uint16_t path_mtu_bytes;
  uint8_t max_dest_rd_atomic;
  uint8_t min_rnr_timer;  // 5-bit code
  uint8_t traffic_class;
  uint8_t hop_limit;
  uint8_t restart_sends;  // 1: UC, UD from SQE to RTS; sends go on at sq_psn
  uint8_t source_index;   // which of the NIC's addresses packets leave from
  uint32_t qkey;          // UD
  uint8_t peer_silent;    // 1: RC to ERR, since the peer has not answered for the whole retry time
  uint8_t sends_first;    // 1: to ERR or RESET when all before sq_psn has left, or after 100 ms
  uint8_t reserved[2];
};

struct DestroyQpCommand {
  uint32_t qpn;
  uint32_t sends_until_psn;
  uint8_t sends_first;  // 1: when all before sends_until_psn has left, or after 100 ms
  uint8_t reserved[3];
};

// Keys of memory windows: 1 | index, 12 bits | tag, 19 bits. The NIC makes the first key of a
// window; a bind says what the key is from then on: another tag for type 1, another low byte (the
// program's) for type 2.
inline constexpr uint32_t kWindowKeyBit = 1u << 31;
inline constexpr uint32_t kWindowTagBits = 19;
inline constexpr uint32_t kWindowTagMask = (1u << kWindowTagBits) - 1;
inline constexpr uint32_t kWindowUserMask = 0xff;
inline constexpr uint32_t kMaxWindows = 1u << (31 - kWindowTagBits);

// The lowest bit of a region's key says that its addresses are sole ones: those of its program,
// each byte under one address, so that two such keys of one protection domain lead to the same byte
// by equal addresses only. Other addresses than the program's (ibv_reg_mr_iova), and memory that is
// mapped, or may be, in several places have 0 there; windows' keys say nothing.
inline constexpr uint32_t kSoleAddressBit = 1;
constexpr bool has_sole_addresses(uint32_t key) {
  return (key & (kWindowKeyBit | kSoleAddressBit)) == kSoleAddressBit;
}

struct CreateWindowCommand {
  uint32_t pd;
  WindowType type;
};

struct DestroyWindowCommand {
  uint32_t key;  // any key that the window ever had
};

// Binds a window, which ends the binding that it had. A length of 0, for type 1 only, just ends
// that.
struct BindWindowCommand {
  uint32_t qpn;
  uint32_t key;  // the key from now on
  uint32_t mr_key;
  uint32_t access;  // AccessFlag
  uint64_t va;      // in the region's addresses
  uint64_t length_bytes;
};

struct InvalidateWindowCommand {
  uint32_t qpn;
  uint32_t key;
};

// The most multicast groups in a NIC, and the most of its queue pairs in each. Every member costs a
// copy of every packet, made by the lcore that serves all others meanwhile.
inline constexpr uint32_t kMaxGroups = 256;
inline constexpr uint32_t kMaxGroupMembers = 64;

// Makes a datagram queue pair a member of a group (which it may be already), or takes it out.
struct GroupCommand {
  uint32_t qpn;
  uint32_t group_ip;
};

// Has the NIC ask where a host is that datagrams will be for, as IP addresses in NICs name it.
struct FindHostCommand {
  uint32_t ip;
};

struct Command {
  CommandKind kind;
  uint32_t correlation;
  union {
    CreateQpCommand create_qp;
    ModifyQpCommand modify_qp;
    DestroyQpCommand destroy_qp;
    CreateWindowCommand create_window;
    DestroyWindowCommand destroy_window;
    BindWindowCommand bind_window;
    InvalidateWindowCommand invalidate_window;
    GroupCommand group;
    FindHostCommand find_host;
    std::byte padding[56];
  };
};
static_assert(sizeof(Command) == 64 && std::is_trivially_copyable_v<Command>);

struct CommandResponse {
  uint32_t correlation;
  int32_t error;  // errno value, 0 on success; EAGAIN: kModifyQp to RTR, or kFindHost, and what
                  // the peer speaks or its MAC address is not known yet: ask again
  uint32_t qpn;
  uint32_t window_key;
  Transport transport;  // kModifyQp to RTR of an RC queue pair: what the NIC chose
  uint8_t reserved[47];
};
static_assert(sizeof(CommandResponse) == 64);

// ---- meta ring
// -----------------------------------------------------------------------------------------------------

// A report says "look at this QP's status." At most one per QP is in the ring; what changed is in
// the status (docs/transport.md rule 21, state in the QpStatus). It has 16 bytes and not 64: with
// the state in QpStatus there is nothing else to say, and four reports share a cache line.
struct MetaReport {
  uint32_t status_index;
  uint32_t qpn;
  uint32_t reserved[2];
};
static_assert(sizeof(MetaReport) == 16);

constexpr uint32_t ring_element_bytes(RingId id) {
  return id == kMetaRing ? sizeof(MetaReport) : 64;
}
constexpr uint32_t ring_entries(RingId id) {
  switch (id) {
    case kSendRing:
      return kSendRingSize;
    case kUrgentRing:
      return kUrgentRingSize;
    case kMetaRing:
      return kMetaRingSize;
    case kEventRing:
      return kEventRingSize;
    default:
      return kCommandRingSize;
  }
}

}  // namespace hostnic
