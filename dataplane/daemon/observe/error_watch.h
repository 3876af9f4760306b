// SPDX-License-Identifier: BSD-3-Clause
// Looks now and then whether NICs have refused requests of peers for good, and notes each such end
// of a connection in the book of errors, with its reason in words. The control thread.
#pragma once

#include <cstdint>
#include <set>
#include <vector>

#include "dataplane/daemon/daemon.h"

namespace hostnic {

class ErrorWatch {
 public:
  explicit ErrorWatch(Daemon& daemon);
  // Costs two loads for each NIC while nothing has been refused, or found the port's socket full.
  void look();

 private:
  struct Watched {
    uint64_t naks_sent = 0, found_full = 0;
    std::set<uint32_t> noted;  // queue pairs that were noted and are still there, or among the dead
  };
  void look_at(NicInstance& instance, Watched& watched);
  static void look_at_port(const NicInstance& instance, Watched& watched);

  Daemon& daemon_;
  std::vector<Watched> watched_;  // by NIC
};

}  // namespace hostnic
