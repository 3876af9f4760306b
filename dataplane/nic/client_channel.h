// hostnicd's end of one device context's segment: memory, the NIC's ends of the rings, wake-ups.
// Made and destroyed by the control thread; between Nic::attach and Nic::detach used by the NIC's
// lcore only.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "protocol/expected.h"
#include "protocol/hostif/descriptors.h"
#include "protocol/hostif/ring.h"

namespace hostnic {

enum class DropReason : uint32_t { kNone, kRingPosition, kBadDescriptor, kBadCommand, kMemoryGone };
const char* to_string(DropReason reason);

class ClientChannel {
 public:
  struct Settings {
    uint32_t client_id = 0;
    uint32_t max_qps = 16384;
    uint64_t arena_bytes = uint64_t{1} << 30;  // sparse
    std::string program;                       // for people
    uint32_t pid = 0;
  };
  // Makes the segment (memfd) and maps it. Error: one line.
  static Expected<std::unique_ptr<ClientChannel>, std::string> create(const Settings& settings);
  ~ClientChannel();

  int segment_fd() const { return segment_fd_; }
  uint64_t segment_bytes() const { return segment_bytes_; }
  SegmentHeader& header() { return *reinterpret_cast<SegmentHeader*>(base_); }
  QpCell& cell(uint32_t index) { return cells_[index]; }
  // Null when [offset, offset + bytes) is not inside the arena or not 16-byte aligned.
  std::byte* arena_at(uint64_t offset, uint64_t bytes);
  const Settings& settings() const { return settings_; }

  RingEnd commands, responses, sends, urgent, metas;

  // The driver's service thread is asleep and should look (futex wake; cannot block). Any thread.
  void wake_driver();
  // So that a program's polling thread that naps looks again. Costs nothing when none does.
  void wake_poller();
  // Set by the lcore when the client broke a rule, or by memory code when its address space is
  // gone. The control thread then closes the connection with a log line.
  std::atomic<DropReason> dropped{DropReason::kNone};
  std::atomic<bool> memory_gone{false};
  // The NIC's own record of this client, between attach and detach.
  void* nic_state = nullptr;

 private:
  ClientChannel() = default;
  Settings settings_;
  int segment_fd_ = -1;
  std::byte* base_ = nullptr;
  uint64_t segment_bytes_ = 0;
  QpCell* cells_ = nullptr;
  uint64_t arena_offset_ = 0, arena_bytes_ = 0;  // private copies: the header is shared
};

}  // namespace hostnic
