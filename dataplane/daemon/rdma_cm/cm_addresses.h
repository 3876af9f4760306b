// SPDX-License-Identifier: BSD-3-Clause
// rdma_cm's addresses and ports: which NIC an id belongs to or leads to, and who has a port. The
// control thread only.
#pragma once

#include <map>
#include <optional>
#include <utility>
#include <vector>

#include "dataplane/daemon/rdma_cm/cm_id.h"
#include "dataplane/memory/user_shares.h"

namespace hostnic {

class CmAddresses {
 public:
  // The NICs may come later, and must outlive this.
  CmAddresses(Daemon& daemon, std::vector<CmNic>& nics) : daemon_(daemon), nics_(nics) {}
  CmAddresses(const CmAddresses&) = delete;
  CmAddresses& operator=(const CmAddresses&) = delete;

  // The number by which NICs name an address that a program names; it means nothing else while the
  // id is there. Nothing: there are too many.
  std::optional<Ipv4Address> number_for(CmId& id, const Gid& address);
  // Gives the numbers that an id holds back.
  void release_numbers(CmId& id);
  // The addresses as the id's program is told of them.
  Gid shown_source(const CmId& id) const;
  Gid shown_destination(const CmId& id) const;
  // The address that a number stands for, as text.
  std::string text_of(Ipv4Address number) const;
  // Whether an address means this host: 0.0.0.0, and loopback addresses except those of the NICs'
  // own networks.
  bool names_this_host(Ipv4Address ip) const;
  // Whether one of the NICs has the address.
  bool is_of_a_nic(Ipv4Address ip) const;

  // The NIC that leads to an address: the one that has it, one on its network, or one with a way
  // out. Null: none.
  CmNic* route(const CmFile& file, Ipv4Address destination);
  // Whether an address can be reached; on the in-process wire it is known who is there.
  bool reachable(const CmNic& nic, Ipv4Address destination) const;
  // The address that an address of this host leads to: this host is all of hostnicd's NICs, so that
  // a lab's server and client in one command line find each other. It is the NIC's own unless only
  // another is listened on, or will be: servers tell the port that they are bound to before they
  // listen.
  Ipv4Address this_host(const CmNic& own, uint16_t port_space, uint16_t port) const;
  // The path from an id's address to a host or a group.
  ib_uverbs_ah_attr address_handle(const CmId& id, const Gid& destination) const;

  // Returns 0 or an errno value. Port 0: any that is free.
  int bind(CmId& id, Ipv4Address ip, uint16_t port);
  bool port_free(const CmId& id, uint16_t port) const;
  void release_port(CmId& id);
  // The id that takes requests for a service at one of a NIC's addresses; null: none.
  CmId* listener(const CmNic& nic, Ipv4Address own, uint16_t port_space, uint16_t port);

 private:
  static bool visible(const CmFile& file, const CmNic& nic);
  bool on_link(const NicSettings& settings, Ipv4Address destination) const;
  bool leads_out(const CmNic& nic, Ipv4Address destination) const;
  CmNic* nic_of(const CmFile& file, Ipv4Address ip);
  int take_port(CmId& id, uint16_t port);
  UserShares& port_shares(uint16_t port_space, uint16_t port);
  std::optional<Ipv4Address> served_at(const CmNic& nic, uint16_t port_space, uint16_t port,
                                       bool listening) const;

  Daemon& daemon_;
  std::vector<CmNic>& nics_;
  // The ids that have a port, by port space and port.
  std::map<std::pair<uint16_t, uint16_t>, std::vector<CmId*>> ports_;
  // How many each user has of the ports that are given to whoever asks for any, and of the others,
  // by port space.
  std::map<std::pair<uint16_t, bool>, UserShares> port_shares_;
};

}  // namespace hostnic
