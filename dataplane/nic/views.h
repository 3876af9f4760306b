// SPDX-License-Identifier: BSD-3-Clause
// What a NIC says of its queue pairs and of keys when somebody asks why: values, taken on the NIC's
// lcore. Text is made of them elsewhere (daemon/observe/view_text.h, explain.h).
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/nic/memory/access_scope.h"
#include "dataplane/nic/port_view.h"
#include "dataplane/nic/qp/qp_context.h"
#include "protocol/hostif/descriptors.h"
#include "protocol/psn.h"
#include "protocol/transport_kind.h"
#include "protocol/types.h"

namespace hostnic {

// Why a key does not give what is asked of it, in the order in which it is looked at.
enum class KeyFault : uint8_t {
  kNone,
  kQpRight,   // the queue pair lacks the right, whatever the key
  kUnknown,   // of no region or window of the program's
  kUnbound,   // the window is not bound, or to another queue pair
  kDomain,    // another protection domain
  kRight,     // the region, or the window, lacks the right
  kBounds,    // begins before it, or ends behind it
  kOnDemand,  // atomics in an on-demand region
};

// What a key names, and what is wrong with it.
struct KeyView {
  KeyFault fault = KeyFault::kNone;
  bool is_window = false;
  uint32_t key = 0;
  uint64_t va = 0, length_bytes = 0;              // what was asked for
  uint64_t region_va = 0, region_bytes = 0;       // of region or window, where there is one
  uint32_t wanted_access = 0, region_access = 0;  // AccessFlag
};

// What congestion has made of a rate.
struct RateView {
  uint32_t mbps = 0;  // 0: unlimited
  uint32_t alpha_permille = 0;
  uint32_t cuts = 0, recoveries = 0;
};

// One of the paths that a native queue pair sprays its packets over.
struct PathView {
  bool good = true;      // false: it is avoided
  uint64_t srtt_ns = 0;  // 0: not measured
  uint32_t lost = 0;     // packets
};

// The entropy values of MRC that lead to one plane, by state.
struct MrcPlaneView {
  bool is_up = true;  // the NIC's port there
  uint32_t good = 0, skipped = 0, bad = 0, denied = 0;
};

// A NIC.
struct NicView {
  std::string name;
  std::string address;
  uint32_t prefix_length = 0;
  uint32_t mtu_bytes = 0, window = 0;
  std::string transport, policy;
  uint32_t mrc_values = 0;               // of each queue pair; 0: it does not speak MRC
  std::vector<MrcPlaneView> mrc_planes;  // only is_up says anything
  PortView port;
  bool icrc = false;
  std::string no_bundles;  // why it hands packets over one by one; empty: it does not
  size_t clients = 0, qps = 0;
  bool has_neighbours = false;  // hosts have MAC addresses
  size_t neighbours = 0, neighbours_unanswered = 0;
  uint64_t buffers_in_use = 0, buffers = 0;
};

// What is asked of a key.
struct KeyQuestion {
  uint32_t key = 0;
  uint64_t va = 0;
  uint64_t length_bytes = 0;
  uint32_t access = 0;     // AccessFlag
  bool is_remote = false;  // by a peer, which may name a window
};

// One queue pair as its NIC sees it.
struct QpView {
  uint32_t qpn = 0;
  QpType type = QpType::kRc;
  QpState state = QpState::kReset;
  Transport transport = Transport::kHostnic;
  uint32_t client_id = 0, pid = 0, uid = 0;
  std::string program;
  uint32_t dest_qpn = 0, dest_ip = 0, source_ip = 0;
  uint32_t access = 0;  // AccessFlag: what its peer may do
  uint32_t pd = 0, recv_pd = 0;
  uint32_t qkey = 0;  // UD
  uint16_t mtu_bytes = 0;
  uint32_t sq_psn = 0, rq_psn = 0;            // the first ones
  uint32_t una = 0, transmitted = 0;          // requests: acknowledged before; sent before
  uint32_t expected = 0, received_ahead = 0;  // requests of the peer
  uint32_t receives_waiting = 0;              // posted and not taken
  bool shared_receives = false;
  uint32_t responder_resources = 0;
  uint32_t recv_next_sn = 0;  // receives that have been used
  uint32_t epoch = 0;
  // Since it was connected: payload bytes of requests that have left, repetitions included; of
  // READs, how many were asked for.
  uint64_t request_bytes = 0;
  uint64_t retransmitted_packets = 0;
  std::array<uint64_t, kRepeatCauses> repeated{};  // of these, by cause
  // What was sent again last.
  RepeatCause last_repeat = RepeatCause::kNone;
  uint32_t last_repeat_psn = 0;
  uint64_t last_repeat_ago_ns = 0;
  bool last_repeat_acknowledged = false;
  uint64_t last_repair_ns = 0;           // from then until it was acknowledged
  uint64_t waiting_ns = 0;               // for how long what is outstanding makes no progress
  uint64_t srtt_ns = 0;                  // smoothed round trip; 0: none was measured
  uint64_t rto_ns = 0;                   // retransmission timeout; 0: not known
  bool heard = false;                    // its peer has answered,
  uint64_t silent_ns = 0;                // and so long ago last
  uint32_t rtt_ns = 0;                   // 0: not measured
  uint32_t naks = 0;                     // RNR, and what ended the connection
  std::vector<PathView> paths;           // by the native transport, where it has several
  std::vector<MrcPlaneView> mrc_planes;  // by MRC, once it sends
  bool limits_rates = false;
  RateView request_rate, answer_rate;  // transport roce
  bool refused_its_peer = false;
  wire::NakCode refused_code{};
  RefusedRequest refused;
  uint64_t refused_receive_bytes = 0;  // room of the receive that was next then
  KeyView refused_receive_fault;       // and what is wrong with its memory
  SilentDrops drops;
  KeyView drop_fault;  // why a WRITE of these was dropped
  AccessScope scope() const { return {client_id, pd, access, qpn}; }
  // Packets of requests that have left and are not acknowledged.
  uint32_t outstanding() const { return (transmitted - una) & Psn::kMask; }
};

// A queue pair that is no more.
struct DeadQpView {
  QpView last;
  TimeNs at_ns = 0;
  bool with_its_program = false;  // the program, or the device that it had opened, went
};

// The queue pairs that went last, for whoever asks what became of a peer.
class DeadQps {
 public:
  void note(DeadQpView dead) { last_[count_++ % last_.size()] = std::move(dead); }
  // The newest one with that number; null: none is known.
  const DeadQpView* find(uint32_t qpn) const {
    for (uint64_t i = count_; i != oldest(); --i) {
      const DeadQpView& dead = last_[(i - 1) % last_.size()];
      if (dead.last.qpn == qpn) return &dead;
    }
    return nullptr;
  }
  // All that are known, the oldest first.
  std::vector<DeadQpView> all() const {
    std::vector<DeadQpView> dead;
    for (uint64_t i = oldest(); i != count_; ++i) dead.push_back(last_[i % last_.size()]);
    return dead;
  }

 private:
  uint64_t oldest() const { return count_ - std::min<uint64_t>(count_, last_.size()); }

  std::array<DeadQpView, 64> last_;
  uint64_t count_ = 0;  // that have ever gone
};

}  // namespace hostnic
