// SPDX-License-Identifier: BSD-3-Clause
// The verbs objects that both the workload and the error checks use, with owners.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <string>

#include "tests/apps/verify/channel.h"
#include "tests/apps/verify/options.h"
#include "tests/apps/verify/plan.h"
#include "tests/support/verbs_pair.h"

namespace hostnic::verify {

// Destroys with the ibv_ function; a failure to do so is printed (it is a finding, too).
struct Destroy {
  void operator()(ibv_context* x) const;
  void operator()(ibv_pd* x) const;
  void operator()(ibv_mr* x) const;
  void operator()(ibv_mw* x) const;
  void operator()(ibv_cq* x) const;
  void operator()(ibv_qp* x) const;
  void operator()(ibv_comp_channel* x) const;
};
template <typename T>
using Owned = std::unique_ptr<T, Destroy>;

// Number of objects that could not be destroyed so far in this process.
int destroy_failures();

using verbs::QpAddress;

struct ConnectAttributes {
  uint32_t mtu_bytes = 1024;
  uint8_t timeout = 14;  // 4.096 us * 2^14 = 67 ms
  uint8_t retry_cnt = 7;
  uint8_t rnr_retry = 7;       // for ever
  uint8_t min_rnr_timer = 10;  // 0.32 ms
  uint8_t rd_atomic = 1;
  int access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
               IBV_ACCESS_REMOTE_ATOMIC;
};

// An open device with one protection domain. All functions throw Failure with the call that failed
// and its errno.
class Device {
 public:
  Device(const std::string& name, int gid_index);

  ibv_context* context() const { return context_.get(); }
  ibv_pd* pd() const { return pd_.get(); }
  const ibv_device_attr& attributes() const { return attributes_; }
  const std::string& name() const { return name_; }
  uint32_t active_mtu_bytes() const { return 128u << port_.active_mtu; }
  uint8_t rd_atomic() const;

  Owned<ibv_mr> register_memory(std::span<std::byte> bytes, int access) const;
  Owned<ibv_cq> create_cq(int entries, ibv_comp_channel* channel) const;
  // `caps` gets what was granted.
  Owned<ibv_qp> create_qp(ibv_cq* send_cq, ibv_cq* recv_cq, ibv_qp_cap& caps) const;

  QpAddress address_of(const ibv_qp* qp, uint32_t psn) const;
  // Attributes and mask for each step, so that tests can also leave some out.
  ibv_qp_attr init_attributes(const ConnectAttributes& how) const;
  ibv_qp_attr rtr_attributes(const ConnectAttributes& how, const QpAddress& peer) const;
  ibv_qp_attr rts_attributes(const ConnectAttributes& how, uint32_t own_psn) const;
  static constexpr int kInitMask = verbs::init_mask(IBV_QPT_RC);
  static constexpr int kRtrMask = verbs::rtr_mask(IBV_QPT_RC);
  static constexpr int kRtsMask = verbs::rts_mask(IBV_QPT_RC);
  void to_init(ibv_qp* qp, const ConnectAttributes& how) const;
  void to_ready(ibv_qp* qp, const ConnectAttributes& how, uint32_t own_psn,
                const QpAddress& peer) const;

 private:
  verbs::ConnectOptions options(const ConnectAttributes& how) const;

  std::string name_;
  Owned<ibv_context> context_;
  Owned<ibv_pd> pd_;
  ibv_device_attr attributes_{};
  ibv_port_attr port_{};
  ibv_gid gid_{};
  uint8_t gid_index_ = 0;
};

ibv_qp_state state_of(ibv_qp* qp);

}  // namespace hostnic::verify
