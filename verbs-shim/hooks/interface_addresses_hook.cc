// SPDX-License-Identifier: BSD-3-Clause
// getifaddrs() and freeifaddrs() with the addresses of NICs on the virtual wire at the list's end.
// Compiled without sanitizers, like path_hook.cc.
#include <cerrno>
#include <cstdlib>
#include <new>

#include "verbs-shim/base/cancellation.h"
#include "verbs-shim/elf/next_function.h"
#include "verbs-shim/hooks/interface_addresses.h"

using namespace hostnic::hooks;

extern "C" __attribute__((visibility("default"))) int getifaddrs(ifaddrs** list) {
  static constinit std::atomic<int (*)(ifaddrs**)> known{nullptr};
  const auto real = hostnic::elf::next_function(known, "getifaddrs");
  const int result = real(list);
  if (result != 0) return result;
  const hostnic::CancellationOff cancellation_off;
  const int saved_errno = errno;
  try {
    ifaddrs** end = list;
    while (*end != nullptr) end = &(*end)->ifa_next;
    *end = wire_addresses(*list);
  } catch (const std::bad_alloc&) {
  }
  errno = saved_errno;
  return 0;
}

extern "C" __attribute__((visibility("default"))) void freeifaddrs(ifaddrs* list) {
  static constinit std::atomic<void (*)(ifaddrs*)> known{nullptr};
  ifaddrs* ours = list;
  ifaddrs* last_real = nullptr;
  for (; ours != nullptr && !is_wire_address(*ours); ours = ours->ifa_next) last_real = ours;
  if (last_real != nullptr) last_real->ifa_next = nullptr;
  hostnic::elf::next_function(known, "freeifaddrs")(last_real != nullptr ? list : nullptr);
  free(ours);
}
