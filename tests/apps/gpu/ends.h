// SPDX-License-Identifier: BSD-3-Clause
// The two ends of a connection, hnic0 and hnic1, each with memory of a GPU of its own.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

#include "tests/apps/gpu/cuda.h"
#include "tests/support/verbs_pair.h"

namespace hostnic::gpu_memory {

// How device memory is registered: exported as a dma-buf, or by its address.
enum class Way { kDmaBuf, kPeer };

struct Memory {
  CuAddress address = 0;
  size_t bytes = 0;
  ibv_mr* mr = nullptr;
};

struct End {
  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
  Memory memory;
};

constexpr unsigned kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                             IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// All of these end the program with a line if they fail.
End open_end(const char* device);
// Registers a part of an allocation, or all of it.
ibv_mr* register_part(const Cuda& cuda, const End& end, Way way, CuAddress address, size_t bytes);
Memory allocate(const Cuda& cuda, const End& end, Way way, size_t bytes);
void connect(End& near, End& far);

// Posts a signalled request between the ends' memories, from their beginnings. Returns 0 or errno.
int post(const End& near, const End& far, ibv_wr_opcode opcode, size_t bytes);
// The status of the next completion, for which it waits.
ibv_wc_status wait(const End& end);

}  // namespace hostnic::gpu_memory
