// Protection domains.
#include "verbs-shim/abi/exports.h"
#include "verbs-shim/abi/limits.h"
#include "verbs-shim/abi/real_verbs.h"
#include "verbs-shim/abi/registry.h"

using namespace hostnic::abi;

namespace {

ibv_pd* create(ibv_context* context) {
  auto pd = std::make_unique<PdObject>();
  pd->id = next_object_id();
  pd->owner = object_of(context);
  pd->context = context;
  pd->handle = static_cast<uint32_t>(pd->id);
  ObjectLock lock = lock_objects();
  if (is_unusable(*pd->owner)) return fail_null(EIO);
  if (pd->owner->pds == kMaxPds) return fail_null(ENOMEM);
  ++pd->owner->pds;
  add_object(Kind::kPd, pd.get(), *pd);
  return pd.release();
}

}  // namespace

HOSTNIC_VERB ibv_pd* ibv_alloc_pd(ibv_context* context) {
  static const RealVerb<ibv_pd*(ibv_context*)> real("ibv_alloc_pd", "IBVERBS_1.1");
  if (!is_ours(Kind::kContext, context)) return real.foreign(context);
  return without_exceptions([&] { return create(context); });
}

HOSTNIC_VERB int ibv_dealloc_pd(ibv_pd* pd) {
  static const RealVerb<int(ibv_pd*)> real("ibv_dealloc_pd", "IBVERBS_1.1");
  int claimed = 0;
  {
    ObjectLock lock = lock_objects();
    claimed = claim(Kind::kPd, pd, [pd] { return object_of(pd)->users != 0; });
    if (claimed == 0) {
      remove_object(pd);
      --object_of(pd)->owner->pds;
    }
  }
  if (claimed == kNotOurs) return real.foreign(pd);
  if (claimed != 0) return fail(claimed);
  delete object_of(pd);
  return 0;
}
