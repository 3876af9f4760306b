// SPDX-License-Identifier: BSD-3-Clause
// The driver's interface of CUDA (libcuda.so.1): devices and contexts.
#include <dlfcn.h>

#include <cstdio>
#include <string>
#include <string_view>

#include "verbs-shim/gpu/contexts.h"

using namespace hostnic::gpu;

namespace {

constexpr int kDriverVersion = 12080;

// What all calls but cuInit need.
Result check_device(int device) {
  if (!is_initialized()) return Result::kNotInitialized;
  return is_device(device) ? Result::kSuccess : Result::kInvalidDevice;
}

Status create_context(Context** context, int device) {
  if (const Result checked = check_device(device); checked != Result::kSuccess)
    return status(checked);
  if (context == nullptr) return status(Result::kInvalidValue);
  *context = make_context(device);
  if (*context == nullptr) return status(Result::kOutOfMemory);
  push_context(*context);
  return status(Result::kSuccess);
}

// The function that a name means to a program that was built with some version of CUDA: names are
// given to newer ones, and older ones go on by their numbers.
void* find_function(std::string_view name, int version) {
  static void* const kOwn = [] {
    Dl_info info{};
    if (dladdr(reinterpret_cast<const void*>(&create_context), &info) == 0) return RTLD_DEFAULT;
    void* handle = dlopen(info.dli_fname, RTLD_NOLOAD | RTLD_LAZY);
    return handle != nullptr ? handle : RTLD_DEFAULT;
  }();
  const auto named = [](const std::string& full) { return dlsym(kOwn, full.c_str()); };
  const std::string plain(name);
  if (name == "cuCtxCreate")
    return named(plain + (version >= 13000 ? "_v4" : version >= 11040 ? "_v3" : "_v2"));
  if (name == "cuGetProcAddress") return named(plain + (version >= 12000 ? "_v2" : ""));
  void* const second = named(plain + "_v2");
  return second != nullptr ? second : named(plain);
}

Status get_function(const char* symbol, void** function, int version, int* found) {
  if (symbol == nullptr || function == nullptr) return status(Result::kInvalidValue);
  *function = find_function(symbol, version);
  if (found != nullptr) *found = *function != nullptr ? 0 : 1;
  return status(*function != nullptr ? Result::kSuccess : Result::kNotFound);
}

}  // namespace

HOSTNIC_GPU_CALL Status cuInit(unsigned int flags) {
  if (flags != 0) return status(Result::kInvalidValue);
  initialize();
  return status(Result::kSuccess);
}

HOSTNIC_GPU_CALL Status cuDriverGetVersion(int* version) {
  if (version == nullptr) return status(Result::kInvalidValue);
  *version = kDriverVersion;
  return status(Result::kSuccess);
}

HOSTNIC_GPU_CALL Status cuGetErrorName(Status error, const char** text) {
  if (text == nullptr) return status(Result::kInvalidValue);
  const char* const name = [error] {
    switch (static_cast<Result>(error)) {
      case Result::kSuccess:
        return "CUDA_SUCCESS";
      case Result::kInvalidValue:
        return "CUDA_ERROR_INVALID_VALUE";
      case Result::kOutOfMemory:
        return "CUDA_ERROR_OUT_OF_MEMORY";
      case Result::kNotInitialized:
        return "CUDA_ERROR_NOT_INITIALIZED";
      case Result::kNoDevice:
        return "CUDA_ERROR_NO_DEVICE";
      case Result::kInvalidDevice:
        return "CUDA_ERROR_INVALID_DEVICE";
      case Result::kInvalidContext:
        return "CUDA_ERROR_INVALID_CONTEXT";
      case Result::kOperatingSystem:
        return "CUDA_ERROR_OPERATING_SYSTEM";
      case Result::kInvalidHandle:
        return "CUDA_ERROR_INVALID_HANDLE";
      case Result::kNotFound:
        return "CUDA_ERROR_NOT_FOUND";
      case Result::kAlreadyRegistered:
        return "CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED";
      case Result::kNotRegistered:
        return "CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED";
      case Result::kNotSupported:
        return "CUDA_ERROR_NOT_SUPPORTED";
    }
    return static_cast<const char*>(nullptr);
  }();
  *text = name;
  return status(name != nullptr ? Result::kSuccess : Result::kInvalidValue);
}

HOSTNIC_GPU_CALL Status cuGetErrorString(Status error, const char** text) {
  const Status named = cuGetErrorName(error, text);
  if (named == 0 && error == status(Result::kNotSupported))
    *text = "not supported: hostnic's stand-in has a GPU's memory and nothing that computes";
  return named;
}

HOSTNIC_GPU_CALL Status cuDeviceGetCount(int* count) {
  if (!is_initialized()) return status(Result::kNotInitialized);
  if (count == nullptr) return status(Result::kInvalidValue);
  *count = static_cast<int>(options().count);
  return status(Result::kSuccess);
}

HOSTNIC_GPU_CALL Status cuDeviceGet(int* device, int ordinal) {
  if (const Result checked = check_device(ordinal); checked != Result::kSuccess)
    return status(checked);
  if (device == nullptr) return status(Result::kInvalidValue);
  *device = ordinal;
  return status(Result::kSuccess);
}

HOSTNIC_GPU_CALL Status cuDeviceGetName(char* name, int bytes, int device) {
  if (const Result checked = check_device(device); checked != Result::kSuccess)
    return status(checked);
  if (name == nullptr || bytes <= 0) return status(Result::kInvalidValue);
  write_name(device, name, static_cast<size_t>(bytes));
  return status(Result::kSuccess);
}

HOSTNIC_GPU_CALL Status cuDeviceGetUuid_v2(char uuid[16], int device) {
  if (const Result checked = check_device(device); checked != Result::kSuccess)
    return status(checked);
  if (uuid == nullptr) return status(Result::kInvalidValue);
  write_uuid(device, *reinterpret_cast<char(*)[16]>(uuid));
  return status(Result::kSuccess);
}
HOSTNIC_GPU_CALL Status cuDeviceGetUuid(char uuid[16], int device) {
  return cuDeviceGetUuid_v2(uuid, device);
}

HOSTNIC_GPU_CALL Status cuDeviceTotalMem_v2(size_t* bytes, int device) {
  if (const Result checked = check_device(device); checked != Result::kSuccess)
    return status(checked);
  memory_info(device, nullptr, bytes);
  return status(Result::kSuccess);
}
HOSTNIC_GPU_CALL Status cuDeviceTotalMem(size_t* bytes, int device) {
  return cuDeviceTotalMem_v2(bytes, device);
}

HOSTNIC_GPU_CALL Status cuDeviceGetAttribute(int* value, int attribute, int device) {
  if (const Result checked = check_device(device); checked != Result::kSuccess)
    return status(checked);
  if (value == nullptr || attribute <= 0) return status(Result::kInvalidValue);
  *value = device_attribute(attribute, device);
  return status(Result::kSuccess);
}

HOSTNIC_GPU_CALL Status cuDeviceGetPCIBusId(char* text, int bytes, int device) {
  if (const Result checked = check_device(device); checked != Result::kSuccess)
    return status(checked);
  if (text == nullptr || bytes <= 0) return status(Result::kInvalidValue);
  write_bus_id(device, text, static_cast<size_t>(bytes));
  return status(Result::kSuccess);
}

HOSTNIC_GPU_CALL Status cuDeviceGetByPCIBusId(int* device, const char* text) {
  if (!is_initialized()) return status(Result::kNotInitialized);
  if (device == nullptr || text == nullptr) return status(Result::kInvalidValue);
  const int found = device_of_bus_id(text);
  if (found < 0) return status(Result::kInvalidDevice);
  *device = found;
  return status(Result::kSuccess);
}

HOSTNIC_GPU_CALL Status cuDeviceCanAccessPeer(int* can, int device, int peer) {
  if (can == nullptr) return status(Result::kInvalidValue);
  if (!is_device(device) || !is_device(peer)) return status(Result::kInvalidDevice);
  *can = device != peer ? 1 : 0;
  return status(Result::kSuccess);
}

HOSTNIC_GPU_CALL Status cuCtxCreate_v2(Context** context, unsigned int, int device) {
  return create_context(context, device);
}
HOSTNIC_GPU_CALL Status cuCtxCreate(Context** context, unsigned int, int device) {
  return create_context(context, device);
}
HOSTNIC_GPU_CALL Status cuCtxCreate_v3(Context** context, void*, int, unsigned int, int device) {
  return create_context(context, device);
}
HOSTNIC_GPU_CALL Status cuCtxCreate_v4(Context** context, void*, unsigned int, int device) {
  return create_context(context, device);
}

HOSTNIC_GPU_CALL Status cuCtxDestroy_v2(Context* context) {
  if (context == nullptr || context->is_primary) return status(Result::kInvalidContext);
  destroy_context(context);
  return status(Result::kSuccess);
}
HOSTNIC_GPU_CALL Status cuCtxDestroy(Context* context) { return cuCtxDestroy_v2(context); }

HOSTNIC_GPU_CALL Status cuCtxSetCurrent(Context* context) {
  if (!is_initialized()) return status(Result::kNotInitialized);
  set_current_context(context);
  return status(Result::kSuccess);
}

HOSTNIC_GPU_CALL Status cuCtxGetCurrent(Context** context) {
  if (!is_initialized()) return status(Result::kNotInitialized);
  if (context == nullptr) return status(Result::kInvalidValue);
  *context = current_context();
  return status(Result::kSuccess);
}

HOSTNIC_GPU_CALL Status cuCtxPushCurrent_v2(Context* context) {
  if (context == nullptr) return status(Result::kInvalidContext);
  push_context(context);
  return status(Result::kSuccess);
}
HOSTNIC_GPU_CALL Status cuCtxPushCurrent(Context* context) { return cuCtxPushCurrent_v2(context); }

HOSTNIC_GPU_CALL Status cuCtxPopCurrent_v2(Context** context) {
  if (const Result checked = check_context(); checked != Result::kSuccess) return status(checked);
  Context* const popped = pop_context();
  if (context != nullptr) *context = popped;
  return status(Result::kSuccess);
}
HOSTNIC_GPU_CALL Status cuCtxPopCurrent(Context** context) { return cuCtxPopCurrent_v2(context); }

HOSTNIC_GPU_CALL Status cuCtxGetDevice(int* device) {
  if (const Result checked = check_context(); checked != Result::kSuccess) return status(checked);
  if (device == nullptr) return status(Result::kInvalidValue);
  *device = current_context()->device;
  return status(Result::kSuccess);
}

HOSTNIC_GPU_CALL Status cuCtxGetId(Context* context, unsigned long long* id) {
  if (const Result checked = check_context(); checked != Result::kSuccess) return status(checked);
  if (id == nullptr) return status(Result::kInvalidValue);
  *id = (context != nullptr ? context : current_context())->id;
  return status(Result::kSuccess);
}

HOSTNIC_GPU_CALL Status cuCtxGetApiVersion(Context*, unsigned int* version) {
  if (version == nullptr) return status(Result::kInvalidValue);
  *version = 3020;
  return status(Result::kSuccess);
}

HOSTNIC_GPU_CALL Status cuCtxGetFlags(unsigned int* flags) {
  if (flags == nullptr) return status(Result::kInvalidValue);
  *flags = 0;
  return status(check_context());
}

HOSTNIC_GPU_CALL Status cuCtxSetFlags(unsigned int) { return status(check_context()); }

HOSTNIC_GPU_CALL Status cuCtxSynchronize() { return status(check_context()); }

HOSTNIC_GPU_CALL Status cuCtxEnablePeerAccess(Context* peer, unsigned int) {
  return status(peer != nullptr ? check_context() : Result::kInvalidContext);
}
HOSTNIC_GPU_CALL Status cuCtxDisablePeerAccess(Context* peer) {
  return status(peer != nullptr ? check_context() : Result::kInvalidContext);
}

HOSTNIC_GPU_CALL Status cuDevicePrimaryCtxRetain(Context** context, int device) {
  if (const Result checked = check_device(device); checked != Result::kSuccess)
    return status(checked);
  if (context == nullptr) return status(Result::kInvalidValue);
  *context = primary_context(device);
  return status(Result::kSuccess);
}
HOSTNIC_GPU_CALL Status cuDevicePrimaryCtxRelease_v2(int device) {
  return status(check_device(device));
}
HOSTNIC_GPU_CALL Status cuDevicePrimaryCtxRelease(int device) {
  return status(check_device(device));
}
HOSTNIC_GPU_CALL Status cuDevicePrimaryCtxSetFlags_v2(int device, unsigned int) {
  return status(check_device(device));
}
HOSTNIC_GPU_CALL Status cuDevicePrimaryCtxGetState(int device, unsigned int* flags, int* active) {
  if (flags != nullptr) *flags = 0;
  if (active != nullptr) *active = 1;
  return status(check_device(device));
}

HOSTNIC_GPU_CALL Status cuGetProcAddress(const char* symbol, void** function, int version,
                                         uint64_t) {
  return get_function(symbol, function, version, nullptr);
}
HOSTNIC_GPU_CALL Status cuGetProcAddress_v2(const char* symbol, void** function, int version,
                                            uint64_t, int* found) {
  return get_function(symbol, function, version, found);
}
// The runtime's ways to the same.
HOSTNIC_GPU_CALL Status cudaGetDriverEntryPoint(const char* symbol, void** function,
                                                unsigned long long, int* found) {
  return get_function(symbol, function, kDriverVersion, found);
}
HOSTNIC_GPU_CALL Status cudaGetDriverEntryPointByVersion(const char* symbol, void** function,
                                                         unsigned int version, unsigned long long,
                                                         int* found) {
  return get_function(symbol, function, static_cast<int>(version), found);
}
