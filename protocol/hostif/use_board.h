// SPDX-License-Identifier: BSD-3-Clause
// How much a run has used RDMA, in memory that `hostnic lab` and `hostnic run --require-rdma` share
// with the programs that they start. A program that is killed has counted until then.
//
// The verbs library writes, with a driver's lock; whoever has started the programs reads. They may
// write anything: nothing but the numbers that are printed depends on it.
#pragma once

#include <atomic>
#include <cstdint>

namespace hostnic {

inline constexpr uint32_t kUseMagic = 0x45535548;  // "HUSE"
inline constexpr uint32_t kUseVersion = 1;
inline constexpr uint32_t kUseDevices = 4096;
// The variable that names the file of the board to programs.
inline constexpr const char* kUseBoardVariable = "HOSTNIC_USE_BOARD";

// What the queue pairs of a device that a program opened have done with success. Plain numbers,
// which cost one instruction each: a driver's lock is held where they are written, and who reads
// them is another process, which takes each as it finds it.
struct alignas(64) TrafficCounts {
  uint64_t request_messages = 0, request_bytes = 0;  // WRITE, SEND, READ, atomics
  uint64_t receive_messages = 0, receive_bytes = 0;  // receives that were filled
  uint64_t queue_pairs = 0;                          // that were created

  void count_request(uint64_t bytes) {
    ++request_messages;
    request_bytes += bytes;
  }
  void count_receive(uint64_t bytes) {
    ++receive_messages;
    receive_bytes += bytes;
  }
};

struct UseBoard {
  uint32_t magic = kUseMagic;
  uint32_t version = kUseVersion;
  std::atomic<uint32_t> devices{0};  // that were opened; those beyond kUseDevices are not counted
  TrafficCounts device[kUseDevices];
};
static_assert(std::atomic<uint32_t>::is_always_lock_free);

}  // namespace hostnic
