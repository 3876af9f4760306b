// SPDX-License-Identifier: BSD-3-Clause
// What an open device asks hostnicd: to register memory, for numbers of hosts, for GIDs, and why
// something failed.
#include <errno.h>

#include <algorithm>
#include <cstring>

#include "verbs-shim/base/clock.h"
#include "verbs-shim/runtime/context_parts.h"

namespace hostnic::runtime {

using memory::MemoryRegistrar;

Expected<MemoryRegistration, ContextError> Context::register_memory(
    uint32_t pd, uint64_t va, uint64_t length_bytes, uint64_t iova, uint32_t access,
    const MemoryRegistration* replaced) {
  if (!alive()) return failure(EIO, "the device is dead");
  constexpr uint32_t kRemoteWriting = kAccessRemoteWrite | kAccessRemoteAtomic;
  if ((access & kRemoteWriting) != 0 && (access & kAccessLocalWrite) == 0) {
    return failure(EINVAL, "REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE");
  }
  MemoryRegistrar& registrar = MemoryRegistrar::process();
  const memory::Paging paging =
      (access & kAccessOnDemand) != 0 ? memory::Paging::kOnDemand : memory::Paging::kAsMapped;
  const bool need_write = (access & (kAccessLocalWrite | kRemoteWriting)) != 0;
  Expected<memory::Registration, memory::Error> added{memory::Registration{}};
  // Receives in such regions don't name the memory's address (bring_receive()).
  const memory::Arrival arrival = iova == va ? memory::Arrival::kMayBeLate : memory::Arrival::kNow;
  const memory::LostPages lost_pages =
      (access & kAccessRevocable) != 0 ? memory::LostPages::kRefused : memory::LostPages::kMadeAnew;
  if (length_bytes != 0)
    added = registrar.add(va, length_bytes, need_write, paging, arrival, lost_pages);
  if (!added) return failure(added.error().error, added.error().message);
  RegisteredRanges& registered = parts_->registered;
  if (length_bytes != 0) registered.add(va, length_bytes);
  RegisterMrRequest request{.va = va,
                            .length_bytes = length_bytes,
                            .iova = iova,
                            .access = access,
                            .pd = pd,
                            .region_count = static_cast<uint32_t>(added->regions.size()),
                            .replaced_key = replaced == nullptr ? 0 : replaced->lkey};
  auto answer = send_registration(*added, request);
  // Another thread may have taken pages away that hostnicd was about to map.
  if (!answer && answer.error().error == EINVAL && length_bytes != 0 &&
      lost_pages == memory::LostPages::kMadeAnew && registrar.fall_back(va, length_bytes, *added)) {
    request.region_count = 1;
    answer = send_registration(*added, request);
  }
  if (!answer) {
    if (length_bytes != 0) registered.remove(va, length_bytes);
    registrar.remove(va, length_bytes, added->number);
    return Unexpected(answer.error());
  }
  registrar.tell_pins(*added);
  if (replaced != nullptr) {
    if (replaced->length_bytes != 0) registered.remove(replaced->va, replaced->length_bytes);
    registrar.remove(replaced->va, replaced->length_bytes, replaced->number);
    std::lock_guard lock(parts_->control_mutex);
    parts_->forget_late(replaced->lkey);
  }
  const MemoryRegistration registration{answer->lkey, answer->rkey, va, length_bytes,
                                        added->number};
  const auto is_late = [](const MemoryRegion& region) {
    return region.kind == RegionKind::kMirrorLate;
  };
  if (std::ranges::any_of(added->regions, is_late)) {
    {
      std::lock_guard lock(parts_->control_mutex);
      parts_->late.push_back(registration);
    }
    registrar.look_for_filled();
  }
  registrar.after_registration(va, length_bytes);
  return registration;
}

Expected<RegisterMrReply, ContextError> Context::send_registration(
    const memory::Registration& registration, const RegisterMrRequest& request) {
  if (registration.regions.size() > kMaxRegionsPerMr) {
    return failure(ENOMEM, "the memory region consists of too many pieces; register it in parts");
  }
  std::vector<std::byte> payload(sizeof(request) +
                                 registration.regions.size() * sizeof(MemoryRegion));
  std::memcpy(payload.data(), &request, sizeof(request));
  std::memcpy(payload.data() + sizeof(request), registration.regions.data(),
              registration.regions.size() * sizeof(MemoryRegion));
  std::vector<int> fds;
  for (const UniqueFd& fd : registration.fds) fds.push_back(fd.get());
  std::lock_guard lock(parts_->control_mutex);
  auto answer = parts_->control.call(ControlKind::kRegisterMr, payload, fds);
  if (!answer) return Unexpected(answer.error());
  return answer->as<RegisterMrReply>();
}

int Context::deregister_memory(const MemoryRegistration& registration) {
  if (alive()) {
    const DeregisterMrRequest request{registration.lkey};
    std::lock_guard lock(parts_->control_mutex);
    auto answer = parts_->control.call(ControlKind::kDeregisterMr, bytes_of(request), {});
    // EBUSY means that windows are bound to the region, or packets refer to it: it remains. A dead
    // hostnicd refers to nothing, nor does one that has no such region.
    if (!answer && answer.error().error == EBUSY) return EBUSY;
    parts_->forget_late(registration.lkey);
    if (registration.length_bytes != 0)
      parts_->registered.remove(registration.va, registration.length_bytes);
  }
  MemoryRegistrar::process().remove(registration.va, registration.length_bytes,
                                    registration.number);
  return 0;
}

Expected<Ipv4Address, int> Context::number_of(const Gid& host) {
  if (const auto ip = ipv4_of(host)) return *ip;
  if (!alive()) return Unexpected(EIO);
  std::lock_guard lock(parts_->control_mutex);
  const auto known = parts_->named_hosts.find(host);
  if (known != parts_->named_hosts.end()) return known->second;
  NameHostRequest request{};
  std::memcpy(request.gid, host.data(), host.size());
  auto answer = parts_->control.call(ControlKind::kNameHost, bytes_of(request), {});
  if (!answer) {
    log_info("%s: no number for %s: %s", device_.name, to_string(host).c_str(),
             answer.error().message.c_str());
    return Unexpected(answer.error().error);
  }
  const Ipv4Address number{answer->as<NameHostReply>().number};
  parts_->named_hosts.emplace(host, number);
  return number;
}

// Asks hostnicd for the device's GID table. Returns false if that is to be tried again: others are
// talking to hostnicd, perhaps for long.
bool Context::refresh_gids() {
  const std::unique_lock lock(parts_->control_mutex, std::try_to_lock);
  if (!lock) return false;
  const auto answer = parts_->control.call(ControlKind::kListDevices, {}, {});
  if (answer && answer->payload.size() >= sizeof(DeviceInfo)) gids_.set(answer->as<DeviceInfo>(0));
  return true;
}

// The driver's lock is held. Where hostnicd waits for a processor it takes a second to answer: once
// it has taken long, causes are asked for without the lock for some time.
std::optional<driver::Why> Context::ask_why(const ExplainRequest& request) {
  constexpr uint64_t kLongNs = 5'000'000, kWithoutLockNs = 1'000'000'000;
  if (!alive()) return driver::Why{};
  const TimeNs begin_ns = monotonic_ns();
  if (begin_ns < parts_->ask_with_lock_ns) return std::nullopt;
  auto why = parts_->ask_why(request);
  const TimeNs end_ns = monotonic_ns();
  if (end_ns - begin_ns > kLongNs) parts_->ask_with_lock_ns = end_ns + kWithoutLockNs;
  return why;
}

// Called with the driver's lock: nothing is asked here.
void Context::owe_line(const driver::OwedLine& line) {
  parts_->owed.add(line, monotonic_ns());
  wake_service(*parts_->header);
}

}  // namespace hostnic::runtime
