// SPDX-License-Identifier: BSD-3-Clause
// Memory windows. What a bind asks for is checked by the NIC when its turn in the send queue comes
// (IBV_WC_MW_BIND_ERR), also of which protection domains its objects are; only pointers that are no
// objects, and flags that there are none of, are refused here.
#include <sys/random.h>

#include "verbs-shim/abi/context_table.h"
#include "verbs-shim/abi/convert.h"
#include "verbs-shim/abi/registry.h"
#include "verbs-shim/base/refusal.h"

namespace hostnic::abi {
namespace {

constexpr unsigned int kWindowAccess = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                                       IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED;
// A window has no use for these flags, but programs give it those that they registered the region
// with, and adapters take them.
constexpr unsigned int kRegionAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_MW_BIND |
                                       IBV_ACCESS_ON_DEMAND | IBV_ACCESS_HUGETLB |
                                       IBV_ACCESS_OPTIONAL_RANGE;

// Makes another key of the same type 1 window, which nobody can tell from the old one.
uint32_t another_key(uint32_t key) {
  uint32_t tag = 0;
  if (getrandom(&tag, sizeof tag, GRND_NONBLOCK) < 0) tag = key + 1;
  if (((tag ^ key) & kWindowTagMask) == 0) ++tag;
  return (key & ~kWindowTagMask) | (tag & kWindowTagMask);
}

ibv_mw* create(ibv_pd* pd, ibv_mw_type type) {
  auto mw = std::make_unique<MwObject>();
  ContextObject* owner = object_of(pd)->owner;
  if (is_unusable(*owner)) return fail_null(EIO);
  const auto key = owner->driver->driver().create_window(pd->handle, static_cast<WindowType>(type));
  if (!key) return fail_null(key.error());
  mw->id = next_object_id();
  mw->owner = owner;
  mw->context = pd->context;
  mw->pd = pd;
  mw->rkey = mw->made_key = *key;
  mw->handle = static_cast<uint32_t>(mw->id);
  mw->type = type;
  ObjectLock lock = lock_objects();
  add_object(Kind::kMw, mw.get(), *mw);
  return mw.release();
}

}  // namespace

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  const CancellationOff cancellation_off;
  const uint32_t number = number_in(type);
  if (is_ours(Kind::kPd, pd) && offer_of(*object_of(pd)->owner).lacks(kMissingWindows))
    return fail_null(refuse_call(
        "ibv_alloc_mw", 0,
        {.reason = Reason::kNotOffered, .text = "the device has no memory windows (max_mw is 0)"}));
  if (number != IBV_MW_TYPE_1 && number != IBV_MW_TYPE_2)
    return fail_null(refuse_call("ibv_alloc_mw", 0, {Reason::kWindowType, number}));
  {
    ObjectLock lock = lock_objects();
    if (!is_live(Kind::kPd, pd)) return fail_null(ENOENT);
    ++object_of(pd)->users;
  }
  ibv_mw* mw = without_exceptions([&] { return create(pd, type); });
  if (mw == nullptr) {
    const int error = errno;
    ObjectLock lock = lock_objects();
    --object_of(pd)->users;
    errno = error;
  }
  return mw;
}

void destroy_mw_object(MwObject& mw) {
  if (mw.owner->abandoned || !mw.owner->driver->alive()) return;
  static_cast<void>(mw.owner->driver->driver().destroy_window(mw.made_key));
}

int dealloc_mw(ibv_mw* mw) {
  const CancellationOff cancellation_off;
  {
    ObjectLock lock = lock_objects();
    if (int claimed = claim(Kind::kMw, mw, [] { return false; }); claimed != 0)
      return fail(claimed == kNotOurs ? ENOENT : claimed);
    remove_object(mw);
  }
  MwObject* object = object_of(mw);
  destroy_mw_object(*object);
  ObjectLock lock = lock_objects();
  --object_of(object->pd)->users;
  delete object;
  return 0;
}

int to_bind(const ibv_qp& qp, ibv_mw* mw, ibv_mw_type type, uint32_t rkey,
            const ibv_mw_bind_info& info, driver::SendRequest& request) {
  if ((info.mw_access_flags & ~(kWindowAccess | kRegionAccess)) != 0)
    return refuse({Reason::kAccessFlags, info.mw_access_flags});
  if (info.mr == nullptr && (info.addr != 0 || info.length != 0)) {
    return refuse({.reason = Reason::kArgument,
                   .text = "bind_info has an address or a length, and no region"});
  }
  ObjectLock lock = lock_objects();
  const ContextObject* owner = object_of(qp.context);
  // The handles are not looked at: as on adapters, only calls into the kernel look at them.
  if (!is_ours_in(Kind::kMw, mw, owner))
    return refuse({.reason = Reason::kArgument, .text = "mw is no window of this device"});
  if (mw->type != type) return refuse({Reason::kBindType, number_in(mw->type)});
  if (info.mr != nullptr && !is_ours_in(Kind::kMr, info.mr, owner))
    return refuse(
        {.reason = Reason::kArgument, .text = "bind_info.mr is no region of this device"});
  request.op = SendOp::kBindWindow;
  request.rkey = rkey;
  // The program chooses only the low byte of a type 2 window's key, whatever it says.
  if (type == IBV_MW_TYPE_2)
    request.rkey = (object_of(mw)->made_key & ~kWindowUserMask) | (rkey & kWindowUserMask);
  request.remote_va = info.addr;
  request.binding = {.length_bytes = info.length,
                     .mr_key = info.mr == nullptr ? 0 : info.mr->lkey,
                     .access = info.mw_access_flags & kWindowAccess};
  return 0;
}

int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  const CancellationOff cancellation_off;
  if (!is_ours(Kind::kQp, qp) || !is_ours(Kind::kMw, mw)) return fail(ENOENT);
  driver::SendRequest request;
  const uint32_t key = another_key(mw->rkey);
  if (int error = to_bind(*qp, mw, IBV_MW_TYPE_1, key, bind->bind_info, request)) {
    tell_refusal("ibv_bind_mw", qp->qp_num, error);
    return fail(error);
  }
  request.wr_id = bind->wr_id;
  request.signalled = bind->send_flags & IBV_SEND_SIGNALED;
  request.fence = bind->send_flags & IBV_SEND_FENCE;
  QpObject& object = *object_of(qp);
  if (int error = object.owner->driver->post_send(*object.qp, request)) {
    tell_refusal("ibv_bind_mw", qp->qp_num, error);
    return fail(error);
  }
  mw->rkey = key;
  return 0;
}

}  // namespace hostnic::abi
