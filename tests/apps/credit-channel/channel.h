// SPDX-License-Identifier: BSD-3-Clause
// One end of an RC connection whose sends wait for credit instead of running into RNR NAKs. An
// ordinary verbs program's part: libibverbs and nothing else. docs/credit-channel.md walks through.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <span>
#include <string>
#include <vector>

#include "tests/apps/credit-channel/credit_ledger.h"
#include "tests/apps/verify/device.h"

namespace hostnic::credit {

// What one end tells the other before they connect.
struct Hello {
  verify::QpAddress qp;
  Depths depths;
  uint64_t exposed_address = 0;  // memory for the other end's READs and WRITEs
  uint32_t exposed_rkey = 0;
};

// What the program does with what a channel finishes. Called from Channel::progress.
class Receiver {
 public:
  virtual void on_message(std::span<const std::byte> message) = 0;
  virtual void on_written(uint32_t slot) = 0;
  virtual void on_read(uint32_t slot, std::span<const std::byte> bytes) = 0;

 protected:
  ~Receiver() = default;
};

struct ChannelTotals {
  uint64_t data_sent = 0, data_received = 0, data_counted = 0;  // counted: acknowledged
  uint64_t acks_sent = 0, acks_received = 0, acks_counted = 0;
  uint64_t acks_for_data = 0;  // of acks_sent: those that enough data made due
  uint64_t waited = 0;         // requests that found no share or credit and were queued
};

// Not thread-safe: threads that share one hold a lock around every call.
class Channel {
 public:
  // What goes wrong without the rules.
  struct Trials {
    bool ignore_credits = false;
    int cq_entries = 0;  // 0: what the shares need
  };
  struct Options {
    Depths depths;
    uint32_t message_bytes = 4096;  // of the longest message
    uint32_t exposed_slots = 0;     // of message_bytes each, for the peer's READs and WRITEs
    Trials trials;
  };

  Channel(const verify::Device& device, const Options& options, Receiver& receiver);
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  Hello hello() const;
  // Posts all receives: after it the peer may send.
  void prepare(const Hello& peer);
  void start();

  // Each posts now, or as soon as its share and the peer's credit allow. Data goes in order.
  void send(std::span<const std::byte> message);
  void write(uint32_t slot, std::span<const std::byte> bytes);
  void read(uint32_t slot, uint32_t length);
  // Polls the CQ and deals with what has finished. Number of completions.
  unsigned progress();

  bool idle() const;  // nothing waits, and the send queue is empty
  size_t waiting_messages() const { return waiting_data_.size(); }
  const CreditLedger& ledger() const { return ledger_; }
  const ChannelTotals& totals() const { return totals_; }
  std::span<const std::byte> exposed(uint32_t slot) const;
  std::string describe() const;

  // A check from outside the protocol, where both ends are in one process: no message is posted
  // unless the peer has posted a receive for it.
  void watch(const Channel& peer) { watched_ = &peer; }

 private:
  struct Transfer {
    uint32_t slot = 0, length = 0;
    std::vector<std::byte> bytes;  // of a WRITE that waits
  };
  // Buffers of one kind, as many as requests of the kind can be outstanding.
  struct Buffers {
    uint32_t first = 0;          // in memory_, in messages
    std::vector<uint32_t> free;  // indices of those that no request uses
    std::vector<Transfer> used_for;
  };

  std::span<std::byte> buffer(uint32_t index);
  uint32_t take_buffer(Share share);
  void post_receive(uint32_t index);
  void post(Share share, uint32_t index, ibv_wr_opcode opcode, uint32_t length, uint32_t slot,
            uint32_t immediate);
  void post_data(std::span<const std::byte> message);
  void post_write(uint32_t slot, std::span<const std::byte> bytes);
  void post_read(uint32_t slot, uint32_t length);
  void post_what_may_go();
  void finish_receive(const ibv_wc& done);
  void finish_send(const ibv_wc& done);
  void check_receive_is_there();

  const verify::Device& device_;
  const Options options_;
  Receiver& receiver_;
  Hello peer_;
  CreditLedger ledger_;
  std::vector<std::byte> memory_, exposed_;
  verify::Owned<ibv_mr> memory_mr_, exposed_mr_;
  verify::Owned<ibv_cq> cq_;
  verify::Owned<ibv_qp> qp_;
  std::array<Buffers, kShares> buffers_;
  std::deque<std::vector<std::byte>> waiting_data_;
  std::deque<Transfer> waiting_writes_, waiting_reads_;
  ChannelTotals totals_;
  const Channel* watched_ = nullptr;
  std::atomic<uint64_t> receives_posted_{0};  // for the end that watches
};

}  // namespace hostnic::credit
