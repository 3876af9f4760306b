// SPDX-License-Identifier: BSD-3-Clause
// Learns from the kernel (rtnetlink) what becomes of the interfaces and addresses that NICs are on:
// a link that goes down and comes back, an MTU that changes, an address or an interface that goes
// and comes back. Each is a line in the log and a counter; ports are told, and so are programs.
//
// One socket of the control thread, which sleeps until the kernel says something.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "dataplane/daemon/daemon.h"
#include "dataplane/daemon/network/kernel_network.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic {

class NetworkWatch {
 public:
  // `changed` is called when something has changed that programs are to be told. Waits up to a
  // second for interfaces that are coming up.
  NetworkWatch(Daemon& daemon, std::function<void()> changed);
  NetworkWatch(const NetworkWatch&) = delete;
  NetworkWatch& operator=(const NetworkWatch&) = delete;

  // Becomes readable when the kernel has something to say; -1: there is nothing to watch.
  int fd() const { return socket_.get(); }
  // Takes what the kernel has said.
  void handle();
  // Says which ways have turned out too narrow for a NIC's packets, and which NIC's address another
  // host has as well. Called by the control thread now and then.
  void look();

 private:
  using Clock = std::chrono::steady_clock;

  // What is known of a NIC's interface.
  struct Watched {
    NicInstance* nic;
    NetworkPort* port;
    uint32_t interface = 0;  // index; 0: there is none
    std::string name;        // as it was last
    bool up = false;
    uint32_t carrier_losses = 0;  // of which is known
    uint32_t mtu_bytes = 0;
    uint32_t followed = 0;  // index of the interface whose addresses are the NIC's GIDs; 0: none's
    bool opened = true;     // the port is on this interface, and not on one that is gone
    Clock::time_point down_since{};
    std::map<uint32_t, uint32_t> narrow_ways{};  // path MTU by destination, of which was told
  };

  // What is known of the hosts that have a NIC's address as well.
  struct Conflicts {
    uint64_t heard = 0;  // packets of theirs
    Clock::time_point say_from{};
  };

  bool read_all();
  void await_carriers();
  void compare();
  void compare(Watched& watched);
  void follow_addresses(Watched& watched, const KernelNetwork::Interface* interface);
  void lost(Watched& watched);
  void found(Watched& watched, const KernelNetwork::Interface& interface);
  void link_changed(Watched& watched, bool up);
  void link_was_lost(Watched& watched, const KernelNetwork::Interface& interface);
  void mtu_changed(Watched& watched, uint32_t mtu_bytes);
  void reopen(Watched& watched);
  void look_for_conflicts();
  static void count(const Watched& watched, Counter counter);

  Daemon& daemon_;
  std::function<void()> changed_;
  UniqueFd socket_;
  KernelNetwork network_;
  std::vector<Watched> watched_;
  std::vector<Conflicts> conflicts_;  // by NIC
  bool started_ = false;              // the network was compared before
  bool news_ = false;                 // something changed that programs are to be told
};

}  // namespace hostnic
