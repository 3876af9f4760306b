// SPDX-License-Identifier: BSD-3-Clause
// Address handles: where UD sends go. The path is resolved once, here.
#include "verbs-shim/abi/context_numbers.h"
#include "verbs-shim/abi/convert.h"
#include "verbs-shim/abi/exports.h"
#include "verbs-shim/abi/limits.h"
#include "verbs-shim/abi/real_verbs.h"
#include "verbs-shim/abi/registry.h"
#include "verbs-shim/base/refusal.h"

using namespace hostnic::abi;

namespace {

ibv_ah* create(ibv_pd* pd, const ibv_ah_attr& attr) {
  auto ah = std::make_unique<AhObject>();
  ah->id = next_object_id();
  ah->context = pd->context;
  ah->pd = pd;
  ah->protection = pd->handle;
  ah->handle = static_cast<uint32_t>(ah->id);
  {
    // hostnicd may be asked for the host, and nobody may wait for that.
    ContextObject& owner = *object_of(pd->context);
    if (is_unusable(owner)) return fail_null(EIO);
    ContextNumbers numbers(*owner.driver);
    if (int error = to_ud_address(attr, owner.driver->device_now(), numbers, ah->path)) {
      hostnic::tell_refusal("ibv_create_ah", 0, error);
      return fail_null(error);
    }
    if (owner.driver->device().asks_for_hosts != 0) {
      if (int error = owner.driver->driver().find_host(ah->path.ip)) return fail_null(error);
    }
  }
  ObjectLock lock = lock_objects();
  if (!is_live(Kind::kPd, pd)) return fail_null(ENOENT);
  ah->owner = object_of(pd)->owner;
  if (is_unusable(*ah->owner)) return fail_null(EIO);
  if (ah->owner->ahs == offer_of(*ah->owner).max_ahs) return fail_null(ENOMEM);
  ++ah->owner->ahs;
  ++object_of(pd)->users;
  add_object(Kind::kAh, ah.get(), *ah);
  return ah.release();
}

}  // namespace

namespace hostnic::abi {

int to_datagram(ibv_qp& qp, ibv_ah* ah, uint32_t qpn, uint32_t qkey, driver::UdAddress& out) {
  constexpr uint32_t kControlled = 0x80000000;  // InfiniBand 10.2.5
  constexpr uint32_t kQpnMask = 0xffffff;       // QPN bits on the wire; adapters don't see what is
                                                // above them
  if (ah == nullptr) return refuse({Reason::kNoDestination});
  out = object_of(ah)->path;
  out.other_domain = object_of(ah)->protection != qp.pd->handle;
  out.qpn = qpn & kQpnMask;
  const QpObject& object = *object_of(&qp);
  out.qkey = (qkey & kControlled) != 0 ? object.qkey.load(std::memory_order_relaxed) : qkey;
  return 0;
}

}  // namespace hostnic::abi

HOSTNIC_VERB int ibv_init_ah_from_wc(ibv_context* context, uint8_t port, ibv_wc* wc, ibv_grh* grh,
                                     ibv_ah_attr* attr) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_context*, uint8_t, ibv_wc*, ibv_grh*, ibv_ah_attr*)> real(
      "ibv_init_ah_from_wc", "IBVERBS_1.1");
  if (!is_ours(Kind::kContext, context)) return real.foreign(context, port, wc, grh, attr);
  if (int error =
          to_return_path(*wc, *grh, port, object_of(context)->driver->device_now(), *attr)) {
    errno = error;
    return -1;
  }
  return 0;
}

HOSTNIC_VERB ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* grh, uint8_t port) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_ah*(ibv_pd*, ibv_wc*, ibv_grh*, uint8_t)> real(
      "ibv_create_ah_from_wc", "IBVERBS_1.1");
  if (!is_ours(Kind::kPd, pd)) return real.foreign(pd, wc, grh, port);
  ibv_ah_attr attr;
  if (ibv_init_ah_from_wc(pd->context, port, wc, grh, &attr) != 0) return nullptr;
  return without_exceptions([&] { return create(pd, attr); });
}

HOSTNIC_VERB ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attr) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_ah*(ibv_pd*, ibv_ah_attr*)> real("ibv_create_ah", "IBVERBS_1.1");
  if (!is_ours(Kind::kPd, pd)) return real.foreign(pd, attr);
  return without_exceptions([&] { return create(pd, *attr); });
}

HOSTNIC_VERB int ibv_destroy_ah(ibv_ah* ah) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_ah*)> real("ibv_destroy_ah", "IBVERBS_1.1");
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
