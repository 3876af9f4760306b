// SPDX-License-Identifier: BSD-3-Clause
// Both halves of the NIC together, as one lcore runs them: WRITEs of one NIC's client, as
// descriptors in its send ring, cross the virtual wire of hostnicd and become bytes in the memory
// of the other NIC's client; ACKs come back and become reports. READs go the other way, and their
// answers become reports. The benchmark plays the drivers.
#include <fmt/format.h>
#include <rte_errno.h>

#include <array>
#include <cstring>
#include <stdexcept>
#include <vector>

#include "bench/micro/nic_bench.h"
#include "bench/micro/report.h"
#include "dataplane/daemon/ports/wire_port.h"

namespace hostnic::bench {
namespace {

// As many packets as a NIC sends for a client in one turn.
constexpr uint32_t kTurnPackets = 32;
// As perftest: the same bytes again and again, so that copies stay in the L2 cache.
constexpr size_t kMemoryBytes = 1 << 17;
constexpr uint32_t kMaxTurns = 100;

enum class Packets : uint8_t { kSingle, kWithIcrc, kBundles, kRoce };
enum class Direction : uint8_t { kWrites, kReads };

class BothNics {
 public:
  explicit BothNics(Packets packets, uint32_t qps = 1, Direction direction = Direction::kWrites)
      : source_(kMemoryBytes, direction == Direction::kWrites ? 1 : 0),
        target_(kMemoryBytes, direction == Direction::kWrites ? 0 : 1),
        pools_(make_pools()),
        wire_(make_wire(pools_.get())),
        sender_(wire_->port(0), source_, settings(0, packets, qps)),
        receiver_(wire_->port(1), target_, settings(1, packets, qps)) {
    sender_.connect(1, receiver_.qpns(), kMtuBytes);
    receiver_.connect(0, sender_.qpns(), kMtuBytes);
  }
  // The wire holds nothing that refers to a NIC's memory when it goes.
  ~BothNics() { settle(); }
  BothNics(const BothNics&) = delete;
  BothNics& operator=(const BothNics&) = delete;

  SendDescriptor make_write(uint64_t at, uint32_t length_bytes) const {
    return sender_.make_write(Psn(0), at, length_bytes, target_.address(), receiver_.key());
  }
  SendDescriptor make_read(uint32_t length_bytes) {
    return sender_.make_read(length_bytes, target_.address(), receiver_.key());
  }
  NicBench& reader() { return sender_; }
  // One turn of an lcore with both NICs. False: the send ring is full.
  bool turn(std::span<const SendDescriptor> requests) {
    if (!sender_.post(requests)) return false;
    sender_.poll();
    sender_.take_reports();
    receiver_.poll();
    return true;
  }
  std::span<const uint32_t> sender_qpns() const { return sender_.qpns(); }
  // Of data, and of ACKs.
  uint64_t bundles() const {
    return receiver_.counter(Counter::rx_bundles) + sender_.counter(Counter::rx_bundles);
  }
  // Until everything has been acknowledged, which each QP sent up to its `ends`; whether that is
  // so, and the bytes are there.
  bool finish(std::span<const Psn> ends, uint64_t bytes) {
    settle();
    bool all = true;
    for (uint32_t qp = 0; qp < ends.size(); ++qp) all = all && sender_.acknowledged(qp) == ends[qp];
    return all && receiver_.counter(Counter::bytes_copied_mapped) == bytes && alike(bytes);
  }
  // The same of READs: until everything has been answered.
  bool finish_reads(Psn end, uint64_t bytes) {
    settle();
    return sender_.answered() == end && sender_.counter(Counter::bytes_copied_mapped) == bytes &&
           alike(bytes);
  }

 private:
  // Declared before all that takes packets from them.
  class Pools {
   public:
    explicit Pools(const MbufPools& pools) : pools_(pools) {}
    ~Pools() { free_mbuf_pools(pools_); }
    Pools(const Pools&) = delete;
    Pools& operator=(const Pools&) = delete;
    const MbufPools& get() const { return pools_; }

   private:
    MbufPools pools_;
  };
  // net_ring keeps the names of ports that are closed.
  static std::string unused_name(const char* what) {
    static uint32_t number = 0;
    return fmt::format("both{}{}", what, number++);
  }
  static Pools make_pools() {
    const MbufPools pools =
        create_mbuf_pools(unused_name("pool"), kMtuBytes, kPoolScale, SOCKET_ID_ANY);
    if (pools.header == nullptr)
      throw std::runtime_error(fmt::format("packet pools: {}", rte_strerror(rte_errno)));
    return Pools(pools);
  }
  static std::unique_ptr<VirtualWire> make_wire(const MbufPools& pools) {
    std::vector<WireMember> members;
    for (uint32_t i = 0; i < 2; ++i)
      members.push_back({.nic_name = unused_name("nic"), .ip = address_of(i)});
    auto wire = VirtualWire::create(std::move(members), pools.header);
    if (!wire) throw std::runtime_error(wire.error());
    return std::move(*wire);
  }
  NicBenchSettings settings(uint32_t index, Packets packets, uint32_t qps) const {
    return {.index = index,
            .qps = qps,
            .with_icrc = packets == Packets::kWithIcrc,
            .segmentation = packets == Packets::kBundles,
            .transport = packets == Packets::kRoce ? Transport::kRoce : Transport::kHostnic,
            .pools = &pools_.get()};
  }
  bool alike(uint64_t bytes) const {
    return std::memcmp(source_.data(), target_.data(), std::min<uint64_t>(bytes, kMemoryBytes)) ==
           0;
  }
  void settle() {
    for (uint32_t turns = 0; turns < kMaxTurns; ++turns) turn({});
  }

  Buffer source_, target_;
  Pools pools_;
  std::unique_ptr<VirtualWire> wire_;
  NicBench sender_, receiver_;
};

// What was measured, and whether it was what it should be.
void finish(benchmark::State& state, BothNics& nics, Packets packets, std::span<const Psn> psns,
            uint64_t bytes_per_turn, uint64_t messages_per_turn) {
  const uint64_t bytes = state.iterations() * bytes_per_turn;
  report(state, state.iterations() * messages_per_turn, bytes);
  if (!nics.finish(psns, bytes))
    state.SkipWithError("other bytes were placed than sent, or not acknowledged");
  if ((nics.bundles() != 0) != (packets == Packets::kBundles))
    state.SkipWithError("segmentation offload is on where it should be off, or off");
}

void run(benchmark::State& state, Packets packets) {
  const auto message_bytes = static_cast<uint32_t>(state.range(0));
  const uint32_t packets_per_message = (message_bytes + kMtuBytes - 1) / kMtuBytes;
  BothNics nics(packets);
  std::vector<SendDescriptor> writes;
  for (uint32_t i = 0; i < kTurnPackets; i += packets_per_message)
    writes.push_back(nics.make_write(0, message_bytes));
  // As the driver does (Qp::wants_ack()).
  for (SendDescriptor& d : writes) d.flags &= ~kSendAckRequest;
  writes.back().flags |= kSendAckRequest;

  const uint64_t source = writes[0].sge0.addr, target = writes[0].va;
  std::array<Psn, 1> psn;
  uint64_t at = 0;
  for (auto _ : measured(state)) {
    for (SendDescriptor& d : writes) {
      d.psn = psn[0].value();
      d.sge0.addr = source + at;
      d.va = target + at;
      psn[0] += packets_per_message;
      at = (at + message_bytes) % kMemoryBytes;
    }
    if (!nics.turn(writes)) {
      state.SkipWithError("the send ring is full");
      return;
    }
  }
  finish(state, nics, packets, psn, writes.size() * message_bytes, writes.size());
}

// One message of each queue pair in turn, as of a program with many connections: no two packets
// that follow each other have anything in common.
void run_qps(benchmark::State& state, Packets packets) {
  const auto message_bytes = static_cast<uint32_t>(state.range(0));
  const auto qps = static_cast<uint32_t>(state.range(1));
  BothNics nics(packets, qps);
  std::vector<SendDescriptor> writes(kTurnPackets, nics.make_write(0, message_bytes));
  const uint64_t source = writes[0].sge0.addr, target = writes[0].va;
  std::vector<Psn> psns(qps);
  uint64_t at = 0;
  uint32_t qp = 0;
  for (auto _ : measured(state)) {
    for (SendDescriptor& d : writes) {
      d.qpn = nics.sender_qpns()[qp];
      d.psn = psns[qp].value();
      psns[qp] += 1;
      qp = qp + 1 == qps ? 0 : qp + 1;
      d.sge0.addr = source + at;
      d.va = target + at;
      at = (at + message_bytes) % kMemoryBytes;
    }
    if (!nics.turn(writes)) {
      state.SkipWithError("the send ring is full");
      return;
    }
  }
  finish(state, nics, packets, psns, writes.size() * message_bytes, writes.size());
}
void nic_both_qps(benchmark::State& state) { run_qps(state, Packets::kSingle); }
HOSTNIC_BENCHMARK(nic_both_qps)->Args({64, 64})->Args({4096, 10'000});
// With segmentation offload: of ACKs.
void nic_both_qps_bundles(benchmark::State& state) { run_qps(state, Packets::kBundles); }
HOSTNIC_BENCHMARK(nic_both_qps_bundles)->Args({64, 64})->Args({4096, 10'000});

// With segmentation offload; as many READs a turn as one answers.
void nic_both_read_bundles(benchmark::State& state) {
  constexpr uint32_t kTurnReads = kOutstandingReads / 2;
  const auto message_bytes = static_cast<uint32_t>(state.range(0));
  const uint32_t answers_per_message = (message_bytes + kMtuBytes - 1) / kMtuBytes;
  BothNics nics(Packets::kBundles, 1, Direction::kReads);
  std::array<SendDescriptor, kTurnReads> reads;
  reads.fill(nics.make_read(message_bytes));
  const uint64_t target = reads[0].va;
  uint32_t number = 0;
  Psn psn, answer;
  uint64_t at = 0;
  for (auto _ : measured(state)) {
    for (SendDescriptor& d : reads) {
      nics.reader().number_read(d, number++, psn, answer, at);
      d.va = target + at;
      psn += 1;
      answer += answers_per_message;
      at = (at + message_bytes) % kMemoryBytes;
    }
    if (!nics.turn(reads)) {
      state.SkipWithError("the send ring is full");
      return;
    }
  }
  const uint64_t bytes = state.iterations() * kTurnReads * message_bytes;
  report(state, state.iterations() * kTurnReads, bytes);
  if (!nics.finish_reads(answer, bytes))
    state.SkipWithError("other bytes were placed than read, or not answered");
  if (nics.bundles() == 0) state.SkipWithError("segmentation offload is off");
}
HOSTNIC_BENCHMARK(nic_both_read_bundles)->Arg(64)->Arg(65536);

// As between the NICs of one hostnicd: payload is copied once, from memory to memory.
void nic_both(benchmark::State& state) { run(state, Packets::kSingle); }
HOSTNIC_BENCHMARK(nic_both)->Arg(64)->Arg(4096)->Arg(65536);
// With segmentation offload.
void nic_both_bundles(benchmark::State& state) { run(state, Packets::kBundles); }
HOSTNIC_BENCHMARK(nic_both_bundles)->Arg(65536);
// Packets as on Ethernet: payload copied into them, ICRC made and checked.
void nic_both_icrc(benchmark::State& state) { run(state, Packets::kWithIcrc); }
HOSTNIC_BENCHMARK(nic_both_icrc)->Arg(64)->Arg(4096)->Arg(65536);
// By the standard's transport.
void nic_both_roce(benchmark::State& state) { run(state, Packets::kRoce); }
HOSTNIC_BENCHMARK(nic_both_roce)->Arg(64)->Arg(4096)->Arg(65536);

}  // namespace
}  // namespace hostnic::bench
