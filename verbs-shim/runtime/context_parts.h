// SPDX-License-Identifier: BSD-3-Clause
// What an open device has: its connection to hostnicd, the segment, and what hostnicd has been told
// of it. For context.cc, the device's life, and context_requests.cc, what it asks hostnicd.
#pragma once

#include <errno.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>

#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "protocol/bytes_of.h"
#include "protocol/hostif/core_sharing.h"
#include "verbs-shim/base/log.h"
#include "verbs-shim/memory/memory_registrar.h"
#include "verbs-shim/runtime/context.h"
#include "verbs-shim/runtime/control_client.h"
#include "verbs-shim/runtime/core_sharing.h"
#include "verbs-shim/runtime/owed_lines.h"
#include "verbs-shim/runtime/registered_ranges.h"
#include "verbs-shim/runtime/service_thread.h"

namespace hostnic::runtime {

struct Context::Parts {
  explicit Parts(ControlClient control_client) : control(std::move(control_client)) {}

  std::mutex control_mutex;
  ControlClient control;
  OwnFd arena_fd, doorbell_fd;
  SegmentMemory segment;
  const DoorbellPage* doorbell = nullptr;
  bool lcore_fences = false;  // the lcore fences our threads before it sleeps
  SegmentHeader* header = nullptr;
  RegisteredRanges registered;
  std::map<Gid, Ipv4Address> named_hosts;  // under control_mutex
  // Registrations whose pages may not all have got into the mirror yet; under control_mutex.
  std::vector<MemoryRegistration> late;
  TimeNs ask_with_lock_ns = 0;  // causes may be asked for from then on; under the driver's lock
  OwedLines owed{[this](const ExplainRequest& request) { return ask_why(request); }, driver::say};
  std::optional<CoreSharing> cores;
  std::optional<ServiceThread> service;

  // Others may be talking to hostnicd, perhaps for long: nobody waits for them.
  std::optional<driver::Why> ask_why(const ExplainRequest& request) {
    const std::unique_lock lock(control_mutex, std::try_to_lock);
    if (!lock) return std::nullopt;
    const auto answer = control.call(ControlKind::kExplain, bytes_of(request), {});
    if (!answer) return driver::Why{};
    return driver::Why{
        {reinterpret_cast<const char*>(answer->payload.data()), answer->payload.size()},
        answer->count};
  }

  void detach() {
    if (user != nullptr) memory::MemoryRegistrar::process().detach(*user);
    user.reset();
  }

  // The user of regions as which the registrar knows this device.
  struct User final : memory::RegionUser {
    explicit User(Parts& parts) : p(parts) {}
    MemoryGate& memory_gate() override { return p.header->memory_gate; }
    void memory_gate_opened() override {
      if (doorbell_wanted(*p.doorbell)) eventfd_write(p.doorbell_fd.get(), 1);
    }
    uint64_t nic_turn_ns() override {
      return p.header->nic_turn_ns.load(std::memory_order_relaxed);
    }
    // A dead hostnicd reaches no memory any more. No NIC uses the mem fd until all devices have
    // been told, and each answer takes hostnicd a turn of some busy core: only those that reach the
    // memory are told.
    void follow_memory(const MemoryChange& change) override {
      if (!memory_moved && !p.registered.overlaps(change.va, change.length_bytes)) return;
      memory_moved |= change.kind == MemoryChangeKind::kMoved;
      std::lock_guard lock(p.control_mutex);
      const int error = p.control.tell(ControlKind::kChangeMemory, bytes_of(change));
      if (error != 0 && error != EIO)
        log_warn("hostnicd refused to hear of changed mappings: %s", strerror(error));
    }
    // EAGAIN: what hostnicd looks at says otherwise; the region is as good, and somewhat slower.
    void memory_filled() override {
      std::lock_guard lock(p.control_mutex);
      std::erase_if(p.late, [this](const MemoryRegistration& mr) {
        if (memory::MemoryRegistrar::process().fills_late(mr.va, mr.length_bytes)) return false;
        const MemoryFilledRequest request{mr.lkey};
        const int error = p.control.tell(ControlKind::kMemoryFilled, bytes_of(request));
        if (error != 0 && error != EIO && error != EAGAIN)
          log_warn("hostnicd refused to hear that memory is filled: %s", strerror(error));
        return error != EAGAIN;
      });
    }
    Parts& p;
    bool memory_moved = false;  // regions' memory may be where it was not registered
  };
  std::unique_ptr<User> user;

  void forget_late(uint32_t lkey) {
    std::erase_if(late, [lkey](const MemoryRegistration& mr) { return mr.lkey == lkey; });
  }

  ~Parts() {
    if (doorbell != nullptr) munmap(const_cast<DoorbellPage*>(doorbell), sizeof(DoorbellPage));
  }
};

}  // namespace hostnic::runtime
