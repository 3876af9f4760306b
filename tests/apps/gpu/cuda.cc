// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/gpu/cuda.h"

#include <dlfcn.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace hostnic::gpu_memory {

void die(const char* what) {
  fprintf(stderr, "hostnic-gpu-memory: %s (errno: %s)\n", what, strerror(errno));
  exit(1);
}

void must(int result, const char* call) {
  if (result == 0) return;
  fprintf(stderr, "hostnic-gpu-memory: %s: CUDA error %d\n", call, result);
  exit(1);
}

Cuda load_cuda() {
  void* library = dlopen("libcuda.so.1", RTLD_LAZY);
  if (library == nullptr) die(dlerror());
  using GetProcAddress = int (*)(const char*, void**, int, uint64_t, int*);
  const auto get = reinterpret_cast<GetProcAddress>(dlsym(library, "cuGetProcAddress_v2"));
  if (get == nullptr) die("no cuGetProcAddress_v2");
  const auto find = [&](auto& function, const char* name) {
    void* found = nullptr;
    must(get(name, &found, 12000, 0, nullptr), name);
    memcpy(&function, &found, sizeof(found));
  };
  Cuda cuda{};
  find(cuda.init, "cuInit");
  find(cuda.device_get, "cuDeviceGet");
  find(cuda.device_get_name, "cuDeviceGetName");
  find(cuda.device_get_attribute, "cuDeviceGetAttribute");
  must(get("cuCtxCreate", reinterpret_cast<void**>(&cuda.context_create), 3020, 0, nullptr),
       "cuCtxCreate");
  find(cuda.context_set, "cuCtxSetCurrent");
  find(cuda.alloc, "cuMemAlloc");
  find(cuda.free, "cuMemFree");
  find(cuda.to_device, "cuMemcpyHtoD");
  find(cuda.to_host, "cuMemcpyDtoH");
  find(cuda.fill, "cuMemsetD8");
  find(cuda.handle_for_range, "cuMemGetHandleForAddressRange");
  find(cuda.set_attribute, "cuPointerSetAttribute");
  void* none = nullptr;
  if (get("cuNoSuchCall", &none, 12000, 0, nullptr) == 0 || none != nullptr)
    die("cuGetProcAddress finds what is not there");
  return cuda;
}

}  // namespace hostnic::gpu_memory
