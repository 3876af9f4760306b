// SPDX-License-Identifier: BSD-3-Clause
// See libraries/mrc_door.h.
#include "verbs-shim/libraries/mrc_door.h"

#include <cstring>

#include "verbs-shim/abi/exports.h"
#include "verbs-shim/abi/registry.h"

using namespace hostnic;
using namespace hostnic::abi;

HOSTNIC_VERB int hostnic_mrc_device(ibv_context* context, MrcDevice* device) {
  const CancellationOff cancellation_off;
  if (!is_ours(Kind::kContext, context)) return ENODEV;
  const DeviceInfo& info = object_of(context)->driver->device();
  *device = {.name = {},
             .transport = static_cast<Transport>(info.transport),
             .window = info.window,
             .mtu_bytes = info.mtu_bytes,
             .entropy_values = info.entropy_values,
             .congestion_allowance_us = info.congestion_allowance_us};
  static_assert(sizeof device->name == sizeof info.name);
  std::memcpy(device->name, info.name, sizeof device->name);
  device->name[sizeof device->name - 1] = '\0';
  return 0;
}

HOSTNIC_VERB int hostnic_mrc_set_limits(ibv_qp* qp, const MrcQpLimits* limits) {
  const CancellationOff cancellation_off;
  if (!is_ours(Kind::kQp, qp)) return EINVAL;
  QpObject& object = *object_of(qp);
  if (is_unusable(*object.owner)) return EIO;
  object.owner->driver->driver().set_mrc_limits(
      object.qp, {.max_imm = limits->max_imm,
                  .mpr = limits->mpr,
                  .exponential_retries = limits->exponential_retries});
  return 0;
}
