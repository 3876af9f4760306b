// SPDX-License-Identifier: BSD-3-Clause
// Streams and events, of CUDA's driver and runtime and of HIP. All work is over when the call that
// orders it returns, so nothing has to be waited for, and no time passes between two events.
#include <new>

#include "verbs-shim/gpu/contexts.h"

using namespace hostnic::gpu;

namespace {

Status make(void** out) {
  if (out == nullptr) return status(Result::kInvalidValue);
  auto* const handle = new (std::nothrow) Handle{runtime_device()};
  if (handle == nullptr) return status(Result::kOutOfMemory);
  *out = handle;
  return status(Result::kSuccess);
}

Status destroy(void* handle) {
  if (handle == nullptr) return status(Result::kInvalidHandle);
  delete static_cast<Handle*>(handle);
  return status(Result::kSuccess);
}

Status no_time(float* milliseconds, const void* from, const void* to) {
  if (milliseconds == nullptr) return status(Result::kInvalidValue);
  if (from == nullptr || to == nullptr) return status(Result::kInvalidHandle);
  *milliseconds = 0;
  return status(Result::kSuccess);
}

Status call(void (*function)(void*), void* argument) {
  if (function == nullptr) return status(Result::kInvalidValue);
  function(argument);
  return status(Result::kSuccess);
}

Status range_of_priorities(int* least, int* greatest) {
  if (least != nullptr) *least = 0;
  if (greatest != nullptr) *greatest = 0;
  return status(Result::kSuccess);
}

constexpr Status kDone = status(Result::kSuccess);

}  // namespace

// One name for each interface, as `cuStreamCreate`.
#define STREAMS_OF(prefix)                                                                      \
  HOSTNIC_GPU_CALL Status prefix##StreamSynchronize(void*) { return kDone; }                    \
  HOSTNIC_GPU_CALL Status prefix##StreamQuery(void*) { return kDone; }                          \
  HOSTNIC_GPU_CALL Status prefix##StreamWaitEvent(void*, void*, unsigned int) { return kDone; } \
  HOSTNIC_GPU_CALL Status prefix##StreamDestroy(void* stream) { return destroy(stream); }       \
  HOSTNIC_GPU_CALL Status prefix##StreamGetFlags(void*, unsigned int* flags) {                  \
    if (flags != nullptr) *flags = 0;                                                           \
    return kDone;                                                                               \
  }                                                                                             \
  HOSTNIC_GPU_CALL Status prefix##StreamIsCapturing(void*, int* capturing) {                    \
    if (capturing != nullptr) *capturing = 0;                                                   \
    return kDone;                                                                               \
  }                                                                                             \
  HOSTNIC_GPU_CALL Status prefix##LaunchHostFunc(void*, void (*function)(void*), void* data) {  \
    return call(function, data);                                                                \
  }                                                                                             \
  HOSTNIC_GPU_CALL Status prefix##EventRecord(void* event, void*) {                             \
    return event != nullptr ? kDone : status(Result::kInvalidHandle);                           \
  }                                                                                             \
  HOSTNIC_GPU_CALL Status prefix##EventRecordWithFlags(void* event, void*, unsigned int) {      \
    return event != nullptr ? kDone : status(Result::kInvalidHandle);                           \
  }                                                                                             \
  HOSTNIC_GPU_CALL Status prefix##EventQuery(void*) { return kDone; }                           \
  HOSTNIC_GPU_CALL Status prefix##EventSynchronize(void*) { return kDone; }                     \
  HOSTNIC_GPU_CALL Status prefix##EventDestroy(void* event) { return destroy(event); }          \
  HOSTNIC_GPU_CALL Status prefix##EventElapsedTime(float* ms, void* from, void* to) {           \
    return no_time(ms, from, to);                                                               \
  }

STREAMS_OF(cu)
STREAMS_OF(cuda)
STREAMS_OF(hip)

HOSTNIC_GPU_CALL Status cuStreamCreate(void** stream, unsigned int) { return make(stream); }
HOSTNIC_GPU_CALL Status cuStreamCreateWithPriority(void** stream, unsigned int, int) {
  return make(stream);
}
HOSTNIC_GPU_CALL Status cuStreamDestroy_v2(void* stream) { return destroy(stream); }
HOSTNIC_GPU_CALL Status cuStreamGetCtx(void* stream, Context** context) {
  if (context == nullptr) return status(Result::kInvalidValue);
  const int device =
      stream != nullptr ? static_cast<const Handle*>(stream)->device : runtime_device();
  *context = stream != nullptr ? primary_context(device) : current_context();
  return kDone;
}
HOSTNIC_GPU_CALL Status cuStreamAddCallback(void* stream, void (*function)(void*, Status, void*),
                                            void* data, unsigned int) {
  if (function == nullptr) return status(Result::kInvalidValue);
  function(stream, kDone, data);
  return kDone;
}
HOSTNIC_GPU_CALL Status cuCtxGetStreamPriorityRange(int* least, int* greatest) {
  return range_of_priorities(least, greatest);
}
HOSTNIC_GPU_CALL Status cuEventCreate(void** event, unsigned int) { return make(event); }
HOSTNIC_GPU_CALL Status cuEventDestroy_v2(void* event) { return destroy(event); }

HOSTNIC_GPU_CALL Status cudaStreamCreate(void** stream) { return make(stream); }
HOSTNIC_GPU_CALL Status cudaStreamCreateWithFlags(void** stream, unsigned int) {
  return make(stream);
}
HOSTNIC_GPU_CALL Status cudaStreamCreateWithPriority(void** stream, unsigned int, int) {
  return make(stream);
}
HOSTNIC_GPU_CALL Status cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  return range_of_priorities(least, greatest);
}
HOSTNIC_GPU_CALL Status cudaEventCreate(void** event) { return make(event); }
HOSTNIC_GPU_CALL Status cudaEventCreateWithFlags(void** event, unsigned int) { return make(event); }

HOSTNIC_GPU_CALL Status hipStreamCreate(void** stream) { return make(stream); }
HOSTNIC_GPU_CALL Status hipStreamCreateWithFlags(void** stream, unsigned int) {
  return make(stream);
}
HOSTNIC_GPU_CALL Status hipStreamCreateWithPriority(void** stream, unsigned int, int) {
  return make(stream);
}
HOSTNIC_GPU_CALL Status hipEventCreate(void** event) { return make(event); }
HOSTNIC_GPU_CALL Status hipEventCreateWithFlags(void** event, unsigned int) { return make(event); }
