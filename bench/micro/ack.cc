// SPDX-License-Identifier: BSD-3-Clause
// An ACK on the wire: its headers and bitmap built, and parsed. `range` is the bitmap's words.
#include <array>
#include <span>

#include "bench/micro/report.h"
#include "protocol/wire/packet.h"

namespace hostnic::bench {
namespace {

constexpr wire::MacAddress kOurMac = {2, 0, 0, 0, 0, 1}, kTheirMac = {2, 0, 0, 0, 0, 2};
constexpr uint16_t kSourcePort = 0xd00d;
constexpr uint64_t kHoles = 0x5555555555555555;

class Ack {
 public:
  explicit Ack(benchmark::State& state) : words_(static_cast<size_t>(state.range(0))) {
    headers_.opcode = wire::Opcode::kAck;
    headers_.dest_qpn = Qpn{0x10002};
    headers_.src_qpn = Qpn{0x10003};
    headers_.aeth.kind = wire::AckKind::kAck;
    headers_.sack.word_count = static_cast<uint8_t>(words_);
    bitmap_.fill(kHoles);
  }
  // Everything before `base` has arrived. The bytes of the packet.
  std::span<const std::byte> build(Psn base) {
    headers_.psn = headers_.sack.base = base;
    headers_.sack.highest_acceptable = base + 1023;
    return {frame_.data(), wire::build(flow_, headers_, false, {bitmap_.data(), words_}, {frame_})};
  }
  bool says(const wire::Packet& parsed, Psn base) const {
    if (parsed.sack.base != base || parsed.sack.word_count != words_) return false;
    for (size_t i = 0; i < words_; ++i)
      if (wire::sack_word(parsed, i) != kHoles) return false;
    return true;
  }

 private:
  size_t words_;
  wire::Packet headers_;
  wire::FlowTemplate flow_ = wire::make_flow_template(kOurMac, kTheirMac, Ipv4Address{0x0a000001},
                                                      Ipv4Address{0x0a000002}, kSourcePort, 0);
  std::array<uint64_t, wire::kMaxSackWords> bitmap_{};
  std::array<std::byte, wire::kMaxHeaderBytes> frame_{};
};

void ack_build(benchmark::State& state) {
  Ack ack(state);
  Psn base;
  for (auto _ : measured(state)) {
    base += 1;
    benchmark::DoNotOptimize(ack.build(base).data());
  }
  report(state, state.iterations());
  const auto frame = ack.build(base);
  wire::Packet parsed;
  if (wire::parse(frame, frame.size(), false, parsed) != wire::ParseError::kNone ||
      !ack.says(parsed, base))
    state.SkipWithError("the ACK says something else");
}
HOSTNIC_BENCHMARK(ack_build)->Arg(0)->Arg(1)->Arg(16);

void ack_parse(benchmark::State& state) {
  Ack ack(state);
  const Psn base{17};
  const auto frame = ack.build(base);
  wire::Packet parsed;
  for (auto _ : measured(state)) {
    if (wire::parse(frame, frame.size(), false, parsed) != wire::ParseError::kNone) {
      state.SkipWithError("the ACK is refused");
      return;
    }
    benchmark::DoNotOptimize(parsed);
  }
  report(state, state.iterations());
  if (!ack.says(parsed, base)) state.SkipWithError("the ACK says something else");
}
HOSTNIC_BENCHMARK(ack_parse)->Arg(0)->Arg(1)->Arg(16);

}  // namespace
}  // namespace hostnic::bench
