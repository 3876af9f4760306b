// SPDX-License-Identifier: BSD-3-Clause
// The queue pairs of one side: a reliable one and one of datagrams. Both sides have the same.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

#include "tests/support/verbs_pair.h"

namespace hostnic::twin {

inline constexpr uint32_t kQkey = 0x11111111;
inline constexpr uint32_t kGrhBytes = 40;
inline constexpr uint32_t kDatagramBytes = 900;  // at most
inline constexpr double kPatienceS = 20;
inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;

// CLOCK_MONOTONIC.
double now_s();

struct Addresses {
  verbs::QpAddress reliable, datagram;
};

class Ends {
 public:
  // Ends the process, with a message, when something fails that has nothing to do with memory.
  explicit Ends(const char* device);
  ~Ends();
  Ends(const Ends&) = delete;
  Ends& operator=(const Ends&) = delete;

  Addresses addresses() const;
  // From whatever state to RTS, with nothing left in the queues.
  void connect(const Addresses& peer);
  // Both return 0 or an errno.
  int post(ibv_send_wr wr, ibv_qp* qp) const;
  int post_receive(uint64_t address, uint32_t length, uint32_t lkey, ibv_qp* qp) const;
  // Waits for a completion; false: none came.
  bool next(ibv_wc& completion, double patience_s = kPatienceS) const;
  ibv_ah* peer_address() const { return ah_; }
  uint32_t peer_qpn() const { return peer_qpn_; }

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_cq* cq = nullptr;
  ibv_qp* reliable = nullptr;
  ibv_qp* datagram = nullptr;

 private:
  ibv_qp* make(ibv_qp_type type) const;
  ibv_gid gid_{};
  ibv_mtu mtu_ = IBV_MTU_1024;
  ibv_ah* ah_ = nullptr;
  uint32_t peer_qpn_ = 0;
};

}  // namespace hostnic::twin
