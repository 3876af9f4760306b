// SPDX-License-Identifier: BSD-3-Clause
// How much a run has used RDMA: what its programs' requests have moved and its receives have got.
#pragma once

#include <cstdint>
#include <string>

#include "protocol/hostif/use_board.h"

namespace hostnic::cli {

// The exit code of a run whose command ended well, but which moved fewer bytes than it had to.
inline constexpr int kTooLittleUse = 97;

struct RdmaUse {
  uint64_t request_messages = 0, request_bytes = 0;
  uint64_t receive_messages = 0, receive_bytes = 0;
  uint64_t queue_pairs = 0;
  uint32_t devices = 0;  // that were opened
  bool is_complete = true;

  // What counts as used. A message between two programs of the run counts once.
  uint64_t bytes() const { return request_bytes > receive_bytes ? request_bytes : receive_bytes; }
  uint64_t messages() const {
    return request_messages > receive_messages ? request_messages : receive_messages;
  }
};

RdmaUse use_of(const UseBoard& board);
// Adds a run's use to the board of the lab that it is in, by its file.
void add_use_to(const char* path, const RdmaUse& use);

// "1.2 GB in 18,412 messages by 4 queue pairs".
std::string text_of(const RdmaUse& use);
// The exit code of a run that was to move so many bytes ("" is none) and ended with `code`. Says in
// one line of `subcommand` what is missing.
int judge_use(const std::string& subcommand, const std::string& required, const RdmaUse& use,
              int code);
}  // namespace hostnic::cli
