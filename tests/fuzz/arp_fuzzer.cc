// SPDX-License-Identifier: BSD-3-Clause
// Any frame is either no ARP of ours or one that, built again, says the same. Reading beyond the
// frame is the sanitizer's to notice.
#include <cstdint>
#include <cstdlib>

#include "protocol/wire/arp.h"
#include "tests/unit/wire/samples.h"

namespace {

using namespace hostnic::wire;

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const samples::ExactCopy frame(std::as_bytes(std::span(data, size)));
  const auto arp = parse_arp(frame.bytes());
  if (!arp) return 0;
  require(size >= kArpFrameBytes && !to_string(*arp).empty());
  std::array<std::byte, kArpFrameBytes> built;
  require(build_arp(*arp, built) == built.size());
  const auto again = parse_arp(built);
  require(again.has_value() && *again == *arp);
  // An answer names the one that asked, and is an answer.
  const Arp reply = make_arp_reply({2, 0, 0, 0, 0, 9}, *arp);
  require(reply.operation == ArpOperation::kReply && reply.target_mac == arp->sender_mac &&
          reply.target_ip == arp->sender_ip && reply.sender_ip == arp->target_ip);
  return 0;
}
