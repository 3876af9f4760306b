// SPDX-License-Identifier: BSD-3-Clause
// Devices, versions, contexts.
#include <algorithm>
#include <cstring>

#include "verbs-shim/mrc/device.h"
#include "verbs-shim/mrc/refused.h"

namespace hostnic::libmrc {
namespace {

void put(uint32_t* to, uint32_t value) {
  if (to != nullptr) *to = value;
}

int query(const char* call, ibv_context* context, mrc_device_attr* attr, int* supported) {
  if (context == nullptr || attr == nullptr || supported == nullptr)
    return refused(call, EINVAL, "context, attr or supported is null");
  *attr = {};
  MrcDevice device;
  *supported = speaks_mrc(call, context, device) ? 1 : 0;
  if (*supported == 0) return 0;
  attr->mrc_protocol_version = MRC_PROTOCOL_VERSION_1;
  attr->wimm_attr = {most_imms(device), most_imms(device)};
  attr->mpr_attr = {most_mpr(device), 1};
  attr->qp_attr.max_qp_hint = kMostHints;
  attr->cap = MRC_DEVICE_CAP_DYNAMIC_MPR;
  return 0;
}

}  // namespace

bool speaks_mrc(const char* call, ibv_context* context, MrcDevice& device) {
  if (hostnic_mrc_device(context, &device) != 0) {
    refused(call, EOPNOTSUPP, "the device is not hostnic's, whose libmrc this is");
    return false;
  }
  if (device.transport == Transport::kMrc) return true;
  refused(call, EOPNOTSUPP,
          "%s speaks %s: its hostnicd has to have transport = \"mrc\" for it (hostnic lab --nic "
          "transport=mrc ...)",
          device.name, to_string(device.transport));
  return false;
}

}  // namespace hostnic::libmrc

using namespace hostnic;
using namespace hostnic::libmrc;

MRC_CALL int mrc_query_device(ibv_context* context, mrc_device_attr* attr, int* supported) {
  return minus_one(query("mrc_query_device", context, attr, supported));
}

MRC_CALL int mrc_query_device_ex(ibv_context* context, mrc_context* mcontext, mrc_device_attr* attr,
                                 int* supported) {
  constexpr const char* kCall = "mrc_query_device_ex";
  if (mcontext != nullptr && !is_object(Kind::kContext, mcontext))
    return minus_one(no_object(kCall, Kind::kContext));
  if (mcontext != nullptr && mcontext->verbs != context)
    return minus_one(refused(kCall, EINVAL, "mcontext is of another device"));
  return minus_one(query(kCall, context, attr, supported));
}

MRC_CALL void mrc_query_version(uint32_t* current, uint32_t* last, uint32_t* vendor,
                                uint32_t* last_vendor) {
  put(current, MRC_API_CURRENT_VERSION);
  put(last, MRC_API_LAST_SUPPORTED_VERSION);
  put(vendor, MRC_VENDOR_API_CURRENT_VERSION);
  put(last_vendor, MRC_VENDOR_API_LAST_SUPPORTED_VERSION);
}

MRC_CALL void mrc_ctl_query_version(uint32_t* current, uint32_t* last, uint32_t* vendor,
                                    uint32_t* last_vendor) {
  put(current, MRC_CTL_API_CURRENT_VERSION);
  put(last, MRC_CTL_API_LAST_SUPPORTED_VERSION);
  put(vendor, MRC_CTL_VENDOR_API_CURRENT_VERSION);
  put(last_vendor, MRC_CTL_VENDOR_API_LAST_SUPPORTED_VERSION);
}

MRC_CALL mrc_context* mrc_create_context(ibv_context* vcontext, mrc_context_attr* attr) {
  constexpr const char* kCall = "mrc_create_context";
  constexpr uint32_t kMajorBits = 24, kMajor = MRC_API_CURRENT_VERSION >> kMajorBits;
  if (vcontext == nullptr) return no_pointer(refused(kCall, EINVAL, "vcontext is null"));
  // Versions of the same major number have what their program uses: the linker has seen to it.
  if (attr != nullptr && attr->mrc_api_version_used >> kMajorBits > kMajor) {
    return no_pointer(refused(kCall, EINVAL,
                              "mrc_api_version_used is 0x%x: this is version 0x%x of the API",
                              attr->mrc_api_version_used, MRC_API_CURRENT_VERSION));
  }
  MrcDevice device;
  if (!speaks_mrc(kCall, vcontext, device)) return no_pointer(EOPNOTSUPP);
  mrc_context* const context = make<mrc_context>(vcontext, device);
  if (context == nullptr) return nullptr;
  const auto lock = lock_objects();
  add_object(*context);
  return context;
}

MRC_CALL int mrc_destroy_context(mrc_context* context) {
  constexpr const char* kCall = "mrc_destroy_context";
  bool is_known = false;
  uint32_t left = 0;
  {
    const auto lock = lock_objects();
    is_known = is_live(Kind::kContext, context);
    if (is_known) left = context->objects;
    if (is_known && left == 0) remove_object(*context);
  }
  if (!is_known) return minus_one(no_object(kCall, Kind::kContext));
  if (left != 0) {
    return minus_one(refused(kCall, EBUSY,
                             "%u of its queue pairs, completion queues, channels and QP hints are "
                             "not destroyed",
                             left));
  }
  delete context;
  return 0;
}
