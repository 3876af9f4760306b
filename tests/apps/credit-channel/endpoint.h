// SPDX-License-Identifier: BSD-3-Clause
// What the program does over one end of a channel: several threads send messages, and write into
// the peer's memory and read it back. Every message and every byte of memory is compared.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <stop_token>
#include <vector>

#include "tests/apps/credit-channel/channel.h"

namespace hostnic::credit {

struct Load {
  uint32_t senders = 1;      // threads at each end
  uint32_t messages = 1000;  // from each of them
  uint32_t transfers = 200;  // WRITEs read back, by each end
  uint32_t message_bytes = 4096;
  uint32_t slow_receiver_us = 0;  // what an end takes for a message
  uint64_t seed = 1;
};

class Endpoint final : private Receiver {
 public:
  // `stream` names what this end sends, `peer_stream` what it expects.
  Endpoint(const verify::Device& device, const Depths& own, const Depths& peer, const Load& load,
           uint64_t stream, uint64_t peer_stream, const Channel::Trials& trials);

  Channel& channel() { return channel_; }
  std::mutex& mutex() { return mutex_; }
  // The life of one thread: sends its messages, and polls until `stop`. Throws verify::Failure.
  void run(uint32_t sender, const std::stop_token& stop);

  // The rest: with the mutex held, by the thread that decides when all is done.
  bool complete() const;
  uint64_t steps() const { return steps_.load(std::memory_order_relaxed); }
  uint64_t messages_verified() const { return messages_verified_; }
  uint64_t transfers_verified() const { return transfers_verified_; }
  // What the peer has written last is in this end's memory.
  void check_exposed(const Endpoint& peer) const;

 private:
  // A slot of the peer's memory: which WRITE is, or was last, in it, if any.
  struct Slot {
    uint64_t transfer = 0;
    bool used = false;
  };

  void on_message(std::span<const std::byte> message) override;
  void on_written(uint32_t slot) override;
  void on_read(uint32_t slot, std::span<const std::byte> bytes) override;
  bool send_next(uint32_t sender);
  bool start_transfer();
  uint32_t length_of(uint64_t stream, uint64_t number) const;
  void fill(uint64_t stream, uint64_t number, std::span<std::byte> bytes) const;
  void compare(uint64_t stream, uint64_t number, std::span<const std::byte> bytes,
               const char* what) const;

  const Load load_;
  const uint64_t stream_, peer_stream_;
  std::mutex mutex_;  // for all below
  Channel channel_;
  std::vector<uint32_t> sent_, received_;  // by sender
  std::vector<Slot> slots_;
  std::vector<uint32_t> free_slots_;
  std::vector<std::byte> scratch_;
  uint64_t messages_verified_ = 0, transfers_begun_ = 0, transfers_verified_ = 0;
  std::atomic<uint64_t> steps_{0};
};

}  // namespace hostnic::credit
