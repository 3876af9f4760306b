// SPDX-License-Identifier: BSD-3-Clause
// Protection domains' memory: registering and deregistering.
#include <cstdio>

#include "verbs-shim/abi/context_table.h"
#include "verbs-shim/abi/convert.h"
#include "verbs-shim/abi/exports.h"
#include "verbs-shim/abi/limits.h"
#include "verbs-shim/abi/real_verbs.h"
#include "verbs-shim/abi/registry.h"
#include "verbs-shim/base/log.h"
#include "verbs-shim/base/refusal.h"
#include "verbs-shim/elf/imports.h"

// The macros are removed, because libibverbs' headers define them to choose between the symbols.
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace hostnic::abi {
namespace {

constexpr uint32_t kRemoteStores = kAccessRemoteWrite | kAccessRemoteAtomic;

// Registers a range; `replaced` is the registration whose key the new one takes, or null. Returns 0
// or an errno value.
int check_and_register(const PdObject& pd, void* address, size_t length, uint64_t iova,
                       unsigned int access, const runtime::MemoryRegistration* replaced,
                       runtime::MemoryRegistration& out) {
  uint32_t flags = 0;
  if (int error = to_region_access(access, flags)) return error;
  if ((flags & kAccessOnDemand) && offer_of(*pd.owner).lacks(kMissingOnDemand))
    return refuse({.reason = Reason::kNotOffered,
                   .text = "IBV_ACCESS_ON_DEMAND: the device has no on-demand paging (odp_caps)"});
  if ((flags & kAccessOnDemand) && address == nullptr && length == SIZE_MAX) {
    refuse({.reason = Reason::kMemory,
            .text = "on-demand regions need bounds: the whole address space is not supported"});
    return EOPNOTSUPP;
  }
  if (length > kMaxMrBytes) return refuse({Reason::kRegionBytes, length, kMaxMrBytes});
  if ((flags & kRemoteStores) && !(flags & kAccessLocalWrite))
    return refuse({Reason::kRemoteWithoutLocal, access});
  if (is_unusable(*pd.owner)) return EIO;
  // From here on it counts who unmaps memory.
  elf::lead_new_imports_here();
  auto registered =
      pd.owner->driver->register_memory(pd.handle, reinterpret_cast<uintptr_t>(address), length,
                                        first_address(iova, access), flags, replaced);
  if (!registered) {
    char text[300];
    snprintf(text, sizeof text, "%zu bytes at %p: %s", length, address,
             registered.error().message.c_str());
    refuse({.reason = Reason::kMemory, .text = text});
    tell_refusal("ibv_reg_mr", 0, registered.error().error);
    return registered.error().error;
  }
  out = *registered;
  return 0;
}

int register_range(const PdObject& pd, void* address, size_t length, uint64_t iova,
                   unsigned int access, const runtime::MemoryRegistration* replaced,
                   runtime::MemoryRegistration& out) {
  const int error = check_and_register(pd, address, length, iova, access, replaced, out);
  if (error != 0) tell_refusal("ibv_reg_mr", 0, error);
  return error;
}

// Acquires a PD, which stays while this holds it. Returns 0, ENOENT when it is not live, or
// kNotOurs.
int acquire_pd(ibv_pd* pd) {
  ObjectLock lock = lock_objects();
  if (!is_live(Kind::kPd, pd)) return is_known(Kind::kPd, pd) ? ENOENT : kNotOurs;
  ++object_of(pd)->users;
  return 0;
}

void release_pd(ibv_pd* pd) {
  ObjectLock lock = lock_objects();
  --object_of(pd)->users;
}

void set_public_fields(MrObject& mr, ibv_pd* pd, void* address, size_t length) {
  mr.pd = pd;
  mr.addr = address;
  mr.length = length;
  mr.lkey = mr.registration.lkey;
  mr.rkey = mr.registration.rkey;
}

// Registers an MR in `pd`, which has been acquired for it.
ibv_mr* register_acquired(ibv_pd* pd, void* address, size_t length, uint64_t iova,
                          unsigned int access) {
  auto mr = std::make_unique<MrObject>();
  PdObject* owner = object_of(pd);
  if (int error =
          register_range(*owner, address, length, iova, access, nullptr, mr->registration)) {
    return fail_null(error);
  }
  mr->id = next_object_id();
  mr->owner = owner->owner;
  mr->context = pd->context;
  mr->handle = static_cast<uint32_t>(mr->id);
  mr->iova = iova;
  mr->access = access;
  set_public_fields(*mr, pd, address, length);
  ObjectLock lock = lock_objects();
  add_object(Kind::kMr, mr.get(), *mr);
  return mr.release();
}

// Registers an MR; `pd_error` is what acquire_pd() said.
ibv_mr* register_mr(int pd_error, ibv_pd* pd, void* address, size_t length, uint64_t iova,
                    unsigned int access) {
  if (pd_error != 0) return fail_null(pd_error);
  ibv_mr* mr =
      without_exceptions([&] { return register_acquired(pd, address, length, iova, access); });
  if (mr == nullptr) {
    const int error = errno;
    release_pd(pd);
    errno = error;
  }
  return mr;
}

// Whatever was refused, the old registration stays as it was, which is what INPUT says; only on a
// dead device there is none left to use.
int rereg_error(int error) {
  errno = error;
  return error == EIO ? IBV_REREG_MR_ERR_CMD : IBV_REREG_MR_ERR_INPUT;
}

// Whether the arguments of a re-registration go together (ibv_rereg_mr(3)): libibverbs refuses
// contradicting ones as well.
bool valid_rereg(int flags, const void* address, size_t length, int access) {
  if (flags == 0 || (flags & ~IBV_REREG_MR_FLAGS_SUPPORTED) != 0) return false;
  if (flags & IBV_REREG_MR_CHANGE_TRANSLATION && (address == nullptr || length == 0)) return false;
  return access == 0 || (flags & IBV_REREG_MR_CHANGE_ACCESS) != 0;
}

// Registers anew under the same key, which others may know already.
int register_again(MrObject& mr, int flags, ibv_pd* new_pd, void* address, size_t length,
                   int access) {
  runtime::MemoryRegistration registration;
  const PdObject& pd = *object_of(new_pd);
  const bool moved = flags & IBV_REREG_MR_CHANGE_TRANSLATION;
  void* to = moved ? address : mr.addr;
  const size_t bytes = moved ? length : mr.length;
  const uint64_t iova = moved ? reinterpret_cast<uintptr_t>(address) : mr.iova;
  const unsigned int wanted =
      flags & IBV_REREG_MR_CHANGE_ACCESS ? static_cast<unsigned int>(access) : mr.access;
  if (int error = register_range(pd, to, bytes, iova, wanted, &mr.registration, registration))
    return error;
  ibv_pd* old_pd = mr.pd;
  {
    ObjectLock lock = lock_objects();
    mr.registration = registration;
    mr.iova = iova;
    mr.access = wanted;
    set_public_fields(mr, new_pd, to, bytes);
  }
  release_pd(old_pd);
  return 0;
}

}  // namespace

int deregister_mr_object(MrObject& mr) {
  if (mr.owner->abandoned) return 0;
  return mr.owner->driver->deregister_memory(mr.registration);
}

}  // namespace hostnic::abi

using namespace hostnic;
using namespace hostnic::abi;

[[gnu::noinline]] static ibv_mr* reg_mr_verb(ibv_pd* pd, void* address, size_t length, int access) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_mr*(ibv_pd*, void*, size_t, int)> real("ibv_reg_mr", "IBVERBS_1.1");
  const int pd_error = acquire_pd(pd);
  if (pd_error == kNotOurs) return real.foreign(pd, address, length, access);
  return register_mr(pd_error, pd, address, length, reinterpret_cast<uintptr_t>(address),
                     static_cast<unsigned int>(access));
}

HOSTNIC_VERB ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, size_t length, int access) {
  cancel_if_overdue();
  return reg_mr_verb(pd, address, length, access);
}

HOSTNIC_VERB ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, size_t length, uint64_t iova,
                                     int access) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_mr*(ibv_pd*, void*, size_t, uint64_t, int)> real("ibv_reg_mr_iova",
                                                                                 "IBVERBS_1.7");
  const int pd_error = acquire_pd(pd);
  if (pd_error == kNotOurs) return real.foreign(pd, address, length, iova, access);
  return register_mr(pd_error, pd, address, length, iova, static_cast<unsigned int>(access));
}

[[gnu::noinline]] static ibv_mr* reg_mr_iova2_verb(ibv_pd* pd, void* address, size_t length,
                                                   uint64_t iova, unsigned int access) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_mr*(ibv_pd*, void*, size_t, uint64_t, unsigned int)> real(
      "ibv_reg_mr_iova2", "IBVERBS_1.8");
  const int pd_error = acquire_pd(pd);
  if (pd_error == kNotOurs) return real.foreign(pd, address, length, iova, access);
  return register_mr(pd_error, pd, address, length, iova, access);
}

HOSTNIC_VERB ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, size_t length, uint64_t iova,
                                      unsigned int access) {
  cancel_if_overdue();
  return reg_mr_iova2_verb(pd, address, length, iova, access);
}

HOSTNIC_VERB ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length, uint64_t iova,
                                       int fd, int access) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_mr*(ibv_pd*, uint64_t, size_t, uint64_t, int, int)> real(
      "ibv_reg_dmabuf_mr", "IBVERBS_1.12");
  if (!is_ours(Kind::kPd, pd)) return real.foreign(pd, offset, length, iova, fd, access);
  return fail_null(EOPNOTSUPP);
}

HOSTNIC_VERB int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, size_t length,
                              int access) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_mr*, int, ibv_pd*, void*, size_t, int)> real("ibv_rereg_mr",
                                                                                 "IBVERBS_1.1");
  if (!is_ours(Kind::kMr, mr)) {
    if (real_contexts_open.load() == 0) return rereg_error(ENOENT);
    return real.call(mr, flags, pd, address, length, access);
  }
  if (int error = check_handle(Kind::kMr, mr)) return rereg_error(error);
  MrObject* object = object_of(mr);
  if (!valid_rereg(flags, address, length, access)) {
    refuse_call("ibv_rereg_mr", 0,
                {.reason = Reason::kArgument,
                 .text = "flags and arguments contradict: a translation needs address and length, "
                         "and access IBV_REREG_MR_CHANGE_ACCESS"});
    return rereg_error(EINVAL);
  }
  ibv_pd* new_pd = flags & IBV_REREG_MR_CHANGE_PD ? pd : object->pd;
  if (acquire_pd(new_pd) != 0) {
    if (new_pd == nullptr) {
      refuse_call("ibv_rereg_mr", 0,
                  {.reason = Reason::kNoObject, .text = "the protection domain to change to"});
    }
    return rereg_error(new_pd == nullptr ? EINVAL : ENOENT);
  }
  int error = EINVAL;  // a PD of another device
  if (object_of(new_pd)->owner == object->owner) {
    error = register_again(*object, flags, new_pd, address, length, access);
  }
  if (error == 0) return 0;
  release_pd(new_pd);
  return rereg_error(error);
}

HOSTNIC_VERB int ibv_dereg_mr(ibv_mr* mr) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_mr*)> real("ibv_dereg_mr", "IBVERBS_1.1");
  int claimed = 0;
  {
    ObjectLock lock = lock_objects();
    claimed = claim(Kind::kMr, mr, [] { return false; });
  }
  if (claimed == kNotOurs) return real.foreign(mr);
  if (claimed != 0) return fail(claimed);
  MrObject* object = object_of(mr);
  const int error = deregister_mr_object(*object);
  {
    ObjectLock lock = lock_objects();
    if (error == EBUSY) {  // memory windows are bound to it, or packets still refer to it
      unclaim(mr);
      refuse({Reason::kWindowsBound});
      tell_refusal("ibv_dereg_mr", 0, EBUSY);
      return fail(EBUSY);
    }
    remove_object(mr);
  }
  // Whatever else hostnicd says (it may be gone), nothing of the region is left here.
  if (error != 0) log_debug("ibv_dereg_mr: error %d", error);
  release_pd(object->pd);
  delete object;
  return 0;
}
