// SPDX-License-Identifier: BSD-3-Clause
// DPDK's environment (EAL) for programs that need its packet buffers and nothing else:
// no huge pages, no rights, no devices, no pinned threads. Nothing stays behind.
#pragma once

#include <string>
#include <vector>

namespace hostnic {

class SmallEal {
 public:
  // Once per process. `name` tells this program's runtime directories from others'; what runs of it
  // that were killed have left is removed.
  explicit SmallEal(const std::string& name, const std::vector<std::string>& more_arguments = {});
  ~SmallEal();
  SmallEal(const SmallEal&) = delete;
  SmallEal& operator=(const SmallEal&) = delete;
  // False: it did not start, and stderr says why.
  explicit operator bool() const { return started_; }

 private:
  bool started_ = false;
};

}  // namespace hostnic
