// SPDX-License-Identifier: BSD-3-Clause
// The command line of hostnic-verify.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/expected.h"

namespace hostnic::verify {

enum class OpKind : uint8_t {
  kWrite,
  kWriteImm,
  kSend,
  kSendImm,
  kRead,
  kFetchAdd,
  kCompareSwap,
};
inline constexpr unsigned kOpKinds = 7;
std::string_view to_string(OpKind kind);

enum class MemoryKind : uint8_t { kMalloc, kMmap, kShm, kMemfd, kSysv, kStackUnaligned, kHuge };
std::string_view to_string(MemoryKind kind);

// What the plan is derived from: both sides must have the same.
struct Workload {
  uint64_t seed = 1;
  uint64_t max_bytes = 8u << 20;
  uint64_t mr_bytes = 0;  // one MR of that size for everything; 0: an MR per queue and use
  uint32_t rounds = 8;
  uint32_t qps = 2;
  uint32_t ops = 24;  // per QP, direction and round
  uint32_t mix = (1u << kOpKinds) - 1;
  uint32_t mtu = 0;  // bytes; 0: the port's active MTU
  uint32_t depth = 64;
  uint32_t check_errors = 0;
  uint32_t fences = 1;  // 0: none, READs only of what nothing writes, and one at the end

  bool operator==(const Workload&) const = default;
};

struct Options {
  enum class Mode { kListen, kConnect, kBoth } mode = Mode::kBoth;
  std::string host, port;
  std::string device, peer_device;  // empty: the first one
  int gid_index = -1;               // -1: the first IPv4-mapped RoCEv2 GID, else 0
  bool events = false;
  bool verbose = false;
  std::vector<MemoryKind> memory{MemoryKind::kMalloc};
  uint32_t timeout_seconds = 60;
  uint8_t ack_timeout = 14;  // ibv_qp_attr.timeout
  Workload workload;
};

// The reason, in one line, for anything that can't be used. `help` set: print usage() and leave.
struct ParsedOptions {
  Options options;
  bool help = false;
};
Expected<ParsedOptions, std::string> parse_options(int argc, char** argv);
std::string usage();

}  // namespace hostnic::verify
