// SPDX-License-Identifier: BSD-3-Clause
// CUDA's driver as programs load it at run time: dlopen, cuGetProcAddress, and numbers of their
// own.
#pragma once

#include <cstddef>
#include <cstdint>

namespace hostnic::gpu_memory {

using CuAddress = unsigned long long;

struct Cuda {
  int (*init)(unsigned int);
  int (*device_get)(int*, int);
  int (*device_get_name)(char*, int, int);
  int (*device_get_attribute)(int*, int, int);
  int (*context_create)(void**, unsigned int, int);
  int (*context_set)(void*);
  int (*alloc)(CuAddress*, size_t);
  int (*free)(CuAddress);
  int (*to_device)(CuAddress, const void*, size_t);
  int (*to_host)(void*, CuAddress, size_t);
  int (*fill)(CuAddress, unsigned char, size_t);
  int (*handle_for_range)(void*, CuAddress, size_t, int, unsigned long long);
  int (*set_attribute)(const void*, int, CuAddress);
};

// Ends the program with a line if there is no such library, or it lacks one.
Cuda load_cuda();

// Ends the program with a line unless a call has succeeded.
void must(int result, const char* call);
[[noreturn]] void die(const char* what);

}  // namespace hostnic::gpu_memory
