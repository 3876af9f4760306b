// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/gpu/contexts.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstdio>
#include <new>
#include <string_view>
#include <vector>

namespace hostnic::gpu {
namespace {

std::atomic<bool> initialized{false};
std::atomic<uint64_t> last_context_id{GpuOptions::kMaxGpus};

std::vector<Context*>& stack() {
  thread_local std::vector<Context*> contexts;
  return contexts;
}

}  // namespace

bool is_initialized() { return initialized.load(std::memory_order_acquire); }

void initialize() {
  if (initialized.exchange(true)) return;
  say_what_this_is();
}

bool is_device(int device) {
  return device >= 0 && static_cast<uint32_t>(device) < options().count;
}

Context* primary_context(int device) {
  static auto& contexts = *[] {
    auto* made = new std::array<Context, GpuOptions::kMaxGpus>;
    for (size_t i = 0; i < made->size(); ++i) (*made)[i] = {static_cast<int>(i), true, i + 1};
    return made;
  }();
  return is_device(device) ? &contexts[static_cast<size_t>(device)] : nullptr;
}

Context* make_context(int device) {
  return is_device(device) ? new (std::nothrow) Context{device, false, ++last_context_id} : nullptr;
}

void destroy_context(Context* context) {
  std::erase(stack(), context);
  if (!context->is_primary) delete context;
}

Context* current_context() { return stack().empty() ? nullptr : stack().back(); }

void set_current_context(Context* context) {
  pop_context();
  if (context != nullptr) push_context(context);
}

void push_context(Context* context) { stack().push_back(context); }

Context* pop_context() {
  Context* const top = current_context();
  if (top != nullptr) stack().pop_back();
  return top;
}

int runtime_device() {
  initialize();
  if (current_context() == nullptr) push_context(primary_context(0));
  return current_context()->device;
}

Result check_context() {
  if (!is_initialized()) return Result::kNotInitialized;
  return current_context() == nullptr ? Result::kInvalidContext : Result::kSuccess;
}

void write_name(int device, char* text, size_t bytes) {
  snprintf(text, bytes, "hostnic stand-in %d (memory only)", device);
}

void write_uuid(int device, char (&uuid)[16]) {
  constexpr std::string_view kText = "hostnic stand-in";
  static_assert(kText.size() == sizeof(uuid));
  std::ranges::copy(kText, uuid);
  uuid[15] = static_cast<char>('a' + device);
}

void write_bus_id(int device, char* text, size_t bytes) {
  snprintf(text, bytes, "0000:%02x:00.0", static_cast<unsigned>(kFirstBus + device));
}

int device_of_bus_id(const char* text) {
  unsigned domain = 0, bus = 0, slot = 0;
  if (sscanf(text, "%x:%x:%x", &domain, &bus, &slot) != 3 &&
      sscanf(text, "%x:%x", &bus, &slot) != 2)
    return -1;
  const int device = static_cast<int>(bus) - kFirstBus;
  return is_device(device) ? device : -1;
}

int device_attribute(int attribute, int device) {
  enum : int {
    kMaxThreadsPerBlock = 1,
    kWarpSize = 10,
    kCanMapHostMemory = 19,
    kPciBusId = 33,
    kAsyncEngineCount = 40,
    kUnifiedAddressing = 41,
    kComputeCapabilityMajor = 75,
    kManagedMemory = 83,
    kHostRegisterSupported = 99,
    kGpuDirectRdmaSupported = 116,
    kGpuDirectRdmaFlushWritesOptions = 117,
    kGpuDirectRdmaWritesOrdering = 118,
    kDmaBufSupported = 124,
    kHostNumaId = 134,
  };
  switch (attribute) {
    case kMaxThreadsPerBlock:
      return 1024;
    case kWarpSize:
      return 32;
    case kPciBusId:
      return kFirstBus + device;
    case kComputeCapabilityMajor:
      return 9;
    case kGpuDirectRdmaSupported:
      return options().peers ? 1 : 0;
    case kGpuDirectRdmaFlushWritesOptions:
      return 1;  // by the host, which need do nothing
    case kGpuDirectRdmaWritesOrdering:
      return 200;  // for all devices
    case kCanMapHostMemory:
    case kAsyncEngineCount:
    case kUnifiedAddressing:
    case kManagedMemory:
    case kHostRegisterSupported:
    case kDmaBufSupported:
      return 1;
    case kHostNumaId:
      return -1;
    default:
      return 0;
  }
}

}  // namespace hostnic::gpu
