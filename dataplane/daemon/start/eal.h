// SPDX-License-Identifier: BSD-3-Clause
// Starting DPDK's environment (EAL) so that it works for an ordinary user, and leaving nothing
// behind when it ends.
#pragma once

#include <string>
#include <vector>

#include "dataplane/daemon/plan.h"
#include "protocol/expected.h"

namespace hostnic {

// The megabytes of packet memory that a plan needs.
uint32_t memory_megabytes(const DaemonPlan& plan);
// EAL's arguments for a plan. Given ones stay as they are; what they leave open is added. `cpus`
// are those that this process may use.
Expected<std::vector<std::string>, std::string> eal_arguments(const DaemonPlan& plan,
                                                              const std::vector<uint32_t>& cpus);

class Eal {
 public:
  Eal() = default;
  ~Eal();  // ends EAL, removes its runtime directory
  Eal(const Eal&) = delete;
  Eal& operator=(const Eal&) = delete;
  // Starts EAL, once per process. An error is one line; EAL's own messages are on stderr before it.
  Expected<void, std::string> start(const DaemonPlan& plan);
  // Whether start() failed with huge pages that it chose by itself: others took them, or the
  // machine took them back, after they had been counted. A new process may do without.
  bool lacked_huge_pages() const { return lacked_huge_pages_; }

 private:
  Expected<void, std::string> choose_directory();

  bool started_ = false;
  bool lacked_huge_pages_ = false;
  std::string private_runtime_dir_;  // made by us because the user has none
};

}  // namespace hostnic
