// SPDX-License-Identifier: BSD-3-Clause
// The names of packet kinds, and of groups of them, in impairment specs.
#pragma once

#include <array>
#include <string_view>

#include "protocol/impair/packet_info.h"

namespace hostnic::impair {

struct KindName {
  std::string_view name;
  KindMask mask;
};
// Groups of kinds come first, so that a printer which takes the first match writes the shortest
// text.
inline constexpr std::array<KindName, 11> kKindNames{{
    {"any", kAnyKind},
    {"data", kDataKinds},
    {"atomic", mask_of(PacketKind::kAtomicRequest) | mask_of(PacketKind::kAtomicResponse)},
    {"write", mask_of(PacketKind::kWrite)},
    {"send", mask_of(PacketKind::kSend)},
    {"read-request", mask_of(PacketKind::kReadRequest)},
    {"read-response", mask_of(PacketKind::kReadResponse)},
    {"atomic-request", mask_of(PacketKind::kAtomicRequest)},
    {"atomic-response", mask_of(PacketKind::kAtomicResponse)},
    {"ack", mask_of(PacketKind::kAck)},
    {"other", mask_of(PacketKind::kOther)},
}};

}  // namespace hostnic::impair
