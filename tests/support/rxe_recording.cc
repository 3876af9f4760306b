// SPDX-License-Identifier: BSD-3-Clause
#include "tests/support/rxe_recording.h"

#include <fstream>
#include <optional>
#include <stdexcept>
#include <string_view>

namespace hostnic::recording {
namespace {

// The value of a key in a line's flat JSON object, a number or a string; nothing if it has no such
// key.
std::optional<std::string> value_of(std::string_view line, std::string_view key) {
  const std::string name = '"' + std::string(key) + "\":";
  const size_t found = line.find(name);
  if (found == std::string_view::npos) return std::nullopt;
  std::string_view rest = line.substr(found + name.size());
  if (rest.starts_with('"')) return std::string(rest.substr(1, rest.find('"', 1) - 1));
  return std::string(rest.substr(0, rest.find_first_of(",}")));
}

uint64_t number(std::string_view line, std::string_view key) {
  const auto text = value_of(line, key);
  if (!text) throw std::runtime_error("no " + std::string(key) + " in " + std::string(line));
  return std::stoull(*text, nullptr, 0);
}

Side side(std::string_view line, const std::string& name) {
  return {static_cast<uint32_t>(number(line, name + "_qpn")),
          static_cast<uint32_t>(number(line, name + "_sq_psn")), number(line, name + "_va"),
          static_cast<uint32_t>(number(line, name + "_rkey"))};
}

Completion completion(std::string_view line) {
  return {value_of(line, "cqe") == "A",
          number(line, "wr_id"),
          static_cast<uint32_t>(number(line, "status_n")),
          static_cast<uint32_t>(number(line, "opcode")),
          static_cast<uint32_t>(number(line, "byte_len")),
          static_cast<uint32_t>(number(line, "imm")),
          static_cast<uint32_t>(number(line, "wc_flags"))};
}

constexpr Ipv4Address kAddressOfA{0x0a090001};

Frame frame_of(pcap::Frame bytes) {
  Frame frame{.bytes = std::move(bytes), .packet = {}};
  if (wire::parse_bth(frame.bytes, frame.bytes.size(), true, frame.packet) !=
          wire::ParseError::kNone ||
      wire::parse_extensions(wire::Dialect::kRocev2, frame.bytes, true, frame.packet) !=
          wire::ParseError::kNone)
    throw std::runtime_error("a frame that is not RoCEv2");
  frame.from_a = frame.packet.src_ip == kAddressOfA;
  return frame;
}

}  // namespace

std::filesystem::path folder() {
  return std::filesystem::path(HOSTNIC_SOURCE_DIR) / "tests/data/rxe";
}

Recording read(const std::string& scenario) {
  const std::filesystem::path part(scenario);
  const auto at = folder() / part.parent_path();
  const std::string name = part.filename().string() + ".mtu1024";
  Recording recording;
  for (auto& bytes : pcap::read_frames((at / ("rxe_" + name + ".pcap")).string()))
    recording.frames.push_back(frame_of(std::move(bytes)));
  std::ifstream file(at / (name + ".json"));
  std::string line;
  if (!std::getline(file, line)) throw std::runtime_error("no recording " + scenario);
  recording.path_mtu_bytes = static_cast<uint32_t>(number(line, "mtu"));
  recording.a = side(line, "A");
  recording.b = side(line, "B");
  while (std::getline(file, line)) {
    if (value_of(line, "cqe")) recording.completions.push_back(completion(line));
    if (value_of(line, "mw_rkey"))
      recording.window_rkey = static_cast<uint32_t>(number(line, "mw_rkey"));
  }
  return recording;
}

}  // namespace hostnic::recording
