// SPDX-License-Identifier: BSD-3-Clause
// The verbs calls of traced programs on their way to `hostnic trace`: a ring of records in memory
// that it shares with all of them. It is memory, and no pipe, because programs close descriptors
// that they know nothing of, fork and are killed: what they have recorded until then is there, and
// a record is whole or not at all.
//
// Any number of threads and processes write; one reads. A writer that finds the ring full waits for
// the reader, as long as that lives. Whoever is traced may write anything into this memory: the
// reader copies a record, and checks what it uses as a length.
#pragma once

#include <atomic>
#include <cstdint>
#include <type_traits>

namespace hostnic {

inline constexpr uint32_t kTraceMagic = 0x43525448;  // "HTRC"
inline constexpr uint32_t kTraceVersion = 1;
inline constexpr uint32_t kTraceRecords = 8192;  // a power of two
inline constexpr uint32_t kTraceThreads = 1024;
inline constexpr uint32_t kTracePolledQueues = 4;
inline constexpr uint32_t kTraceNameBytes = 40;
inline constexpr uint32_t kTraceTextBytes = 424;
inline constexpr uint32_t kTraceCallBytes = 224;
// The variable that names the file of the ring to traced programs.
inline constexpr const char* kTraceVariable = "HOSTNIC_TRACE";

enum class TraceOutcome : uint16_t { kSuccess = 0, kFailure = 1, kUnfinished = 2 };

// One call, or a number of polls that found nothing.
struct TraceRecord {
  std::atomic<uint64_t> ready{0};  // the record's number + 1 once it is whole
  uint64_t start_ns = 0;           // CLOCK_REALTIME
  uint64_t duration_ns = 0;        // of all `count` calls together
  uint64_t count = 0;
  int32_t pid = 0, tid = 0;
  uint16_t depth = 0;  // calls inside of which this one was made
  TraceOutcome outcome{};
  uint32_t text_bytes = 0;
  char name[kTraceNameBytes] = {};  // ends in 0
  char text[kTraceTextBytes] = {};  // arguments and result, without an end
};
static_assert(sizeof(TraceRecord) == 512);

// Polls of one queue that found nothing, since the thread's last line.
struct TracePolls {
  std::atomic<uint64_t> count{0};
  uint64_t queue = 0;  // its address
  uint64_t entries = 0;
  uint64_t start_ns = 0;
  uint64_t duration_ns = 0;
  uint64_t extended = 0;  // 1: by ibv_start_poll()
};

// What a thread is about. Its own thread writes; the reader tells of calls that take long, and of
// what a thread was about when its process ended.
struct TraceThread {
  std::atomic<int32_t> tid{0};  // 0: free
  std::atomic<int32_t> pid{0};
  std::atomic<uint64_t> since_ns{0};  // when the outermost call began; 0: in none
  TracePolls polls[kTracePolledQueues];
  char call[kTraceCallBytes] = {};  // its name and arguments; ends in 0
};

struct TraceRing {
  uint32_t magic = kTraceMagic;
  uint32_t version = kTraceVersion;
  int32_t reader_pid = 0;
  std::atomic<uint32_t> closed{0};            // 1: nobody reads any more
  std::atomic<uint32_t> seen{0};              // 1: some program has made a call
  alignas(64) std::atomic<uint64_t> tail{0};  // the number of the next record to be written
  alignas(64) std::atomic<uint64_t> head{0};  // and of the next to be read
  alignas(64) std::atomic<uint64_t> lost{0};  // records whose writer died while it wrote
  TraceThread threads[kTraceThreads];
  TraceRecord records[kTraceRecords];
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

}  // namespace hostnic
