// SPDX-License-Identifier: BSD-3-Clause
// Questions about an open device: attributes, port, GIDs, P_Keys, clock.
#include <time.h>

#include <algorithm>
#include <cstring>

#include "protocol/hostif/device_facts.h"
#include "verbs-shim/abi/context_table.h"
#include "verbs-shim/abi/convert.h"
#include "verbs-shim/abi/device_attr.h"
#include "verbs-shim/abi/devices.h"
#include "verbs-shim/abi/exports.h"
#include "verbs-shim/abi/limits.h"
#include "verbs-shim/abi/real_verbs.h"
#include "verbs-shim/abi/registry.h"
#include "verbs-shim/base/refusal.h"

// The macro is removed: libibverbs' headers define it over the table; this is the symbol of old
// programs.
#undef ibv_query_port

namespace hostnic::abi {
namespace {

const DeviceInfo& opened_info(ibv_context* context) { return object_of(context)->driver->device(); }

// The device with the GID table of now.
DeviceInfo info_now(ibv_context* context) { return object_of(context)->driver->device_now(); }

// Whether hostnicd is gone. In a forked child, whose device is dead too, questions are still
// answered.
bool is_dead(ibv_context* context) {
  const ContextObject& object = *object_of(context);
  return !object.abandoned && !object.driver->alive();
}

// Whether the table has room for such an entry; there need be none.
bool gid_index_exists(const DeviceInfo& info, uint32_t port, uint32_t index) {
  return port == kPortNumber && index < info.gid_table_length;
}

ibv_gid_entry to_entry(const DeviceInfo& info, const GidEntry& from, uint32_t index) {
  ibv_gid_entry entry{};
  entry.gid = from_gid(gid_in(from.gid));
  entry.gid_index = index;
  entry.port_num = kPortNumber;
  entry.gid_type = static_cast<uint32_t>(from.type);
  entry.ndev_ifindex = netdev_index(info);
  return entry;
}
static_assert(static_cast<uint32_t>(GidType::kRoceV1) == IBV_GID_TYPE_ROCE_V1 &&
              static_cast<uint32_t>(GidType::kRoceV2) == IBV_GID_TYPE_ROCE_V2);

}  // namespace

int query_port(ibv_context* context, uint8_t port, ibv_port_attr* attr, size_t size_bytes) {
  const CancellationOff cancellation_off;
  if (is_dead(context)) return fail(EIO);
  DeviceInfo info = opened_info(context);
  info.link_up = object_of(context)->driver->port_up() ? 1 : 0;
  info.mtu_bytes = object_of(context)->driver->port_mtu_bytes();
  if (port != kPortNumber) return refuse_call("ibv_query_port", 0, {Reason::kPort, port});
  const int error = fill_port_attr(info, port, attr, size_bytes);
  return error == 0 ? 0 : fail(error);
}

int query_device_ex(ibv_context* context, const ibv_query_device_ex_input* input,
                    ibv_device_attr_ex* attr, size_t size_bytes) {
  const CancellationOff cancellation_off;
  if (input != nullptr && input->comp_mask != 0) return fail(EINVAL);
  if (is_dead(context)) return fail(EIO);
  const int error = fill_device_attr_ex(opened_info(context), attr, size_bytes);
  return error == 0 ? 0 : fail(error);
}

int query_rt_values(ibv_context* context, ibv_values_ex* values) {
  const CancellationOff cancellation_off;
  if (is_dead(context)) return fail(EIO);
  if (values->comp_mask & ~static_cast<uint32_t>(IBV_VALUES_MASK_RAW_CLOCK)) return fail(EINVAL);
  if (values->comp_mask & IBV_VALUES_MASK_RAW_CLOCK) {
    // The whole counter is in tv_nsec, as with hardware providers. It ticks in nanoseconds, like
    // completion timestamps.
    timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    values->raw_clock = {0, now.tv_sec * 1'000'000'000 + now.tv_nsec};
  }
  return 0;
}

}  // namespace hostnic::abi

using namespace hostnic;
using namespace hostnic::abi;

HOSTNIC_VERB int ibv_query_device(ibv_context* context, ibv_device_attr* attr) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_context*, ibv_device_attr*)> real("ibv_query_device",
                                                                      "IBVERBS_1.1");
  if (!is_ours(Kind::kContext, context)) return real.foreign(context, attr);
  if (is_dead(context)) return fail(EIO);
  fill_device_attr(opened_info(context), *attr);
  return 0;
}

HOSTNIC_VERB int ibv_query_port(ibv_context* context, uint8_t port, _compat_ibv_port_attr* attr) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_context*, uint8_t, _compat_ibv_port_attr*)> real(
      "ibv_query_port", "IBVERBS_1.1");
  if (!is_ours(Kind::kContext, context)) return real.foreign(context, port, attr);
  return query_port(context, port, reinterpret_cast<ibv_port_attr*>(attr), kLegacyPortAttrBytes);
}

HOSTNIC_VERB int ibv_query_gid(ibv_context* context, uint8_t port, int index, ibv_gid* gid) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_context*, uint8_t, int, ibv_gid*)> real("ibv_query_gid",
                                                                            "IBVERBS_1.1");
  if (!is_ours(Kind::kContext, context)) return real.foreign(context, port, index, gid) ? -1 : 0;
  const DeviceInfo info = info_now(context);
  if (index < 0 || !gid_index_exists(info, port, static_cast<uint32_t>(index))) {
    const auto number = static_cast<uint32_t>(index);
    refuse_call("ibv_query_gid", 0,
                port == kPortNumber ? Refusal{Reason::kGidIndex, number, info.gid_table_length}
                                    : Refusal{Reason::kPort, port});
    return -1;
  }
  // An entry that is not there is answered by zeros, as libibverbs does.
  const GidEntry* entry = gid_entry_at(info, static_cast<uint32_t>(index));
  *gid = entry == nullptr ? ibv_gid{} : from_gid(gid_in(entry->gid));
  return 0;
}

HOSTNIC_VERB int _ibv_query_gid_ex(ibv_context* context, uint32_t port, uint32_t index,
                                   ibv_gid_entry* entry, uint32_t flags, size_t entry_bytes) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_context*, uint32_t, uint32_t, ibv_gid_entry*, uint32_t, size_t)>
      real("_ibv_query_gid_ex", "IBVERBS_1.11");
  if (!is_ours(Kind::kContext, context)) {
    return real.foreign(context, port, index, entry, flags, entry_bytes);
  }
  const DeviceInfo info = info_now(context);
  if (flags != 0 || !gid_index_exists(info, port, index)) return fail(EINVAL);
  const GidEntry* found = gid_entry_at(info, index);
  if (found == nullptr) return fail(ENODATA);
  const ibv_gid_entry full = to_entry(info, *found, index);
  memset(entry, 0, entry_bytes);
  memcpy(entry, &full, std::min(entry_bytes, sizeof full));
  return 0;
}

HOSTNIC_VERB ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries,
                                          size_t max_entries, uint32_t flags, size_t entry_bytes) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ssize_t(ibv_context*, ibv_gid_entry*, size_t, uint32_t, size_t)> real(
      "_ibv_query_gid_table", "IBVERBS_1.11");
  if (!is_ours(Kind::kContext, context)) {
    if (real_contexts_open.load() == 0) return -fail(EINVAL);
    return real.call(context, entries, max_entries, flags, entry_bytes);
  }
  if (flags != 0) return -fail(EOPNOTSUPP);
  const DeviceInfo info = info_now(context);
  size_t used = 0;
  for (uint32_t i = 0; i < info.gid_count; ++i) {
    const GidEntry* const found = gid_entry_at(info, i);
    if (found == nullptr) continue;
    if (used == max_entries) return -fail(EINVAL);
    const ibv_gid_entry full = to_entry(info, *found, i);
    std::byte* const to = reinterpret_cast<std::byte*>(entries) + used++ * entry_bytes;
    memset(to, 0, entry_bytes);
    memcpy(to, &full, std::min(entry_bytes, sizeof full));
  }
  return static_cast<ssize_t>(used);
}

// The type is of libibverbs' private enumeration (0: IB or RoCEv1, 1: RoCEv2), unlike the public
// ibv_gid_type. ibv_devinfo and libmlx5 import it under the private version of their release; all
// are the same.
HOSTNIC_VERB int hostnic_query_gid_type(ibv_context* context, uint8_t port, unsigned int index,
                                        uint32_t* type) {
  const CancellationOff cancellation_off;
  constexpr uint32_t kIbOrRoceV1 = 0, kRoceV2 = 1;
  if (!is_ours(Kind::kContext, context)) return real_query_gid_type(context, port, index, type);
  const DeviceInfo info = info_now(context);
  const GidEntry* entry = port == kPortNumber ? gid_entry_at(info, index) : nullptr;
  if (entry == nullptr) {
    errno = EINVAL;
    return -1;
  }
  *type = entry->type == GidType::kRoceV2 ? kRoceV2 : kIbOrRoceV1;
  return 0;
}

__asm__(".symver hostnic_query_gid_type, ibv_query_gid_type@IBVERBS_PRIVATE_34");
__asm__(".symver hostnic_query_gid_type, ibv_query_gid_type@IBVERBS_PRIVATE_57");
__asm__(".symver hostnic_query_gid_type, ibv_query_gid_type@IBVERBS_PRIVATE_59");
__asm__(".symver hostnic_query_gid_type, ibv_query_gid_type@IBVERBS_PRIVATE_64");
__asm__(".symver hostnic_query_gid_type, ibv_query_gid_type@IBVERBS_PRIVATE_65");

HOSTNIC_VERB int ibv_query_pkey(ibv_context* context, uint8_t port, int index, __be16* pkey) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_context*, uint8_t, int, __be16*)> real("ibv_query_pkey",
                                                                           "IBVERBS_1.1");
  if (!is_ours(Kind::kContext, context)) return real.foreign(context, port, index, pkey) ? -1 : 0;
  if (port != kPortNumber || index != 0) {
    refuse_call("ibv_query_pkey", 0,
                port == kPortNumber ? Refusal{Reason::kPkeyIndex, static_cast<uint32_t>(index)}
                                    : Refusal{Reason::kPort, port});
    return -1;
  }
  *pkey = kDefaultPkey;  // the same in either byte order
  return 0;
}

HOSTNIC_VERB int ibv_get_pkey_index(ibv_context* context, uint8_t port, __be16 pkey) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_context*, uint8_t, __be16)> real("ibv_get_pkey_index",
                                                                     "IBVERBS_1.5");
  if (!is_ours(Kind::kContext, context)) {
    if (real_contexts_open != 0) return real.call(context, port, pkey);
  } else if (port == kPortNumber && pkey == kDefaultPkey) {
    return 0;
  }
  errno = EINVAL;
  return -1;
}
