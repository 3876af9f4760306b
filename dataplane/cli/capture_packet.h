// SPDX-License-Identifier: BSD-3-Clause
// A record of a capture, for people: the packet as it would be on a wire, and the NIC's verdict in
// words. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/hostif/capture_ring.h"
#include "protocol/wire/packet.h"

namespace hostnic::cli {

// Turns a captured packet into the frame that a wire would carry, in place: where it has no pad and
// ICRC it gets both, and lengths that count them. Of a packet of which not all was kept only the
// lengths change. `bytes` are the record's. Returns the whole frame's length.
uint32_t make_frame(const CaptureRecord& record, std::vector<std::byte>& bytes);

// The headers of such a frame; nothing where it is no RoCEv2 packet that can be read, or too little
// of it was kept.
std::optional<wire::Packet> headers_in(std::span<const std::byte> frame, uint32_t frame_bytes);

// What the NIC decided about a packet: "duplicate", "held until PSN 17 has come". `counters` are
// the names of the counters that the record's changes are about. `headers` may be null.
std::string verdict_of(const CaptureRecord& record, std::span<const std::string> counters,
                       const wire::Packet* headers);
// The counters that changed, for scripts: "duplicate_request 1, acks_received 1".
std::string changes_in(const CaptureRecord& record, std::span<const std::string> counters);

}  // namespace hostnic::cli
