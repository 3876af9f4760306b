// SPDX-License-Identifier: BSD-3-Clause
// Where an MRC packet carries its entropy value (EV), by which switches choose its path. Pure
// functions, any thread.
#pragma once

#include <cstdint>

namespace hostnic::wire::mrc {

// How an EV is told to the network. SRv6 puts the path into an outer IPv6 header, and is not here.
enum class EntropyFormat : uint8_t {
  kUdpPort,     // 16 bits: all of it in the UDP source port
  kStructured,  // 32 bits: the upper half in the UDP source port, the lower one in the flow label
};

// The fields of UDP and IPv6 that an EV decides.
struct EntropyFields {
  uint16_t source_port = 0;
  uint16_t flow_label = 0;  // the lower 16 of the label's 20 bits; the upper four are 0
  bool operator==(const EntropyFields&) const = default;
};

// The fields that carry `entropy`. Of kUdpPort the flow label is that of the port, so that switches
// that hash either find it; IPv4 has no label, and loses that half of a structured EV.
constexpr EntropyFields fields_of(uint32_t entropy, EntropyFormat format) {
  const auto low = static_cast<uint16_t>(entropy);
  return format == EntropyFormat::kUdpPort
             ? EntropyFields{low, low}
             : EntropyFields{static_cast<uint16_t>(entropy >> 16), low};
}

// The EV of a packet with these fields: what a SACK or NACK reflects.
constexpr uint32_t entropy_of(const EntropyFields& fields, EntropyFormat format) {
  return format == EntropyFormat::kUdpPort ? uint32_t{fields.source_port}
                                           : uint32_t{fields.source_port} << 16 | fields.flow_label;
}

}  // namespace hostnic::wire::mrc
