// SPDX-License-Identifier: BSD-3-Clause
// The memory of GPUs that are none: a stand-in for the memory calls of CUDA, HIP and HSA, and for
// nothing that computes. Device memory is a memfd for each allocation, mapped twice: where the
// program has its pointer, without access unless HOSTNIC_GPU=loads, and where copies go through.
// The memfd is the dma-buf that is exported. Freed memory is cut off its file, so that whoever has
// registered it, in whatever process, finds nothing there.
//
// All functions are for any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "protocol/hostif/gpu_options.h"

namespace hostnic::gpu {

// CUDA's numbers, which the driver's, the runtime's and HIP's interfaces have in common.
enum class Result : int {
  kSuccess = 0,
  kInvalidValue = 1,
  kOutOfMemory = 2,
  kNotInitialized = 3,
  kNoDevice = 100,
  kInvalidDevice = 101,
  kInvalidContext = 201,
  kOperatingSystem = 304,
  kInvalidHandle = 400,
  kNotFound = 500,
  kAlreadyRegistered = 712,
  kNotRegistered = 713,
  kNotSupported = 801,
};

enum class Kind : uint8_t {
  kDevice,
  kManaged,     // the processor may touch it; no dma-buf
  kHost,        // pinned memory that was allocated
  kRegistered,  // memory of the program's that was pinned
};

// An allocation, or a range that the program has registered.
struct Block {
  uintptr_t address = 0;
  size_t bytes = 0;  // as asked for
  Kind kind = Kind::kDevice;
  int device = 0;
  uint64_t id = 0;  // never used twice in a process
  bool sync_memops = false;
};

// What HOSTNIC_GPU says, read once. Text that can't be understood is told on stderr, and means one
// GPU.
const GpuOptions& options();
// Says once, on stderr, that this is a stand-in.
void say_what_this_is();

// Allocates device, managed or host memory. kInvalidValue: of 0 bytes.
Result allocate(Kind kind, int device, size_t bytes, void** out);
// Frees what allocate() returned of this kind; null is nothing. kInvalidValue: no such allocation.
Result release(Kind kind, void* address);
// Frees device or managed memory.
Result release_device(void* address);

// Notes a range of the program's as pinned, and forgets it.
Result register_host(void* address, size_t bytes);
Result unregister_host(void* address);

// The block in which an address lies.
std::optional<Block> find(const void* address);
Result set_sync_memops(const void* address, bool on);

// Copies between any two kinds of memory. kInvalidValue: a range that begins in device memory goes
// beyond its end.
Result copy(void* to, const void* from, size_t bytes);
// Copies `rows` rows of `row_bytes`, which begin so many bytes apart.
struct Pitched {
  const void* at;
  size_t pitch_bytes;
};
Result copy_rows(const Pitched& to, const Pitched& from, size_t row_bytes, size_t rows);
// Fills with `count` words of 1, 2 or 4 bytes, of which the value's low bytes are taken.
Result fill(void* to, uint32_t value, size_t word_bytes, size_t count);

// A descriptor of the file in which the range lies, which the caller closes, and where it begins
// there. kInvalidValue: the range is not all in one allocation of device memory.
Result export_file(const void* address, size_t bytes, int* fd, uint64_t* offset);
// As a dma-buf of this range alone, whose first byte is the range's: the descriptor's position in
// its file says where that is, for ibv_reg_dmabuf_mr. The range has to be whole pages.
Result export_range(const void* address, size_t bytes, int* fd);

// Bytes of device memory that can still be had, of how many.
void memory_info(int device, size_t* free_bytes, size_t* total_bytes);

}  // namespace hostnic::gpu
