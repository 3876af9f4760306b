// SPDX-License-Identifier: BSD-3-Clause
// Which pointers are live objects of ours: programs hand in handles that belong to a real adapter,
// to another context, or to nobody any more, and none of these may crash.
#pragma once

#include <cerrno>
#include <cstdint>
#include <functional>
#include <mutex>
#include <new>
#include <vector>

#include "verbs-shim/abi/objects.h"
#include "verbs-shim/base/cancellation.h"

namespace hostnic::abi {

enum class Kind : uint8_t { kContext, kPd, kMr, kChannel, kCq, kSrq, kQp, kAh, kMw, kTd };

using ObjectLock = std::unique_lock<std::mutex>;
// One lock for all control-path bookkeeping of the process; the data path never takes it.
ObjectLock lock_objects();

// Returns a number for a new object.
uint64_t next_object_id();

// All functions below, down to unclaim(), want the registry lock held. `object` is the address that
// the program has.
void add_object(Kind kind, void* object, const ObjectBase& base);
void remove_object(void* object);
// Whether it is an object of ours that is not being destroyed, with the handle that it was given.
// Programs can write over that, and the kernel, which knows objects by it, then finds none.
bool is_live(Kind kind, const void* object);
// Whether it is such an object, and of this context.
bool is_live_in(Kind kind, const void* object, const ContextObject* owner);
// Whether it is a live object of this context, without a look at the handle: for work requests,
// which don't reach the kernel.
bool is_ours_in(Kind kind, const void* object, const ContextObject* owner);
// Whether an object is live, or waits in its destroy function for events to be acknowledged.
bool is_known(Kind kind, const void* object);
// The live object with this id, or null.
void* find_object(Kind kind, uint64_t id);
// All open contexts.
std::vector<void*> contexts();
// All live objects of a context, of one kind.
std::vector<void*> objects_of(Kind kind, const ContextObject* owner);

constexpr int kNotOurs = -1;
// Takes the first step of every destroy function: from here on the object is not live, so that a
// second destroy or a new use is refused. Returns 0, ENOENT when it is being destroyed or its
// handle is not what it was, EBUSY when `busy` says that it is referenced, or kNotOurs. `object`
// stays known until remove_object().
int claim(Kind kind, void* object, const std::function<bool()>& busy);

// Makes a claimed object live again, which can't be destroyed after all.
void unclaim(void* object);

// Both take the lock. is_ours() says whether it is an object of ours that is not being destroyed,
// whatever its handle: else the call is for the real library. check_handle() returns 0, or ENOENT
// for an object that is not live.
bool is_ours(Kind kind, const void* object);
int check_handle(Kind kind, const void* object);

// These come first in every entry point, except in the two that wait for events and those of the
// data path.
using hostnic::cancel_if_overdue;
using hostnic::CancellationOff;

// ---- how verbs fail

inline int fail(int error) {
  errno = error;
  return error;
}
inline std::nullptr_t fail_null(int error) {
  errno = error;
  return nullptr;
}
// Runs `create`; running out of memory is ENOMEM and not an exception in a C program.
template <typename Function>
auto without_exceptions(Function&& create) -> decltype(create()) {
  try {
    return create();
  } catch (const std::bad_alloc&) {
    return fail_null(ENOMEM);
  }
}

}  // namespace hostnic::abi
