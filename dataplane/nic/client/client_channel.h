// SPDX-License-Identifier: BSD-3-Clause
// hostnicd's end of one device context's segment: memory, the NIC's ends of the rings, wake-ups.
// Made and destroyed by the control thread; between Nic::attach and Nic::detach used by the NIC's
// lcore only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/memory/page_tables.h"
#include "protocol/expected.h"
#include "protocol/hostif/core_sharing.h"
#include "protocol/hostif/descriptors.h"
#include "protocol/hostif/object_board.h"
#include "protocol/hostif/ring.h"
#include "protocol/hostif/segment_memory.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic {

class MemFdHelper;

enum class DropReason : uint32_t { kNone, kRingPosition, kBadDescriptor, kBadCommand, kMemoryGone };
const char* to_string(DropReason reason);

// Whether a segment lies in huge pages: if there are any free, or always.
enum class SegmentPages : uint8_t { kOrdinary, kHugeIfFree, kHuge };

class ClientChannel {
 public:
  struct Settings {
    uint32_t client_id = 0;
    uint32_t max_qps = 16384;
    uint64_t arena_bytes = 0;  // sparse; 0: as much as a device with these limits can need
    SegmentPages pages = SegmentPages::kOrdinary;
    std::string program;  // name for logs and `show client`
    uint32_t pid = 0;
    uint32_t uid = 0;
    // The client is another user's than hostnicd's and root. The most queue pairs and memory
    // windows of all clients of that user in a NIC; all such users leave a rest to the others
    // (UserShares). Pages that it takes out of the segment are not made anew (hole_guard.h).
    bool is_strangers = false;
    uint32_t user_qps = UINT32_MAX, user_windows = UINT32_MAX;
    std::shared_ptr<PageTableBudget> page_tables = nullptr;  // the user's; null: not counted
    std::optional<uint32_t> stranger() const {
      return is_strangers ? std::optional(uid) : std::nullopt;
    }
  };
  // The bytes of huge pages that a segment for `max_qps` queue pairs takes.
  static uint64_t huge_bytes_for(uint32_t max_qps);
  // Makes the segment (two memfds) and maps it. Error: one line.
  static Expected<std::unique_ptr<ClientChannel>, std::string> create(const Settings& settings);
  ~ClientChannel();

  int segment_fd() const { return segment_fd_.get(); }
  // Closes our copy of the segment's file, once the client has its own.
  void close_segment_file() { segment_fd_.reset(); }
  int arena_fd() const { return arena_fd_.get(); }
  // The memory of both files, as this side sees it.
  SegmentMemory& memory() { return memory_; }
  bool in_huge_pages() const { return in_huge_pages_; }
  SegmentHeader& header() { return *reinterpret_cast<SegmentHeader*>(memory_.base()); }
  QpStatus& qp_status(uint32_t index) { return statuses_[index]; }
  // What the client says that it has. Any thread, while the channel is there.
  std::vector<ObjectLine> objects() const { return lines_of(*board_); }
  // Null when [offset, offset + bytes) is not inside the arena or not 16-byte aligned, or can't be
  // mapped, or when the user may have no further page table; arena_error() says which. The lcore
  // may make a system call.
  std::byte* arena_at(uint64_t offset, uint64_t bytes);
  // The errno value of the arena_at() that failed last: EINVAL, or ENOMEM.
  int arena_error() const { return arena_error_; }
  const Settings& settings() const { return settings_; }

  RingEnd commands, responses, sends, urgent, metas, events;

  // Wakes the driver's service thread, which is asleep, so that it looks (futex wake; cannot
  // block). Any thread.
  void wake_driver() { wake_service_once(header()); }
  // The reason why the client is to be dropped: set by the lcore when the client broke a rule. The
  // control thread then closes the connection with a log line.
  std::atomic<DropReason> dropped{DropReason::kNone};
  // Set where the NIC found a hole in memory that the client shares with it (sigbus.h), and where
  // the mem fd found the address space gone, which is so a moment before the program is known to
  // have ended.
  std::atomic<bool> memory_taken{false}, address_space_gone{false};
  bool has_lost_memory() const {
    return memory_taken.load(std::memory_order_acquire) ||
           address_space_gone.load(std::memory_order_acquire);
  }
  // Set when some of the client's registered memory was found to be cut off, and how many keys that
  // has cost it.
  std::atomic<bool> memory_cut_off{false};
  std::atomic<uint32_t> keys_cut_off{0};
  // What the client has of the NIC, and whether it was refused more because of a limit: written by
  // the lcore.
  struct Use {
    std::atomic<uint32_t> queue_pairs{0}, windows{0};
    std::atomic<uint64_t> sent_bytes{0};  // headers included
  };
  std::shared_ptr<Use> use = std::make_shared<Use>();
  std::atomic<bool> qp_limit_met{false}, window_limit_met{false}, neighbour_limit_met{false},
      table_limit_met{false};
  // The NIC's own record of this client, between attach and detach.
  void* nic_state = nullptr;
  // Makes the client's transfers through its mem fd that may block; null: it has had none. Set by
  // the session before a region names it, used by the lcore between attach and detach.
  std::atomic<MemFdHelper*> mem_fd_helper{nullptr};

 private:
  ClientChannel() = default;
  int make_files(uint64_t segment_bytes, uint64_t arena_bytes);
  int make_segment_file(uint64_t bytes, bool huge);
  bool guard(std::byte* start, uint64_t length_bytes, uint64_t page_bytes);

  Settings settings_;
  UniqueFd segment_fd_, arena_fd_;
  SegmentMemory memory_;
  bool in_huge_pages_ = false;
  bool far_guarded_ = false;
  int arena_error_ = 0;
  PageTables near_tables_, far_tables_;  // of the arena's two mappings
  QpStatus* statuses_ = nullptr;
  ObjectBoard* board_ = nullptr;
};

}  // namespace hostnic
