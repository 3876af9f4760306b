// SPDX-License-Identifier: BSD-3-Clause
// The verbs objects that programs hold. Each starts with the public structure of libibverbs, whose
// address is what the program has; the rest is ours.
//
// Locking: `lock_objects()` (registry.h) guards what is marked [registry]. It may be taken with a
// driver lock held, so never call the driver while holding it.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstddef>
#include <memory>
#include <unordered_map>
#include <vector>

#include "verbs-shim/abi/event_queue.h"
#include "verbs-shim/abi/send_builder.h"
#include "verbs-shim/memory/file_view.h"
#include "verbs-shim/runtime/context.h"

namespace hostnic::abi {

struct ContextObject;

// A device that was listed once; lives as long as the process, because programs keep the pointer.
struct DeviceObject {
  ibv_device device{};
  // The zeros are for libmlx5 and libefa, which read their private fields behind ibv_device to see
  // whether it is theirs.
  std::byte zeros[1024]{};
  DeviceInfo info{};  // [registry]
};

// The part that every object below has.
struct ObjectBase {
  uint64_t id = 0;  // never used twice in a process; its low half is the verbs handle
  ContextObject* owner = nullptr;
  uint32_t line = driver::ObjectList::kNoLine;  // where people see it
};

// A thread domain says that only one thread at a time uses what is in it. All calls are safe here
// without one.
struct TdObject : ibv_td, ObjectBase {
  uint32_t users = 0;  // [registry] parent domains
};

// A protection domain, or a parent domain: another name of one, which shares its handle.
struct PdObject : ibv_pd, ObjectBase {
  uint32_t users = 0;  // [registry] MRs, MWs, SRQs, QPs, AHs, CQs and parent domains
  // The members from here on are a parent domain's only.
  PdObject* extended = nullptr;
  TdObject* thread_domain = nullptr;
};

// Whether both are, or extend, the same protection domain.
inline bool same_protection(const ibv_pd* one, const ibv_pd* other) {
  return one == other || (one->handle == other->handle && one->context == other->context);
}

struct MrObject : ibv_mr, ObjectBase {
  runtime::MemoryRegistration registration;
  uint64_t iova = 0;        // [registry] as asked for, for ibv_rereg_mr
  unsigned int access = 0;  // [registry]
  // The view is of a dma-buf, or of a GPU's memory, which the program has not mapped so that it
  // could be read.
  memory::FileView view;
};

// The first address that work requests name: for a zero-based region they name offsets.
inline uint64_t first_address(uint64_t iova, unsigned int access) {
  return access & IBV_ACCESS_ZERO_BASED ? 0 : iova;
}

struct MwObject : ibv_mw, ObjectBase {
  uint32_t made_key = 0;  // the first rkey: its window is the NIC's name for this object
};

struct ChannelObject : ibv_comp_channel, ObjectBase {
  EventQueue events;  // records: ids of CQs
};

struct CqObject : ibv_cq_ex, ObjectBase {
  std::unique_ptr<driver::Cq> cq;
  ChannelObject* channel_object = nullptr;
  PdObject* parent_domain = nullptr;
  uint32_t qps = 0;                // [registry]
  uint32_t comp_events_taken = 0;  // [registry] what ibv_destroy_cq waits for
  uint32_t async_events_taken = 0;
  // The members from here on are for ibv_start_poll .. ibv_end_poll.
  BiasedMutex poll_mutex;
  driver::Completion current;
  uint64_t current_time_ns = 0, current_wallclock_ns = 0;
  uint64_t wc_flags = 0;
};

struct SrqObject : ibv_srq, ObjectBase {
  driver::Srq* srq = nullptr;
  uint32_t max_wr = 0, max_sge = 0;
  uint32_t qps = 0;                 // [registry]
  uint32_t async_events_taken = 0;  // [registry]
};

struct QpObject : ibv_qp_ex, ObjectBase {
  driver::Qp* qp = nullptr;
  driver::QpCaps caps;
  bool signal_all = false;
  bool has_builder = false;         // created with IBV_QP_INIT_ATTR_SEND_OPS_FLAGS
  uint32_t async_events_taken = 0;  // [registry]
  // The Q_Key of a UD queue pair as last set. Q_Keys of work requests with the top bit set stand
  // for it.
  std::atomic<uint32_t> qkey{0};
  std::vector<Ipv4Address> groups;  // [registry] groups that it is attached to: it can't be
                                    // destroyed meanwhile
  SendBuilder builder;
};

struct AhObject : ibv_ah, ObjectBase {
  driver::UdAddress path;  // without QPN and Q_Key
  // The domain's handle: the data path follows no pointer of a handle that may be none.
  uint32_t protection = 0;
};

// Puts into `out` where a datagram goes that `ah`, `qpn` and `qkey` of a work request name. Returns
// EINVAL if the address handle is none; one of another protection domain than the queue pair's is
// the request's own failure. As with hardware, a handle that was destroyed is the program's own
// fault: the data path takes no lock to find out.
int to_datagram(ibv_qp& qp, ibv_ah* ah, uint32_t qpn, uint32_t qkey, driver::UdAddress& out);

// Makes a request of a bind of `mw`, which is of this `type`; the window has the request's rkey
// from then on. Returns EINVAL for a pointer to no object of the context, or unknown access flags.
int to_bind(const ibv_qp& qp, ibv_mw* mw, ibv_mw_type type, uint32_t rkey,
            const ibv_mw_bind_info& info, driver::SendRequest& request);

// The public verbs_context comes last in rdma-core's own structures and first in ours: programs
// only go from ibv_context to verbs_context (verbs_get_ctx).
struct ContextObject : verbs_context, ObjectBase {
  std::unique_ptr<runtime::Context> driver;
  DeviceObject* device = nullptr;
  EventQueue async_events;  // records: async_record()
  // True in a forked child: nothing of the driver may be touched, its locks may be held by threads
  // that don't exist here.
  std::atomic<bool> abandoned{false};
  uint32_t pds = 0, cqs = 0, srqs = 0, ahs = 0;            // [registry] for the advertised limits
  std::unordered_map<const driver::Cq*, uint64_t> cq_ids;  // [registry]
};

// Whether nothing can be created or changed any more: hostnicd is gone, or this is a forked child.
inline bool is_unusable(const ContextObject& context) {
  return context.abandoned || !context.driver->alive();
}

// What the device offers.
inline const DeviceOffer& offer_of(const ContextObject& context) {
  return context.driver->device().offer;
}

// Shows an object to people who ask what there is, and no longer. A forked child has no board.
inline void show(ObjectBase& object, const ObjectLine& as) {
  if (!object.owner->abandoned) object.line = object.owner->driver->driver().objects().add(as);
}
inline void hide(const ObjectBase& object) {
  if (!object.owner->abandoned) object.owner->driver->driver().objects().remove(object.line);
}
inline void show_users(const ObjectBase& object, uint32_t users) {
  if (!object.owner->abandoned)
    object.owner->driver->driver().objects().set_users(object.line, users);
}

inline ContextObject* object_of(ibv_context* context) {
  return static_cast<ContextObject*>(verbs_get_ctx(context));
}
inline TdObject* object_of(ibv_td* td) { return static_cast<TdObject*>(td); }
inline PdObject* object_of(ibv_pd* pd) { return static_cast<PdObject*>(pd); }
inline MrObject* object_of(ibv_mr* mr) { return static_cast<MrObject*>(mr); }
inline MwObject* object_of(ibv_mw* mw) { return static_cast<MwObject*>(mw); }
inline ChannelObject* object_of(ibv_comp_channel* channel) {
  return static_cast<ChannelObject*>(channel);
}
inline CqObject* object_of(ibv_cq_ex* cq) { return static_cast<CqObject*>(cq); }
inline CqObject* object_of(ibv_cq* cq) { return object_of(reinterpret_cast<ibv_cq_ex*>(cq)); }
inline SrqObject* object_of(ibv_srq* srq) { return static_cast<SrqObject*>(srq); }
inline QpObject* object_of(ibv_qp_ex* qp) { return static_cast<QpObject*>(qp); }
inline QpObject* object_of(ibv_qp* qp) { return object_of(reinterpret_cast<ibv_qp_ex*>(qp)); }
inline AhObject* object_of(ibv_ah* ah) { return static_cast<AhObject*>(ah); }

inline ibv_context* public_of(ContextObject* context) { return &context->verbs_context::context; }
inline ibv_cq* public_of(CqObject* cq) {
  return reinterpret_cast<ibv_cq*>(static_cast<ibv_cq_ex*>(cq));
}
inline ibv_qp* public_of(QpObject* qp) { return &qp->qp_base; }

}  // namespace hostnic::abi
