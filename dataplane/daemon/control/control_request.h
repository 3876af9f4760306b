// SPDX-License-Identifier: BSD-3-Clause
// Requests on the control socket, checked: the only place where their bytes are looked at raw.
// Pure; tests/fuzz/control_fuzzer.cc runs it.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "protocol/expected.h"
#include "protocol/gid.h"
#include "protocol/hostif/capture_message.h"
#include "protocol/hostif/control_message.h"

namespace hostnic {

struct ListDevices {};
struct OpenDevice {
  uint32_t device_index = 0;
  uint32_t pid = 0;
  bool has_mirror = false;
  bool has_pid_fd = false;
  std::string program;  // printable
};
struct RegisterMr {
  RegisterMrRequest fixed{};
  std::vector<MemoryRegion> regions;  // they cover [va, va + length) exactly
};
struct DeregisterMr {
  uint32_t lkey = 0;
};
struct MemoryFilled {
  uint32_t lkey = 0;
};
struct NameHost {
  Gid address{};  // an IPv6 address that a host can have
};
struct RdmaNetlink {
  RdmaNetlinkRequest fixed{};
  std::vector<std::byte> datagram;  // not looked at yet
};
struct TextCommand {
  std::string text;
};

using ControlCall = std::variant<ListDevices, OpenDevice, RegisterMr, DeregisterMr, MemoryChange,
                                 MemoryFilled, NameHost, TextCommand, OpenCmRequest, CaptureRequest,
                                 ExplainRequest, DumpCapturesRequest, RdmaNetlink>;

// The answer that a request gets instead of being served.
struct ControlError {
  int error = 0;        // errno value
  std::string message;  // one line
};

// What a step of a request returns that ends in such an answer.
inline Unexpected<ControlError> control_error(int error, std::string message) {
  return Unexpected(ControlError{error, std::move(message)});
}

// Parses a request; `fd_count` is how many descriptors came along. May be called by any thread.
Expected<ControlCall, ControlError> parse_control_request(std::span<const std::byte> datagram,
                                                          size_t fd_count);

// Makes text from a stranger fit for a log line: what is not printable ASCII becomes '?'.
std::string printable(std::string_view text);

// The reply to a request that failed.
ControlReply error_reply(const ControlError& error);

}  // namespace hostnic
