// SPDX-License-Identifier: BSD-3-Clause
// Placement: packets of WRITEs become bytes in memory, through the whole receive path of a NIC,
// ACKs included. The packets were made by the transmit path of another NIC and come again and again
// with new PSNs.
#include <algorithm>
#include <cstring>
#include <vector>

#include "bench/micro/nic_bench.h"
#include "bench/micro/report.h"
#include "dataplane/nic/packet/packet_release.h"
#include "protocol/wire/packet.h"

namespace hostnic::bench {
namespace {

constexpr uint32_t kPacketsPerMessage = 16;
constexpr uint32_t kMessages = 16;
constexpr uint32_t kPackets = kPacketsPerMessage * kMessages;
constexpr uint32_t kTurnPackets = 32;
constexpr uint32_t kMinPathMtuBytes = 256;

// Keeps what is sent.
class CapturePort final : public NullPort {
 public:
  uint16_t transmit(uint16_t, rte_mbuf** sent, uint16_t count) override {
    packets.insert(packets.end(), sent, sent + count);
    return count;
  }
  std::vector<rte_mbuf*> packets;
};

// Gives captured packets back. Declared behind their sender, so that this happens before its pools
// go.
class CaptureRelease {
 public:
  explicit CaptureRelease(CapturePort& port) : port_(port) {}
  ~CaptureRelease() {
    for (rte_mbuf* packet : port_.packets) {
      rte_mbuf_refcnt_set(packet, 1);
      release_packet(packet);
    }
  }
  CaptureRelease(const CaptureRelease&) = delete;
  CaptureRelease& operator=(const CaptureRelease&) = delete;

 private:
  CapturePort& port_;
};

// Gives the same packets again and again, in PSN order or with the first of each message last.
class ReplayPort final : public NullPort {
 public:
  ReplayPort(const std::vector<rte_mbuf*>& packets, bool reordered)
      : packets_(packets), reordered_(reordered) {}
  void offer(uint32_t count) { offered_ += count; }

  uint16_t receive(uint16_t, rte_mbuf** out, uint16_t max) override {
    uint16_t count = 0;
    for (; count < max && offered_ != 0; ++count, --offered_, ++position_)
      out[count] = prepare(reordered_ ? shuffled(position_) : position_);
    return count;
  }

 private:
  static uint64_t shuffled(uint64_t position) {
    const uint64_t message = position / kPacketsPerMessage * kPacketsPerMessage;
    return message + (position + 1) % kPacketsPerMessage;
  }
  // Packet number `psn` of the stream.
  rte_mbuf* prepare(uint64_t psn) {
    rte_mbuf* packet = packets_[psn % packets_.size()];
    wire::store_be24(
        rte_pktmbuf_mtod(packet, std::byte*) + wire::kFlowBytes + wire::bth_offset::kPsn,
        Psn(static_cast<uint32_t>(psn)).value());
    // One reference for the NIC to free, one that stays ours.
    rte_mbuf_refcnt_set(packet, 2);
    return packet;
  }

  const std::vector<rte_mbuf*>& packets_;
  bool reordered_;
  uint32_t offered_ = 0;
  uint64_t position_ = 0;
};

void run(benchmark::State& state, bool reordered) {
  const auto packet_bytes = static_cast<uint32_t>(state.range(0));
  // Packets below the smallest path MTU are messages of their own.
  const bool small = packet_bytes < kMinPathMtuBytes;
  const uint32_t message_packets = small ? 1 : kPacketsPerMessage;
  const uint32_t message_bytes = message_packets * packet_bytes;
  const uint32_t path_mtu_bytes = small ? kMinPathMtuBytes : packet_bytes;
  const Buffer source(size_t{kPackets} * packet_bytes, 1);
  const Buffer target(source.size(), 0);

  CapturePort capture;
  NicBench sender(capture, source, {.index = 0});
  const CaptureRelease release(capture);
  ReplayPort replay(capture.packets, reordered);
  NicBench receiver(replay, target, {.index = 1});
  sender.connect(1, receiver.qpns(), path_mtu_bytes);
  receiver.connect(0, sender.qpns(), path_mtu_bytes);
  for (uint32_t psn = 0; psn < kPackets; psn += message_packets)
    sender.post({{sender.make_write(Psn(psn), uint64_t{psn} * packet_bytes, message_bytes,
                                    target.address(), receiver.key())}});
  for (uint32_t i = 0; i < kPackets && capture.packets.size() < kPackets; ++i) sender.poll();
  if (capture.packets.size() != kPackets) {
    state.SkipWithError("the packets to receive could not be made");
    return;
  }

  uint64_t packets = 0;
  for (auto _ : measured(state)) {
    replay.offer(kTurnPackets);
    receiver.poll();
    packets += kTurnPackets;
  }
  report(state, packets, packets * packet_bytes);
  const size_t filled = std::min<uint64_t>(packets, kPackets) * packet_bytes;
  if (receiver.counter(Counter::bytes_copied_mapped) != packets * packet_bytes ||
      std::memcmp(source.data(), target.data(), filled) != 0)
    state.SkipWithError("other bytes were placed than sent");
}

void placement_in_order(benchmark::State& state) { run(state, false); }
void placement_reordered(benchmark::State& state) { run(state, true); }
HOSTNIC_BENCHMARK(placement_in_order)->Arg(64)->Arg(1024)->Arg(4096);
HOSTNIC_BENCHMARK(placement_reordered)->Arg(64)->Arg(1024)->Arg(4096);

}  // namespace
}  // namespace hostnic::bench
