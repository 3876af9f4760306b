// SPDX-License-Identifier: BSD-3-Clause
// Protection domains, thread domains, and parent domains, which extend the first by the second.
#include <cstdio>

#include "verbs-shim/abi/context_table.h"
#include "verbs-shim/abi/exports.h"
#include "verbs-shim/abi/limits.h"
#include "verbs-shim/abi/real_verbs.h"
#include "verbs-shim/abi/registry.h"
#include "verbs-shim/base/refusal.h"

using namespace hostnic::abi;
using hostnic::ObjectKind;

namespace {

ibv_pd* create(ibv_context* context) {
  auto pd = std::make_unique<PdObject>();
  pd->id = next_object_id();
  pd->owner = object_of(context);
  pd->context = context;
  pd->handle = static_cast<uint32_t>(pd->id);
  ObjectLock lock = lock_objects();
  if (is_unusable(*pd->owner)) return fail_null(EIO);
  if (pd->owner->pds == offer_of(*pd->owner).max_pds) return fail_null(ENOMEM);
  ++pd->owner->pds;
  add_object(Kind::kPd, pd.get(), *pd);
  show(*pd, {.kind = ObjectKind::kPd, .handle = pd->handle});
  return pd.release();
}

// Returns 0, or why there can't be such a parent domain. [registry]
int check(const ContextObject& context, const ibv_parent_domain_init_attr& attr) {
  // Allocators are refused: queues are in memory that hostnicd made, and nobody else could. So are
  // fields of newer libraries; programs take EOPNOTSUPP for "not on this device".
  constexpr uint32_t kSupported = IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  if (attr.comp_mask & ~kSupported) return EOPNOTSUPP;
  if (!is_live_in(Kind::kPd, attr.pd, &context)) return ENOENT;
  if (attr.td != nullptr && !is_live_in(Kind::kTd, attr.td, &context)) return ENOENT;
  if (is_unusable(context)) return EIO;
  return context.pds == offer_of(context).max_pds ? ENOMEM : 0;
}

ibv_pd* extend(ContextObject& context, const ibv_parent_domain_init_attr& attr) {
  auto pd = std::make_unique<PdObject>();
  ObjectLock lock = lock_objects();
  if (int error = check(context, attr)) return fail_null(error);
  pd->id = next_object_id();
  pd->owner = &context;
  pd->context = public_of(&context);
  pd->handle = attr.pd->handle;
  pd->extended = object_of(attr.pd);
  pd->thread_domain = attr.td != nullptr ? object_of(attr.td) : nullptr;
  add_object(Kind::kPd, pd.get(), *pd);
  ++context.pds;
  ++pd->extended->users;
  if (pd->thread_domain != nullptr) ++pd->thread_domain->users;
  return pd.release();
}

ibv_td* create_thread_domain(ContextObject& context) {
  auto td = std::make_unique<TdObject>();
  td->id = next_object_id();
  td->owner = &context;
  td->context = public_of(&context);
  ObjectLock lock = lock_objects();
  if (is_unusable(context)) return fail_null(EIO);
  add_object(Kind::kTd, td.get(), *td);
  return td.release();
}

}  // namespace

namespace hostnic::abi {

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attr) {
  const CancellationOff cancellation_off;
  if (!is_ours(Kind::kContext, context) || attr->comp_mask != 0) return fail_null(EINVAL);
  return without_exceptions([&] { return create_thread_domain(*object_of(context)); });
}

int dealloc_td(ibv_td* td) {
  const CancellationOff cancellation_off;
  {
    ObjectLock lock = lock_objects();
    const int claimed = claim(Kind::kTd, td, [td] { return object_of(td)->users != 0; });
    if (claimed != 0) return fail(claimed == kNotOurs ? ENOENT : claimed);
    remove_object(td);
  }
  delete object_of(td);
  return 0;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attr) {
  const CancellationOff cancellation_off;
  if (!is_ours(Kind::kContext, context)) return fail_null(EINVAL);
  return without_exceptions([&] { return extend(*object_of(context), *attr); });
}

// Says by which objects a domain is in use.
static void tell_users(ibv_pd& pd) {
  char users[160] = "";
  size_t used = 0;
  const ObjectLock lock = lock_objects();
  const auto count = [&]<class Object>(Kind kind, const char* name, Object*) {
    int found = 0;
    for (void* object : objects_of(kind, object_of(&pd)->owner))
      found += static_cast<Object*>(object)->pd == &pd ? 1 : 0;
    if (found == 0 || used >= sizeof users) return;
    used +=
        static_cast<size_t>(snprintf(users + used, sizeof users - used, "%s%d %s%s",
                                     used == 0 ? "" : ", ", found, name, found == 1 ? "" : "s"));
  };
  count(Kind::kQp, "queue pair", static_cast<ibv_qp*>(nullptr));
  count(Kind::kMr, "memory region", static_cast<ibv_mr*>(nullptr));
  count(Kind::kMw, "memory window", static_cast<ibv_mw*>(nullptr));
  count(Kind::kSrq, "shared receive queue", static_cast<ibv_srq*>(nullptr));
  count(Kind::kAh, "address handle", static_cast<ibv_ah*>(nullptr));
  if (used == 0) snprintf(users, sizeof users, "parent domains or completion queues");
  refuse({.reason = Reason::kInUse, .text = users});
  tell_refusal("ibv_dealloc_pd", 0, EBUSY);
}

}  // namespace hostnic::abi

HOSTNIC_VERB ibv_pd* ibv_alloc_pd(ibv_context* context) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_pd*(ibv_context*)> real("ibv_alloc_pd", "IBVERBS_1.1");
  if (!is_ours(Kind::kContext, context)) return real.foreign(context);
  return without_exceptions([&] { return create(context); });
}

HOSTNIC_VERB int ibv_dealloc_pd(ibv_pd* pd) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_pd*)> real("ibv_dealloc_pd", "IBVERBS_1.1");
  int claimed = 0;
  {
    ObjectLock lock = lock_objects();
    claimed = claim(Kind::kPd, pd, [pd] { return object_of(pd)->users != 0; });
    if (claimed == 0) {
      PdObject* object = object_of(pd);
      remove_object(pd);
      hide(*object);
      --object->owner->pds;
      if (object->extended != nullptr) --object->extended->users;
      if (object->thread_domain != nullptr) --object->thread_domain->users;
    }
  }
  if (claimed == kNotOurs) return real.foreign(pd);
  if (claimed != 0) {
    if (claimed == EBUSY) tell_users(*pd);
    return fail(claimed);
  }
  delete object_of(pd);
  return 0;
}
