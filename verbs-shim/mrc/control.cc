// SPDX-License-Identifier: BSD-3-Clause
// The controller's half: what the device offers, its port, and its two profiles, which are what a
// NIC's configuration makes of them. A controller can look at them. What would change something is
// refused with a line that names the key or command that does.
#include <cstring>

#include "verbs-shim/mrc/attributes.h"
#include "verbs-shim/mrc/device.h"
#include "verbs-shim/mrc/refused.h"

namespace hostnic::libmrc {
namespace {

constexpr uint32_t kEntropyBits = 16;
constexpr uint32_t kOnlyPort = 1;

const char* kAlgorithms[] = {"uet-1.0-nscc", nullptr};

void describe(const MrcDevice& device, mrc_ctl_device_attr& attr) {
  attr.mrc_ctl_protocol_version = MRC_CTL_PROTOCOL_VERSION_1;
  attr.ev.ev_max_profiles = 1;
  attr.ev.ev_max_count = device.entropy_values;
  attr.ev.ev_max_count_profile = device.entropy_values;
  attr.ev.ev_count_align = 1;
  attr.ev.ev_max_width = kEntropyBits;
  attr.ev.ev_fmt_mode_mask = MRC_CTL_EV_FMT_MODE_UDP;
  attr.ev.ev_mode_mask = MRC_CTL_EV_MODE_AUTO;
  attr.cc.cc_max_profiles = 1;
  attr.cc.algorithms = kAlgorithms;
  attr.phy_port_mask = 1u << kOnlyPort;
}

int query(const char* call, ibv_context* context, mrc_ctl_device_attr* attr, bool& is_mrc) {
  if (context == nullptr || attr == nullptr)
    return refused(call, EINVAL, "context or ctl_attr is null");
  *attr = {};
  MrcDevice device;
  is_mrc = speaks_mrc(call, context, device);
  if (is_mrc) describe(device, *attr);
  return 0;
}

// What calls about a profile or port share. Returns 0, or EINVAL.
int check(const char* call, const mrc_context* context, const void* attr) {
  if (!is_object(Kind::kContext, context)) return no_object(call, Kind::kContext);
  return attr != nullptr ? 0 : refused(call, EINVAL, "attr is null");
}

int check_port(const char* call, const mrc_context* context, uint8_t port, const void* attr,
               int mask) {
  if (const int error = check(call, context, attr)) return error;
  if (port != kOnlyPort) return refused(call, EINVAL, "port_num is %u: there is port 1", port);
  if ((mask & ~MRC_CTL_PORT_ADMIN_STATE) != 0)
    return refused(call, EINVAL, "unknown bits in attr_mask 0x%x", static_cast<uint32_t>(mask));
  return 0;
}

int check_profile(const char* call, const mrc_context* context, uint64_t id, const void* attr) {
  if (const int error = check(call, context, attr)) return error;
  if (id == 0) return 0;
  return refused(call, EINVAL, "there is no profile %llu: hostnic has number 0 alone",
                 static_cast<unsigned long long>(id));
}

int no_formats(const char* call, const mrc_context* context, const void* attr) {
  if (const int error = check(call, context, attr)) return error;
  return refused(call, EINVAL,
                 "hostnic has no EV format profiles (ev_max_fmt_profiles is 0): all entropy values "
                 "are UDP source ports");
}

}  // namespace
}  // namespace hostnic::libmrc

using namespace hostnic;
using namespace hostnic::libmrc;

// ---- the device and its port

MRC_CALL int mrc_ctl_query_device(ibv_context* context, mrc_ctl_device_attr* attr) {
  constexpr const char* kCall = "mrc_ctl_query_device";
  bool is_mrc = false;
  if (const int error = query(kCall, context, attr, is_mrc)) return minus_one(error);
  return is_mrc ? 0 : minus_one(EOPNOTSUPP);
}

MRC_CALL int mrc_ctl_query_device_ex(ibv_context* context, mrc_context* mcontext,
                                     mrc_ctl_device_attr* attr, int* supported) {
  constexpr const char* kCall = "mrc_ctl_query_device_ex";
  if (mcontext != nullptr && !is_object(Kind::kContext, mcontext))
    return minus_one(no_object(kCall, Kind::kContext));
  if (mcontext != nullptr && mcontext->verbs != context)
    return minus_one(refused(kCall, EINVAL, "mcontext is of another device"));
  if (supported == nullptr) return minus_one(refused(kCall, EINVAL, "supported is null"));
  bool is_mrc = false;
  if (const int error = query(kCall, context, attr, is_mrc)) return minus_one(error);
  *supported = is_mrc ? 1 : 0;
  return 0;
}

MRC_CALL int mrc_ctl_query_port(mrc_context* context, uint8_t port_num, mrc_ctl_port_attr* attr,
                                int attr_mask) {
  constexpr const char* kCall = "mrc_ctl_query_port";
  if (const int error = check_port(kCall, context, port_num, attr, attr_mask))
    return minus_one(error);
  attr->port_admin_state = MRC_CTL_PORT_ADMIN_ENABLED;
  return 0;
}

MRC_CALL int mrc_ctl_modify_port(mrc_context* context, uint8_t port_num, mrc_ctl_port_attr* attr,
                                 int attr_mask) {
  constexpr const char* kCall = "mrc_ctl_modify_port";
  if (const int error = check_port(kCall, context, port_num, attr, attr_mask))
    return minus_one(error);
  if ((attr_mask & MRC_CTL_PORT_ADMIN_STATE) == 0 ||
      number_in(attr->port_admin_state) == MRC_CTL_PORT_ADMIN_ENABLED)
    return 0;
  if (number_in(attr->port_admin_state) != MRC_CTL_PORT_ADMIN_DISABLED)
    return minus_one(refused(kCall, EINVAL, "port_admin_state is %u: there are 0 and 1",
                             number_in(attr->port_admin_state)));
  return minus_one(refused(kCall, EIO,
                           "libmrc shows one port, which it can't switch off: `hostnic mrc port` "
                           "does for each plane of a NIC"));
}

// ---- formats of entropy values

MRC_CALL int mrc_ctl_modify_ev_fmt_profile(mrc_context* context, uint64_t,
                                           mrc_ctl_ev_fmt_profile_attr* attr, int) {
  return minus_one(no_formats("mrc_ctl_modify_ev_fmt_profile", context, attr));
}

MRC_CALL int mrc_ctl_query_ev_fmt_profile(mrc_context* context, uint64_t,
                                          mrc_ctl_ev_fmt_profile_attr* attr, int) {
  return minus_one(no_formats("mrc_ctl_query_ev_fmt_profile", context, attr));
}

// ---- profiles of entropy values

MRC_CALL int mrc_ctl_modify_ev_profile(mrc_context* context, uint64_t id,
                                       mrc_ctl_ev_profile_attr* attr, int) {
  constexpr const char* kCall = "mrc_ctl_modify_ev_profile";
  if (const int error = check_profile(kCall, context, id, attr)) return minus_one(error);
  return minus_one(refused(kCall, EIO,
                           "EV profile 0 can't be changed: the NIC's mrc_entropy_values says how "
                           "many values each queue pair draws"));
}

MRC_CALL int mrc_ctl_query_ev_profile(mrc_context* context, uint64_t id,
                                      mrc_ctl_ev_profile_attr* attr, int attr_mask) {
  constexpr const char* kCall = "mrc_ctl_query_ev_profile";
  constexpr uint32_t kOperations = MRC_CTL_EV_PROFILE_EV_OP | MRC_CTL_EV_PROFILE_EV_FIELDS_OP;
  if (const int error = check_profile(kCall, context, id, attr)) return minus_one(error);
  if ((static_cast<uint32_t>(attr_mask) & kOperations) != 0) {
    return minus_one(refused(kCall, EINVAL,
                             "EV profile 0 is MRC_CTL_EV_MODE_AUTO, and has no values of its own: "
                             "each queue pair draws others"));
  }
  attr->profile_state = attr->cur_profile_state = MRC_CTL_PROFILE_ONLINE;
  attr->ev_mode = MRC_CTL_EV_MODE_AUTO;
  attr->ev_fmt_profile_id = 0;
  attr->ev_count = context->device.entropy_values;
  attr->ev_min_active = 0;
  attr->ev_event_mask = 0;
  return 0;
}

// ---- profiles of congestion control

MRC_CALL int mrc_ctl_modify_cc_profile(mrc_context* context, uint64_t id,
                                       mrc_ctl_cc_profile_attr* attr, int) {
  constexpr const char* kCall = "mrc_ctl_modify_cc_profile";
  if (const int error = check_profile(kCall, context, id, attr)) return minus_one(error);
  return minus_one(refused(kCall, EIO,
                           "CC profile 0 can't be changed: the NIC's congestion_allowance_us is "
                           "the least delay that it aims at, and window the most in flight"));
}

MRC_CALL int mrc_ctl_query_cc_profile(mrc_context* context, uint64_t id,
                                      mrc_ctl_cc_profile_attr* attr, int attr_mask) {
  constexpr const char* kCall = "mrc_ctl_query_cc_profile";
  if (const int error = check_profile(kCall, context, id, attr)) return minus_one(error);
  if ((attr_mask & MRC_CTL_CC_PROFILE_CONFIG) != 0) {
    return minus_one(refused(kCall, EINVAL,
                             "CC profile 0 has no configuration to show: `hostnic ctl show nic` "
                             "has the NIC's"));
  }
  attr->profile_state = attr->cur_profile_state = MRC_CTL_PROFILE_ONLINE;
  attr->algorithm = kAlgorithms[0];
  attr->cc_config = nullptr;
  return 0;
}

// ---- events and requests to endpoints

MRC_CALL mrc_cq* mrc_ctl_create_ev_event_cq(mrc_context* context, int, void*, mrc_comp_channel*,
                                            int) {
  constexpr const char* kCall = "mrc_ctl_create_ev_event_cq";
  if (!is_object(Kind::kContext, context)) return no_pointer(no_object(kCall, Kind::kContext));
  return no_pointer(refused(kCall, EOPNOTSUPP,
                            "hostnic raises no EV events (MRC_CTL_OPT_CAP_EV_EVENT is not set): "
                            "`hostnic mrc` has the states of entropy values"));
}

MRC_CALL int mrc_ctl_poll_ev_event(mrc_cq*, int, mrc_ctl_ev_event*) {
  return -refused("mrc_ctl_poll_ev_event", EINVAL, "that is no queue of EV events: there are none");
}

MRC_CALL int mrc_ctl_ep_batch_send_wait(mrc_context* context, uint8_t, mrc_ctl_ep_op_type,
                                        mrc_ctl_ep_req* req, int, uint32_t, mrc_ctl_ep_rsp*,
                                        int* num_rsp) {
  constexpr const char* kCall = "mrc_ctl_ep_batch_send_wait";
  if (const int error = check(kCall, context, req)) return minus_one(error);
  if (num_rsp != nullptr) *num_rsp = 0;
  return minus_one(refused(kCall, ENOTSUP,
                           "hostnic sends no endpoint requests (MRC_CTL_OPT_CAP_EP_OP_EV_PROBE is "
                           "not set): `hostnic mrc probe` asks by each plane"));
}
