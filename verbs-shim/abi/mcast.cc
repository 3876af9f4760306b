// SPDX-License-Identifier: BSD-3-Clause
// Multicast groups: which datagram queue pairs receive what is sent to them.
#include <algorithm>
#include <new>

#include "verbs-shim/abi/convert.h"
#include "verbs-shim/abi/exports.h"
#include "verbs-shim/abi/real_verbs.h"
#include "verbs-shim/abi/registry.h"
#include "verbs-shim/base/refusal.h"

using namespace hostnic;
using namespace hostnic::abi;

namespace {

constexpr const char* kNoGroup =
    "the GID is no multicast group's: ff00::/8, or ::ffff:224.0.0.0/100 for IPv4";

// Attaches to a group as the kernel's uverbs do: attaching again is no error and changes nothing.
int attach(ibv_qp& qp, const ibv_gid& gid) {
  const std::optional<Ipv4Address> group = group_from_gid(gid);
  if (qp.qp_type != IBV_QPT_UD) {
    return refuse({.reason = Reason::kArgument,
                   .text = "the queue pair is not of type UD: others are members of no group"});
  }
  if (!group) return refuse({.reason = Reason::kArgument, .text = kNoGroup});
  QpObject& object = *object_of(&qp);
  if (is_unusable(*object.owner)) return EIO;
  try {
    ObjectLock lock = lock_objects();
    object.groups.reserve(object.groups.size() + 1);
  } catch (const std::bad_alloc&) {
    return ENOMEM;
  }
  if (int error = object.owner->driver->driver().attach_group(object.qp, *group)) return error;
  ObjectLock lock = lock_objects();
  if (std::ranges::find(object.groups, *group) == object.groups.end())
    object.groups.push_back(*group);
  return 0;
}

int detach(ibv_qp& qp, const ibv_gid& gid) {
  const std::optional<Ipv4Address> group = group_from_gid(gid);
  if (!group) return refuse({.reason = Reason::kArgument, .text = kNoGroup});
  QpObject& object = *object_of(&qp);
  {
    ObjectLock lock = lock_objects();
    if (std::erase(object.groups, *group) == 0) {
      return refuse(
          {.reason = Reason::kArgument, .text = "the queue pair is not attached to that group"});
    }
  }
  // Without a NIC there is no membership either. The queue pair can be destroyed, as it always can.
  if (is_unusable(*object.owner)) return 0;
  const int error = object.owner->driver->driver().detach_group(object.qp, *group);
  return error == EIO ? 0 : error;
}

}  // namespace

HOSTNIC_VERB int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_qp*, const ibv_gid*, uint16_t)> real("ibv_attach_mcast",
                                                                         "IBVERBS_1.1");
  if (!is_ours(Kind::kQp, qp)) return real.foreign(qp, gid, lid);
  if (int error = check_handle(Kind::kQp, qp)) return fail(error);
  const int error = attach(*qp, *gid);
  if (error != 0) tell_refusal("ibv_attach_mcast", qp->qp_num, error);
  return error == 0 ? 0 : fail(error);
}

HOSTNIC_VERB int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, uint16_t lid) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_qp*, const ibv_gid*, uint16_t)> real("ibv_detach_mcast",
                                                                         "IBVERBS_1.1");
  if (!is_ours(Kind::kQp, qp)) return real.foreign(qp, gid, lid);
  if (int error = check_handle(Kind::kQp, qp)) return fail(error);
  const int error = detach(*qp, *gid);
  if (error != 0) tell_refusal("ibv_detach_mcast", qp->qp_num, error);
  return error == 0 ? 0 : fail(error);
}
