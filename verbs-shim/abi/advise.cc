// SPDX-License-Identifier: BSD-3-Clause
// Advice about on-demand regions: their pages are made present before work requests need them, by
// the program and not by the NIC.
#include <cerrno>
#include <new>
#include <span>
#include <vector>

#include "verbs-shim/abi/context_table.h"
#include "verbs-shim/abi/registry.h"

namespace hostnic::abi {
namespace {

struct Range {
  uint64_t va = 0, length_bytes = 0;
};

MrObject* find_region(const ContextObject& owner, uint32_t lkey) {
  for (void* object : objects_of(Kind::kMr, &owner)) {
    MrObject* mr = object_of(static_cast<ibv_mr*>(object));
    if (mr->lkey == lkey) return mr;
  }
  return nullptr;
}

// Finds what an element names, in the program's memory. Returns 0, or the error that
// ibv_advise_mr(3) gives. [registry]
int locate(const ibv_pd& pd, const ContextObject& owner, const ibv_sge& sge, bool for_writing,
           Range& range) {
  const MrObject* mr = find_region(owner, sge.lkey);
  if (mr == nullptr) return (sge.lkey & kWindowKeyBit) != 0 ? EINVAL : ENOENT;
  if (!same_protection(mr->pd, &pd)) return EPERM;
  if ((mr->access & IBV_ACCESS_ON_DEMAND) == 0) return EINVAL;
  if (for_writing && (mr->access & IBV_ACCESS_LOCAL_WRITE) == 0) return EPERM;
  const uint64_t offset = sge.addr - first_address(mr->iova, mr->access);
  if (offset > mr->length || sge.length > mr->length - offset) return EFAULT;
  range = {reinterpret_cast<uintptr_t>(mr->addr) + offset, sge.length};
  return 0;
}

int advise(ibv_pd* pd, bool touch, bool for_writing, std::span<const ibv_sge> sges) {
  std::vector<Range> ranges(sges.size());
  runtime::Context* driver = nullptr;
  {
    ObjectLock lock = lock_objects();
    if (!is_live(Kind::kPd, pd)) return ENOENT;
    const ContextObject& owner = *object_of(pd)->owner;
    if (is_unusable(owner)) return EIO;
    for (size_t i = 0; i < sges.size(); ++i) {
      if (int error = locate(*pd, owner, sges[i], for_writing, ranges[i])) return error;
    }
    driver = owner.driver.get();
  }
  for (const Range& range : ranges) {
    if (!touch || range.length_bytes == 0) continue;
    if (int error = driver->prefetch(range.va, range.length_bytes, for_writing)) return error;
  }
  return 0;
}

}  // namespace

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, uint32_t flags, ibv_sge* sges,
              uint32_t count) {
  const CancellationOff cancellation_off;
  if ((flags & ~uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0 || sges == nullptr || count == 0)
    return fail(EINVAL);
  // Touching pages is all there is to do: the NIC looks for pages anew with each access, so that
  // there is nothing to tell it.
  const bool touch = advice != IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT;
  const bool for_writing = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  if (touch && !for_writing && advice != IBV_ADVISE_MR_ADVICE_PREFETCH) return fail(EOPNOTSUPP);
  try {
    const int error = advise(pd, touch, for_writing, {sges, count});
    return error == 0 ? 0 : fail(error);
  } catch (const std::bad_alloc&) {
    return fail(ENOMEM);
  }
}

}  // namespace hostnic::abi
