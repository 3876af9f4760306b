// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/nldev/fill.h"

#include <netinet/in.h>
#include <rdma/rdma_netlink.h>
#include <sys/socket.h>

#include <cstring>

namespace hostnic::nldev {
namespace {

using Nest = MessageWriter::Nest;

// Port states, as InfiniBand numbers them.
constexpr uint8_t kDown = 1, kActive = 4, kPolling = 2, kLinkUp = 5;
constexpr uint8_t kMigrated = 0;  // IB_MIG_MIGRATED
constexpr uint8_t kBasicSrq = 0;  // IB_SRQT_BASIC
constexpr uint32_t kPortCount = 1;

sockaddr_storage address_of(const CmId::End& end) {
  sockaddr_storage storage{};
  if (const auto ipv4 = ipv4_of(end.first)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(end.second);
    address.sin_addr.s_addr = htonl(raw(*ipv4));
    memcpy(&storage, &address, sizeof(address));
  } else {
    sockaddr_in6 address{};
    address.sin6_family = AF_INET6;
    address.sin6_port = htons(end.second);
    memcpy(&address.sin6_addr, end.first.data(), end.first.size());
    memcpy(&storage, &address, sizeof(address));
  }
  return storage;
}

void put_address(MessageWriter& message, uint16_t type, const std::optional<CmId::End>& end) {
  if (!end) return;
  const sockaddr_storage storage = address_of(*end);
  message.put(type, std::as_bytes(std::span(&storage, 1)));
}

// What a driver adds of its own: `rdma -d res` shows it.
void put_driver_text(MessageWriter& message, const char* name, const std::string& value) {
  message.put_text(RDMA_NLDEV_ATTR_DRIVER_STRING, name);
  message.put_text(RDMA_NLDEV_ATTR_DRIVER_STRING, value);
}

void put_driver_number(MessageWriter& message, const char* name, uint64_t value) {
  message.put_text(RDMA_NLDEV_ATTR_DRIVER_STRING, name);
  message.put_u64(RDMA_NLDEV_ATTR_DRIVER_U64, value);
}

}  // namespace

void fill_handle(MessageWriter& message, const Device& device) {
  message.put_u32(RDMA_NLDEV_ATTR_DEV_INDEX, device.index);
  message.put_text(RDMA_NLDEV_ATTR_DEV_NAME, device.name);
}

void fill_device(MessageWriter& message, const Device& device) {
  fill_handle(message, device);
  message.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, kPortCount);
  message.put_u64(RDMA_NLDEV_ATTR_CAP_FLAGS, device.capabilities);
  message.put_text(RDMA_NLDEV_ATTR_FW_VERSION, device.firmware);
  message.put_u64(RDMA_NLDEV_ATTR_NODE_GUID, device.node_guid);
  message.put_u64(RDMA_NLDEV_ATTR_SYS_IMAGE_GUID, device.node_guid);
  message.put_u8(RDMA_NLDEV_ATTR_DEV_NODE_TYPE, RDMA_NODE_IB_CA);
  message.put_text(RDMA_NLDEV_ATTR_DEV_PROTOCOL, "roce");
}

void fill_port(MessageWriter& message, const Device& device) {
  fill_handle(message, device);
  message.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);
  message.put_u8(RDMA_NLDEV_ATTR_PORT_STATE, device.link_up ? kActive : kDown);
  message.put_u8(RDMA_NLDEV_ATTR_PORT_PHYS_STATE, device.link_up ? kLinkUp : kPolling);
  if (device.netdev_index == 0) return;
  message.put_u32(RDMA_NLDEV_ATTR_NDEV_INDEX, device.netdev_index);
  message.put_text(RDMA_NLDEV_ATTR_NDEV_NAME, device.netdev);
}

void fill(MessageWriter& message, const Qp& qp) {
  message.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);
  message.put_u32(RDMA_NLDEV_ATTR_RES_LQPN, qp.qpn);
  if (qp.has_peer) {
    message.put_u32(RDMA_NLDEV_ATTR_RES_RQPN, qp.peer_qpn);
    message.put_u32(RDMA_NLDEV_ATTR_RES_RQ_PSN, qp.receive_psn);
    message.put_u8(RDMA_NLDEV_ATTR_RES_PATH_MIG_STATE, kMigrated);
  }
  message.put_u32(RDMA_NLDEV_ATTR_RES_SQ_PSN, qp.send_psn);
  message.put_u8(RDMA_NLDEV_ATTR_RES_TYPE, qp.type);
  message.put_u8(RDMA_NLDEV_ATTR_RES_STATE, qp.state);
  message.put_u32(RDMA_NLDEV_ATTR_RES_PDN, qp.pd);
  message.put_u32(RDMA_NLDEV_ATTR_RES_PID, qp.pid);
  const Nest driver(message, RDMA_NLDEV_ATTR_DRIVER);
  if (!qp.peer.empty()) put_driver_text(message, "peer", qp.peer);
  put_driver_number(message, "retransmitted_packets", qp.retransmitted_packets);
}

void fill(MessageWriter& message, const Cq& cq) {
  message.put_u32(RDMA_NLDEV_ATTR_RES_CQE, cq.entries);
  message.put_u64(RDMA_NLDEV_ATTR_RES_USECNT, cq.users);
  message.put_u32(RDMA_NLDEV_ATTR_RES_CQN, cq.number);
  message.put_u32(RDMA_NLDEV_ATTR_RES_CTXN, cq.context);
  message.put_u32(RDMA_NLDEV_ATTR_RES_PID, cq.pid);
}

void fill(MessageWriter& message, const Pd& pd) {
  message.put_u64(RDMA_NLDEV_ATTR_RES_USECNT, pd.users);
  message.put_u32(RDMA_NLDEV_ATTR_RES_PDN, pd.number);
  message.put_u32(RDMA_NLDEV_ATTR_RES_CTXN, pd.context);
  message.put_u32(RDMA_NLDEV_ATTR_RES_PID, pd.pid);
}

void fill(MessageWriter& message, const Mr& mr) {
  message.put_u32(RDMA_NLDEV_ATTR_RES_RKEY, mr.rkey);
  message.put_u32(RDMA_NLDEV_ATTR_RES_LKEY, mr.lkey);
  message.put_u64(RDMA_NLDEV_ATTR_RES_IOVA, mr.iova);
  message.put_u64(RDMA_NLDEV_ATTR_RES_MRLEN, mr.length_bytes);
  message.put_u32(RDMA_NLDEV_ATTR_RES_MRN, mr.number);
  message.put_u32(RDMA_NLDEV_ATTR_RES_PDN, mr.pd);
  message.put_u32(RDMA_NLDEV_ATTR_RES_PID, mr.pid);
}

void fill(MessageWriter& message, const Srq& srq) {
  message.put_u32(RDMA_NLDEV_ATTR_RES_SRQN, srq.number);
  message.put_u8(RDMA_NLDEV_ATTR_RES_TYPE, kBasicSrq);
  // The table is there and empty: iproute2 leaves a queue without one out.
  message.put(RDMA_NLDEV_ATTR_RES_QP, {});
  message.put_u32(RDMA_NLDEV_ATTR_RES_PDN, srq.pd);
  message.put_u32(RDMA_NLDEV_ATTR_RES_PID, srq.pid);
}

void fill(MessageWriter& message, const OpenContext& context) {
  message.put_u32(RDMA_NLDEV_ATTR_RES_CTXN, context.number);
  message.put_u32(RDMA_NLDEV_ATTR_RES_PID, context.pid);
}

void fill(MessageWriter& message, const CmId& id) {
  message.put_u32(RDMA_NLDEV_ATTR_PORT_INDEX, kPort);
  message.put_u8(RDMA_NLDEV_ATTR_RES_TYPE, id.qp_type);
  message.put_u8(RDMA_NLDEV_ATTR_RES_STATE, id.state);
  message.put_u32(RDMA_NLDEV_ATTR_RES_PS, id.port_space);
  put_address(message, RDMA_NLDEV_ATTR_RES_SRC_ADDR, id.source);
  put_address(message, RDMA_NLDEV_ATTR_RES_DST_ADDR, id.destination);
  message.put_u32(RDMA_NLDEV_ATTR_RES_CM_IDN, id.number);
  message.put_u32(RDMA_NLDEV_ATTR_RES_PID, id.pid);
}

void fill_count(MessageWriter& message, const char* name, uint64_t count) {
  const Nest entry(message, RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY);
  message.put_text(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_NAME, name);
  message.put_u64(RDMA_NLDEV_ATTR_RES_SUMMARY_ENTRY_CURR, count);
}

void fill_counter(MessageWriter& message, const std::string& name, uint64_t value) {
  const Nest entry(message, RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY);
  message.put_text(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_NAME, name);
  message.put_u64(RDMA_NLDEV_ATTR_STAT_HWCOUNTER_ENTRY_VALUE, value);
}

}  // namespace hostnic::nldev
