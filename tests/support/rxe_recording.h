// SPDX-License-Identifier: BSD-3-Clause
// The recordings of a genuine RoCEv2 peer (tests/data/rxe/): frames, and what the program saw that
// caused them. A is the requester, B the responder.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

#include "protocol/wire/packet.h"
#include "tests/support/pcap_file.h"

namespace hostnic::recording {

std::filesystem::path folder();

struct Side {
  uint32_t qpn = 0;
  uint32_t sq_psn = 0;  // the first PSN of its send queue
  uint64_t va = 0;      // of its buffer, which has kBufferBytes
  uint32_t rkey = 0;
};
inline constexpr uint32_t kBufferBytes = 256 * 1024;

struct Frame {
  pcap::Frame bytes;
  wire::Packet packet;
  bool from_a = false;
};

struct Completion {
  bool at_a = false;
  uint64_t wr_id = 0;
  uint32_t status = 0;  // enum ibv_wc_status
  uint32_t opcode = 0;  // enum ibv_wc_opcode
  uint32_t byte_len = 0;
  uint32_t imm = 0;  // in host order
  uint32_t flags = 0;
};

struct Recording {
  uint32_t path_mtu_bytes = 0;
  Side a, b;
  uint32_t window_rkey = 0;  // of B's memory window; 0: none
  std::vector<Frame> frames;
  std::vector<Completion> completions;
};

// Reads a scenario: "send_sizes", "tcg/burst". Throws std::runtime_error if it can't.
Recording read(const std::string& scenario);

}  // namespace hostnic::recording
