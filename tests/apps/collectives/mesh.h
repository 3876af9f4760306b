// SPDX-License-Identifier: BSD-3-Clause
// The device as one rank has opened it, connected to all other ranks, with its thread for
// completions.
#pragma once

#include <memory>
#include <thread>
#include <vector>

#include "tests/apps/collectives/peer.h"

namespace hostnic::collectives {

class Mesh {
 public:
  explicit Mesh(Place& place);
  ~Mesh();
  Mesh(const Mesh&) = delete;
  Mesh& operator=(const Mesh&) = delete;

  Peer& peer(unsigned rank) { return *peers_[rank]; }
  ibv_mr* add(void* data, uint64_t bytes) {
    constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
    return must(ibv_reg_mr(device_.pd, data, bytes, kAccess), "ibv_reg_mr");
  }
  void wait_sent();

 private:
  void take_completions();

  Place& place_;
  Device device_{};
  std::vector<std::unique_ptr<Peer>> peers_;  // none of itself
  int stop_ = -1;                             // an eventfd
  std::thread thread_;
};

}  // namespace hostnic::collectives
