// SPDX-License-Identifier: BSD-3-Clause
// `hostnic capture`: the packets of a running hostnicd's NICs, with what the NICs decided about
// them, as pcapng or as lines of text.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace hostnic::cli {

struct CaptureOptions {
  std::string socket_path;
  std::vector<std::string> hosts;  // NAME=SOCKET of each host; none: the one socket
  std::vector<std::string> words;  // [NIC | all] [FILTER]
  std::string file;                // pcapng; "-": to stdout; empty: text to stdout
  uint64_t count = 0;              // packets after which it ends; 0: none
  std::string seconds;             // after which it ends; empty: never
  std::string last;                // the newest are kept for so long, and written when wanted
  bool dump = false;               // those that keep packets are to write them, and nothing else
  uint32_t snap_bytes = 0;         // 0: whole packets
  std::string buffer = "32M";      // the ring of each NIC
  int ready_fd = -1;               // a byte is written there when packets are captured
};

// Returns the exit code.
int run_capture(const CaptureOptions& options);

}  // namespace hostnic::cli
