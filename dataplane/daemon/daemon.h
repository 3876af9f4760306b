// SPDX-License-Identifier: BSD-3-Clause
// The running hostnicd: lcores, NICs, their ports, clients and their memory, and what control
// threads may do with them. One per process; EAL must be up before create() and outlive the object.
//
// Threads: the control thread (main) owns the object. Session threads (one per open device) use the
// members marked [any thread].
#pragma once

#include <atomic>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "dataplane/daemon/clients/client_registry.h"
#include "dataplane/daemon/clients/regions.h"
#include "dataplane/daemon/lcore/lcore_loop.h"
#include "dataplane/daemon/network/gid_table.h"
#include "dataplane/daemon/plan.h"
#include "dataplane/daemon/ports/ethernet_port.h"
#include "dataplane/daemon/ports/wire_port.h"
#include "dataplane/nic/address_book.h"
#include "dataplane/nic/nic.h"
#include "protocol/hostif/control_message.h"

namespace hostnic {

class CmAgent;
class Inquiries;
class MessageTrace;

// The NIC as the lcore loop sees it.
class NicPollable : public Pollable {
 public:
  NicPollable(Nic& nic, bool wire) : nic_(nic), wire_(wire) {}
  uint32_t poll(TimeNs now_ns) override { return nic_.poll(now_ns); }
  TimeNs next_deadline_ns() const override { return nic_.next_deadline_ns(); }
  bool work_waiting() override { return nic_.work_waiting(); }
  // A full port wakes the lcore, but not for what is in front of the port or goes elsewhere.
  bool needs_tick() const override { return !wire_ || nic_.waits_for_port(); }
  bool delivered_to(uint32_t cpu) override { return nic_.delivered_to(cpu); }

 private:
  Nic& nic_;
  bool wire_;
};

struct NicInstance {
  NicPlan plan;
  LcoreLoop* lcore = nullptr;
  uint32_t lcore_number = 0;
  std::unique_ptr<GidTable> gids;        // the NIC's addresses
  std::set<Gid> refused;                 // those that could get no socket or place, as the log says
  std::string netdev = "lo";             // the interface that has them, or is its port
  std::unique_ptr<NetworkPort> network;  // null on the wire
  Port* port = nullptr;
  std::unique_ptr<Nic> nic;
  std::unique_ptr<NicPollable> pollable;
};

class Daemon {
 public:
  static Expected<std::unique_ptr<Daemon>, std::string> create(const DaemonPlan& plan);
  // Stops the lcores. No session may be left.
  ~Daemon();
  Daemon(const Daemon&) = delete;
  Daemon& operator=(const Daemon&) = delete;

  const DaemonPlan& plan() const { return plan_; }
  std::vector<NicInstance>& nics() { return nics_; }
  std::vector<std::unique_ptr<LcoreLoop>>& lcores() { return lcores_; }
  // Finds the NIC of this name; null: there is none.
  NicInstance* find_nic(std::string_view name);
  DeviceInfo device_info(const NicInstance& instance) const;  // [any thread]
  // Whether the NIC's port carries packets: it has a link, and NICs are not stopped. [any thread]
  bool port_up(const NicInstance& instance) const;
  uint32_t port_speed_mbps(const NicInstance& instance) const;

  // Starts the lcores' loops.
  Expected<void, std::string> launch();
  // What the numbers stand for by which NICs name hosts. [any thread]
  AddressBook& addresses() { return addresses_; }
  const AddressBook& addresses() const { return addresses_; }
  // Does what `start` and `stop` at the prompt ask for.
  void set_handling(bool on);
  // Says that a NIC's port is up again. Called by the control thread.
  static void port_came_back(NicInstance& instance);
  // The agent for rdma_cm; null while there is none. Called by the control thread.
  const CmAgent* cm() const { return cm_; }
  void set_cm(const CmAgent* cm) { cm_ = cm; }
  // The questions to other hosts; null while there are none. [any thread]
  Inquiries* inquiries() const { return inquiries_; }
  void set_inquiries(Inquiries* inquiries) { inquiries_ = inquiries; }
  void quit() { quit_.store(true); }
  bool quitting() const { return quit_.load(); }  // [any thread]

  // Both may be used by any thread.
  Regions& regions() { return regions_; }
  ClientRegistry& clients() { return clients_; }

  // Gives a NIC that is to have all addresses of its interface those that the interface has now,
  // and takes those away that it has no more; null: there is no interface. `at_start` says nothing
  // of what goes well. Returns whether something changed. Called by the control thread while lcores
  // run.
  bool follow_addresses(NicInstance& instance, const KernelNetwork::Interface* interface,
                        bool at_start);

  // Traced messages. Called by the control thread while lcores run.
  MessageTrace& message_trace() { return *message_trace_; }

  // Replaces a NIC's impairments. Called by the control thread.
  void set_impairment(NicInstance& instance, bool receive_side, const impair::Spec& spec);

 private:
  explicit Daemon(const DaemonPlan& plan);
  Expected<void, std::string> make_lcores();
  Expected<void, std::string> name_addresses();
  Expected<void, std::string> open_udp_port(NicInstance& instance);
  std::vector<Gid> other_addresses(const NicInstance& instance,
                                   const KernelNetwork::Interface* interface) const;
  bool add_address(NicInstance& instance, const Gid& address,
                   const KernelNetwork::Interface& interface);
  void remove_address(NicInstance& instance, const Gid& address);
  static void tell_addresses(NicInstance& instance);
  Expected<void, std::string> open_network_ports();
  Expected<void, std::string> make_pools();
  Expected<void, std::string> make_wire();
  Expected<void, std::string> make_nics();

  DaemonPlan plan_;
  AddressBook addresses_;  // before all that refers to it
  std::vector<std::unique_ptr<LcoreLoop>> lcores_;
  Regions regions_;
  ClientRegistry clients_;
  std::vector<MbufPools> pools_;  // one per lcore
  std::unique_ptr<VirtualWire> wire_;
  std::vector<NicInstance> nics_;
  std::unique_ptr<MessageTrace> message_trace_;
  bool launched_ = false;
  const CmAgent* cm_ = nullptr;
  Inquiries* inquiries_ = nullptr;
  std::atomic<bool> quit_{false};
};

}  // namespace hostnic
