// SPDX-License-Identifier: BSD-3-Clause
// What programs ask of pointers, by the driver's interface of CUDA; HIP has the same numbers.
#include <cstring>

#include "verbs-shim/gpu/contexts.h"
#include "verbs-shim/gpu/pointers.h"

namespace hostnic::gpu {
namespace {

enum Attribute : int {
  kContext = 1,
  kMemoryType = 2,
  kDevicePointer = 3,
  kHostPointer = 4,
  kSyncMemops = 6,
  kBufferId = 7,
  kIsManaged = 8,
  kDeviceOrdinal = 9,
  kIsIpcCapable = 10,
  kRangeStart = 11,
  kRangeSize = 12,
  kMapped = 13,
  kHandleTypes = 14,
  kIsRdmaCapable = 15,
  kAccessFlags = 16,
  kMempool = 17,
  kMappingSize = 18,
  kMappingBase = 19,
  kBlockId = 20,
};

template <typename Value>
void put(void* data, Value value) {
  memcpy(data, &value, sizeof(value));
}

}  // namespace

// Writes as many bytes as the attribute's type has. Truth values are one byte.
Result pointer_attribute(void* data, int attribute, const Block& block, const void* asked) {
  const bool on_host = block.kind == Kind::kHost || block.kind == Kind::kRegistered;
  constexpr unsigned int kTypeHost = 1, kTypeDevice = 2;
  switch (attribute) {
    case kContext:
      return put(data, primary_context(block.device)), Result::kSuccess;
    case kMemoryType:
      return put(data, on_host ? kTypeHost : kTypeDevice), Result::kSuccess;
    case kDevicePointer:
      return put(data, asked), Result::kSuccess;
    case kHostPointer:
      if (block.kind == Kind::kDevice) return Result::kInvalidValue;
      return put(data, asked), Result::kSuccess;
    case kSyncMemops:
      return put(data, block.sync_memops), Result::kSuccess;
    case kBufferId:
    case kBlockId:
      return put(data, block.id), Result::kSuccess;
    case kIsManaged:
      return put(data, block.kind == Kind::kManaged), Result::kSuccess;
    case kDeviceOrdinal:
      return put(data, block.device), Result::kSuccess;
    case kIsIpcCapable:
      return put(data, false), Result::kSuccess;
    case kRangeStart:
    case kMappingBase:
      return put(data, block.address), Result::kSuccess;
    case kRangeSize:
    case kMappingSize:
      return put(data, block.bytes), Result::kSuccess;
    case kMapped:
      return put(data, true), Result::kSuccess;
    case kHandleTypes:
      return put(data, 0), Result::kSuccess;
    case kIsRdmaCapable:
      return put(data, block.kind == Kind::kDevice), Result::kSuccess;
    case kAccessFlags:
      return put(data, 3), Result::kSuccess;  // read and write
    case kMempool:
      return put(data, static_cast<void*>(nullptr)), Result::kSuccess;
    default:
      return Result::kNotSupported;
  }
}

Result pointer_attributes(unsigned int count, const int* attributes, void** data,
                          const void* asked) {
  if (attributes == nullptr || data == nullptr) return Result::kInvalidValue;
  const auto block = find(asked);
  for (unsigned int i = 0; i < count; ++i) {
    if (data[i] == nullptr) return Result::kInvalidValue;
    if (block && pointer_attribute(data[i], attributes[i], *block, asked) == Result::kSuccess)
      continue;
    // What a pointer does not have is null, of the size of its type; no type is 0.
    const bool is_long = attributes[i] == kContext || attributes[i] == kDevicePointer ||
                         attributes[i] == kHostPointer || attributes[i] == kBufferId ||
                         (attributes[i] >= kRangeStart && attributes[i] <= kRangeSize) ||
                         (attributes[i] >= kMempool && attributes[i] <= kBlockId);
    if (is_long)
      put(data[i], uint64_t{0});
    else if (attributes[i] == kMemoryType)
      put(data[i], 0);
    else if (attributes[i] == kDeviceOrdinal)
      put(data[i], -2);
    else
      put(data[i], false);
  }
  return Result::kSuccess;
}

}  // namespace hostnic::gpu

using namespace hostnic::gpu;

HOSTNIC_GPU_CALL Status cuPointerGetAttribute(void* data, int attribute, Address address) {
  if (!is_initialized()) return status(Result::kNotInitialized);
  const auto block = find(pointer(address));
  if (data == nullptr || !block) return status(Result::kInvalidValue);
  return status(pointer_attribute(data, attribute, *block, pointer(address)));
}

HOSTNIC_GPU_CALL Status cuPointerGetAttributes(unsigned int count, const int* attributes,
                                               void** data, Address address) {
  if (!is_initialized()) return status(Result::kNotInitialized);
  return status(pointer_attributes(count, attributes, data, pointer(address)));
}

HOSTNIC_GPU_CALL Status cuPointerSetAttribute(const void* value, int attribute, Address address) {
  if (!is_initialized()) return status(Result::kNotInitialized);
  if (value == nullptr || attribute != kSyncMemops) return status(Result::kInvalidValue);
  unsigned int on = 0;
  memcpy(&on, value, sizeof(on));
  return status(set_sync_memops(pointer(address), on != 0));
}
