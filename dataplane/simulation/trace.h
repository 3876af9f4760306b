// SPDX-License-Identifier: BSD-3-Clause
// The last packets that left any port, kept as headers and printed when a run fails. With
// HOSTNIC_SIM_TRACE=1 in the environment every packet is printed as it leaves.
#pragma once

#include <rte_mbuf.h>

#include <string>
#include <vector>

#include "protocol/types.h"
#include "protocol/wire/packet.h"

namespace hostnic::sim {

class Trace {
 public:
  static constexpr size_t kKept = 200;
  // `on` false: keeps nothing, unless the environment wants all of it.
  explicit Trace(bool on);
  void packet(TimeNs now_ns, const rte_mbuf* packet, bool has_icrc);
  void note(TimeNs now_ns, std::string text);
  void clear() { events_.clear(), next_ = 0; }
  // Oldest first, one line each.
  std::string text() const;

 private:
  struct Event {
    TimeNs at_ns = 0;
    bool is_packet = false;
    wire::Packet headers;
    std::string note;
  };
  static std::string line(const Event& event);
  void add(Event event);

  std::vector<Event> events_;
  size_t next_ = 0;
  bool print_all_, on_;
};

}  // namespace hostnic::sim
