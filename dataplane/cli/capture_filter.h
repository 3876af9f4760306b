// SPDX-License-Identifier: BSD-3-Clause
// Which packets of a capture are wanted:
//
//   filter    = condition { ["and"] condition }
//   condition = "qp" N | "peer" IPV4 | "opcode" NAME | "verdict" WORD
//
// A queue pair is the packet's destination or source, as far as the packet names that; a peer
// likewise. An opcode is a part of its name ("SEND", "READ_RESPONSE"), a verdict a part of its
// words or of the names of the counters behind them, in any case. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "protocol/expected.h"
#include "protocol/types.h"
#include "protocol/wire/packet.h"

namespace hostnic::cli {

struct CaptureFilter {
  std::optional<uint32_t> qpn;
  std::optional<Ipv4Address> peer;
  std::string opcode, verdict;  // in lower case; empty: any

  // Whether the packet is wanted; `headers` is null where it has none that can be read.
  bool wants(const wire::Packet* headers, std::string_view verdict_words) const;
};

// Whether a filter begins with this word.
bool begins_filter(std::string_view word);
// Parses a filter; no words: all packets. An error is one line that names the word and the remedy.
Expected<CaptureFilter, std::string> parse_capture_filter(std::span<const std::string> words);

}  // namespace hostnic::cli
