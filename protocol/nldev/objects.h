// SPDX-License-Identifier: BSD-3-Clause
// What RDMA netlink tells of devices and of what programs have on them, as values; and whom it is
// asked of.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "protocol/gid.h"

namespace hostnic::nldev {

struct Device {
  uint32_t index = 0;  // by which the program names it
  size_t place = 0;    // the source's own name for it
  std::string name;
  std::string firmware;
  uint64_t node_guid = 0;  // in host byte order
  uint64_t capabilities = 0;
  bool link_up = false;
  std::string netdev;
  uint32_t netdev_index = 0;  // 0: the program knows no such interface
};

// The types and states are the kernel's, which are the verbs'.
struct Qp {
  uint32_t qpn = 0, peer_qpn = 0, pd = 0, pid = 0;
  uint8_t type = 0, state = 0;
  bool has_peer = false;  // RC and UC
  uint32_t send_psn = 0, receive_psn = 0;
  std::string peer;  // its address; empty: none yet
  uint64_t retransmitted_packets = 0;
};

struct Cq {
  uint32_t number = 0, entries = 0, users = 0, context = 0, pid = 0;
};

struct Pd {
  uint32_t number = 0, users = 0, context = 0, pid = 0;
};

struct Mr {
  uint32_t number = 0, lkey = 0, rkey = 0, pd = 0, pid = 0;
  uint64_t iova = 0, length_bytes = 0;
};

struct Srq {
  uint32_t number = 0, pd = 0, context = 0, pid = 0;
};

struct OpenContext {
  uint32_t number = 0, pid = 0;
};

struct CmId {
  using End = std::pair<Gid, uint16_t>;  // address and port
  uint32_t number = 0, pid = 0;
  uint8_t qp_type = 0, state = 0;  // enum rdma_cm_state
  uint32_t port_space = 0;         // enum rdma_ucm_port_space
  std::optional<End> source, destination;
};

// Each answer is what there is now, and what the asker may see.
class Objects {
 public:
  virtual ~Objects() = default;
  virtual std::vector<Device> devices() const = 0;
  virtual std::vector<Qp> qps(const Device& device) const = 0;
  virtual std::vector<Cq> cqs(const Device& device) const = 0;
  virtual std::vector<Pd> pds(const Device& device) const = 0;
  virtual std::vector<Mr> mrs(const Device& device) const = 0;
  virtual std::vector<Srq> srqs(const Device& device) const = 0;
  virtual std::vector<OpenContext> contexts(const Device& device) const = 0;
  virtual std::vector<CmId> cm_ids(const Device& device) const = 0;
  virtual std::vector<std::pair<std::string, uint64_t>> counters(const Device& device) const = 0;
};

}  // namespace hostnic::nldev
