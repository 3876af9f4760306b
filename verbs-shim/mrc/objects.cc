// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/mrc/objects.h"

#include <array>

namespace hostnic::libmrc {
namespace {

std::mutex mutex;

// The live objects, by their addresses: programs with ten thousand queue pairs change each of them.
constexpr size_t kBuckets = 1024;
constinit std::array<Object*, kBuckets> buckets{};

Object*& bucket_of(const Object* object) {
  constexpr uint64_t kSpread = 0x9e3779b97f4a7c15;
  constexpr uint32_t kUpperTenBits = 54;
  return buckets[reinterpret_cast<uintptr_t>(object) * kSpread >> kUpperTenBits];
}

}  // namespace

std::unique_lock<std::mutex> lock_objects() { return std::unique_lock(mutex); }

bool is_live(Kind kind, const Object* object) {
  for (const Object* each = bucket_of(object); each != nullptr; each = each->next)
    if (each == object) return each->kind == kind;
  return false;
}

void add_object(Object& object) {
  Object*& first = bucket_of(&object);
  object.next = first;
  first = &object;
  if (object.context != nullptr) ++object.context->objects;
}

void remove_object(Object& object) {
  Object** at = &bucket_of(&object);
  while (*at != &object) at = &(*at)->next;
  *at = object.next;
  if (object.context != nullptr) --object.context->objects;
}

bool is_object(Kind kind, const Object* object) {
  const auto lock = lock_objects();
  return is_live(kind, object);
}

bool is_object_in(Kind kind, const Object* object, const mrc_context* context) {
  const auto lock = lock_objects();
  return is_live(kind, object) && object->context == context;
}

}  // namespace hostnic::libmrc
