// SPDX-License-Identifier: BSD-3-Clause
// What the conformance tests of rdma_cm share: channels, ids and events that end with their scope,
// and the steps of a connection.
#pragma once

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <rdma/rdma_cma.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <string>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {

// The address of a device, by its place in the list; no device's: zeros.
inline ibv_gid device_address(int index = 0) {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  ibv_gid gid{};
  if (count > index) {
    ibv_context* context = ibv_open_device(list[index]);
    if (context != nullptr) ibv_query_gid(context, 1, 0, &gid);
    if (context != nullptr) ibv_close_device(context);
  }
  ibv_free_device_list(list);
  return gid;
}

inline ibv_gid ipv4_gid(uint32_t ip) {
  ibv_gid gid{};
  gid.raw[10] = gid.raw[11] = 0xff;
  ip = htonl(ip);
  memcpy(gid.raw + 12, &ip, sizeof(ip));
  return gid;
}

struct Channel {
  rdma_event_channel* channel = rdma_create_event_channel();
  ~Channel() { rdma_destroy_event_channel(channel); }
  int fd() const { return channel->fd; }
  bool readable(int wait_ms) const {
    pollfd watched{channel->fd, POLLIN, 0};
    return poll(&watched, 1, wait_ms) == 1;
  }
};

struct Id {
  explicit Id(Channel& channel, rdma_port_space space = RDMA_PS_TCP) {
    EXPECT_EQ(rdma_create_id(channel.channel, &id, this, space), 0) << strerror(errno);
  }
  explicit Id(rdma_cm_id* made) : id(made) {}
  Id(const Id&) = delete;
  Id& operator=(const Id&) = delete;
  ~Id() {
    if (id == nullptr) return;
    if (id->qp != nullptr) rdma_destroy_qp(id);
    rdma_destroy_id(id);
  }
  int bind(const ibv_gid& ip, uint16_t port) {
    SocketAddress address = socket_address(ip, port);
    return rdma_bind_addr(id, &address.any);
  }
  int resolve(const ibv_gid& ip, uint16_t port) {
    SocketAddress address = socket_address(ip, port);
    return rdma_resolve_addr(id, nullptr, &address.any, 2000);
  }
  void make_qp() {
    ibv_qp_init_attr attr{};
    attr.qp_type = IBV_QPT_RC;
    attr.cap = {.max_send_wr = 4, .max_recv_wr = 4, .max_send_sge = 1, .max_recv_sge = 1};
    EXPECT_EQ(rdma_create_qp(id, nullptr, &attr), 0) << strerror(errno);
  }
  rdma_cm_id* id = nullptr;
};

// An event, acknowledged when it is gone.
struct Taken {
  rdma_cm_event* event = nullptr;
  explicit Taken(Channel& channel) {
    EXPECT_TRUE(channel.readable(20'000)) << "no event came";
    if (channel.readable(0)) {
      EXPECT_EQ(rdma_get_cm_event(channel.channel, &event), 0) << strerror(errno);
    }
  }
  Taken(const Taken&) = delete;
  Taken& operator=(const Taken&) = delete;
  ~Taken() {
    if (event != nullptr) rdma_ack_cm_event(event);
  }
  rdma_cm_event_type type() const {
    return event != nullptr ? event->event : static_cast<rdma_cm_event_type>(-1);
  }
  std::string data() const {
    const auto& param = event->param.conn;
    if (param.private_data == nullptr) return "";
    const auto* text = static_cast<const char*>(param.private_data);
    return {text, strnlen(text, param.private_data_len)};
  }
};

inline rdma_conn_param with_data(const char* text) {
  rdma_conn_param param{};
  param.private_data = text;
  param.private_data_len = static_cast<uint8_t>(strlen(text));
  param.responder_resources = param.initiator_depth = 1;
  param.retry_count = param.rnr_retry_count = 7;
  return param;
}

inline void resolve_all(Channel& channel, Id& id, const ibv_gid& ip, uint16_t port) {
  ASSERT_EQ(id.resolve(ip, port), 0) << strerror(errno);
  ASSERT_EQ(Taken(channel).type(), RDMA_CM_EVENT_ADDR_RESOLVED);
  ASSERT_EQ(rdma_resolve_route(id.id, 2000), 0) << strerror(errno);
  ASSERT_EQ(Taken(channel).type(), RDMA_CM_EVENT_ROUTE_RESOLVED);
}

}  // namespace hostnic::conformance
