// SPDX-License-Identifier: BSD-3-Clause
// The packets of one NIC on their way to `hostnic capture`: a ring of records in memory that
// hostnicd and the capturing process share. The NIC's lcore writes and never waits: what finds no
// room is counted. The capturing process reads, and has the file.
//
// Two memfds. The ring's has a page of CaptureHeader and the records; it is sealed, so that the
// reader can't write to it. The other is one page, CaptureIndex, where the reader says how far it
// has read. Neither side trusts the other: the writer takes a position that can't be for a reader
// that stands still, the reader checks all that it reads and copies it before it uses it.
//
// Records lie one behind the other, each in one piece and at a multiple of kCaptureAlign; a record
// that would not fit before the end begins at the start, behind one of kind kSkip that fills the
// rest. Positions count bytes since the beginning, and never wrap.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>
#include <type_traits>

#include "protocol/types.h"

namespace hostnic {

inline constexpr uint32_t kCaptureMagic = 0x50414348;  // "HCAP"
inline constexpr uint32_t kCaptureVersion = 2;
inline constexpr uint64_t kCaptureAlign = 64;
inline constexpr uint64_t kCapturePageBytes = 4096;
// The size of the records' part: a power of two.
inline constexpr uint64_t kMinCaptureBytes = uint64_t{64} << 10;
inline constexpr uint64_t kMaxCaptureBytes = uint64_t{1} << 30;
// The bytes kept of a packet, at least and at most.
inline constexpr uint32_t kMinSnapBytes = 64, kMaxSnapBytes = 9216;
// The counters that a NIC may have, at most.
inline constexpr uint32_t kMaxCaptureCounters = 128;

// What hostnicd writes beside the records.
struct CaptureHeader {
  uint32_t magic = kCaptureMagic;
  uint32_t version = kCaptureVersion;
  uint64_t ring_bytes = 0;
  alignas(64) std::atomic<uint64_t> head{0};    // position behind the last record
  alignas(64) std::atomic<uint64_t> seen{0};    // packets, kept or not
  std::atomic<uint64_t> not_kept{0};            // of them, those that found no room
  std::atomic<uint32_t> ended{0};               // 1: nothing follows, and `at_end` is there
  std::atomic<uint32_t> dumps_wanted{0};        // how often somebody wanted what is kept written
  std::atomic<uint64_t> last_death{0};          // CaptureDeath: of programs that did not end well
  uint64_t at_start[kMaxCaptureCounters] = {};  // the NIC's counters
  uint64_t at_end[kMaxCaptureCounters] = {};
};
static_assert(sizeof(CaptureHeader) <= kCapturePageBytes);

// A program that died while it had queue pairs, packed: the how-manieth it was, and its process.
constexpr uint64_t capture_death(uint32_t count, uint32_t pid) {
  return uint64_t{count} << 32 | pid;
}
constexpr uint32_t death_count(uint64_t death) { return static_cast<uint32_t>(death >> 32); }
constexpr uint32_t death_pid(uint64_t death) { return static_cast<uint32_t>(death); }

inline constexpr size_t kCaptureFileBytes = 512;

// What the reader writes. hostnicd believes none of it, but shows it to whoever asks.
struct CaptureIndex {
  std::atomic<uint64_t> tail{0};        // position of the next record to be read
  std::atomic<uint32_t> keeps{0};       // 1: it keeps packets, and `file` says where they will be
  std::atomic<uint32_t> dumps_done{0};  // the wish (dumps_wanted) that has been fulfilled last
  std::atomic<uint32_t> dump_error{0};  // 1: not quite
  char file[kCaptureFileBytes] = {};    // written before `keeps`
};
static_assert(sizeof(CaptureIndex) <= kCapturePageBytes);

enum class CaptureKind : uint32_t { kPacket = 1, kSkip = 2 };
enum class CaptureDirection : uint8_t { kReceived = 1, kSent = 2 };

// What was done to a packet on purpose (docs/impairments.md), as a set.
enum CaptureImpairment : uint8_t {
  kImpairedDropped = 1,       // by a rule that drops
  kImpairedRateDropped = 2,   // a rate limit's queue was full
  kImpairedQueueDropped = 4,  // it found no room to wait in
  kImpairedCopy = 8,          // it is a copy that a rule made
  kImpairedHeldBack = 16,     // delayed or reordered
  kImpairedCorrupted = 32,
  kImpairedMarked = 64,  // ECN
};
inline constexpr uint8_t kImpairedLost =
    kImpairedDropped | kImpairedRateDropped | kImpairedQueueDropped;

enum CaptureFlag : uint8_t {
  // The packet ends in pad and ICRC, or a switch has cut it off; else pad and ICRC are left out.
  kCaptureAsItIs = 1,
  kCaptureRetransmit = 2,   // the NIC sent it before
  kCaptureHasExpected = 4,  // `expected_psn` means something
  kCaptureAtTransmit = 8,   // the impairments were those of what leaves
};
inline constexpr uint8_t kCaptureNoState = 0xff;

// A counter of the NIC's that changed while a packet was dispatched.
struct CaptureChange {
  uint16_t counter;  // its place among the names that CaptureReply has
  uint16_t reserved;
  uint32_t by;
};
inline constexpr uint32_t kMaxCaptureChanges = 10;

// Ahead of each packet's bytes. A record of kind kSkip has the first two members only.
struct CaptureRecord {
  uint32_t record_bytes = 0;  // this header, the bytes, and what fills up to kCaptureAlign
  CaptureKind kind = CaptureKind::kPacket;
  uint64_t sequence = 0;  // packets before it, kept or not
  TimeNs time_ns = 0;     // of CLOCK_MONOTONIC
  uint32_t packet_bytes = 0, captured_bytes = 0;
  CaptureDirection direction = CaptureDirection::kReceived;
  uint8_t flags = 0;                   // CaptureFlag
  uint8_t impaired = 0;                // CaptureImpairment
  uint8_t rule = 0;                    // the impairment rule that did it, from 1; 0: none
  uint8_t qp_state = kCaptureNoState;  // QpState of the queue pair that it was for, afterwards
  uint8_t change_count = 0;
  uint8_t reserved[2] = {};
  uint32_t expected_psn = 0;  // the PSN that its queue pair waits for, afterwards
  uint32_t reserved_words[1] = {};
  CaptureChange changes[kMaxCaptureChanges] = {};
};
static_assert(sizeof(CaptureRecord) == 128 && std::is_trivially_copyable_v<CaptureRecord>);

// Whether a size of a ring is one.
constexpr bool is_capture_size(uint64_t bytes) {
  return bytes >= kMinCaptureBytes && bytes <= kMaxCaptureBytes && (bytes & (bytes - 1)) == 0;
}

// The writing side: one thread. Records are prepared, and seen by the reader once they are
// published; until then they may be taken back.
class CaptureWriter {
 public:
  // `records` has header.ring_bytes, a size that is_capture_size() accepts.
  CaptureWriter(CaptureHeader& header, const CaptureIndex& index, std::byte* records)
      : header_(header), index_(index), records_(records), ring_bytes_(header.ring_bytes) {}
  CaptureWriter(const CaptureWriter&) = delete;
  CaptureWriter& operator=(const CaptureWriter&) = delete;

  // What has been prepared so far.
  struct Mark {
    uint64_t cursor = 0, sequence = 0, not_kept = 0;
  };
  Mark mark() const { return at_; }
  // Takes back all that was prepared since then, and not published.
  void rewind(const Mark& mark) { at_ = mark; }
  // Prepares a record with room for so many bytes behind it, and gives it its sequence number.
  // Returns null if there is no room: then the packet counts as not kept.
  CaptureRecord* prepare(uint32_t captured_bytes);
  // Counts a packet as not kept.
  void miss() {
    ++at_.sequence;
    ++at_.not_kept;
  }
  void publish();

 private:
  uint64_t room();

  CaptureHeader& header_;
  const CaptureIndex& index_;
  std::byte* const records_;
  const uint64_t ring_bytes_;
  Mark at_;
  uint64_t published_ = 0, tail_ = 0;
};

// The bytes of a prepared record.
inline std::byte* bytes_behind(CaptureRecord& record) {
  return reinterpret_cast<std::byte*>(&record + 1);
}

// The reading side: one thread.
class CaptureReader {
 public:
  // `records` has `ring_bytes`, a size that is_capture_size() accepts; the header's own word for it
  // is not asked.
  CaptureReader(const CaptureHeader& header, CaptureIndex& index, const std::byte* records,
                uint64_t ring_bytes)
      : header_(header), index_(index), records_(records), ring_bytes_(ring_bytes) {}
  CaptureReader(const CaptureReader&) = delete;
  CaptureReader& operator=(const CaptureReader&) = delete;

  enum class Result : uint8_t {
    kRecord,
    kEmpty,
    kBroken,  // the ring says what can't be: nothing more can be read
  };
  // Takes the next record. Its bytes stay where they are until the next call.
  Result next(CaptureRecord& record, std::span<const std::byte>& bytes);

 private:
  const CaptureHeader& header_;
  CaptureIndex& index_;
  const std::byte* const records_;
  const uint64_t ring_bytes_;
  uint64_t tail_ = 0, taken_bytes_ = 0;
  bool broken_ = false;
};

}  // namespace hostnic
