// SPDX-License-Identifier: BSD-3-Clause
// The objects of libmrc.so: each stands for one of libhostnic-verbs.so, and keeps what verbs don't.
// Which pointers are live objects is known for the calls that change something; posting and polling
// trust their pointers, as verbs do.
//
// Locking: one lock of the process guards the list of objects, counts of users and queue pairs'
// attributes. No verb is called with it, and no call waits with it.
#pragma once

#include <cerrno>
#include <cstdint>
#include <mutex>
#include <new>

#include "verbs-shim/libraries/mrc_door.h"
#include "verbs-shim/mrc/mrc_ctl.h"

namespace hostnic::libmrc {

enum class Kind : uint8_t { kContext, kChannel, kCq, kQp, kHint };

// A member of the list of live objects.
struct Object {
  explicit Object(Kind of_kind, mrc_context* of_context) : kind(of_kind), context(of_context) {}
  const Kind kind;
  mrc_context* const context;  // null for a context
  Object* next = nullptr;      // in objects.cc
};

}  // namespace hostnic::libmrc

struct mrc_context : hostnic::libmrc::Object {
  mrc_context(ibv_context* of, const hostnic::MrcDevice& device_of)
      : Object(hostnic::libmrc::Kind::kContext, nullptr), verbs(of), device(device_of) {}
  ibv_context* const verbs;
  const hostnic::MrcDevice device;
  uint32_t objects = 0, hints = 0;  // of this context
};

struct mrc_comp_channel : hostnic::libmrc::Object {
  explicit mrc_comp_channel(mrc_context* of) : Object(hostnic::libmrc::Kind::kChannel, of) {}
  ibv_comp_channel* verbs = nullptr;
};

struct mrc_cq : hostnic::libmrc::Object {
  mrc_cq(mrc_context* of, void* for_user)
      : Object(hostnic::libmrc::Kind::kCq, of), user(for_user) {}
  ibv_cq* verbs = nullptr;
  void* const user;
};

struct mrc_qp_hint : hostnic::libmrc::Object {
  mrc_qp_hint(mrc_context* of, const mrc_qp_hint_attr& as)
      : Object(hostnic::libmrc::Kind::kHint, of), attr(as) {}
  mrc_qp_hint_attr attr;
  uint32_t users = 0;
};

struct mrc_qp : hostnic::libmrc::Object {
  mrc_qp(mrc_context* of, const mrc_qp_init_attr& as)
      : Object(hostnic::libmrc::Kind::kQp, of), init(as) {}
  ibv_qp* verbs = nullptr;
  mrc_qp_init_attr init;
  mrc_qp_attr attr{};
  bool no_imm = false;  // the program has agreed to no WRITE with immediate data
};

namespace hostnic::libmrc {

std::unique_lock<std::mutex> lock_objects();

// All with the lock. `object` may be anything, null too.
bool is_live(Kind kind, const Object* object);
void add_object(Object& object);
void remove_object(Object& object);
// The object that stands for a queue pair or completion queue of verbs, which has it as its
// context; null: the program has made that by verbs itself.
template <class T, class Verbs>
T* standing_for(Kind kind, const Verbs* verbs, void* context) {
  T* object = static_cast<T*>(context);
  return is_live(kind, object) && object->verbs == verbs ? object : nullptr;
}

// Whether it is live, and of this context; both take the lock.
bool is_object(Kind kind, const Object* object);
bool is_object_in(Kind kind, const Object* object, const mrc_context* context);

// A new object, or null with errno ENOMEM. It is live when the caller has added it.
template <class T, class... Arguments>
T* make(Arguments&&... arguments) {
  T* made = new (std::nothrow) T(static_cast<Arguments&&>(arguments)...);
  if (made == nullptr) errno = ENOMEM;
  return made;
}

}  // namespace hostnic::libmrc
