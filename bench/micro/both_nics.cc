// Both halves of the NIC together, as one lcore runs them: WRITEs of one NIC's client, as
// descriptors in its send ring, cross the virtual wire of hostnicd and become bytes in the memory
// of the other NIC's client; ACKs come back and become reports. The benchmark plays the drivers.
#include <fmt/format.h>
#include <rte_errno.h>

#include <cstring>
#include <stdexcept>
#include <vector>

#include "bench/micro/nic_bench.h"
#include "bench/micro/report.h"
#include "dataplane/daemon/wire_port.h"

namespace hostnic::bench {
namespace {

// As many packets as a NIC sends for a client in one turn.
constexpr uint32_t kTurnPackets = 32;
// As perftest: the same bytes again and again, so that copies stay in the L2 cache.
constexpr size_t kMemoryBytes = 1 << 17;
constexpr uint32_t kMaxTurns = 100;

enum class Packets : uint8_t { kSingle, kSealed, kUnits };

class BothNics {
 public:
  explicit BothNics(Packets packets)
      : pools_(make_pools()),
        wire_(make_wire(pools_.get())),
        sender_(wire_->port(0), source_, settings(0, packets)),
        receiver_(wire_->port(1), target_, settings(1, packets)) {
    sender_.connect(1, receiver_.qpn(), kMtuBytes);
    receiver_.connect(0, sender_.qpn(), kMtuBytes);
  }
  // The wire holds nothing that refers to a NIC's memory when it goes.
  ~BothNics() { settle(); }
  BothNics(const BothNics&) = delete;
  BothNics& operator=(const BothNics&) = delete;

  SendDescriptor make_write(uint64_t at, uint32_t length_bytes) const {
    return sender_.make_write(Psn(0), at, length_bytes, target_.address(), receiver_.key());
  }
  // One turn of an lcore with both NICs. False: the send ring is full.
  bool turn(std::span<const SendDescriptor> writes) {
    if (!sender_.post(writes)) return false;
    sender_.poll();
    sender_.take_reports();
    receiver_.poll();
    return true;
  }
  uint64_t units() const { return receiver_.counter(Counter::rx_units); }
  // Until everything has been acknowledged; whether that is so, and the bytes are there.
  bool finish(Psn end, uint64_t bytes) {
    settle();
    return sender_.acknowledged() == end &&
           receiver_.counter(Counter::bytes_copied_mapped) == bytes &&
           std::memcmp(source_.data(), target_.data(), std::min<uint64_t>(bytes, kMemoryBytes)) ==
               0;
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
  NicBenchSettings settings(uint32_t index, Packets packets) const {
    return {.index = index,
            .sealed = packets == Packets::kSealed,
            .segmentation = packets == Packets::kUnits,
            .pools = &pools_.get()};
  }
  void settle() {
    for (uint32_t turns = 0; turns < kMaxTurns; ++turns) turn({});
  }

  Buffer source_{kMemoryBytes, 1}, target_{kMemoryBytes, 0};
  Pools pools_;
  std::unique_ptr<VirtualWire> wire_;
  NicBench sender_, receiver_;
};

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
  Psn psn;
  uint64_t at = 0;
  for (auto _ : measured(state)) {
    for (SendDescriptor& d : writes) {
      d.psn = psn.value();
      d.sge0.addr = source + at;
      d.va = target + at;
      psn += packets_per_message;
      at = (at + message_bytes) % kMemoryBytes;
    }
    if (!nics.turn(writes)) {
      state.SkipWithError("the send ring is full");
      return;
    }
  }
  const uint64_t messages = state.iterations() * writes.size();
  report(state, messages, messages * message_bytes);
  if (!nics.finish(psn, messages * message_bytes))
    state.SkipWithError("other bytes were placed than sent, or not acknowledged");
  if ((nics.units() != 0) != (packets == Packets::kUnits))
    state.SkipWithError("segmentation offload is on where it should be off, or off");
}

// As between the NICs of one hostnicd: payload is copied once, from memory to memory.
void nic_both(benchmark::State& state) { run(state, Packets::kSingle); }
HOSTNIC_BENCHMARK(nic_both)->Arg(64)->Arg(4096)->Arg(65536);
// With segmentation offload.
void nic_both_units(benchmark::State& state) { run(state, Packets::kUnits); }
HOSTNIC_BENCHMARK(nic_both_units)->Arg(65536);
// Packets as on Ethernet: payload copied into them, ICRC made and checked.
void nic_both_icrc(benchmark::State& state) { run(state, Packets::kSealed); }
HOSTNIC_BENCHMARK(nic_both_icrc)->Arg(64)->Arg(4096)->Arg(65536);

}  // namespace
}  // namespace hostnic::bench
