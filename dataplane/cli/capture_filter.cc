// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/capture_filter.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

#include "protocol/impair/spec_values.h"

namespace hostnic::cli {
namespace {

constexpr std::array<std::string_view, 4> kConditions = {"qp", "peer", "opcode", "verdict"};
constexpr uint32_t kLargestQpn = 0xffffff;

std::string in_lower_case(std::string_view text) {
  std::string lower(text);
  std::ranges::transform(lower, lower.begin(),
                         [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return lower;
}

std::optional<uint32_t> parse_qpn(std::string_view text) {
  const bool hex = text.starts_with("0x") || text.starts_with("0X");
  if (hex) text.remove_prefix(2);
  uint32_t number = 0;
  const char* const end = text.data() + text.size();
  const auto [at, code] = std::from_chars(text.data(), end, number, hex ? 16 : 10);
  if (code != std::errc() || at != end || number > kLargestQpn) return std::nullopt;
  return number;
}

// Whether any opcode has this in its name.
bool names_opcode(const std::string& lower) {
  for (uint32_t i = 0; i <= UINT8_MAX; ++i) {
    const std::string name = in_lower_case(wire::to_string(static_cast<wire::Opcode>(i)));
    if (name.find(' ') == std::string::npos && name.find(lower) != std::string::npos) return true;
  }
  return false;
}

Expected<void, std::string> add_condition(CaptureFilter& filter, const std::string& kind,
                                          const std::string& value) {
  if (kind == "qp") {
    filter.qpn = parse_qpn(value);
    if (!filter.qpn)
      return Unexpected(
          fmt::format("filter: qp \"{}\" is no queue pair number (such as 0x10011)", value));
  } else if (kind == "peer") {
    filter.peer = impair::parse_ipv4(value);
    if (!filter.peer)
      return Unexpected(fmt::format(
          "filter: peer \"{}\" is no IPv4 address (hosts of IPv6 have one of 240.0.0.0/4 in a "
          "capture)",
          value));
  } else if (kind == "opcode") {
    filter.opcode = in_lower_case(value);
    if (!names_opcode(filter.opcode))
      return Unexpected(
          fmt::format("filter: opcode \"{}\" is in no opcode's name (there are SEND, WRITE, READ, "
                      "READ_RESPONSE, ACK, RC_SEND_FIRST, UD_SEND, ...)",
                      value));
  } else {
    filter.verdict = in_lower_case(value);
  }
  return {};
}

}  // namespace

bool begins_filter(std::string_view word) {
  return std::ranges::find(kConditions, word) != kConditions.end();
}

Expected<CaptureFilter, std::string> parse_capture_filter(std::span<const std::string> words) {
  CaptureFilter filter;
  for (size_t i = 0; i < words.size(); i += 2) {
    if (i != 0 && words[i] == "and") ++i;
    if (i >= words.size() || !begins_filter(words[i]))
      return Unexpected(
          fmt::format("filter: \"{}\" found, where qp N, peer IP, opcode NAME or verdict WORD is "
                      "expected",
                      i < words.size() ? words[i] : "the end"));
    if (i + 1 >= words.size())
      return Unexpected(fmt::format("filter: \"{}\" needs a value behind it", words[i]));
    if (auto added = add_condition(filter, words[i], words[i + 1]); !added)
      return Unexpected(added.error());
  }
  return filter;
}

bool CaptureFilter::wants(const wire::Packet* headers, std::string_view verdict_words) const {
  if (!verdict.empty() && in_lower_case(verdict_words).find(verdict) == std::string::npos)
    return false;
  if (!qpn && !peer && opcode.empty()) return true;
  if (headers == nullptr) return false;
  if (qpn && raw(headers->dest_qpn) != *qpn && raw(headers->src_qpn) != *qpn) return false;
  if (peer && headers->src_ip != *peer && headers->dst_ip != *peer) return false;
  return opcode.empty() ||
         in_lower_case(wire::to_string(headers->opcode)).find(opcode) != std::string::npos;
}

}  // namespace hostnic::cli
