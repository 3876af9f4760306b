// SPDX-License-Identifier: BSD-3-Clause
// The runtime's interface of CUDA (libcudart.so) and that of HIP (libamdhip64.so): the same calls
// with other names.
#include <cstddef>
#include <cstring>

#include "verbs-shim/gpu/contexts.h"
#include "verbs-shim/gpu/pointers.h"

using namespace hostnic::gpu;

namespace {

// What each thread was told last, until it asks.
thread_local Status last_error = 0;

Status told(Result result) {
  if (result != Result::kSuccess) last_error = status(result);
  return status(result);
}

Status allocate_here(Kind kind, size_t bytes, void** out) {
  if (out != nullptr && bytes == 0) {  // no error, by these interfaces
    *out = nullptr;
    return 0;
  }
  return told(allocate(kind, runtime_device(), bytes, out));
}

Status set_device(int device) {
  initialize();
  if (!is_device(device)) return told(Result::kInvalidDevice);
  set_current_context(primary_context(device));
  return 0;
}

Status count_devices(int* count) {
  initialize();
  if (count == nullptr) return told(Result::kInvalidValue);
  *count = static_cast<int>(options().count);
  return 0;
}

Status put(int* out, int value) {
  if (out == nullptr) return told(Result::kInvalidValue);
  *out = value;
  return 0;
}

// Kinds of memory as both have them.
int type_of(Kind kind) {
  enum : int { kHost = 1, kDevice = 2, kManaged = 3 };
  if (kind == Kind::kDevice) return kDevice;
  return kind == Kind::kManaged ? kManaged : kHost;
}

// The beginning of both structures that say what a pointer is.
struct PointerFacts {
  int type;
  int device;
  const void* device_pointer;
  const void* host_pointer;
};

PointerFacts facts_of(const void* asked) {
  const auto block = find(asked);
  if (!block) return {0, -2, nullptr, asked};
  const bool on_host = block->kind != Kind::kDevice;
  return {type_of(block->kind), block->device, asked, on_host ? asked : nullptr};
}

// The beginning of the structures that say what a device is, up to the last member of which all
// versions since CUDA 10 and ROCm 6 have the place. The rest is the caller's as it was.
struct DeviceFacts {
  char name[256];
  char uuid[16];
  char luid[8];
  unsigned int luid_mask;
  size_t memory_bytes;
};
static_assert(offsetof(DeviceFacts, memory_bytes) == 288);

Status describe_device(DeviceFacts* facts, int device) {
  if (facts == nullptr) return told(Result::kInvalidValue);
  if (!is_device(device)) return told(Result::kInvalidDevice);
  memset(facts, 0, sizeof(*facts));
  write_name(device, facts->name, sizeof(facts->name));
  write_uuid(device, facts->uuid);
  memory_info(device, nullptr, &facts->memory_bytes);
  return 0;
}

const char* text_of(Status error) {
  switch (static_cast<Result>(error)) {
    case Result::kSuccess:
      return "no error";
    case Result::kInvalidValue:
      return "invalid argument";
    case Result::kOutOfMemory:
      return "out of memory";
    case Result::kInvalidDevice:
      return "invalid device ordinal";
    case Result::kNotSupported:
      return "not supported: hostnic's stand-in has a GPU's memory and nothing that computes";
    default:
      return "unspecified error of hostnic's stand-in for GPUs";
  }
}

Status free_block(void* memory) { return told(release_device(memory)); }
Status copy_bytes(void* to, const void* from, size_t bytes) {
  runtime_device();
  return told(copy(to, from, bytes));
}

}  // namespace

#define RUNTIME_OF(prefix)                                                                         \
  HOSTNIC_GPU_CALL Status prefix##GetDeviceCount(int* count) { return count_devices(count); }      \
  HOSTNIC_GPU_CALL Status prefix##SetDevice(int device) { return set_device(device); }             \
  HOSTNIC_GPU_CALL Status prefix##GetDevice(int* device) { return put(device, runtime_device()); } \
  HOSTNIC_GPU_CALL Status prefix##DeviceSynchronize() { return 0; }                                \
  HOSTNIC_GPU_CALL Status prefix##DeviceReset() { return 0; }                                      \
  HOSTNIC_GPU_CALL Status prefix##SetDeviceFlags(unsigned int) { return 0; }                       \
  HOSTNIC_GPU_CALL Status prefix##DeviceEnablePeerAccess(int, unsigned int) { return 0; }          \
  HOSTNIC_GPU_CALL Status prefix##DeviceCanAccessPeer(int* can, int device, int peer) {            \
    return put(can, is_device(device) && is_device(peer) && device != peer ? 1 : 0);               \
  }                                                                                                \
  HOSTNIC_GPU_CALL Status prefix##DeviceGetPCIBusId(char* text, int bytes, int device) {           \
    if (text == nullptr || bytes <= 0) return told(Result::kInvalidValue);                         \
    if (!is_device(device)) return told(Result::kInvalidDevice);                                   \
    write_bus_id(device, text, static_cast<size_t>(bytes));                                        \
    return 0;                                                                                      \
  }                                                                                                \
  HOSTNIC_GPU_CALL Status prefix##DeviceGetByPCIBusId(int* device, const char* text) {             \
    const int found = text == nullptr ? -1 : device_of_bus_id(text);                               \
    return found < 0 ? told(Result::kInvalidDevice) : put(device, found);                          \
  }                                                                                                \
  HOSTNIC_GPU_CALL Status prefix##DriverGetVersion(int* version) { return put(version, 12080); }   \
  HOSTNIC_GPU_CALL Status prefix##GetLastError() {                                                 \
    const Status last = last_error;                                                                \
    last_error = 0;                                                                                \
    return last;                                                                                   \
  }                                                                                                \
  HOSTNIC_GPU_CALL Status prefix##PeekAtLastError() { return last_error; }                         \
  HOSTNIC_GPU_CALL const char* prefix##GetErrorString(Status error) { return text_of(error); }     \
  HOSTNIC_GPU_CALL const char* prefix##GetErrorName(Status error) { return text_of(error); }       \
  HOSTNIC_GPU_CALL Status prefix##Malloc(void** out, size_t bytes) {                               \
    return allocate_here(Kind::kDevice, bytes, out);                                               \
  }                                                                                                \
  HOSTNIC_GPU_CALL Status prefix##MallocAsync(void** out, size_t bytes, void*) {                   \
    return allocate_here(Kind::kDevice, bytes, out);                                               \
  }                                                                                                \
  HOSTNIC_GPU_CALL Status prefix##MallocManaged(void** out, size_t bytes, unsigned int) {          \
    return allocate_here(Kind::kManaged, bytes, out);                                              \
  }                                                                                                \
  HOSTNIC_GPU_CALL Status prefix##HostAlloc(void** out, size_t bytes, unsigned int) {              \
    return allocate_here(Kind::kHost, bytes, out);                                                 \
  }                                                                                                \
  HOSTNIC_GPU_CALL Status prefix##MallocHost(void** out, size_t bytes) {                           \
    return allocate_here(Kind::kHost, bytes, out);                                                 \
  }                                                                                                \
  HOSTNIC_GPU_CALL Status prefix##Free(void* memory) { return free_block(memory); }                \
  HOSTNIC_GPU_CALL Status prefix##FreeAsync(void* memory, void*) { return free_block(memory); }    \
  HOSTNIC_GPU_CALL Status prefix##FreeHost(void* memory) {                                         \
    return told(release(Kind::kHost, memory));                                                     \
  }                                                                                                \
  HOSTNIC_GPU_CALL Status prefix##HostRegister(void* memory, size_t bytes, unsigned int) {         \
    return told(register_host(memory, bytes));                                                     \
  }                                                                                                \
  HOSTNIC_GPU_CALL Status prefix##HostUnregister(void* memory) {                                   \
    return told(unregister_host(memory));                                                          \
  }                                                                                                \
  HOSTNIC_GPU_CALL Status prefix##HostGetDevicePointer(void** out, void* memory, unsigned int) {   \
    if (out == nullptr || !find(memory)) return told(Result::kInvalidValue);                       \
    *out = memory;                                                                                 \
    return 0;                                                                                      \
  }                                                                                                \
  HOSTNIC_GPU_CALL Status prefix##MemGetInfo(size_t* free_bytes, size_t* total_bytes) {            \
    memory_info(runtime_device(), free_bytes, total_bytes);                                        \
    return 0;                                                                                      \
  }                                                                                                \
  HOSTNIC_GPU_CALL Status prefix##Memcpy(void* to, const void* from, size_t bytes, int) {          \
    return copy_bytes(to, from, bytes);                                                            \
  }                                                                                                \
  HOSTNIC_GPU_CALL Status prefix##MemcpyAsync(void* to, const void* from, size_t bytes, int,       \
                                              void*) {                                             \
    return copy_bytes(to, from, bytes);                                                            \
  }                                                                                                \
  HOSTNIC_GPU_CALL Status prefix##Memcpy2D(void* to, size_t to_pitch, const void* from,            \
                                           size_t from_pitch, size_t width, size_t rows, int) {    \
    return told(copy_rows({to, to_pitch}, {from, from_pitch}, width, rows));                       \
  }                                                                                                \
  HOSTNIC_GPU_CALL Status prefix##Memset(void* to, int value, size_t bytes) {                      \
    return told(fill(to, static_cast<uint32_t>(value), 1, bytes));                                 \
  }                                                                                                \
  HOSTNIC_GPU_CALL Status prefix##MemsetAsync(void* to, int value, size_t bytes, void*) {          \
    return told(fill(to, static_cast<uint32_t>(value), 1, bytes));                                 \
  }

RUNTIME_OF(cuda)
RUNTIME_OF(hip)

HOSTNIC_GPU_CALL Status cudaRuntimeGetVersion(int* version) { return put(version, 12080); }
HOSTNIC_GPU_CALL Status cudaDeviceGetAttribute(int* value, int attribute, int device) {
  if (!is_device(device)) return told(Result::kInvalidDevice);
  return put(value, device_attribute(attribute, device));
}
HOSTNIC_GPU_CALL Status cudaGetDeviceProperties_v2(DeviceFacts* facts, int device) {
  return describe_device(facts, device);
}
HOSTNIC_GPU_CALL Status cudaGetDeviceProperties(DeviceFacts* facts, int device) {
  return describe_device(facts, device);
}
HOSTNIC_GPU_CALL Status cudaPointerGetAttributes(PointerFacts* facts, const void* asked) {
  if (facts == nullptr) return told(Result::kInvalidValue);
  *facts = facts_of(asked);
  return 0;
}

HOSTNIC_GPU_CALL Status hipInit(unsigned int flags) {
  initialize();
  return flags == 0 ? 0 : told(Result::kInvalidValue);
}
HOSTNIC_GPU_CALL Status hipRuntimeGetVersion(int* version) { return put(version, 60000000); }
// The attributes have other numbers than CUDA's, and none is known here.
HOSTNIC_GPU_CALL Status hipDeviceGetAttribute(int* value, int, int device) {
  return is_device(device) ? put(value, 0) : told(Result::kInvalidDevice);
}
HOSTNIC_GPU_CALL Status hipDeviceGet(int* device, int ordinal) {
  return is_device(ordinal) ? put(device, ordinal) : told(Result::kInvalidDevice);
}
HOSTNIC_GPU_CALL Status hipDeviceGetName(char* name, int bytes, int device) {
  if (name == nullptr || bytes <= 0) return told(Result::kInvalidValue);
  if (!is_device(device)) return told(Result::kInvalidDevice);
  write_name(device, name, static_cast<size_t>(bytes));
  return 0;
}
HOSTNIC_GPU_CALL Status hipGetDevicePropertiesR0600(DeviceFacts* facts, int device) {
  return describe_device(facts, device);
}
// A pointer that is not HIP's is called unregistered, as by ROCm 6.
HOSTNIC_GPU_CALL Status hipPointerGetAttributes(void* out, const void* asked) {
  struct Facts {
    PointerFacts first;
    int is_managed;
    unsigned int flags;
  };
  if (out == nullptr) return told(Result::kInvalidValue);
  const PointerFacts facts = facts_of(asked);
  const Facts all{facts, facts.type == type_of(Kind::kManaged) ? 1 : 0, 0};
  memcpy(out, &all, sizeof(all));
  return 0;
}
HOSTNIC_GPU_CALL Status hipPointerGetAttribute(void* data, int attribute, void* asked) {
  const auto block = find(asked);
  if (data == nullptr || !block) return told(Result::kInvalidValue);
  return told(pointer_attribute(data, attribute, *block, asked));
}
HOSTNIC_GPU_CALL Status hipDrvPointerGetAttributes(unsigned int count, const int* attributes,
                                                   void** data, void* asked) {
  return told(pointer_attributes(count, attributes, data, asked));
}
HOSTNIC_GPU_CALL Status hipExtMallocWithFlags(void** out, size_t bytes, unsigned int) {
  return allocate_here(Kind::kDevice, bytes, out);
}
HOSTNIC_GPU_CALL Status hipHostMalloc(void** out, size_t bytes, unsigned int) {
  return allocate_here(Kind::kHost, bytes, out);
}
HOSTNIC_GPU_CALL Status hipHostFree(void* memory) { return told(release(Kind::kHost, memory)); }
HOSTNIC_GPU_CALL Status hipMemcpyHtoD(void* to, void* from, size_t bytes) {
  return copy_bytes(to, from, bytes);
}
HOSTNIC_GPU_CALL Status hipMemcpyDtoH(void* to, void* from, size_t bytes) {
  return copy_bytes(to, from, bytes);
}
HOSTNIC_GPU_CALL Status hipMemcpyDtoD(void* to, void* from, size_t bytes) {
  return copy_bytes(to, from, bytes);
}
HOSTNIC_GPU_CALL Status hipMemGetAddressRange(void** base, size_t* bytes, void* asked) {
  const auto block = find(asked);
  if (!block || block->kind == Kind::kRegistered) return told(Result::kNotFound);
  if (base != nullptr) *base = reinterpret_cast<void*>(block->address);
  if (bytes != nullptr) *bytes = block->bytes;
  return 0;
}
HOSTNIC_GPU_CALL Status hipMemGetHandleForAddressRange(void* handle, void* address, size_t bytes,
                                                       int type, unsigned long long) {
  constexpr int kDmaBufFd = 1;
  if (type != kDmaBufFd) return told(Result::kNotSupported);
  return told(export_range(address, bytes, static_cast<int*>(handle)));
}
