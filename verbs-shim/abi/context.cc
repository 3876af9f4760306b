// SPDX-License-Identifier: BSD-3-Clause
// Opening and closing a device.
#include "verbs-shim/runtime/context.h"

#include <memory>

#include "verbs-shim/abi/async_event.h"
#include "verbs-shim/abi/command_fd.h"
#include "verbs-shim/abi/context_table.h"
#include "verbs-shim/abi/devices.h"
#include "verbs-shim/abi/exports.h"
#include "verbs-shim/abi/fork.h"
#include "verbs-shim/abi/limits.h"
#include "verbs-shim/abi/real_verbs.h"
#include "verbs-shim/abi/registry.h"
#include "verbs-shim/base/log.h"

namespace hostnic::abi {

void install_tables(ContextObject& object) {
  ibv_context_ops& ops = object.context.ops;
  ops.alloc_mw = alloc_mw;
  ops.bind_mw = bind_mw;
  ops.dealloc_mw = dealloc_mw;
  ops.poll_cq = poll_cq;
  ops.req_notify_cq = req_notify_cq;
  ops.post_srq_recv = post_srq_recv;
  ops.post_send = post_send;
  ops.post_recv = post_recv;
  // Functions that stay null are refused with EOPNOTSUPP by libibverbs' inline functions.
  object.advise_mr = advise_mr;
  object.query_port = query_port;
  object.query_device_ex = query_device_ex;
  object.query_rt_values = query_rt_values;
  object.create_cq_ex = create_cq_ex;
  object.modify_cq = modify_cq;
  object.alloc_td = alloc_td;
  object.dealloc_td = dealloc_td;
  object.alloc_parent_domain = alloc_parent_domain;
  object.create_qp_ex = create_qp_ex;
  object.open_xrcd = open_xrcd;
  object.create_wq = create_wq;
  object.alloc_dm = alloc_dm;
  object.sz = sizeof(verbs_context);
  object.context.abi_compat = __VERBS_ABI_IS_EXTENDED;
}

namespace {

ibv_context* open_device(DeviceObject& device) {
  auto object = std::make_unique<ContextObject>();
  if (int error = object->async_events.open()) return fail_null(error);
  auto opened = runtime::Context::open(info_of(device).index);
  if (!opened) {
    log_warn("%s", opened.error().message.c_str());
    return fail_null(opened.error().error);
  }
  object->driver = std::move(*opened);
  object->device = &device;
  object->id = next_object_id();
  object->owner = object.get();
  install_tables(*object);
  object->context.device = &device.device;
  object->context.async_fd = object->async_events.fd();
  object->context.num_comp_vectors = kCompletionVectors;
  object->context.cmd_fd = acquire_command_fd();
  if (object->context.cmd_fd < 0) return fail_null(errno);
  pthread_mutex_init(&object->context.mutex, nullptr);
  watch_async_events(*object);
  {
    ObjectLock lock = lock_objects();
    add_object(Kind::kContext, public_of(object.get()), *object);
  }
  watch_forks();
  log_info("opened %s", device.device.name);
  return public_of(object.release());
}

template <typename Object, typename Destroy>
void destroy_all(Kind kind, ContextObject& context, Destroy destroy) {
  std::vector<void*> left;
  {
    ObjectLock lock = lock_objects();
    left = objects_of(kind, &context);
    for (void* object : left) remove_object(object);
  }
  if (!left.empty()) log_debug("%zu objects were left when the device was closed", left.size());
  for (void* object : left) destroy(*static_cast<Object*>(object));
}

void close_context(ContextObject* object) {
  // Objects are destroyed before what they use. In a forked child only our own half may be freed.
  destroy_all<QpObject>(Kind::kQp, *object, destroy_qp_object);
  destroy_all<SrqObject>(Kind::kSrq, *object, destroy_srq_object);
  destroy_all<CqObject>(Kind::kCq, *object, destroy_cq_object);
  destroy_all<ChannelObject>(Kind::kChannel, *object, destroy_channel_object);
  destroy_all<MwObject>(Kind::kMw, *object, [](MwObject& mw) {
    destroy_mw_object(mw);
    delete &mw;
  });
  destroy_all<MrObject>(Kind::kMr, *object, [](MrObject& mr) {
    deregister_mr_object(mr);
    delete &mr;
  });
  destroy_all<AhObject>(Kind::kAh, *object, [](AhObject& ah) { delete &ah; });
  destroy_all<PdObject>(Kind::kPd, *object, [](PdObject& pd) { delete &pd; });
  destroy_all<TdObject>(Kind::kTd, *object, [](TdObject& td) { delete &td; });
  if (object->abandoned) static_cast<void>(object->driver.release());
  object->driver.reset();
  release_command_fd();
  pthread_mutex_destroy(&object->context.mutex);
  delete object;
}

}  // namespace
}  // namespace hostnic::abi

using namespace hostnic;
using namespace hostnic::abi;

HOSTNIC_VERB ibv_context* ibv_open_device(ibv_device* device) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_context*(ibv_device*)> real("ibv_open_device", "IBVERBS_1.1");
  if (!is_our_device(device)) {
    ibv_context* context = real.call(device);
    if (context != nullptr) real_contexts_open.fetch_add(1);
    return context;
  }
  return without_exceptions([&] { return open_device(*object_of(device)); });
}

HOSTNIC_VERB int ibv_close_device(ibv_context* context) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_context*)> real("ibv_close_device", "IBVERBS_1.1");
  int claimed = 0;
  {
    ObjectLock lock = lock_objects();
    claimed = claim(Kind::kContext, context, [] { return false; });
    if (claimed == 0) remove_object(context);
  }
  if (claimed == kNotOurs) {
    const int result = real.foreign(context);
    if (result == 0) real_contexts_open.fetch_sub(1);
    return result;
  }
  if (claimed != 0) return fail(claimed);
  close_context(object_of(context));
  return 0;
}
