// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/libraries/forward.h"

#include <cerrno>

// The tables that make_forwards.py writes: the functions, and where their jumps lead.
extern "C" [[gnu::visibility("hidden")]] const hostnic::Forward hostnic_forwards[];
extern "C" [[gnu::visibility("hidden")]] void* hostnic_targets[];

namespace {

int fails_with_errno() {
  errno = ENOSYS;
  return ENOSYS;
}
int fails_with_minus_one() {
  errno = ENOSYS;
  return -1;
}
void* fails_with_nothing() {
  errno = ENOSYS;
  return nullptr;
}
const char* fails_with_text() {
  errno = ENOSYS;
  return "";
}

void* failing(hostnic::ForwardFailure failure) {
  switch (failure) {
    case hostnic::ForwardFailure::kErrno:
      return reinterpret_cast<void*>(&fails_with_errno);
    case hostnic::ForwardFailure::kMinusOne:
      return reinterpret_cast<void*>(&fails_with_minus_one);
    case hostnic::ForwardFailure::kText:
      return reinterpret_cast<void*>(&fails_with_text);
    case hostnic::ForwardFailure::kNothing:
      break;
  }
  return reinterpret_cast<void*>(&fails_with_nothing);
}

}  // namespace

// Finds out where a function leads to, for its first call. Threads that come at the same time find
// the same. What nobody has is asked for again: a library may be loaded later.
extern "C" [[gnu::visibility("hidden"), gnu::used]] void* hostnic_find_target(uint32_t index) {
  const hostnic::Forward& forward = hostnic_forwards[index];
  void* target = hostnic_library_symbol(forward.to, forward.name, forward.version);
  if (target == nullptr) return failing(forward.failure);
  __atomic_store_n(&hostnic_targets[index], target, __ATOMIC_RELEASE);
  return target;
}
