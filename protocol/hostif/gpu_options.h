// SPDX-License-Identifier: BSD-3-Clause
// HOSTNIC_GPU: what the stand-in for GPUs' memory (libhostnic-gpu) is to be like, as `hostnic lab
// --gpu` says it: "2", "2,loads", "1,nopeer,memory=8G".
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "protocol/expected.h"

namespace hostnic {

struct GpuOptions {
  static constexpr uint32_t kMaxGpus = 16;

  uint32_t count = 1;
  uint64_t memory_bytes = uint64_t{4} << 30;  // of each; taken of this machine's as it is allocated
  bool loads = false;  // the processor may touch device memory, as through a large BAR
  bool peers = true;   // ibv_reg_mr takes device memory, as with nvidia_peermem
};

// An error is one line that names the word. Empty text means one GPU. Throws std::bad_alloc.
Expected<GpuOptions, std::string> parse_gpu_options(std::string_view text);

}  // namespace hostnic
