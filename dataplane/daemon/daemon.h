// SPDX-License-Identifier: BSD-3-Clause
// The running hostnicd: lcores, NICs, their ports, the MR table, and what control threads may do
// with them. One per process; EAL must be up before create() and outlive the object.
//
// Threads: the control thread (main) owns the object. Session threads (one per open device) use the
// members marked [any thread].
#pragma once

#include <atomic>
#include <chrono>
#include <list>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "dataplane/daemon/lcore/lcore_loop.h"
#include "dataplane/daemon/network/gid_table.h"
#include "dataplane/daemon/plan.h"
#include "dataplane/daemon/ports/ethernet_port.h"
#include "dataplane/daemon/ports/wire_port.h"
#include "dataplane/daemon/trust/owner.h"
#include "dataplane/memory/client_memory.h"
#include "dataplane/memory/sigbus.h"
#include "dataplane/memory/user_shares.h"
#include "dataplane/nic/address_book.h"
#include "dataplane/nic/client/client_channel.h"
#include "dataplane/nic/memory/mr_table.h"
#include "dataplane/nic/nic.h"
#include "protocol/hostif/control_message.h"

namespace hostnic {

class CmAgent;

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

// What `show client` tells of a client.
struct ClientInfo {
  uint32_t client_id = 0;
  uint32_t nic = 0;
  uint32_t pid = 0;
  uint32_t uid = 0;
  std::string program;
  std::shared_ptr<const ClientChannel::Use> use;
  bool limit_noted = false;  // the log says that it met a limit
  uint32_t regions = 0;
  uint64_t pieces = 0;       // of all regions: each takes memory of hostnicd's
  uint32_t named_hosts = 0;  // by IPv6 addresses
  uint64_t bytes_mapped = 0;
  uint64_t bytes_mem_fd = 0;
  bool huge_pages = false;  // the client's rings and QP statuses lie there
};

// Memory that a client no longer has but packets still refer to: it is kept until they are gone.
struct RetiredMemory {
  std::vector<uint32_t> keys;
  std::unique_ptr<ClientMemory> memory;
  std::unique_ptr<ClientChannel> channel;  // memory's client_gone lives here
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

  // Starts the lcores' loops.
  Expected<void, std::string> launch();
  // What the numbers stand for by which NICs name hosts. [any thread]
  AddressBook& addresses() { return addresses_; }
  const AddressBook& addresses() const { return addresses_; }
  // Does what `start` and `stop` at the prompt ask for.
  void set_handling(bool on);
  // The agent for rdma_cm; null while there is none. Called by the control thread.
  const CmAgent* cm() const { return cm_; }
  void set_cm(const CmAgent* cm) { cm_ = cm; }
  void quit() { quit_.store(true); }
  bool quitting() const { return quit_.load(); }  // [any thread]

  // -- MR table [any thread].
  uint32_t add_region(MrTable::Init init);
  // These take a key that was invalidated and is not referenced back to what it meant, or on to
  // another region of the client's, and then return the pieces to unmap.
  void restore_region(uint32_t key);
  std::vector<MappedPiece> replace_region(uint32_t key, MrTable::Init init);
  // Whether memory windows are bound to this region of the client's.
  bool region_has_windows(uint32_t key, uint32_t client_id);
  // Makes keys unknown: nobody finds them any more when this returns, but packets may still refer
  // to the memory. Returns false if one is no key of this client.
  bool invalidate_regions(const std::vector<uint32_t>& keys, uint32_t client_id);
  // Waits until no packet refers to the regions. Returns false if that did not happen within
  // `limit` (NICs are stopped).
  bool wait_unreferenced(const std::vector<uint32_t>& keys, std::chrono::milliseconds limit);
  std::vector<MappedPiece> reclaim_region(uint32_t key);
  std::vector<uint32_t> regions_of(uint32_t client_id);
  // Follows a change of a client's mappings: when this returns, its NIC does. `helper` is for what
  // is reached through the mem fd from now on. Returns how many bytes lost their mapping.
  uint64_t follow_memory(NicInstance& instance, uint32_t client_id, const MemoryChange& change,
                         MemFdHelper* helper);
  // The late pieces of a client's region; nothing: it has no such key.
  std::optional<std::vector<MappedPiece>> late_pieces(uint32_t key, uint32_t client_id);
  // When this returns, the client's NIC reaches the region's late pieces, which are filled and have
  // their pages here, like all that is mapped.
  void end_lateness(NicInstance& instance, uint32_t key, uint32_t client_id);
  uint32_t region_count() const { return mrs_.size(); }
  // The mappings of clients' files. [any thread]
  UserShares& mappings() { return mappings_; }

  void retire(RetiredMemory memory);  // [any thread]
  // Frees retired memory that nothing refers to any more; called by the control thread now and
  // then. Returns how much is still kept.
  size_t reap_retired();

  // -- Clients, for people and limits [any thread].
  // In huge pages where packet buffers are.
  SegmentPages segment_pages() const;
  uint32_t next_client_id() { return next_client_id_.fetch_add(1); }
  void add_client(const ClientInfo& info);
  void remove_client(uint32_t client_id);
  // Counts a region that is to be registered, unless a limit has been met. An error is one line.
  Expected<void, std::string> admit_registration(uint32_t client_id);
  void note_registration(uint32_t client_id, int regions, int64_t mapped, int64_t mem_fd);
  // Does the same for the pieces of a region. They are memory of hostnicd's own, of which a program
  // of another user's could have gigabytes by tiny pieces.
  Expected<void, std::string> admit_pieces(uint32_t client_id, size_t count);
  void drop_pieces(uint32_t client_id, size_t count);
  // Says once in the log that a client was refused what a limit does not leave it.
  void note_limit(uint32_t client_id, const std::string& met);
  void note_named_host(uint32_t client_id);
  std::vector<ClientInfo> clients();

  // Gives a NIC that is to have all addresses of its interface those that the interface has now,
  // and takes those away that it has no more; null: there is no interface. `at_start` says nothing
  // of what goes well. Returns whether something changed. Called by the control thread while lcores
  // run.
  bool follow_addresses(NicInstance& instance, const KernelNetwork::Interface* interface,
                        bool at_start);

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
  void quiesce();
  void note_limit(ClientInfo& client, const std::string& met);  // under clients_mutex_

  DaemonPlan plan_;
  AddressBook addresses_;  // before all that refers to it
  MrTable mrs_;
  UserShares mappings_{UserShares::shares_of(kClientMappings)};
  std::vector<std::unique_ptr<LcoreLoop>> lcores_;
  std::vector<MbufPools> pools_;  // one per lcore
  std::unique_ptr<VirtualWire> wire_;
  std::vector<NicInstance> nics_;
  bool launched_ = false;
  const CmAgent* cm_ = nullptr;
  std::atomic<bool> quit_{false};
  std::atomic<uint32_t> next_client_id_{1};
  std::mutex mrs_mutex_, retired_mutex_, clients_mutex_;
  std::list<RetiredMemory> retired_;
  std::vector<ClientInfo> clients_;
  bool warned_of_sessions_ = false, warned_of_pages_ = false;  // under clients_mutex_
};

}  // namespace hostnic
