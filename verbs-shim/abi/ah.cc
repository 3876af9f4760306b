// Address handles: checked and recorded. Only UD sends use them, and UD queue pairs are refused.
#include "verbs-shim/abi/convert.h"
#include "verbs-shim/abi/exports.h"
#include "verbs-shim/abi/limits.h"
#include "verbs-shim/abi/real_verbs.h"
#include "verbs-shim/abi/registry.h"

using namespace hostnic::abi;

namespace {

ibv_ah* create(ibv_pd* pd, const ibv_ah_attr& attr) {
  auto ah = std::make_unique<AhObject>();
  ah->id = next_object_id();
  ah->context = pd->context;
  ah->pd = pd;
  ah->handle = static_cast<uint32_t>(ah->id);
  ah->attr = attr;
  ObjectLock lock = lock_objects();
  if (!is_live(Kind::kPd, pd)) return fail_null(EINVAL);
  ah->owner = object_of(pd)->owner;
  if (ah->owner->ahs == kMaxAhs) return fail_null(ENOMEM);
  const bool path = attr.port_num == kPortNumber &&
                    (!attr.is_global || attr.grh.sgid_index < kGidTableLength) &&
                    destination_ip(attr, ah->owner->driver->device().ip);
  if (!path) return fail_null(EINVAL);
  ++ah->owner->ahs;
  ++object_of(pd)->users;
  add_object(Kind::kAh, ah.get(), *ah);
  return ah.release();
}

}  // namespace

HOSTNIC_VERB ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  static const RealVerb<ibv_ah*(ibv_pd*, ibv_ah_attr*)> real("ibv_create_ah", "IBVERBS_1.1");
  if (!is_ours(Kind::kPd, pd)) return real.foreign(pd, attr);
  return without_exceptions([&] { return create(pd, *attr); });
}

HOSTNIC_VERB int ibv_destroy_ah(ibv_ah* ah) {
  static const RealVerb<int(ibv_ah*)> real("ibv_destroy_ah", "IBVERBS_1.1");
  int claimed = 0;
  {
    ObjectLock lock = lock_objects();
    claimed = claim(Kind::kAh, ah, [] { return false; });
    if (claimed == 0) {
      remove_object(ah);
      --object_of(ah)->owner->ahs;
      --object_of(ah->pd)->users;
    }
  }
  if (claimed == kNotOurs) return real.foreign(ah);
  if (claimed != 0) return fail(claimed);
  delete object_of(ah);
  return 0;
}
