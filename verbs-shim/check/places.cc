// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/check/places.h"

#include <dlfcn.h>
#include <link.h>
#include <stdio.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>
#include <unwind.h>

#include <string_view>

#include "verbs-shim/check/check.h"
#include "verbs-shim/check/report.h"

namespace hostnic::check {

[[gnu::tls_model("initial-exec")]] thread_local Entry entry;

namespace {

std::string_view file_name(const char* path) {
  const std::string_view all = path != nullptr ? path : "";
  return all.substr(all.rfind('/') + 1);
}

bool is_between(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return false;
  const std::string_view name = file_name(info.dli_fname);
  return name.starts_with("libhostnic-") || name.starts_with("libibverbs.so") ||
         name.starts_with("librdmacm.so");
}

// What begins and ends programs and threads.
bool is_runtime(const void* address) {
  Dl_info info{};
  if (dladdr(address, &info) == 0) return false;
  const std::string_view name = file_name(info.dli_fname);
  return name.starts_with("libc.so") || name.starts_with("libstdc++.so") ||
         name.starts_with("ld-linux");
}

_Unwind_Reason_Code take_frame(_Unwind_Context* context, void* of) {
  auto& stack = *static_cast<Stack*>(of);
  const uintptr_t place = _Unwind_GetIP(context);
  if (place == 0) return _URC_END_OF_STACK;
  // NOLINTNEXTLINE(performance-no-int-to-ptr)
  const auto* const address = reinterpret_cast<const void*>(place);
  if (stack.count == 0 && (is_between(address) || is_runtime(address))) return _URC_NO_REASON;
  // What called main() says nothing.
  if (is_runtime(address)) return _URC_END_OF_STACK;
  stack.address[stack.count++] = address;
  return stack.count == CheckRecord::kMostPlaces ? _URC_END_OF_STACK : _URC_NO_REASON;
}

}  // namespace

void enters(const char* verb, const void* caller) {
  count_process();
  if (verb[0] == 'r') {
    entry.cm_caller = caller;
    return;
  }
  entry.verb = verb;
  entry.caller = caller;
}

namespace {
[[gnu::tls_model("initial-exec")]] thread_local int tid_of_thread = 0;
}  // namespace

int own_tid() {
  if (tid_of_thread == 0) tid_of_thread = static_cast<int>(syscall(SYS_gettid));
  return tid_of_thread;
}

void forget_tid() { tid_of_thread = 0; }

const void* call_place() {
  return entry.cm_caller != nullptr && is_between(entry.caller) ? entry.cm_caller : entry.caller;
}

Stack stack_of_program() {
  Stack stack;
  _Unwind_Backtrace(take_frame, &stack);
  if (stack.count == 0 && entry.caller != nullptr && !is_runtime(entry.caller))
    stack.address[stack.count++] = entry.caller;
  return stack;
}

void describe(const void* address, CheckPlace& place) {
  Dl_info info{};
  void* extra = nullptr;
  place.is_return = true;
  place.offset = reinterpret_cast<uint64_t>(address);
  if (address == nullptr) return;
  // The call itself: a function may end behind it.
  const void* const call = static_cast<const char*>(address) - 1;
  if (dladdr1(call, &info, &extra, RTLD_DL_LINKMAP) == 0) return;
  const auto* const map = static_cast<const link_map*>(extra);
  place.offset -= map->l_addr;
  if (map->l_name != nullptr && *map->l_name != '\0') {
    snprintf(place.object, sizeof(place.object), "%s", map->l_name);
  } else {
    const ssize_t size = readlink("/proc/self/exe", place.object, sizeof(place.object) - 1);
    place.object[size > 0 ? size : 0] = '\0';
  }
  if (info.dli_sname != nullptr) snprintf(place.symbol, sizeof(place.symbol), "%s", info.dli_sname);
}

bool is_in_executable(const void* address) {
  Dl_info info{};
  void* extra = nullptr;
  if (address == nullptr || dladdr1(address, &info, &extra, RTLD_DL_LINKMAP) == 0) return false;
  const auto* const map = static_cast<const link_map*>(extra);
  return map->l_name == nullptr || *map->l_name == '\0';
}

bool has_unseen_keys() {
  for (const char* name : {"libmlx5.so.1", "libefa.so.1", "libmlx4.so.1"})
    if (void* library = dlopen(name, RTLD_LAZY | RTLD_NOLOAD); library != nullptr) {
      dlclose(library);
      return true;
    }
  return false;
}

}  // namespace hostnic::check
