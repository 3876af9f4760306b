// SPDX-License-Identifier: BSD-3-Clause
// A driver without a NIC, for tests of the ABI layer: two devices; every SEND goes to the receive
// queue of the QP numbered dest_qpn in the same context, and everything completes inside post_send.
#pragma once

#include <cstdint>
#include <vector>

#include "verbs-shim/driver/driver.h"

namespace hostnic::fake {

// What the next calls do. Reset it in the fixture.
struct Behaviour {
  bool no_hostnicd = false;  // list_devices() fails
  bool port_down = false;
  uint32_t port_mtu_bytes = 0;            // 0: the device's
  int register_error = 0;                 // of register_memory()
  int deregister_error = 0;               // of deregister_memory()
  int prefetch_error = 0;                 // of prefetch()
  int window_error = 0;                   // of create_window()
  int group_error = 0;                    // of attach_group() and detach_group()
  int post_error = 0;                     // of post_send()
  int modify_error = 0;                   // of modify_qp()
  int create_srq_error = 0;               // of create_srq()
  uint32_t send_slots_free = 0;           // 0: what the queue really has
  std::vector<std::byte> netlink_answer;  // to each datagram of RDMA netlink
  DeviceOffer offer;                      // of devices that are opened from now on
};
Behaviour& behaviour();

// What the driver was last told.
struct Seen {
  uint32_t posts = 0;
  driver::SendRequest send;  // `sges` is empty
  std::vector<Sge> sges;
  std::vector<uint8_t> inline_bytes;
  driver::QpAttr attr;
  uint32_t attr_mask = 0;
  uint32_t mrs = 0, qps = 0, srqs = 0, windows = 0;  // existing
  uint64_t iova = 0;                                 // of the newest MR
  uint32_t access = 0;                               // of the newest MR
  struct Prefetch {
    uint64_t va = 0, length_bytes = 0;
    bool for_writing = false;
    bool operator==(const Prefetch&) const = default;
  };
  std::vector<Prefetch> prefetches;
  std::vector<Ipv4Address> hosts_asked_for;
  std::vector<Ipv4Address> groups;  // attached to, in order
  RdmaNetlinkRequest netlink{};
  std::vector<std::vector<std::byte>> netlink_datagrams;
  bool abandoned = false;
};
Seen& seen();

// Raises an event as the driver's progress would.
void raise(driver::Driver& driver, driver::AsyncEvent event, driver::Qp* qp, driver::Cq* cq);

}  // namespace hostnic::fake
