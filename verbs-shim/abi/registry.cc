// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/abi/registry.h"

#include <atomic>
#include <unordered_map>

namespace hostnic::abi {
namespace {

struct Entry {
  Kind kind;
  bool dying;
  uint32_t handle;
  const ContextObject* owner;
  uint64_t id;
};

struct Registry {
  std::mutex mutex;
  std::unordered_map<const void*, Entry> objects;
  std::unordered_map<uint64_t, void*> by_id;
};

// The registry is never destroyed: other threads may still use verbs while the process exits.
Registry& registry() {
  static Registry& instance = *new Registry;
  return instance;
}

// The handle as the program sees it, which may have any value by now. Contexts, channels and thread
// domains have none.
uint32_t handle_of(Kind kind, const void* object) {
  switch (kind) {
    case Kind::kPd:
      return static_cast<const ibv_pd*>(object)->handle;
    case Kind::kMr:
      return static_cast<const ibv_mr*>(object)->handle;
    case Kind::kMw:
      return static_cast<const ibv_mw*>(object)->handle;
    case Kind::kCq:
      return static_cast<const ibv_cq*>(object)->handle;
    case Kind::kSrq:
      return static_cast<const ibv_srq*>(object)->handle;
    case Kind::kQp:
      return static_cast<const ibv_qp*>(object)->handle;
    case Kind::kAh:
      return static_cast<const ibv_ah*>(object)->handle;
    case Kind::kContext:
    case Kind::kChannel:
    case Kind::kTd:
      break;
  }
  return 0;
}

const Entry* find(Kind kind, const void* object) {
  const auto& objects = registry().objects;
  const auto found = objects.find(object);
  return found != objects.end() && found->second.kind == kind ? &found->second : nullptr;
}

}  // namespace

ObjectLock lock_objects() { return ObjectLock(registry().mutex); }

uint64_t next_object_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

void add_object(Kind kind, void* object, const ObjectBase& base) {
  registry().objects[object] = {kind, false, handle_of(kind, object), base.owner, base.id};
  registry().by_id[base.id] = object;
}

void remove_object(void* object) {
  auto& objects = registry().objects;
  const auto found = objects.find(object);
  if (found == objects.end()) return;
  registry().by_id.erase(found->second.id);
  objects.erase(found);
}

bool is_live(Kind kind, const void* object) {
  const Entry* entry = find(kind, object);
  return entry != nullptr && !entry->dying && entry->handle == handle_of(kind, object);
}

bool is_live_in(Kind kind, const void* object, const ContextObject* owner) {
  const Entry* entry = find(kind, object);
  return entry != nullptr && entry->owner == owner && is_live(kind, object);
}

bool is_ours_in(Kind kind, const void* object, const ContextObject* owner) {
  const Entry* entry = find(kind, object);
  return entry != nullptr && !entry->dying && entry->owner == owner;
}

bool is_known(Kind kind, const void* object) { return find(kind, object) != nullptr; }

void* find_object(Kind kind, uint64_t id) {
  const auto found = registry().by_id.find(id);
  if (found == registry().by_id.end()) return nullptr;
  const Entry* entry = find(kind, found->second);
  return entry != nullptr && !entry->dying ? found->second : nullptr;
}

std::vector<void*> contexts() {
  std::vector<void*> found;
  for (const auto& [object, entry] : registry().objects) {
    if (entry.kind == Kind::kContext) found.push_back(const_cast<void*>(object));
  }
  return found;
}

std::vector<void*> objects_of(Kind kind, const ContextObject* owner) {
  std::vector<void*> found;
  for (const auto& [id, object] : registry().by_id) {
    if (is_ours_in(kind, object, owner)) found.push_back(object);
  }
  return found;
}

int claim(Kind kind, void* object, const std::function<bool()>& busy) {
  if (!is_live(kind, object)) return is_known(kind, object) ? ENOENT : kNotOurs;
  if (busy()) return EBUSY;
  registry().objects[object].dying = true;
  return 0;
}

void unclaim(void* object) {
  if (const auto found = registry().objects.find(object); found != registry().objects.end())
    found->second.dying = false;
}

bool is_ours(Kind kind, const void* object) {
  ObjectLock lock = lock_objects();
  const Entry* entry = find(kind, object);
  return entry != nullptr && !entry->dying;
}

int check_handle(Kind kind, const void* object) {
  ObjectLock lock = lock_objects();
  return is_live(kind, object) ? 0 : ENOENT;
}

}  // namespace hostnic::abi
