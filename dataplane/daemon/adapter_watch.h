// SPDX-License-Identifier: BSD-3-Clause
// Looks at the ports that DPDK drives without the kernel, adapters for one: nobody tells of their
// links, so the drivers are asked ten times a second while programs have devices open, and once a
// second otherwise. A link that goes or comes back, and an adapter that is removed, are a line in
// the log and a counter; ports are told, and so are programs. For the control thread.
#pragma once

#include <chrono>
#include <functional>
#include <vector>

#include "dataplane/daemon/daemon.h"

namespace hostnic {

class AdapterWatch {
 public:
  // `changed` is called when something has changed that programs are to be told. Waits for the
  // links of PCI adapters, which take seconds when a driver has just set them up.
  AdapterWatch(Daemon& daemon, std::function<void()> changed);
  AdapterWatch(const AdapterWatch&) = delete;
  AdapterWatch& operator=(const AdapterWatch&) = delete;

  // Whether there is anything to look at.
  bool watches() const { return !watched_.empty(); }
  void look();

 private:
  using Clock = std::chrono::steady_clock;

  struct Watched {
    NicInstance* nic;
    NetworkPort* port;
    bool up = true;
    bool there = true;
    Clock::time_point down_since{};
  };

  void await_links();
  void look_at(Watched& watched);
  void adapter_is_gone(Watched& watched);
  void link_changed(Watched& watched, bool up);
  static void count(const Watched& watched, Counter counter);

  std::function<void()> changed_;
  std::vector<Watched> watched_;
  bool news_ = false;  // something changed that programs are to be told
};

}  // namespace hostnic
