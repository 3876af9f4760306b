// SPDX-License-Identifier: BSD-3-Clause
// What happens to the device itself: its port goes down and comes back (`hostnic ctl stop` and
// `start`; the lab has hostnic in its PATH), and hostnicd ends.
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

int ctl(const std::string& command) {
  return std::system(("hostnic ctl " + command + " > /dev/null").c_str());
}

class PortEvents : public Conformance {
 protected:
  void TearDown() override {
    EXPECT_EQ(ctl("start"), 0);
    Conformance::TearDown();
  }
  static ibv_port_attr port_of(const Host& host) {
    ibv_port_attr attr{};
    EXPECT_EQ(ibv_query_port(host.context, 1, &attr), 0);
    return attr;
  }
};

TEST_F(PortEvents, StoppedNicsHaveNoPortUntilTheyStart) {
  constexpr int kLinkUp = 5;
  connect();
  EXPECT_EQ(port_of(*near_host).state, IBV_PORT_ACTIVE);
  EXPECT_EQ(port_of(*near_host).phys_state, kLinkUp);
  ASSERT_EQ(ctl("stop"), 0);
  ibv_async_event event{};
  for (Host* host : {near_host.get(), far_host.get()}) {
    ASSERT_TRUE(host->wait_async(IBV_EVENT_PORT_ERR, event));
    EXPECT_EQ(event.element.port_num, 1);
    EXPECT_EQ(port_of(*host).state, IBV_PORT_DOWN);
    EXPECT_NE(port_of(*host).phys_state, kLinkUp);
  }
  ibv_sge sge = near_host->sge(8);
  ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  near->expect_nothing();
  ASSERT_EQ(ctl("start"), 0);
  for (Host* host : {near_host.get(), far_host.get()}) {
    ASSERT_TRUE(host->wait_async(IBV_EVENT_PORT_ACTIVE, event));
    EXPECT_EQ(event.element.port_num, 1);
    EXPECT_EQ(port_of(*host).state, IBV_PORT_ACTIVE);
  }
  near->expect(1);
}

TEST_F(PortEvents, NoneWithoutACause) {
  connect();
  ibv_async_event event{};
  EXPECT_FALSE(near_host->wait_async(IBV_EVENT_PORT_ERR, event, kQuiet));
  EXPECT_FALSE(near_host->wait_async(IBV_EVENT_PORT_ACTIVE, event, kQuiet));
}

// ---- the end of the device. Nothing works afterwards: run by itself, in a lab of its own.

// Ids of rdma_cm: one that listens at a device, one on its way, one that has no device.
struct CmIds {
  CmIds();
  void are_removed();
  rdma_event_channel* channel = rdma_create_event_channel();
  rdma_cm_id *listener = nullptr, *client = nullptr, *unbound = nullptr;
};

CmIds::CmIds() {
  for (rdma_cm_id** id : {&listener, &client, &unbound})
    EXPECT_EQ(rdma_create_id(channel, id, nullptr, RDMA_PS_TCP), 0) << strerror(errno);
  ibv_context* context = nullptr;
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  context = ibv_open_device(list[0]);
  ibv_gid gid{};
  EXPECT_EQ(ibv_query_gid(context, 1, 0, &gid), 0);
  SocketAddress address = socket_address(gid, 0);
  ibv_close_device(context);
  ibv_free_device_list(list);
  auto* const at = &address.any;
  EXPECT_EQ(rdma_bind_addr(listener, at), 0) << strerror(errno);
  EXPECT_EQ(rdma_listen(listener, 1), 0) << strerror(errno);
  address = socket_address(gid, ntohs(rdma_get_src_port(listener)));
  EXPECT_EQ(rdma_resolve_addr(client, nullptr, at, 2000), 0) << strerror(errno);
  rdma_cm_event* event = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel, &event), 0) << strerror(errno);
  EXPECT_EQ(event->event, RDMA_CM_EVENT_ADDR_RESOLVED);
  EXPECT_EQ(rdma_ack_cm_event(event), 0);
}

void CmIds::are_removed() {
  std::vector<rdma_cm_id*> told;
  pollfd watched{channel->fd, POLLIN, 0};
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(poll(&watched, 1, 0), 1);
    rdma_cm_event* event = nullptr;
    ASSERT_EQ(rdma_get_cm_event(channel, &event), 0) << strerror(errno);
    EXPECT_EQ(event->event, RDMA_CM_EVENT_DEVICE_REMOVAL);
    told.push_back(event->id);
    EXPECT_EQ(rdma_ack_cm_event(event), 0);
  }
  EXPECT_TRUE(told == std::vector({listener, client}) || told == std::vector({client, listener}));
  rdma_cm_event* none = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel, &none), -1);
  EXPECT_EQ(errno, ENODEV);
  EXPECT_EQ(rdma_resolve_route(client, 2000), -1);
  EXPECT_EQ(errno, ENODEV);
  for (rdma_cm_id* id : {listener, client, unbound})
    EXPECT_EQ(rdma_destroy_id(id), 0) << strerror(errno);
  rdma_destroy_event_channel(channel);
}

class DeviceFatal : public Conformance {
 protected:
  void refuses(const char* what, int result) {
    EXPECT_EQ(result, EIO) << what;
    EXPECT_EQ(errno, EIO) << what;
    errno = 0;
  }
  void makes_none(const char* what, const void* result) {
    EXPECT_EQ(result, nullptr) << what;
    EXPECT_EQ(errno, EIO) << what;
    errno = 0;
  }
  void nothing_can_be_made();
  void nothing_can_be_changed();
};

void DeviceFatal::nothing_can_be_made() {
  ibv_context* context = near_host->context;
  ibv_pd* pd = near_host->pd;
  errno = 0;
  makes_none("alloc_pd", ibv_alloc_pd(context));
  makes_none("create_cq", ibv_create_cq(context, 10, nullptr, nullptr, 0));
  ibv_cq_init_attr_ex cq{};
  cq.cqe = 10;
  makes_none("create_cq_ex", ibv_create_cq_ex(context, &cq));
  ibv_qp_init_attr qp{};
  qp.send_cq = qp.recv_cq = near->cq;
  qp.qp_type = IBV_QPT_RC;
  qp.cap = {1, 1, 1, 1, 0};
  makes_none("create_qp", ibv_create_qp(pd, &qp));
  makes_none("create_comp_channel", ibv_create_comp_channel(context));
  ibv_td_init_attr td{};
  makes_none("alloc_td", ibv_alloc_td(context, &td));
  ibv_srq_init_attr srq{nullptr, {.max_wr = 10, .max_sge = 1, .srq_limit = 0}};
  makes_none("create_srq", ibv_create_srq(pd, &srq));
  makes_none("reg_mr", ibv_reg_mr(pd, near_host->bytes().data(), 4096, IBV_ACCESS_LOCAL_WRITE));
  makes_none("alloc_mw", ibv_alloc_mw(pd, IBV_MW_TYPE_1));
  ibv_ah_attr ah{};
  ah.port_num = 1;
  ah.dlid = 1;
  makes_none("create_ah", ibv_create_ah(pd, &ah));
}

void DeviceFatal::nothing_can_be_changed() {
  ibv_sge sge = near_host->sge(8);
  errno = 0;
  refuses("post_send", near->post(request(1, IBV_WR_RDMA_WRITE, &sge, *far_host)));
  refuses("post_recv", near->post_receive(1, 8));
  refuses("modify_qp", near->to(IBV_QPS_RESET));
  ibv_qp_attr attr{};
  ibv_qp_init_attr init{};
  refuses("query_qp", ibv_query_qp(near->qp, &attr, IBV_QP_STATE, &init));
  refuses("resize_cq", ibv_resize_cq(near->cq, 500));
  refuses("req_notify_cq", ibv_req_notify_cq(near->cq, 0));
  ibv_modify_cq_attr moderation{IBV_CQ_ATTR_MODERATE, {1, 1}};
  refuses("modify_cq", ibv_modify_cq(near->cq, &moderation));
  ibv_values_ex values{};
  values.comp_mask = IBV_VALUES_MASK_RAW_CLOCK;
  refuses("query_rt_values_ex", ibv_query_rt_values_ex(near_host->context, &values));
  ibv_device_attr device{};
  refuses("query_device", ibv_query_device(near_host->context, &device));
  ibv_device_attr_ex extended{};
  refuses("query_device_ex", ibv_query_device_ex(near_host->context, nullptr, &extended));
  ibv_port_attr port{};
  refuses("query_port", ibv_query_port(near_host->context, 1, &port));
}

TEST_F(DeviceFatal, EndsEverythingAndHangsNowhere) {
  connect();
  ibv_comp_channel* channel = ibv_create_comp_channel(far_host->context);
  ASSERT_NE(channel, nullptr);
  ibv_cq* cq = ibv_create_cq(far_host->context, 10, nullptr, channel, 0);
  ASSERT_NE(cq, nullptr);
  ASSERT_EQ(ibv_destroy_qp(far->qp), 0);
  ibv_qp_init_attr init{};
  init.send_cq = far->cq;
  init.recv_cq = cq;
  init.qp_type = IBV_QPT_RC;
  init.cap = {8, 8, 1, 1, 0};
  far->qp = ibv_create_qp(far_host->pd, &init);
  ASSERT_NE(far->qp, nullptr);
  ASSERT_EQ(near->to_reset(), 0);
  connect_endpoints(*near, *far);
  ASSERT_EQ(far->post_receive(7, 64), 0);
  for (uint64_t i = 0; i < 5; ++i) ASSERT_EQ(near->post_receive(i, 64), 0);
  ASSERT_EQ(ibv_req_notify_cq(cq, 0), 0);
  // Sleeps until the receive is flushed.
  std::thread sleeper([&] {
    ibv_cq* about = nullptr;
    void* context = nullptr;
    EXPECT_EQ(ibv_get_cq_event(channel, &about, &context), 0);
    EXPECT_EQ(about, cq);
    ibv_ack_cq_events(cq, 1);
  });
  // Sleeps on a channel that no completion is for: nobody else would wake it.
  ibv_comp_channel* idle_channel = ibv_create_comp_channel(near_host->context);
  ASSERT_NE(idle_channel, nullptr);
  std::thread idler([&] {
    ibv_cq* about = nullptr;
    void* context = nullptr;
    EXPECT_EQ(ibv_get_cq_event(idle_channel, &about, &context), -1);
    EXPECT_EQ(errno, EIO);
  });
  CmIds ids;
  ASSERT_EQ(ctl("quit"), 0);
  ibv_async_event event{};
  EXPECT_TRUE(near_host->wait_async(IBV_EVENT_DEVICE_FATAL, event));
  EXPECT_TRUE(far_host->wait_async(IBV_EVENT_DEVICE_FATAL, event));
  sleeper.join();
  idler.join();
  EXPECT_EQ(ibv_destroy_comp_channel(idle_channel), 0);
  for (uint64_t i = 0; i < 5; ++i) near->expect(i, IBV_WC_WR_FLUSH_ERR);
  near->expect_nothing();
  ibv_wc wc{};
  ASSERT_EQ(ibv_poll_cq(cq, 1, &wc), 1);
  EXPECT_EQ(wc.wr_id, 7u);
  EXPECT_EQ(wc.status, IBV_WC_WR_FLUSH_ERR);
  nothing_can_be_made();
  nothing_can_be_changed();
  EXPECT_FALSE(near_host->wait_async(IBV_EVENT_DEVICE_FATAL, event, kQuiet)) << "once is enough";
  far.reset();
  EXPECT_EQ(ibv_destroy_cq(cq), 0);
  EXPECT_EQ(ibv_destroy_comp_channel(channel), 0);
  ids.are_removed();
}

}  // namespace
}  // namespace hostnic::conformance
