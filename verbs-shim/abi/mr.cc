// SPDX-License-Identifier: BSD-3-Clause
// Protection domains' memory: registering and deregistering.
#include <cstdio>
#include <optional>
#include <utility>

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

// What is to be registered.
struct Wanted {
  void* address = nullptr;
  size_t length = 0;
  uint64_t iova = 0;
  unsigned int access = 0;
  bool revocable = false;  // somebody else may take the memory away
};

std::optional<memory::DeviceMemory> find_device(const Wanted& wanted) {
  return memory::find_device_memory(reinterpret_cast<uint64_t>(wanted.address), wanted.length);
}

// Registers a range; `replaced` is the registration whose key the new one takes, or null. Returns 0
// or an errno value.
int check_and_register(const PdObject& pd, const Wanted& wanted,
                       const runtime::MemoryRegistration* replaced,
                       runtime::MemoryRegistration& out) {
  const auto [address, length, iova, access, revocable] = wanted;
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
  if (revocable) flags |= kAccessRevocable;
  // From here on it counts who unmaps memory.
  elf::lead_new_imports_here();
  auto registered =
      pd.owner->driver->register_memory(pd.handle, reinterpret_cast<uintptr_t>(address), length,
                                        first_address(iova, access), flags, replaced);
  if (!registered) {
    // Memory of a GPU's is registered in another way then.
    if (registered.error().error == EFAULT && !revocable && find_device(wanted)) return EFAULT;
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

int register_range(const PdObject& pd, const Wanted& wanted,
                   const runtime::MemoryRegistration* replaced, runtime::MemoryRegistration& out) {
  const int error = check_and_register(pd, wanted, replaced, out);
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

// What the program is told of an MR.
struct Told {
  void* address = nullptr;
  unsigned int access = 0;
};

// Registers an MR in `pd`, which has been acquired for it; `view` goes with it.
ibv_mr* register_acquired(ibv_pd* pd, const Wanted& wanted, const Told& told,
                          memory::FileView view = {}) {
  auto mr = std::make_unique<MrObject>();
  PdObject* owner = object_of(pd);
  if (int error = register_range(*owner, wanted, nullptr, mr->registration))
    return fail_null(error);
  mr->id = next_object_id();
  mr->owner = owner->owner;
  mr->context = pd->context;
  mr->handle = static_cast<uint32_t>(mr->id);
  mr->iova = wanted.iova;
  mr->access = told.access;
  mr->view = std::move(view);
  set_public_fields(*mr, pd, told.address, wanted.length);
  ObjectLock lock = lock_objects();
  add_object(Kind::kMr, mr.get(), *mr);
  return mr.release();
}

// Registers a part of a file. `told_address` is what the MR has for an address.
ibv_mr* register_file(ibv_pd* pd, int fd, uint64_t offset, const Wanted& wanted,
                      void* told_address) {
  const bool writable = (wanted.access & (kAccessLocalWrite | kRemoteStores)) != 0;
  auto view = memory::FileView::map(fd, offset, wanted.length, writable);
  if (!view) {
    refuse({.reason = Reason::kMemory,
            .text = view.error() == EOPNOTSUPP
                        ? "a dma-buf of the kernel's: memfds stand for dma-bufs here"
                        : "no memfd of tmpfs or hugetlbfs, or the range is not all of it, or not "
                          "writable"});
    tell_refusal("ibv_reg_dmabuf_mr", 0, view.error());
    return fail_null(view.error());
  }
  Wanted mapped = wanted;
  mapped.address = view->address();
  mapped.revocable = true;
  return register_acquired(pd, mapped, {told_address, wanted.access}, std::move(*view));
}

// Registers a range of the program's, which may be memory of a GPU: then the program can't touch
// it, and the NIC reaches it as a dma-buf, as nvidia_peermem and its like would have it.
ibv_mr* register_range_or_device(ibv_pd* pd, const Wanted& wanted) {
  ibv_mr* mr = register_acquired(pd, wanted, {wanted.address, wanted.access});
  if (mr != nullptr || errno != EFAULT || wanted.length == 0) return mr;
  const auto device = find_device(wanted);
  if (!device) return fail_null(EFAULT);
  return register_file(pd, device->fd.get(), device->offset, wanted, wanted.address);
}

// Does `make` in a PD of which acquire_pd() has said `pd_error`.
template <typename Make>
ibv_mr* register_in(int pd_error, ibv_pd* pd, Make make) {
  if (pd_error != 0) return fail_null(pd_error);
  ibv_mr* mr = without_exceptions(make);
  if (mr == nullptr) {
    const int error = errno;
    release_pd(pd);
    errno = error;
  }
  return mr;
}

// Registers an MR; `pd_error` is what acquire_pd() said.
ibv_mr* register_mr(int pd_error, ibv_pd* pd, void* address, size_t length, uint64_t iova,
                    unsigned int access) {
  return register_in(pd_error, pd, [&] {
    return register_range_or_device(pd, {address, length, iova, access});
  });
}

// What the kernel asks of a registration of a dma-buf before it looks at the descriptor. Returns 0
// or an errno value.
int check_dmabuf(uint64_t offset, uint64_t iova, unsigned int access) {
  constexpr unsigned int kAllowed = kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead |
                                    kAccessRemoteAtomic | kAccessRelaxedOrdering;
  if (access & kAccessOnDemand) {
    refuse({.reason = Reason::kMemory, .text = "IBV_ACCESS_ON_DEMAND: not of a dma-buf"});
    return EOPNOTSUPP;
  }
  if (access & ~kAllowed) return refuse({Reason::kAccessFlags, access});
  constexpr uint64_t kInPage = 4095;
  if ((offset & kInPage) == (iova & kInPage)) return 0;
  return refuse(
      {.reason = Reason::kMemory, .text = "offset and iova are not at the same place of a page"});
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
  if (int error = register_range(pd, {to, bytes, iova, wanted}, &mr.registration, registration))
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
  const int pd_error = acquire_pd(pd);
  if (pd_error == kNotOurs) return real.foreign(pd, offset, length, iova, fd, access);
  return register_in(pd_error, pd, [&]() -> ibv_mr* {
    const auto flags = static_cast<unsigned int>(access);
    if (int error = check_dmabuf(offset, iova, flags)) {
      tell_refusal("ibv_reg_dmabuf_mr", 0, error);
      return fail_null(error);
    }
    uint64_t start = 0;
    if (__builtin_add_overflow(memory::exported_start(fd), offset, &start))
      return fail_null(EINVAL);
    // libibverbs has the offset as the region's address.
    return register_file(pd, fd, start, {nullptr, length, iova, flags},
                         reinterpret_cast<void*>(offset));
  });
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
  if (object->view.address() != nullptr) {
    refuse_call("ibv_rereg_mr", 0,
                {.reason = Reason::kMemory, .text = "the region is of a dma-buf, or a GPU's"});
    return rereg_error(EOPNOTSUPP);
  }
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
