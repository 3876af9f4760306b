// SPDX-License-Identifier: BSD-3-Clause
// The calls that libibverbs has as symbols, about devices and memory; queues.cc has the others.
// This library is preloaded before all others, so that programs and librdmacm get these.
#include <algorithm>
#include <cstddef>
#include <type_traits>

#include "verbs-shim/calls/call.h"
#include "verbs-shim/calls/exported.h"
#include "verbs-shim/calls/next.h"
#include "verbs-shim/calls/tables.h"
#include "verbs-shim/faults/events.h"
#include "verbs-shim/faults/late_posts.h"
#include "verbs-shim/faults/late_queues.h"
#include "verbs-shim/faults/queue_pairs.h"
#include "verbs-shim/trace/words.h"

// libibverbs' headers make macros of these.
#undef ibv_get_device_list
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace hostnic::calls {
namespace {

ibv_mr* ends_with_region(Call& call, ibv_mr* mr) {
  if (mr == nullptr || !call.on()) return call.ends_with(mr, "mr");
  call.begin_result();
  call.text().add("mr %p lkey 0x%x rkey 0x%x", address(mr), mr->lkey, mr->rkey);
  call.finish(TraceOutcome::kSuccess);
  return mr;
}

void add_region(Call& call, const ibv_pd* pd, const void* start, size_t length, unsigned access) {
  call.is_of_size(length);
  if (!call.on()) return;
  call.text().add("pd %p, %p, %zu bytes, ", address(pd), start, length);
  add_access(call.text(), access);
}

uint64_t address_of(const void* start) { return reinterpret_cast<uint64_t>(start); }
template <typename Access>
check::Memory memory_of(const void* start, size_t length, uint64_t iova, Access access) {
  return {start, length, iova, static_cast<unsigned>(access)};
}

}  // namespace
}  // namespace hostnic::calls

using namespace hostnic;
using namespace hostnic::calls;

// -- Devices.

HOSTNIC_CALL_OF_PROGRAM ibv_device** ibv_get_device_list(int* count) {
  HOSTNIC_NEXT(ibv_get_device_list);
  Call call("ibv_get_device_list");
  call.begins();
  ibv_device** list = call.make(next, count);
  if (list == nullptr || !call.on()) return call.ends_with(list, "list");
  call.begin_result();
  int found = 0;
  for (; list[found] != nullptr; ++found)
    call.text().add("%s%s", found == 0 ? "" : ", ", list[found]->name);
  if (found == 0) call.text().add("no devices");
  call.finish(TraceOutcome::kSuccess);
  return list;
}

HOSTNIC_CALL_OF_PROGRAM void ibv_free_device_list(ibv_device** list) {
  HOSTNIC_NEXT(ibv_free_device_list);
  Call call("ibv_free_device_list");
  call.begins();
  next(list);
  call.ends_without_result();
}

HOSTNIC_CALL_OF_PROGRAM ibv_context* ibv_open_device(ibv_device* device) {
  HOSTNIC_NEXT(ibv_open_device);
  Call call("ibv_open_device", device);
  HOSTNIC_ARGUMENTS(call, "%s", device != nullptr ? device->name : "NULL");
  call.begins();
  ibv_context* context = call.ends_with(check::made(call.make(next, device)), "context");
  watch_context(context);
  return context;
}

HOSTNIC_CALL_OF_PROGRAM ibv_context* ibv_import_device(int command_fd) {
  HOSTNIC_NEXT(ibv_import_device);
  Call call("ibv_import_device");
  HOSTNIC_ARGUMENTS(call, "cmd_fd %d", command_fd);
  call.begins();
  ibv_context* context = call.ends_with(check::made(call.make(next, command_fd)), "context");
  watch_context(context);
  return context;
}

HOSTNIC_CALL_OF_PROGRAM int ibv_close_device(ibv_context* context) {
  HOSTNIC_NEXT(ibv_close_device);
  Call call("ibv_close_device", context);
  HOSTNIC_ARGUMENTS(call, "context %p", address(context));
  call.begins();
  forget_context(context);
  const int result = call.destroy(next, context);
  if (result != 0) watch_context(context);
  return call.ends(result);
}

HOSTNIC_CALL_OF_PROGRAM int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  HOSTNIC_NEXT(ibv_get_async_event);
  Call call("ibv_get_async_event", context);
  HOSTNIC_ARGUMENTS(call, "context %p", address(context));
  call.begins();
  const int result = !call.goes_on()   ? call.failure<int>()
                     : faults::is_on() ? faults::take_event(context, event)
                                       : next(context, event);
  if (result == 0 && check::is_on()) check::took_event(*event);
  return ends_telling(call, result, [&](Text& text) {
    text.add(", ");
    add_event(text, event->event_type);
  });
}

HOSTNIC_CALL_OF_PROGRAM void ibv_ack_async_event(ibv_async_event* event) {
  HOSTNIC_NEXT(ibv_ack_async_event);
  Call call("ibv_ack_async_event");
  if (call.on()) add_event(call.text(), event->event_type);
  call.begins();
  if (check::is_on()) check::acknowledged(*event);
  if (!faults::is_on() || !faults::acknowledge_event(*event)) next(event);
  call.ends_without_result();
}

HOSTNIC_CALL_OF_PROGRAM int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  HOSTNIC_NEXT(ibv_query_device);
  Call call("ibv_query_device", context);
  HOSTNIC_ARGUMENTS(call, "context %p", address(context));
  call.begins();
  return call.ends(call.make(next, context, attr));
}

HOSTNIC_CALL_OF_PROGRAM int ibv_query_port(ibv_context* context, uint8_t port,
                                           _compat_ibv_port_attr* attr) {
  HOSTNIC_NEXT(ibv_query_port);
  Call call("ibv_query_port", context);
  HOSTNIC_ARGUMENTS(call, "context %p, port %u", address(context), port);
  call.begins();
  const int result = call.make(next, context, port, attr);
  if (result == 0 && faults::is_on() && faults::is_port_down(context))
    reinterpret_cast<ibv_port_attr*>(attr)->state = IBV_PORT_DOWN;
  return call.ends(result);
}

HOSTNIC_CALL_OF_PROGRAM int ibv_query_gid(ibv_context* context, uint8_t port, int index,
                                          ibv_gid* gid) {
  HOSTNIC_NEXT(ibv_query_gid);
  Call call("ibv_query_gid", context);
  HOSTNIC_ARGUMENTS(call, "context %p, port %u, index %d", address(context), port, index);
  call.begins();
  return ends_telling(call, call.make(next, context, port, index, gid), [&](Text& text) {
    text.add(", ");
    add_gid(text, *gid);
  });
}

HOSTNIC_CALL_OF_PROGRAM int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index,
                                              ibv_gid_entry* entry, uint32_t flags, size_t bytes) {
  HOSTNIC_NEXT(_ibv_query_gid_ex);
  Call call("ibv_query_gid_ex", context);
  HOSTNIC_ARGUMENTS(call, "context %p, port %u, index %u", address(context), port, index);
  call.begins();
  return ends_telling(call, call.make(next, context, port, index, entry, flags, bytes),
                      [&](Text& text) {
                        text.add(", ");
                        add_gid(text, entry->gid);
                      });
}

HOSTNIC_CALL_OF_PROGRAM ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries,
                                                     size_t most, uint32_t flags, size_t bytes) {
  HOSTNIC_NEXT(_ibv_query_gid_table);
  Call call("ibv_query_gid_table", context);
  HOSTNIC_ARGUMENTS(call, "context %p, %zu entries", address(context), most);
  call.begins();
  return call.ends_with_count(
      static_cast<int>(call.make(next, context, entries, most, flags, bytes)));
}

HOSTNIC_CALL_OF_PROGRAM int ibv_query_pkey(ibv_context* context, uint8_t port, int index,
                                           __be16* pkey) {
  HOSTNIC_NEXT(ibv_query_pkey);
  Call call("ibv_query_pkey", context);
  HOSTNIC_ARGUMENTS(call, "context %p, port %u, index %d", address(context), port, index);
  call.begins();
  return ends_telling(call, call.make(next, context, port, index, pkey),
                      [&](Text& text) { text.add(", 0x%x", __builtin_bswap16(*pkey)); });
}

HOSTNIC_CALL_OF_PROGRAM int ibv_get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) {
  HOSTNIC_NEXT(ibv_get_pkey_index);
  Call call("ibv_get_pkey_index", context);
  HOSTNIC_ARGUMENTS(call, "context %p, port %u, pkey 0x%x", address(context), port,
                    __builtin_bswap16(pkey));
  call.begins();
  return call.ends_with_count(call.make(next, context, port, pkey));
}

HOSTNIC_CALL_OF_PROGRAM int ibv_fork_init() {
  HOSTNIC_NEXT(ibv_fork_init);
  Call call("ibv_fork_init");
  call.begins();
  const int result = call.make(next);
  if (result == 0 && check::is_on()) check::initialized_forks();
  return call.ends(result);
}

// -- Protection domains and memory.

HOSTNIC_CALL_OF_PROGRAM ibv_pd* ibv_alloc_pd(ibv_context* context) {
  HOSTNIC_NEXT(ibv_alloc_pd);
  Call call("ibv_alloc_pd", context);
  HOSTNIC_ARGUMENTS(call, "context %p", address(context));
  call.begins();
  return call.ends_with(check::made(call.make(next, context)), "pd");
}

HOSTNIC_CALL_OF_PROGRAM ibv_pd* ibv_import_pd(ibv_context* context, uint32_t handle) {
  HOSTNIC_NEXT(ibv_import_pd);
  Call call("ibv_import_pd", context);
  HOSTNIC_ARGUMENTS(call, "context %p, handle %u", address(context), handle);
  call.begins();
  return call.ends_with(check::made(call.make(next, context, handle)), "pd");
}

HOSTNIC_CALL_OF_PROGRAM int ibv_dealloc_pd(ibv_pd* pd) {
  HOSTNIC_NEXT(ibv_dealloc_pd);
  Call call("ibv_dealloc_pd", pd);
  HOSTNIC_ARGUMENTS(call, "pd %p", address(pd));
  call.begins();
  return call.ends(call.destroy(next, pd));
}

HOSTNIC_CALL_OF_PROGRAM ibv_mr* ibv_reg_mr(ibv_pd* pd, void* start, size_t length, int access) {
  HOSTNIC_NEXT(ibv_reg_mr);
  Call call("ibv_reg_mr", pd);
  add_region(call, pd, start, length, static_cast<unsigned>(access));
  call.begins();
  return ends_with_region(call, check::made(call.make(next, pd, start, length, access),
                                            memory_of(start, length, address_of(start), access)));
}

HOSTNIC_CALL_OF_PROGRAM ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* start, size_t length,
                                                uint64_t iova, int access) {
  HOSTNIC_NEXT(ibv_reg_mr_iova);
  Call call("ibv_reg_mr_iova", pd);
  add_region(call, pd, start, length, static_cast<unsigned>(access));
  HOSTNIC_ARGUMENTS(call, ", iova 0x%lx", iova);
  call.begins();
  return ends_with_region(call, check::made(call.make(next, pd, start, length, iova, access),
                                            memory_of(start, length, iova, access)));
}

// The inline functions of the headers call this one where they do not know the rights beforehand.
HOSTNIC_CALL_OF_PROGRAM ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* start, size_t length,
                                                 uint64_t iova, unsigned int access) {
  HOSTNIC_NEXT(ibv_reg_mr_iova2);
  const bool plain = iova == reinterpret_cast<uint64_t>(start);
  Call call(plain ? "ibv_reg_mr" : "ibv_reg_mr_iova", pd);
  add_region(call, pd, start, length, access);
  if (!plain) HOSTNIC_ARGUMENTS(call, ", iova 0x%lx", iova);
  call.begins();
  return ends_with_region(call, check::made(call.make(next, pd, start, length, iova, access),
                                            memory_of(start, length, iova, access)));
}

HOSTNIC_CALL_OF_PROGRAM ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, uint64_t offset, size_t length,
                                                  uint64_t iova, int fd, int access) {
  HOSTNIC_NEXT(ibv_reg_dmabuf_mr);
  Call call("ibv_reg_dmabuf_mr", pd);
  call.is_of_size(length);
  HOSTNIC_ARGUMENTS(call, "pd %p, fd %d, offset %lu, %zu bytes, iova 0x%lx, ", address(pd), fd,
                    offset, length, iova);
  if (call.on()) add_access(call.text(), static_cast<unsigned>(access));
  call.begins();
  return ends_with_region(call, check::made(call.make(next, pd, offset, length, iova, fd, access),
                                            memory_of(nullptr, length, iova, access)));
}

HOSTNIC_CALL_OF_PROGRAM int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* start,
                                         size_t length, int access) {
  HOSTNIC_NEXT(ibv_rereg_mr);
  Call call("ibv_rereg_mr", mr);
  if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) call.is_of_size(length);
  HOSTNIC_ARGUMENTS(call, "mr %p, flags 0x%x, pd %p, %p, %zu bytes, ", address(mr), flags,
                    address(pd), start, length);
  if (call.on()) add_access(call.text(), static_cast<unsigned>(access));
  call.begins();
  const int result = call.make(next, mr, flags, pd, start, length, access);
  if (result == 0 && check::is_on())
    check::changed(mr, flags, memory_of(start, length, address_of(start), access));
  return ends_telling(call, result,
                      [&](Text& text) { text.add(", lkey 0x%x rkey 0x%x", mr->lkey, mr->rkey); });
}

HOSTNIC_CALL_OF_PROGRAM int ibv_dereg_mr(ibv_mr* mr) {
  HOSTNIC_NEXT(ibv_dereg_mr);
  Call call("ibv_dereg_mr", mr);
  HOSTNIC_ARGUMENTS(call, "mr %p", address(mr));
  call.begins();
  return call.ends(call.destroy(next, mr));
}
