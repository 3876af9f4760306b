// SPDX-License-Identifier: BSD-3-Clause
// `--gpu` of lab and run: the stand-in for GPUs' memory (docs/gpu-memory.md).
#pragma once

#include <string>

#include "protocol/expected.h"

namespace hostnic::cli {

// Says what is wrong with a value of --gpu; empty: nothing.
std::string check_gpus(const std::string& gpus);

// Has commands that this process starts find the stand-in: it is preloaded, and found by the names
// of CUDA's, HIP's and HSA's libraries. `gpus` goes with what HOSTNIC_GPU says already, and wins.
// An error is one line.
Expected<void, std::string> set_gpu_environment(const std::string& gpus);

}  // namespace hostnic::cli
