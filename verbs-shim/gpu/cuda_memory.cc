// SPDX-License-Identifier: BSD-3-Clause
// The driver's interface of CUDA: allocating, copying and exporting memory. All copies are over
// when they return, the asynchronous ones as well.
#include "verbs-shim/gpu/contexts.h"

using namespace hostnic::gpu;

namespace {

constexpr int kDmaBufFd = 1;  // CU_MEM_RANGE_HANDLE_TYPE_DMA_BUF_FD

Status allocate_for_driver(Kind kind, size_t bytes, void** out) {
  if (const Result checked = check_context(); checked != Result::kSuccess) return status(checked);
  return status(allocate(kind, current_context()->device, bytes, out));
}

Status copy_in_context(Address to, Address from, size_t bytes) {
  if (const Result checked = check_context(); checked != Result::kSuccess) return status(checked);
  return status(copy(pointer(to), pointer(from), bytes));
}

Address address_of(const void* memory) { return reinterpret_cast<Address>(memory); }

}  // namespace

HOSTNIC_GPU_CALL Status cuMemGetInfo_v2(size_t* free_bytes, size_t* total_bytes) {
  if (const Result checked = check_context(); checked != Result::kSuccess) return status(checked);
  memory_info(current_context()->device, free_bytes, total_bytes);
  return status(Result::kSuccess);
}
HOSTNIC_GPU_CALL Status cuMemGetInfo(size_t* free_bytes, size_t* total_bytes) {
  return cuMemGetInfo_v2(free_bytes, total_bytes);
}

HOSTNIC_GPU_CALL Status cuMemAlloc_v2(Address* out, size_t bytes) {
  if (out == nullptr) return status(Result::kInvalidValue);
  void* memory = nullptr;
  const Status allocated = allocate_for_driver(Kind::kDevice, bytes, &memory);
  if (allocated == 0) *out = address_of(memory);
  return allocated;
}
HOSTNIC_GPU_CALL Status cuMemAlloc(Address* out, size_t bytes) { return cuMemAlloc_v2(out, bytes); }
HOSTNIC_GPU_CALL Status cuMemAllocAsync(Address* out, size_t bytes, void*) {
  return cuMemAlloc_v2(out, bytes);
}

HOSTNIC_GPU_CALL Status cuMemAllocManaged(Address* out, size_t bytes, unsigned int) {
  if (out == nullptr) return status(Result::kInvalidValue);
  void* memory = nullptr;
  const Status allocated = allocate_for_driver(Kind::kManaged, bytes, &memory);
  if (allocated == 0) *out = address_of(memory);
  return allocated;
}

HOSTNIC_GPU_CALL Status cuMemFree_v2(Address address) {
  if (const Result checked = check_context(); checked != Result::kSuccess) return status(checked);
  return status(release_device(pointer(address)));
}
HOSTNIC_GPU_CALL Status cuMemFree(Address address) { return cuMemFree_v2(address); }
HOSTNIC_GPU_CALL Status cuMemFreeAsync(Address address, void*) { return cuMemFree_v2(address); }

HOSTNIC_GPU_CALL Status cuMemHostAlloc(void** out, size_t bytes, unsigned int) {
  return allocate_for_driver(Kind::kHost, bytes, out);
}
HOSTNIC_GPU_CALL Status cuMemAllocHost_v2(void** out, size_t bytes) {
  return allocate_for_driver(Kind::kHost, bytes, out);
}
HOSTNIC_GPU_CALL Status cuMemAllocHost(void** out, size_t bytes) {
  return allocate_for_driver(Kind::kHost, bytes, out);
}
HOSTNIC_GPU_CALL Status cuMemFreeHost(void* memory) { return status(release(Kind::kHost, memory)); }
HOSTNIC_GPU_CALL Status cuMemHostRegister_v2(void* memory, size_t bytes, unsigned int) {
  if (const Result checked = check_context(); checked != Result::kSuccess) return status(checked);
  return status(register_host(memory, bytes));
}
HOSTNIC_GPU_CALL Status cuMemHostRegister(void* memory, size_t bytes, unsigned int flags) {
  return cuMemHostRegister_v2(memory, bytes, flags);
}
HOSTNIC_GPU_CALL Status cuMemHostUnregister(void* memory) {
  return status(unregister_host(memory));
}
HOSTNIC_GPU_CALL Status cuMemHostGetDevicePointer_v2(Address* out, void* memory, unsigned int) {
  if (out == nullptr || !find(memory)) return status(Result::kInvalidValue);
  *out = address_of(memory);
  return status(Result::kSuccess);
}
HOSTNIC_GPU_CALL Status cuMemHostGetDevicePointer(Address* out, void* memory, unsigned int flags) {
  return cuMemHostGetDevicePointer_v2(out, memory, flags);
}

HOSTNIC_GPU_CALL Status cuMemGetAddressRange_v2(Address* base, size_t* bytes, Address address) {
  const auto block = find(pointer(address));
  if (!block || block->kind == Kind::kRegistered) return status(Result::kNotFound);
  if (base != nullptr) *base = block->address;
  if (bytes != nullptr) *bytes = block->bytes;
  return status(Result::kSuccess);
}
HOSTNIC_GPU_CALL Status cuMemGetAddressRange(Address* base, size_t* bytes, Address address) {
  return cuMemGetAddressRange_v2(base, bytes, address);
}

HOSTNIC_GPU_CALL Status cuMemGetHandleForAddressRange(void* handle, Address address, size_t bytes,
                                                      int type, unsigned long long) {
  if (const Result checked = check_context(); checked != Result::kSuccess) return status(checked);
  if (type != kDmaBufFd) return status(Result::kNotSupported);
  if (handle == nullptr) return status(Result::kInvalidValue);
  return status(export_range(pointer(address), bytes, static_cast<int*>(handle)));
}

HOSTNIC_GPU_CALL Status cuMemcpy(Address to, Address from, size_t bytes) {
  return copy_in_context(to, from, bytes);
}
HOSTNIC_GPU_CALL Status cuMemcpyAsync(Address to, Address from, size_t bytes, void*) {
  return copy_in_context(to, from, bytes);
}
HOSTNIC_GPU_CALL Status cuMemcpyHtoD_v2(Address to, const void* from, size_t bytes) {
  return copy_in_context(to, address_of(from), bytes);
}
HOSTNIC_GPU_CALL Status cuMemcpyHtoD(Address to, const void* from, size_t bytes) {
  return copy_in_context(to, address_of(from), bytes);
}
HOSTNIC_GPU_CALL Status cuMemcpyDtoH_v2(void* to, Address from, size_t bytes) {
  return copy_in_context(address_of(to), from, bytes);
}
HOSTNIC_GPU_CALL Status cuMemcpyDtoH(void* to, Address from, size_t bytes) {
  return copy_in_context(address_of(to), from, bytes);
}
HOSTNIC_GPU_CALL Status cuMemcpyDtoD_v2(Address to, Address from, size_t bytes) {
  return copy_in_context(to, from, bytes);
}
HOSTNIC_GPU_CALL Status cuMemcpyDtoD(Address to, Address from, size_t bytes) {
  return copy_in_context(to, from, bytes);
}
HOSTNIC_GPU_CALL Status cuMemcpyHtoDAsync_v2(Address to, const void* from, size_t bytes, void*) {
  return copy_in_context(to, address_of(from), bytes);
}
HOSTNIC_GPU_CALL Status cuMemcpyDtoHAsync_v2(void* to, Address from, size_t bytes, void*) {
  return copy_in_context(address_of(to), from, bytes);
}
HOSTNIC_GPU_CALL Status cuMemcpyDtoDAsync_v2(Address to, Address from, size_t bytes, void*) {
  return copy_in_context(to, from, bytes);
}
HOSTNIC_GPU_CALL Status cuMemcpyPeer(Address to, Context*, Address from, Context*, size_t bytes) {
  return copy_in_context(to, from, bytes);
}
HOSTNIC_GPU_CALL Status cuMemcpyPeerAsync(Address to, Context*, Address from, Context*,
                                          size_t bytes, void*) {
  return copy_in_context(to, from, bytes);
}

// What a NIC has written is there when its completion is.
HOSTNIC_GPU_CALL Status cuFlushGPUDirectRDMAWrites(int, int) { return status(check_context()); }

HOSTNIC_GPU_CALL Status cuMemsetD8_v2(Address to, unsigned char value, size_t count) {
  return status(fill(pointer(to), value, 1, count));
}
HOSTNIC_GPU_CALL Status cuMemsetD16_v2(Address to, unsigned short value, size_t count) {
  return status(fill(pointer(to), value, 2, count));
}
HOSTNIC_GPU_CALL Status cuMemsetD32_v2(Address to, unsigned int value, size_t count) {
  return status(fill(pointer(to), value, 4, count));
}
HOSTNIC_GPU_CALL Status cuMemsetD8Async(Address to, unsigned char value, size_t count, void*) {
  return status(fill(pointer(to), value, 1, count));
}
HOSTNIC_GPU_CALL Status cuMemsetD32Async(Address to, unsigned int value, size_t count, void*) {
  return status(fill(pointer(to), value, 4, count));
}
