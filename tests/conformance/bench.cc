// SPDX-License-Identifier: BSD-3-Clause
#include "tests/conformance/bench.h"

#include <poll.h>
#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <thread>

namespace hostnic::conformance {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint32_t kFirstPsn = 0xfffff0;  // every connection crosses the wrap soon

}  // namespace

Host::Host(const char* device) : context(verbs::open_device(device)) {
  if (context == nullptr) return;
  pd = ibv_alloc_pd(context);
  void* mapped = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapped == MAP_FAILED) return;
  memory = static_cast<std::byte*>(mapped);
  mr = ibv_reg_mr(pd, memory, kBytes, kAllAccess);
}

Host::~Host() {
  if (mr != nullptr) {
    EXPECT_EQ(ibv_dereg_mr(mr), 0);
  }
  if (pd != nullptr) {
    EXPECT_EQ(ibv_dealloc_pd(pd), 0) << "something of it is left";
  }
  if (context != nullptr) {
    EXPECT_EQ(ibv_close_device(context), 0);
  }
  if (memory != nullptr) munmap(memory, kBytes);
}

bool is_ipv4(const ibv_gid& gid) {
  in6_addr address;
  memcpy(&address, gid.raw, sizeof(address));
  return IN6_IS_ADDR_V4MAPPED(&address);
}

SocketAddress socket_address(const ibv_gid& gid, uint16_t port) {
  SocketAddress address{};
  if (is_ipv4(gid)) {
    address.ipv4.sin_family = AF_INET;
    address.ipv4.sin_port = htons(port);
    memcpy(&address.ipv4.sin_addr, gid.raw + 12, sizeof(address.ipv4.sin_addr));
  } else {
    address.ipv6.sin6_family = AF_INET6;
    address.ipv6.sin6_port = htons(port);
    memcpy(&address.ipv6.sin6_addr, gid.raw, sizeof(address.ipv6.sin6_addr));
  }
  return address;
}

ibv_gid Host::gid() const {
  ibv_gid gid{};
  EXPECT_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
  return gid;
}

ibv_sge Host::sge(uint32_t length, uint64_t offset) const {
  return {address(offset), length, mr->lkey};
}

uint64_t Host::address(uint64_t offset) const {
  return reinterpret_cast<uint64_t>(memory) + offset;
}

bool Host::wait_async(ibv_event_type type, ibv_async_event& event,
                      std::chrono::milliseconds patience) const {
  const auto give_up = Clock::now() + patience;
  do {
    pollfd readable{context->async_fd, POLLIN, 0};
    if (poll(&readable, 1, 10) <= 0) continue;
    if (ibv_get_async_event(context, &event) != 0) continue;
    ibv_ack_async_event(&event);
    if (event.event_type == type) return true;
  } while (Clock::now() < give_up);
  return false;
}

Endpoint::Endpoint(Host& at, const ConnectOptions& wanted) : host(at), options(wanted) {
  cq = ibv_create_cq(host.context, options.cq_entries, nullptr, nullptr, 0);
  if (cq == nullptr) return;
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = cq;
  init.cap = options.caps;
  init.srq = options.srq;
  init.qp_type = options.type;
  init.sq_sig_all = options.signal_all ? 1 : 0;
  qp = ibv_create_qp(host.pd, &init);
  options.caps = init.cap;
}

Endpoint::~Endpoint() {
  if (qp != nullptr) {
    EXPECT_EQ(ibv_destroy_qp(qp), 0);
  }
  if (cq != nullptr) {
    EXPECT_EQ(ibv_destroy_cq(cq), 0);
  }
}

verbs::QpAddress Endpoint::address() const { return {qp->qp_num, kFirstPsn, host.gid()}; }

ibv_qp_attr Endpoint::init_attributes() const { return verbs::init_attributes(options); }

ibv_qp_attr Endpoint::rtr_attributes(const Endpoint& peer) const {
  return verbs::rtr_attributes(options, peer.address());
}

ibv_qp_attr Endpoint::rts_attributes() const { return verbs::rts_attributes(options, kFirstPsn); }

int Endpoint::to_init() { return verbs::to_init(qp, options); }

int Endpoint::to_rtr(const Endpoint& peer) { return verbs::to_rtr(qp, options, peer.address()); }

int Endpoint::to_rts() { return verbs::to_rts(qp, options, kFirstPsn); }

int Endpoint::to(ibv_qp_state wanted) {
  ibv_qp_attr attr{};
  attr.qp_state = wanted;
  return ibv_modify_qp(qp, &attr, IBV_QP_STATE);
}

ibv_qp_state Endpoint::state() const {
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  EXPECT_EQ(ibv_query_qp(qp, &attr, IBV_QP_STATE, &init), 0);
  return attr.qp_state;
}

bool Endpoint::reaches(ibv_qp_state wanted) const {
  const auto give_up = Clock::now() + kPatience;
  while (state() != wanted) {
    if (Clock::now() > give_up) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return true;
}

int Endpoint::post(ibv_send_wr wr) const {
  ibv_send_wr* bad = nullptr;
  const int error = ibv_post_send(qp, &wr, &bad);
  if (error != 0) {
    EXPECT_EQ(bad, &wr);
  }
  return error;
}

int Endpoint::post_receive(uint64_t wr_id, uint32_t length, uint64_t offset) const {
  ibv_sge sge = host.sge(length, offset);
  ibv_recv_wr wr{wr_id, nullptr, &sge, length == 0 ? 0 : 1};
  ibv_recv_wr* bad = nullptr;
  const int error = ibv_post_recv(qp, &wr, &bad);
  if (error != 0) {
    EXPECT_EQ(bad, &wr);
  }
  return error;
}

ibv_wc Endpoint::next() const {
  const auto give_up = Clock::now() + kPatience;
  ibv_wc wc{};
  while (ibv_poll_cq(cq, 1, &wc) == 0) {
    if (Clock::now() > give_up) {
      wc.status = static_cast<ibv_wc_status>(-1);
      break;
    }
    std::this_thread::yield();
  }
  return wc;
}

ibv_wc Endpoint::expect(uint64_t wr_id, ibv_wc_status status) const {
  const ibv_wc wc = next();
  if (static_cast<int>(wc.status) == -1) {
    ADD_FAILURE() << "no completion of request " << wr_id;
    return wc;
  }
  EXPECT_EQ(wc.wr_id, wr_id);
  EXPECT_EQ(wc.status, status) << "of request " << wc.wr_id << ": " << ibv_wc_status_str(wc.status)
                               << ", not " << ibv_wc_status_str(status);
  EXPECT_EQ(wc.qp_num, qp->qp_num);
  return wc;
}

void Endpoint::expect_nothing() const {
  std::this_thread::sleep_for(kQuiet);
  ibv_wc wc{};
  EXPECT_EQ(ibv_poll_cq(cq, 1, &wc), 0)
      << "request " << wc.wr_id << " completed with '" << ibv_wc_status_str(wc.status) << "'";
}

void connect_endpoints(Endpoint& a, Endpoint& b) {
  for (Endpoint* one : {&a, &b}) {
    ASSERT_EQ(one->to_init(), 0);
    ASSERT_EQ(one->to_rtr(one == &a ? b : a), 0);
    ASSERT_EQ(one->to_rts(), 0);
  }
}

bool is_atomic(ibv_wr_opcode opcode) {
  return opcode == IBV_WR_ATOMIC_CMP_AND_SWP || opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

void set_remote(ibv_send_wr& wr, uint64_t address, uint32_t rkey) {
  if (is_atomic(wr.opcode)) {
    wr.wr.atomic.remote_addr = address;
    wr.wr.atomic.rkey = rkey;
  } else {
    wr.wr.rdma.remote_addr = address;
    wr.wr.rdma.rkey = rkey;
  }
}

ibv_send_wr request(uint64_t wr_id, ibv_wr_opcode opcode, ibv_sge* sge, const Host& far) {
  ibv_send_wr wr{};
  wr.wr_id = wr_id;
  wr.opcode = opcode;
  wr.sg_list = sge;
  wr.num_sge = sge == nullptr ? 0 : 1;
  wr.send_flags = IBV_SEND_SIGNALED;
  if (opcode != IBV_WR_SEND && opcode != IBV_WR_SEND_WITH_IMM)
    set_remote(wr, far.address(), far.mr->rkey);
  return wr;
}

bool on_virtual_wire() {
  return std::system("hostnic ctl show nic | grep -qv 'port virtual wire'") != 0;
}

std::string name_of(ibv_wr_opcode opcode) {
  switch (opcode) {
    case IBV_WR_RDMA_WRITE:
      return "Write";
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      return "WriteWithImm";
    case IBV_WR_SEND:
      return "Send";
    case IBV_WR_SEND_WITH_IMM:
      return "SendWithImm";
    case IBV_WR_RDMA_READ:
      return "Read";
    case IBV_WR_ATOMIC_CMP_AND_SWP:
      return "CompareSwap";
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      return "FetchAdd";
    default:
      return "Opcode" + std::to_string(static_cast<int>(opcode));
  }
}

std::string name_of(ibv_qp_state state) {
  static const char* const names[] = {"Reset", "Init", "Rtr", "Rts", "Sqd", "Sqe", "Err"};
  return state < std::size(names) ? names[state] : "None";
}

void Conformance::SetUp() {
  near_host = std::make_unique<Host>("hnic0");
  far_host = std::make_unique<Host>("hnic1");
  ASSERT_TRUE(near_host->valid() && far_host->valid())
      << "needs two NICs: hostnic lab -- conformance-test";
}

void Conformance::TearDown() {
  near.reset();
  far.reset();
  near_host.reset();
  far_host.reset();
}

void Conformance::create(const ConnectOptions& options) {
  near = std::make_unique<Endpoint>(*near_host, options);
  far = std::make_unique<Endpoint>(*far_host, options);
  ASSERT_TRUE(near->valid() && far->valid());
}

void Conformance::connect(const ConnectOptions& options) {
  ASSERT_NO_FATAL_FAILURE(create(options));
  connect_endpoints(*near, *far);
}

}  // namespace hostnic::conformance
