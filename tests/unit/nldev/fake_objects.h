// SPDX-License-Identifier: BSD-3-Clause
// Two devices with a handful of objects on the first, for tests and the fuzzer of RDMA netlink.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "protocol/nldev/objects.h"

namespace hostnic::nldev {

struct FakeObjects final : Objects {
  std::vector<Device> all_devices = {{.index = 4,
                                      .place = 0,
                                      .name = "hnic0",
                                      .firmware = "1.0",
                                      .node_guid = 0x1122334455667788,
                                      .capabilities = 0x1000,
                                      .link_up = true,
                                      .netdev = "lo",
                                      .netdev_index = 1},
                                     {.index = 5, .place = 1, .name = "hnic1", .firmware = "1.0"}};
  std::vector<Qp> all_qps = {{.qpn = 17,
                              .peer_qpn = 18,
                              .pd = 3,
                              .pid = 100,
                              .type = 2,
                              .state = 3,
                              .has_peer = true,
                              .send_psn = 7,
                              .receive_psn = 8,
                              .peer = "10.0.0.2"},
                             {.qpn = 19, .pd = 3, .pid = 100, .type = 4, .state = 1}};
  std::vector<Cq> all_cqs = {{.number = 5, .entries = 64, .users = 2, .context = 1, .pid = 100}};
  std::vector<Pd> all_pds = {{.number = 3, .users = 3, .context = 1, .pid = 100}};
  std::vector<Mr> all_mrs = {{.number = 9,
                              .lkey = 0x901,
                              .rkey = 0x901,
                              .pd = 3,
                              .pid = 100,
                              .iova = 0x7000,
                              .length_bytes = 4096}};
  std::vector<Srq> all_srqs = {{.number = 6, .pd = 3, .context = 1, .pid = 100}};
  std::vector<OpenContext> all_contexts = {{.number = 1, .pid = 100}};
  std::vector<CmId> all_cm_ids = {{.number = 2,
                                   .pid = 100,
                                   .qp_type = 2,
                                   .state = 5,
                                   .port_space = 0x106,
                                   .source = CmId::End{gid_of(Ipv4Address{0x0a000001}), 7471},
                                   .destination = CmId::End{gid_of(Ipv4Address{0x0a000002}), 99}}};
  std::vector<std::pair<std::string, uint64_t>> all_counters = {{"tx_packets", 7}};

  template <typename Object>
  static std::vector<Object> of(const Device& device, const std::vector<Object>& all) {
    return device.place == 0 ? all : std::vector<Object>();
  }
  std::vector<Device> devices() const override { return all_devices; }
  std::vector<Qp> qps(const Device& device) const override { return of(device, all_qps); }
  std::vector<Cq> cqs(const Device& device) const override { return of(device, all_cqs); }
  std::vector<Pd> pds(const Device& device) const override { return of(device, all_pds); }
  std::vector<Mr> mrs(const Device& device) const override { return of(device, all_mrs); }
  std::vector<Srq> srqs(const Device& device) const override { return of(device, all_srqs); }
  std::vector<OpenContext> contexts(const Device& device) const override {
    return of(device, all_contexts);
  }
  std::vector<CmId> cm_ids(const Device& device) const override { return of(device, all_cm_ids); }
  std::vector<std::pair<std::string, uint64_t>> counters(const Device& device) const override {
    return of(device, all_counters);
  }
};

}  // namespace hostnic::nldev
