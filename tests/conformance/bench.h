// SPDX-License-Identifier: BSD-3-Clause
// What the conformance tests share: the two NICs of a lab in one process, queue pairs of both that
// are connected to each other, and the steps of a test. Ordinary verbs and nothing of hostnic's:
// the program links the stock libibverbs and runs as `hostnic lab -- conformance-test`.
#pragma once

#include <gtest/gtest.h>
#include <infiniband/verbs.h>
#include <netinet/in.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/support/verbs_pair.h"

namespace hostnic::conformance {

// Nothing that should happen takes longer, on any machine; what should not happen is waited for
// that long.
inline constexpr auto kPatience = std::chrono::seconds(20);
inline constexpr auto kQuiet = std::chrono::milliseconds(20);

inline constexpr int kAllAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE |
                                  IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
// Nobody's key, but for a chance of one in four thousand million.
inline constexpr uint32_t kBadKey = 0x7fbadbad;
inline constexpr uint32_t kQkey = 0x11111111;  // of every datagram Endpoint
inline constexpr uint32_t kGrhBytes = 40;      // before a datagram, in its receive

// A GID's address as programs bind and resolve it, IPv4 or IPv6.
union SocketAddress {
  sockaddr any;
  sockaddr_in ipv4;
  sockaddr_in6 ipv6;
};
SocketAddress socket_address(const ibv_gid& gid, uint16_t port);
// Whether a GID is an IPv4 address.
bool is_ipv4(const ibv_gid& gid);

// How two queue pairs are made and connected.
struct ConnectOptions : verbs::ConnectOptions {
  ConnectOptions() {
    access = kAllAccess;
    rd_atomic = 8;
    qkey = kQkey;
  }
  ibv_qp_cap caps{.max_send_wr = 64,
                  .max_recv_wr = 64,
                  .max_send_sge = 4,
                  .max_recv_sge = 4,
                  .max_inline_data = 64};
  int cq_entries = 256;
  bool signal_all = false;
  ibv_srq* srq = nullptr;  // of the endpoint's host
};

// One NIC: its context, a protection domain, and memory that is registered with all rights.
class Host {
 public:
  static constexpr size_t kBytes = 256 * 1024;

  explicit Host(const char* device);
  ~Host();
  Host(const Host&) = delete;
  Host& operator=(const Host&) = delete;

  bool valid() const { return mr != nullptr; }
  ibv_gid gid() const;
  std::span<std::byte> bytes() const { return {memory, kBytes}; }
  ibv_sge sge(uint32_t length, uint64_t offset = 0) const;
  uint64_t address(uint64_t offset = 0) const;
  // Waits for an event of this type and acknowledges it; others are acknowledged and dropped.
  // False: it did not come. `event.element` is what it was about.
  bool wait_async(ibv_event_type type, ibv_async_event& event,
                  std::chrono::milliseconds patience = kPatience) const;

  ibv_context* context = nullptr;
  ibv_pd* pd = nullptr;
  ibv_mr* mr = nullptr;

 private:
  std::byte* memory = nullptr;
};

// A queue pair with a completion queue of its own.
class Endpoint {
 public:
  Endpoint(Host& at, const ConnectOptions& options);
  ~Endpoint();
  Endpoint(const Endpoint&) = delete;
  Endpoint& operator=(const Endpoint&) = delete;

  bool valid() const { return qp != nullptr; }
  verbs::QpAddress address() const;
  // What ibv_modify_qp answers.
  int to_reset() { return to(IBV_QPS_RESET); }
  int to_init();
  int to_rtr(const Endpoint& peer);
  int to_rts();
  int to(ibv_qp_state state);
  ibv_qp_attr init_attributes() const;
  ibv_qp_attr rtr_attributes(const Endpoint& peer) const;
  ibv_qp_attr rts_attributes() const;
  int init_mask() const { return verbs::init_mask(options.type); }
  int rtr_mask() const { return verbs::rtr_mask(options.type); }
  int rts_mask() const { return verbs::rts_mask(options.type); }

  ibv_qp_state state() const;
  // Polls until it is there; false: it never was.
  bool reaches(ibv_qp_state state) const;

  // What ibv_post_send and ibv_post_recv answer.
  int post(ibv_send_wr wr) const;
  int post_receive(uint64_t wr_id, uint32_t length = 0, uint64_t offset = 0) const;
  // The next completion, with status -1 if there is none within the patience.
  ibv_wc next() const;
  // Fails the test unless the next completion is this one.
  ibv_wc expect(uint64_t wr_id, ibv_wc_status status = IBV_WC_SUCCESS) const;
  void expect_nothing() const;

  Host& host;
  ConnectOptions options;
  ibv_cq* cq = nullptr;
  ibv_qp* qp = nullptr;
};

// From RESET as far as RTS, both.
void connect_endpoints(Endpoint& a, Endpoint& b);

// A signalled request from the start of near's memory to the start of far's.
ibv_send_wr request(uint64_t wr_id, ibv_wr_opcode opcode, ibv_sge* sge, const Host& far);
void set_remote(ibv_send_wr& wr, uint64_t address, uint32_t rkey);
bool is_atomic(ibv_wr_opcode opcode);
// Whether all NICs are joined by the virtual wire, which knows who is on it and loses nothing.
bool on_virtual_wire();
std::string name_of(ibv_wr_opcode opcode);
std::string name_of(ibv_qp_state state);

// hnic0 is near, hnic1 far.
class Conformance : public testing::Test {
 protected:
  void SetUp() override;
  void TearDown() override;
  // Makes `near` and `far` and connects them as far as RTS.
  void connect(const ConnectOptions& options = {});
  // Makes them and leaves them in RESET.
  void create(const ConnectOptions& options = {});

  std::unique_ptr<Host> near_host, far_host;
  std::unique_ptr<Endpoint> near, far;
};

}  // namespace hostnic::conformance
