// SPDX-License-Identifier: BSD-3-Clause
// The interface of HSA (libhsa-runtime64.so.1): agents, their memory pools, and what AMD's
// extensions say of pointers and export.
#include <unistd.h>

#include <cstdio>
#include <cstring>

#include "verbs-shim/gpu/contexts.h"

using namespace hostnic::gpu;

namespace {

using HsaStatus = int;
enum : HsaStatus {
  kHsaSuccess = 0,
  kHsaInvalidArgument = 0x1001,
  kHsaInvalidAllocation = 0x1003,
  kHsaInvalidAgent = 0x1004,
  kHsaOutOfResources = 0x1008,
  kHsaNotInitialized = 0x100b,
};

// Agents and pools are numbers: 1 is the processor, and what follows are GPUs. Each has one pool,
// of the same number.
struct Agent {
  uint64_t handle;
};
constexpr uint64_t kProcessor = 1;
int device_of(uint64_t handle) { return static_cast<int>(handle - kProcessor) - 1; }
bool is_agent(uint64_t handle) {
  return handle >= kProcessor && handle <= kProcessor + options().count;
}

HsaStatus hsa_status(Result result) {
  switch (result) {
    case Result::kSuccess:
      return kHsaSuccess;
    case Result::kOutOfMemory:
    case Result::kOperatingSystem:
      return kHsaOutOfResources;
    default:
      return kHsaInvalidArgument;
  }
}

template <typename Value>
HsaStatus put(void* out, Value value) {
  memcpy(out, &value, sizeof(value));
  return kHsaSuccess;
}

struct PointerInfo {
  uint32_t size;
  int type;
  const void* agent_base;
  const void* host_base;
  size_t bytes;
  void* user_data;
  Agent owner;
  uint32_t global_flags;
};

constexpr uint32_t kFineGrained = 2, kCoarseGrained = 4;

}  // namespace

HOSTNIC_GPU_CALL HsaStatus hsa_init() {
  initialize();
  return kHsaSuccess;
}
HOSTNIC_GPU_CALL HsaStatus hsa_shut_down() { return kHsaSuccess; }

HOSTNIC_GPU_CALL HsaStatus hsa_status_string(HsaStatus error, const char** text) {
  if (text == nullptr) return kHsaInvalidArgument;
  *text = error == kHsaSuccess ? "success" : "error of hostnic's stand-in for GPUs";
  return kHsaSuccess;
}

HOSTNIC_GPU_CALL HsaStatus hsa_iterate_agents(HsaStatus (*use)(Agent, void*), void* data) {
  if (!is_initialized()) return kHsaNotInitialized;
  if (use == nullptr) return kHsaInvalidArgument;
  for (uint64_t handle = kProcessor; is_agent(handle); ++handle)
    if (const HsaStatus ended = use({handle}, data); ended != kHsaSuccess) return ended;
  return kHsaSuccess;
}

HOSTNIC_GPU_CALL HsaStatus hsa_agent_get_info(Agent agent, int attribute, void* value) {
  enum : int { kName = 0, kVendor = 1, kNode = 16, kDevice = 17, kBdf = 0xa006, kProduct = 0xa009 };
  if (!is_agent(agent.handle)) return kHsaInvalidAgent;
  if (value == nullptr) return kHsaInvalidArgument;
  const bool is_gpu = agent.handle != kProcessor;
  auto* const text = static_cast<char*>(value);
  switch (attribute) {
    case kName:
    case kProduct:
      memset(text, 0, 64);
      write_name(is_gpu ? device_of(agent.handle) : 0, text, 64);
      return kHsaSuccess;
    case kVendor:
      memset(text, 0, 64);
      snprintf(text, 64, "hostnic");
      return kHsaSuccess;
    case kNode:
      return put(value, static_cast<uint32_t>(agent.handle - kProcessor));
    case kDevice:
      return put(value, is_gpu ? 1 : 0);
    case kBdf:
      return put(value, is_gpu ? static_cast<uint32_t>(kFirstBus + device_of(agent.handle)) << 8
                               : uint32_t{0});
    default:
      return kHsaInvalidArgument;
  }
}

HOSTNIC_GPU_CALL HsaStatus hsa_amd_agent_iterate_memory_pools(Agent agent,
                                                              HsaStatus (*use)(Agent, void*),
                                                              void* data) {
  if (!is_agent(agent.handle)) return kHsaInvalidAgent;
  return use == nullptr ? kHsaInvalidArgument : use(agent, data);
}

HOSTNIC_GPU_CALL HsaStatus hsa_amd_memory_pool_get_info(Agent pool, int attribute, void* value) {
  enum : int {
    kSegment = 0,
    kFlags = 1,
    kSize = 2,
    kAllocationAllowed = 5,
    kGranule = 6,
    kAlignment = 7,
    kForAll = 15,
  };
  if (!is_agent(pool.handle) || value == nullptr) return kHsaInvalidArgument;
  const bool is_gpu = pool.handle != kProcessor;
  size_t bytes = 0;
  switch (attribute) {
    case kSegment:
      return put(value, 0);  // global
    case kFlags:
      return put(value, is_gpu ? kCoarseGrained : kFineGrained);
    case kSize:
      memory_info(is_gpu ? device_of(pool.handle) : 0, nullptr, &bytes);
      return put(value, bytes);
    case kAllocationAllowed:
      return put(value, true);
    case kGranule:
    case kAlignment:
      return put(value, size_t{4096});
    case kForAll:
      return put(value, !is_gpu);
    default:
      return kHsaInvalidArgument;
  }
}

HOSTNIC_GPU_CALL HsaStatus hsa_amd_memory_pool_allocate(Agent pool, size_t bytes, uint32_t,
                                                        void** out) {
  if (!is_agent(pool.handle)) return kHsaInvalidArgument;
  const bool is_gpu = pool.handle != kProcessor;
  return hsa_status(allocate(is_gpu ? Kind::kDevice : Kind::kHost,
                             is_gpu ? device_of(pool.handle) : 0, bytes, out));
}

HOSTNIC_GPU_CALL HsaStatus hsa_amd_memory_pool_free(void* memory) {
  const auto block = find(memory);
  if (memory != nullptr && !block) return kHsaInvalidAllocation;
  return memory == nullptr ? kHsaSuccess : hsa_status(release(block->kind, memory));
}

HOSTNIC_GPU_CALL HsaStatus hsa_amd_agents_allow_access(uint32_t, const Agent*, const uint32_t*,
                                                       const void* memory) {
  return find(memory) ? kHsaSuccess : kHsaInvalidAllocation;
}

HOSTNIC_GPU_CALL HsaStatus hsa_amd_pointer_info(const void* asked, PointerInfo* info,
                                                void* (*allocate_array)(size_t), uint32_t* count,
                                                Agent** accessible) {
  enum : int { kUnknown = 0, kAllocated = 1, kLocked = 2 };
  if (info == nullptr) return kHsaInvalidArgument;
  const auto block = find(asked);
  PointerInfo facts{.size = sizeof(PointerInfo),
                    .type = kUnknown,
                    .agent_base = nullptr,
                    .host_base = nullptr,
                    .bytes = 0,
                    .user_data = nullptr,
                    .owner = {0},
                    .global_flags = 0};
  if (block) {
    const bool is_device = block->kind == Kind::kDevice;
    const auto* const base = reinterpret_cast<const void*>(block->address);
    facts.type = block->kind == Kind::kRegistered ? kLocked : kAllocated;
    facts.agent_base = base;
    facts.host_base = is_device && !options().loads ? nullptr : base;
    facts.bytes = block->bytes;
    facts.owner.handle =
        is_device ? kProcessor + 1 + static_cast<uint64_t>(block->device) : kProcessor;
    facts.global_flags = is_device ? kCoarseGrained : kFineGrained;
  }
  // Older programs have a shorter structure, and say so in it.
  const size_t room = info->size < sizeof(facts) ? info->size : sizeof(facts);
  facts.size = static_cast<uint32_t>(room);
  memcpy(info, &facts, room);
  if (count != nullptr) *count = block ? 1 : 0;
  if (accessible == nullptr) return kHsaSuccess;
  *accessible = nullptr;
  if (!block || allocate_array == nullptr) return kHsaSuccess;
  *accessible = static_cast<Agent*>(allocate_array(sizeof(Agent)));
  if (*accessible == nullptr) return kHsaOutOfResources;
  **accessible = facts.owner;
  return kHsaSuccess;
}

HOSTNIC_GPU_CALL HsaStatus hsa_amd_portable_export_dmabuf(const void* address, size_t bytes,
                                                          int* fd, uint64_t* offset) {
  return hsa_status(export_file(address, bytes, fd, offset));
}
HOSTNIC_GPU_CALL HsaStatus hsa_amd_portable_close_dmabuf(int fd) {
  return close(fd) == 0 ? kHsaSuccess : kHsaInvalidArgument;
}

HOSTNIC_GPU_CALL HsaStatus hsa_memory_copy(void* to, const void* from, size_t bytes) {
  return hsa_status(copy(to, from, bytes));
}
HOSTNIC_GPU_CALL HsaStatus hsa_amd_memory_fill(void* to, uint32_t value, size_t count) {
  return hsa_status(fill(to, value, 4, count));
}
HOSTNIC_GPU_CALL HsaStatus hsa_amd_memory_lock(void* memory, size_t bytes, const Agent*, int,
                                               void** out) {
  const Result done = out == nullptr ? Result::kInvalidValue : register_host(memory, bytes);
  if (done == Result::kSuccess) *out = memory;
  return hsa_status(done);
}
HOSTNIC_GPU_CALL HsaStatus hsa_amd_memory_unlock(void* memory) {
  return hsa_status(unregister_host(memory));
}
