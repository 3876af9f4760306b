// SPDX-License-Identifier: BSD-3-Clause
// The client segment: the memory that one device context (driver half) and hostnicd (hardware half)
// share: two memfds per context, made and sized by hostnicd (segment_memory.h). The first holds
// header, rings and QP statuses, and lies in huge pages where hostnicd has some; the second is the
// arena, sparse, whose ordinary pages are only touched when used and given back when they no longer
// are.
//
// Layout, in order: SegmentHeader | ring elements (command, response, send, urgent, meta, event) |
// QP statuses | board of objects | arena. The arena belongs to the driver, which places receive
// queues (QPs' own and shared), completion rings and read destinations in it and names them by
// offset in kCreateQp; the NIC bounds-checks every offset once, when the QP is created.
//
//   part                         driver (client)                NIC (hostnicd)
//   header: magic .. sizes       reads                          writes once
//   header: driver words         writes                         reads (untrusted); two as marked
//   header: driver_wake          waits on (futex)               adds 1, FUTEX_WAKE
//   header: memory_gate          one word each (see MemoryGate)
//   command, send, urgent ring   produces                       consumes
//   event ring                   produces, while traced         consumes
//   response, meta ring          consumes                       produces
//   QpStatus: nic part           reads (seqlock), clears dirty  writes
//   QpStatus: driver part        writes                         reads (untrusted)
//   board of objects             writes                         reads (untrusted), for people
//   receive queue                writes                         reads (untrusted, checked per use)
//   read destinations            writes                         reads (untrusted, checked per use)
//   receive completion ring      reads                          writes (and reads back, untrusted)
//   SrqHeader, index queue       writes (as marked)             reads (untrusted), writes `taken`
//   names of receives taken      reads                          writes (and reads back, untrusted)
//
// The NIC never relies on anything it can read here: a value that makes no sense costs the client
// its connection.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "protocol/types.h"

namespace hostnic {

inline constexpr uint64_t kSegmentMagic = 0x31474553'43494e48;  // "HNICSEG1"
// The version is raised with every incompatible change of this folder. Both sides refuse another
// version and name both.
inline constexpr uint32_t kHostAbiVersion = 31;

inline constexpr uint32_t kWindowLimit = 4096;  // PSNs; also the size of every bitmap ring, in bits
inline constexpr uint32_t kBitmapWords = kWindowLimit / 64;
inline constexpr uint32_t kInitialWindow =
    128;  // window assumed until the first ACK (docs/transport.md rule 27)
inline constexpr uint32_t kMaxSge = 16;
inline constexpr uint32_t kMaxInlineBytes = 512;
inline constexpr uint32_t kMaxChunkBytes = 256 * 1024;  // per send descriptor and per READ pull

inline constexpr uint32_t kCommandRingSize = 64;
inline constexpr uint32_t kSendRingSize = 1024;
inline constexpr uint32_t kUrgentRingSize = 256;
inline constexpr uint32_t kMetaRingSize = 4096;
inline constexpr uint32_t kEventRingSize = 4096;

inline constexpr uint64_t kHugePageBytes = uint64_t{2} << 20;

struct Sge {
  uint64_t addr;
  uint32_t length_bytes;
  uint32_t lkey;
};
static_assert(sizeof(Sge) == 16);

// The producer's and the consumer's position of one ring; each on its own cache line. See ring.h
// for who stores what.
struct RingIndices {
  alignas(64) std::atomic<uint32_t> producer;
  alignas(64) std::atomic<uint32_t> consumer;
};

enum RingId : uint32_t {
  kCommandRing,
  kResponseRing,
  kSendRing,
  kUrgentRing,
  kMetaRing,
  kEventRing,
  kRingCount
};

// Keeps the NIC's transfers through the mem fd apart from changes of the client's mappings, so that
// no byte is written where other memory has taken the place of a region's. Each side stores its own
// word, fences fully, and looks at the other's: the driver closes the gate and then waits until no
// transfer is under way; the NIC, which never waits, does the transfer another time where it finds
// the gate closed.
struct MemoryGate {
  alignas(64) std::atomic<uint32_t> closed;       // written by the driver
  alignas(64) std::atomic<uint32_t> in_transfer;  // written by the NIC
  // Not kNobody: a transfer was put off, and none has been made since. Written by the NIC, for a
  // driver that closes the gate again and again: it lets the NIC through in between.
  std::atomic<uint32_t> wanted;
  enum By : uint32_t {
    kNobody,
    kLcore,   // comes again with the NIC's next turn
    kHelper,  // a thread that makes transfers that may block: needs turns of both
  };

  // The NIC's: begins a transfer, which leave() ends. Returns whether it may be made.
  bool enter(By by) {
    in_transfer.fetch_add(1, std::memory_order_seq_cst);
    // Sequentially consistent as the addition is: it must not be made before that can be seen.
    const bool open = closed.load(std::memory_order_seq_cst) == 0;
    const uint32_t wants = open ? kNobody : by;
    if (wanted.load(std::memory_order_relaxed) != wants)
      wanted.store(wants, std::memory_order_release);
    return open;
  }
  void leave() { in_transfer.fetch_sub(1, std::memory_order_release); }
};

struct SegmentHeader {
  uint64_t magic;
  uint32_t abi_version;
  uint32_t max_qps;        // number of statuses
  uint64_t segment_bytes;  // without the arena, which begins there
  uint64_t ring_offset[kRingCount];
  uint64_t statuses_offset;
  uint64_t object_board_offset;  // of an ObjectBoard (object_board.h)
  uint64_t arena_offset;
  uint64_t arena_bytes;
  // 1: the NIC makes no page of the segment or the arena where it writes first, as for clients that
  // hostnicd does not trust: the driver makes them before.
  uint32_t driver_makes_pages;
  // Written by the NIC, and seldom: not 0 while it wants to be told of messages (message_event.h);
  // another number each time that this begins.
  std::atomic<uint32_t> message_events;

  // The words from here on are written by the driver. core_sharing.h has the protocol of all that
  // wake-ups need, and the functions by which it is followed. polling_until_ns says until when
  // (CLOCK_MONOTONIC) a polling program is expected to look again: a little after each ibv_poll_cq,
  // much later while it has yielded its core (rule 34, wake-ups).
  alignas(64) std::atomic<uint64_t> polling_until_ns;
  std::atomic<uint32_t> armed_cqs;        // completion queues waiting for an event
  std::atomic<uint32_t> driver_sleeping;  // the service thread is in, or about to enter, futex
                                          // wait; the NIC takes that back when it wakes it
  std::atomic<uint32_t> poller_naps;  // futex word: 1: a polling thread waits for reports here; the
                                      // NIC takes that back when it wakes it
  std::atomic<uint32_t> program_cpu;  // where work was last handed over: processor + 1; 0: nowhere
  // The words from here on are written by the NIC.
  alignas(64) std::atomic<uint32_t> driver_wake;  // futex word
  std::atomic<uint32_t> device_fatal;             // hostnicd gave this client up; 1 + DropReason
  // How often the port went down or came up again: it is down (it has no link, or the NICs were
  // stopped at the prompt) while this is odd. A driver that looks late still sees both.
  std::atomic<uint32_t> port_changes;
  std::atomic<uint32_t> mtu_bytes;  // the IB MTU whose packets fit the port now; 0: the device's
  std::atomic<uint32_t> address_changes;  // how often the NIC's address went or came back
  std::atomic<uint64_t> nic_turn_ns;  // when the NIC last served this client: a NIC that gets no
                                      // CPU time is no lost packet

  MemoryGate memory_gate;
  RingIndices rings[kRingCount];
};

constexpr bool port_is_up(uint32_t port_changes) { return port_changes % 2 == 0; }
// How many of the last changes a program hears of that heard of `told`: of a port that came and
// went often meanwhile, the last one, and the one before it if the port is again as it was.
constexpr uint32_t port_changes_to_tell(uint32_t told, uint32_t port_changes) {
  if (told == port_changes) return 0;
  return port_is_up(told) == port_is_up(port_changes) ? 2 : 1;
}

// ---- QP status
// -------------------------------------------------------------------------------------------------------

enum class LocalError : uint32_t {
  kNone,
  kProtection,
  kLength,
  kBadResponse,  // an answer is not the part of the READ that its PSN stands for
};

// Events about a QP that are not tied to a work request, OR-ed into QpStatus::events.
enum QpEvent : uint32_t {
  kEventCommEstablished = 1u << 0,  // first packet arrived in RTR
  kEventAccessError = 1u << 1,      // the peer was refused for its key, bounds or rights
  kEventRequestError = 1u << 2,     // the peer sent an invalid request
  kEventRecvError = 1u << 3,        // a receive completed in error (its completion is in the ring)
};

// A value of QpStatus::nak: kind << 8 | code as in AETH; 0 is none.
constexpr uint32_t make_nak(uint32_t kind, uint32_t code) { return kind << 8 | code; }

// The state of one QP, as each side tells it the other. Its lines travel between the two cores with
// each message: what every ACK changes is in the first.
struct QpStatus {
  // --- NIC part. Words between two increments of `sequence` are consistent (odd: being written),
  // but for those that are atomic.
  alignas(64) std::atomic<uint32_t> sequence;
  std::atomic<uint32_t> dirty;  // 1: a meta report is in the ring; the driver stores 0 and fences
                                // before it reads the status
  std::atomic<uint32_t> transmitted_psn;  // next request PSN that was never transmitted
  std::atomic<uint32_t> recv_completed;   // receive completions written, absolute
  uint32_t una_psn;                       // every PSN before it has been acknowledged
  uint32_t highest_acceptable_psn;
  uint32_t recv_sn_limit;  // credit; valid when has_credit
  union {
    uint32_t has_credit;
    uint32_t window_psns;  // MRC: how many PSNs the congestion window lets be on their way
  };
  uint32_t nak;        // from make_nak(); stays until una_psn passes nak_psn
  uint32_t ack_count;  // ACKs received (with progress or not: the peer lives)
  uint32_t rtt_ns;     // latest sample of the round trip time
  uint32_t rtt_count;
  uint32_t echo_psn;  // echo of the newest ACK: which packet, which attempt
  uint16_t echo_attempt;
  uint16_t rtt_psn;  // which packet rtt_ns was measured with: the PSN's lower 16 bits
  uint32_t echo_count;
  uint32_t sack_end_psn;  // one past the highest bit in `sack`: no bits unless it is after una_psn
  alignas(64) uint32_t nak_psn;
  uint32_t nak_sn;     // RNR: the receive SN that is missing; else: the PSN that was refused
  uint32_t nak_count;  // counts NAKs, so that the same one twice is seen
  uint32_t mark_count;
  uint32_t spurious_count;    // resends that the peer reported as duplicates
  uint32_t response_una_psn;  // every response PSN before it has been placed (READs and atomics)
  uint32_t local_error;       // LocalError, about work at local_error_psn
  uint32_t local_error_psn;
  uint32_t
      response_error;  // LocalError when placing a response; READ number in response_error_read
  uint32_t response_error_read;
  uint32_t events;            // QpEvent bits, accumulated
  uint16_t response_epoch;    // epoch of response_bitmap; bits of another epoch say nothing
  uint16_t response_refused;  // 1: the peer has refused a pull of that epoch
  union {
    uint32_t responses_ahead;  // number of bits set in response_bitmap
    uint32_t losses_reported;  // MRC: how often a bit of losses_told has changed; 0: never
  };
  uint32_t response_mark_count;  // times our own receive side was backed up, or the network said so
  std::atomic<uint32_t> credit_watched;  // the peer waits for receives; a post must ring the
                                         // doorbell
  std::atomic<uint32_t> recv_bound;      // receives taken from the shared receive queue, absolute;
                                         // which they are, the ring of names says
  uint64_t sack[kBitmapWords];           // bit psn % kWindowLimit: received beyond una_psn
  union {
    uint64_t response_bitmap[kBitmapWords];  // bit psn % kWindowLimit: response placed beyond
                                             // response_una_psn
    // MRC: bit psn % kWindowLimit changes whenever the NIC finds that the PSN's last transmission
    // is lost or trimmed, and is to go again.
    uint64_t losses_told[kBitmapWords];
  };

  // --- Driver part.
  // Receives posted, absolute (credit). With a shared receive queue: how far the names of receives
  // may be written, which is their ring's length beyond what the driver has read.
  alignas(64) std::atomic<uint32_t> recv_posted;
  // The driver knows that every PSN before this is acknowledged. The memory of those requests may
  // be deregistered, so a repetition of them that still waits in a ring and finds none is no error.
  std::atomic<uint32_t> acknowledged_psn;
  // How fast the driver sends what congestion notifications limit (docs/roce.md), for people: the
  // rate, 0 where nothing limits it; alpha; how often it was cut, and the line rate reached again.
  std::atomic<uint32_t> rate_mbps;
  std::atomic<uint32_t> alpha_permille;
  std::atomic<uint32_t> rate_cuts;
  std::atomic<uint32_t> rate_recoveries;
  // The retransmission timeout is made of these (retransmission_timeout.h); the NIC tells people.
  std::atomic<uint32_t> srtt_ns;  // 0: no round trip was measured
  std::atomic<uint32_t> rttvar_ns;
  std::atomic<uint32_t> rto_backoff;
  std::atomic<uint32_t> least_rto_us;
  std::atomic<uint32_t> most_rto_us;
  // The native transport's paths, for people: how many there are, 0 if it has one; those that are
  // not avoided, a bit each; and of each its smoothed round trip, 0 if none was measured, and how
  // many packets it has lost.
  std::atomic<uint16_t> path_count;
  std::atomic<uint16_t> good_paths;
  struct PathReport {
    std::atomic<uint32_t> srtt_ns;
    std::atomic<uint32_t> lost;
  };
  alignas(64) PathReport paths[kMostPaths];
};
static_assert(sizeof(QpStatus) % 64 == 0 && offsetof(QpStatus, nak_psn) == 64 &&
              offsetof(QpStatus, sack) == 128);

// ---- arena objects
// -------------------------------------------------------------------------------------------------

// A slot of a receive queue, at index SN % entries; in a shared queue wherever the driver has room.
// The stride is recv_slot_bytes(max_sge).
struct RecvSlot {
  uint32_t sn;  // shared queue: the slot's own index
  uint32_t sge_count;
  uint64_t reserved;
  Sge sge[];
};
constexpr uint32_t recv_slot_bytes(uint32_t max_sge) { return 16 + 16 * max_sge; }

enum class RecvStatus : uint32_t { kSuccess, kLengthError, kProtectionError, kAccessError };
enum RecvFlag : uint32_t {
  kRecvHasImm = 1,
  kRecvSolicited = 2,
  kRecvIsWriteImm = 4,
  kRecvHasInv = 16,  // `imm_data` is the key of the window that the SEND invalidated
  kRecvHasGrh = 8,   // UD: 40 bytes of the receive are the network header's place
  kRecvIpv6 = 32,    // UD: that is an IPv6 header
};

// A receive completion, valid once QpStatus::recv_completed passed SN: at index SN % entries; with
// a shared receive queue at the index of the slot that the message took, so that queue pairs need
// no room of their own for as many as the queue may have.
struct RecvCompletion {
  uint32_t sn;
  uint32_t status;  // RecvStatus
  uint32_t byte_len;
  uint32_t imm_data;
  uint32_t flags;    // RecvFlag
  uint32_t src_qpn;  // UD
  uint32_t reserved[2];
};
static_assert(sizeof(RecvCompletion) == 32);

// A shared receive queue: a table of RecvSlots, and a queue of indices into it in the order in
// which they were posted. All QPs that use it are one NIC's and served by one lcore, which takes
// from the queue; the slots come back in any order, as messages complete. The index queue follows
// the header: uint32_t, position % entries; then the slots' completions. Each of the queue pairs
// has a ring of names, at index SN % entries: uint32_t, the slot that its receive SN took; valid
// once QpStatus::recv_bound passed SN.
struct SrqHeader {
  // The words from here on are written by the driver.
  alignas(64) std::atomic<uint32_t> posted;  // number posted, absolute
  std::atomic<uint32_t> limit;  // armed: report when fewer than that are left; 0: not armed
  // The word from here on is written by the NIC.
  alignas(64) std::atomic<uint32_t> taken;  // number taken, absolute
};
constexpr uint64_t srq_completions_offset(uint32_t entries) {
  return (sizeof(SrqHeader) + sizeof(uint32_t) * uint64_t{entries} + 63) / 64 * 64;
}
constexpr uint64_t srq_bytes(uint32_t entries) {
  return srq_completions_offset(entries) + sizeof(RecvCompletion) * uint64_t{entries};
}
// The bytes that every UD receive starts with: 20 that nobody defines (zeros here), then the IPv4
// header (InfiniBand annex A17.4.5.2).
inline constexpr uint32_t kGrhBytes = 40;

// The read destination: where the response of a READ or atomic is placed, at index read_number %
// read_destination_entries.
struct ReadDestination {
  uint32_t read_number;
  uint32_t length_bytes;
  uint32_t first_response_psn;
  uint32_t sge_count;
  Sge sge[kMaxSge];
};
static_assert(sizeof(ReadDestination) == 16 + 16 * kMaxSge);

// ---- limits, and the arena that they need

inline constexpr uint32_t kMaxQueueEntries = 16384;  // most entries of a receive queue, shared or a
                                                     // QP's own
inline constexpr uint32_t kMaxSharedQueues = 16384;  // most shared receive queues of a context
inline constexpr uint32_t kReadDestinationEntries =
    16;  // most READs and atomics that a QP has outstanding (max_qp_rd_atom)

// The most arena bytes that a context can ever use: all QPs and shared receive queues with the
// deepest queues.
constexpr uint64_t arena_bytes_for(uint32_t max_qps) {
  constexpr uint64_t kSlotsBytes = uint64_t{kMaxQueueEntries} * recv_slot_bytes(kMaxSge);
  constexpr uint64_t kQpBytes = kSlotsBytes + kMaxQueueEntries * sizeof(RecvCompletion) +
                                kReadDestinationEntries * sizeof(ReadDestination);
  constexpr uint64_t kSrqBytes = kSlotsBytes + srq_bytes(kMaxQueueEntries);
  // There is room for one block more of each kind, because none lies across the end of what is
  // always mapped.
  return (max_qps + 1) * kQpBytes + (kMaxSharedQueues + 1) * kSrqBytes;
}

}  // namespace hostnic
