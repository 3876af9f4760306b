// SPDX-License-Identifier: BSD-3-Clause
// A simulated network of hosts: on each one a real NIC (hardware half) and a real driver half,
// joined by a real client segment, all in one thread on virtual time. Nothing here sleeps; equal
// settings and seeds give equal runs.
#pragma once

#include <fmt/format.h>

#include <array>
#include <functional>
#include <list>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/nic/nic.h"
#include "dataplane/simulation/resources.h"
#include "dataplane/simulation/sim_wire.h"
#include "dataplane/simulation/trace.h"
#include "verbs-shim/driver/driver.h"

namespace hostnic::sim {

inline constexpr uint64_t kMicrosecond = 1'000, kMillisecond = 1'000'000, kSecond = 1'000'000'000;
inline constexpr uint32_t kAllAccess =
    kAccessLocalWrite | kAccessRemoteWrite | kAccessRemoteRead | kAccessRemoteAtomic;

// A small generator with a fixed algorithm, so that a seed means the same run everywhere.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15 + 1) {}
  uint64_t next() {
    uint64_t z = state_ += 0x9e3779b97f4a7c15;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9;
    z = (z ^ z >> 27) * 0x94d049bb133111eb;
    return z ^ z >> 31;
  }
  uint64_t below(uint64_t bound) { return next() % bound; }
  uint64_t between(uint64_t low, uint64_t high) { return low + below(high - low + 1); }
  bool percent(uint32_t chance) { return below(100) < chance; }

 private:
  uint64_t state_;
};

struct WorldSettings {
  uint32_t hosts = 2;
  // Further programs, each a Host of its own behind those with a NIC: whose NIC they use.
  std::vector<uint32_t> more_clients_of;
  uint32_t mtu_bytes = 4096;
  std::vector<uint32_t> windows = {1024};  // of host i: element i modulo the size
  bool always_icrc = false;
  bool segmentation = false;  // the wire carries bundles
  LinkSettings link;
  std::string network_switch;  // as `hostnic lab --switch` has it; empty: there is none
  double pool_scale = 0.25;
  uint32_t max_qps = 64;               // of a program
  uint32_t user_windows = UINT32_MAX;  // see ClientChannel::Settings
  // Of host i: element i modulo the size.
  std::vector<wire::Policy> policies = {wire::Policy::kSelective};
  std::vector<uint32_t> paths = {1};
  Ordering ordering = Ordering::kTail;
  uint64_t adversary_seed = 1;  // of kAdversarial
  Transport transport = Transport::kHostnic;
  uint32_t mrc_entropy_values = 16;  // of a queue pair
  uint32_t mrc_planes = 1;
  // Hosts that speak the standard's, and hosts that find out. The others are told of the former,
  // unless they find out.
  std::vector<uint32_t> roce_hosts, auto_hosts;
  // Whether they are; if not, two ends of a connection may speak differently, by mistake.
  bool told_of_roce = true;
  // The driver runs only when it says that a turn is due, as a service thread does; otherwise in
  // every turn, as a polling program does.
  bool driver_waits_for_wake_up = false;
  // See DriverSettings.
  uint32_t sole_queued_bytes_limit = driver::DriverSettings{}.sole_queued_bytes_limit;
  bool trace = true;  // remember the last packets, for reports of failures
};

// How registered memory looks to the NIC. Late: its slices, of a few pages here, count as filled
// one by one, what is wanted first.
enum class Reach : uint8_t { kMapped, kMemFd, kMixed, kLate };

class World;

struct Event {
  driver::AsyncEvent event;
  void* user;  // of the object that it is about
};

// A program and its NIC, or a further program of another host's NIC.
class Host final : public driver::NicLink {
 public:
  Host(World& world, uint32_t index, uint32_t nic_index);
  ~Host() override;

  // lkey and rkey of a new region. `pd` as given to QPs. `iova` is its first address for users of
  // the key, sole ones if it is given as the memory's own (descriptors.h); 0: just the memory's.
  uint32_t add_mr(const Memory& memory, uint32_t access = kAllAccess, Reach reach = Reach::kMapped,
                  uint32_t pd = 1, uint64_t iova = 0);
  void remove_mr(uint32_t key);
  // The client said that it has unmapped these addresses.
  void revoke(uint64_t va, uint64_t length_bytes);
  // Fills some slices of late regions, or all of them. Returns whether some are wanted.
  bool fill_slices();
  void fill_all_slices();
  Nic& nic() { return *nic_; }
  bool has_own_nic() const { return own_nic_ != nullptr; }
  driver::Driver& driver() { return *driver_; }
  uint32_t index() const { return index_; }
  // The host whose NIC it uses: its own index, or another's.
  uint32_t nic_index() const { return nic_index_; }
  ClientChannel& channel() { return *channel_; }
  uint64_t counter(Counter counter) { return nic_->counters().get(counter); }
  // The program does not run until then; its NIC does.
  TimeNs stopped_until_ns = 0;
  // The NIC gets no turn until then; of a host with a NIC of its own.
  TimeNs nic_starved_until_ns = 0;
  std::vector<Event> events;

  // NicLink
  void kick() override {}
  void wait_for_response() override;
  void pause(uint32_t pause_ns) override;

 private:
  struct LateRegion {
    uint32_t key = 0;
    std::vector<uint8_t> slices;
  };
  void end_lateness(LateRegion& region);

  World& world_;
  uint32_t index_, nic_index_;
  std::list<LateRegion> late_, filled_;  // a state stays where it is
  Random fill_order_{1};
  std::unique_ptr<ClientChannel> channel_;
  SegmentMemory segment_;
  std::unique_ptr<Nic> own_nic_;
  Nic* nic_ = nullptr;
  std::unique_ptr<driver::Driver> driver_;
};

struct QpSettings {
  QpType type = QpType::kRc;
  driver::Srq* srq = nullptr;
  uint32_t qkey = 0x11111111;  // UD
  driver::QpCaps caps{.max_send_wr = 64,
                      .max_recv_wr = 64,
                      .max_send_sge = 4,
                      .max_recv_sge = 4,
                      .max_inline_bytes = 256};
  uint32_t pd = 1;
  uint32_t cq_entries = 256;
  bool signal_all = false;
  uint32_t access = kAllAccess;
  uint32_t psn = 0;
  uint8_t max_rd_atomic = 16;
  std::optional<uint8_t> max_dest_rd_atomic;  // the peer's max_rd_atomic
  uint32_t path_mtu_bytes = 0;                // 0: the port's
  uint8_t timeout = 14, retry_cnt = 7, rnr_retry = 7, min_rnr_timer = 12;
  driver::MrcLimits mrc;
};

// A queue pair with its two completion queues.
struct Endpoint {
  Host* host = nullptr;
  QpSettings settings;
  std::unique_ptr<driver::Cq> send_cq, recv_cq;
  driver::Qp* qp = nullptr;
  uint32_t qpn() const { return driver::qpn_of(*qp); }
  QpState state() const;
  int post_send(const driver::SendRequest& request);
  int post_recv(const driver::RecvRequest& request);
  std::vector<driver::Completion> poll(driver::Cq& cq) const;
  const World* world = nullptr;
};

class World {
 public:
  explicit World(const WorldSettings& settings);
  ~World();

  Host& host(uint32_t index) { return *hosts_[index]; }
  uint32_t host_count() const { return static_cast<uint32_t>(hosts_.size()); }
  std::unique_ptr<Endpoint> make_endpoint(uint32_t host, const QpSettings& settings = {});
  // RESET to RTS on both sides (or one, `to_rts` of the second false: it stays in RTR).
  void connect(Endpoint& a, Endpoint& b, bool b_to_rts = true);
  // From RESET, where make_endpoint() and reset_to_init() come by.
  void to_init(Endpoint& a);
  // For a new connection of the same queue pair.
  void reset_to_init(Endpoint& a);
  void to_rtr(Endpoint& a, const Endpoint& b);
  void to_rts(Endpoint& a);
  int modify_state(Endpoint& a, QpState state);
  void impair(uint32_t host, const std::string& spec, uint64_t seed = 1);
  void cut(uint32_t host, bool cut) { wire_->cut(host, cut); }

  // Runs until `done` says so; false when the limit of virtual time passed, when something failed,
  // or when nothing will ever happen again (a lost wake-up or a missing timer, reported as a
  // failure unless the caller expects just that).
  bool run_until(const std::function<bool()>& done, uint64_t limit_ns, bool idle_is_a_bug = true);
  void run_for(uint64_t duration_ns);
  // One turn of a host's NIC, unless it is starved or another host's.
  uint32_t poll_nic(Host& host);
  void poll_nics();                         // one turn of all NICs, no driver
  void run_nics_for(uint64_t duration_ns);  // and nothing else

  // Programs: called every turn, with the time of their next own deed.
  struct Program {
    virtual ~Program() = default;
    virtual bool turn(TimeNs now_ns) = 0;  // whether it did something
    virtual TimeNs next_ns() const = 0;
  };
  void add(Program& program) { programs_.push_back(&program); }
  // Other threads' deeds, also while a driver waits for its NIC: called before each turn of the
  // NICs, unless it is empty.
  std::function<void()> before_nics;

  void fail(std::string message);
  bool failed() const { return !failure_.empty(); }
  // The failure, counters, queue pairs, and the last packets.
  std::string report() const;
  // Lets everything that is in flight arrive, then checks that all packet buffers are back and that
  // the NICs keep nothing.
  void check_at_rest();
  // What all NICs together have counted.
  uint64_t sum(Counter counter);

  TimeNs now() const { return now_; }
  const WorldSettings& settings() const { return settings_; }
  Trace& trace() { return trace_; }
  SimWire& wire() { return *wire_; }
  MrTable& mrs() { return mrs_; }
  // Reclaims an invalidated region once no packet refers to it, as hostnicd does.
  void retire(uint32_t key) { retired_keys_.push_back(key); }
  const MbufPools& pools() const { return pools_; }
  int mem_fd() const { return mem_fd_; }
  void advance(uint64_t duration_ns);

 private:
  bool turn();
  TimeNs next_event_ns() const;
  void set_impairment(uint32_t index, bool receive_side, const impair::Spec& spec, uint64_t seed);
  void check_bounds();
  void trace_impairments();
  void reclaim_retired();

  WorldSettings settings_;
  Trace trace_;
  TimeNs now_ = kSecond;
  MbufPools pools_;
  int mem_fd_ = -1;
  MrTable mrs_{4096};
  std::vector<uint32_t> retired_keys_;
  std::unique_ptr<SimWire> wire_;
  std::vector<std::unique_ptr<Host>> hosts_;
  std::vector<Program*> programs_;
  std::string failure_;
  uint32_t turns_ = 0;
  std::vector<std::array<impair::Counters, 2>> impaired_;  // as last traced: by host, tx and rx
};

}  // namespace hostnic::sim
