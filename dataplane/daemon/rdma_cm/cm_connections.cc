// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/rdma_cm/cm_connections.h"

#include <errno.h>
#include <infiniband/verbs.h>
#include <string.h>

#include <algorithm>
#include <bit>
#include <cstdlib>

#include "dataplane/daemon/lcore/clock.h"

namespace hostnic {
namespace {

// The delay that the kernel tells of RoCE devices.
constexpr uint8_t kAckDelay = 15;

uint8_t mtu_number(uint32_t bytes) { return static_cast<uint8_t>(std::bit_width(bytes) - 8); }

// Puts private data behind `offset` bytes of a message's. Returns false if it is too long.
template <size_t Bytes>
bool put_private(cm::PrivateData<Bytes>& to, size_t offset, const uint8_t* data, uint8_t bytes) {
  if (offset + bytes > Bytes) return false;
  memcpy(to.data() + offset, data, bytes);
  return true;
}

// Gives a program all of a message's private data behind `offset`: how much of it counts, the
// programs know.
template <typename Param, size_t Bytes>
void get_private(Param& param, const cm::PrivateData<Bytes>& from, size_t offset = 0) {
  param.private_data_len = static_cast<uint8_t>(Bytes - offset);
  memcpy(param.private_data, from.data() + offset, Bytes - offset);
}

template <size_t Bytes>
void put_ip_header(cm::PrivateData<Bytes>& to, const CmId& id) {
  const NicSettings& settings = id.nic->settings();
  // Both ends are this host's where both have a name of their own; a peer that is told one of them
  // alone would see two families, or an address that means somebody else.
  const bool named = id.named_source && id.named_destination;
  emit(cm::make_ip_header(named ? *id.named_source : settings.address_of(id.source), id.source_port,
                          named ? *id.named_destination : settings.address_of(id.destination)),
       std::span(to).template first<cm::kIpHeaderBytes>());
}

template <size_t Bytes>
std::optional<cm::IpHeader> ip_header_of(const cm::PrivateData<Bytes>& from) {
  return cm::parse_ip_header(std::span(from).template first<cm::kIpHeaderBytes>());
}

uint16_t port_space_of(uint64_t service_id) { return static_cast<uint16_t>(service_id >> 16); }
uint16_t port_of(uint64_t service_id) { return static_cast<uint16_t>(service_id); }

}  // namespace

CmConnections::CmConnections(Daemon& daemon, CmIds& ids, CmAddresses& addresses)
    : daemon_(daemon),
      ids_(ids),
      addresses_(addresses),
      in_lab_(getenv("HOSTNIC_LAB") != nullptr) {}

uint64_t CmConnections::guid_of(const CmNic& nic) const {
  return be64toh(daemon_.device_info(*nic.instance).node_guid);
}

// A connection counts in its user's share until nothing is left of it: until then it has a place at
// its NIC, and one at the peer's.
bool CmConnections::take_share(std::optional<uint32_t> stranger) {
  return !stranger || shares_.take(stranger);
}

void CmConnections::settle(CmNic& nic) {
  for (const cm::ConnectionId connection : nic.endpoint->take_gone()) {
    const auto counted = nic.strangers.find(connection);
    if (counted == nic.strangers.end()) continue;
    shares_.give_back(counted->second);
    nic.strangers.erase(counted);
  }
}

// Makes a connection an id's, whose user's share has been taken.
void CmConnections::give(CmNic& nic, cm::ConnectionId connection, CmId& id) {
  id.connection = connection;
  nic.ids[connection] = id.handle;
  if (const auto stranger = id.file->stranger()) nic.strangers[connection] = *stranger;
}

// ---- from programs

CmResult CmConnections::connect(CmFile& file, const rdma_ucm_connect& command) {
  CmId* id = ids_.find_of(file, command.id);
  const rdma_ucm_conn_param& param = command.conn_param;
  if (id == nullptr) return {ENOENT, {}};
  if (!param.valid || id->nic == nullptr || raw(id->destination) == 0 || id->connection != 0 ||
      id->resolving_until_ns != 0)
    return {EINVAL, {}};
  const auto stranger = file.stranger();
  if (!take_share(stranger)) return {ENOMEM, {}};
  const auto connection = id->datagram ? ask(*id, param) : request(*id, param);
  if (!connection || *connection == 0) {
    if (stranger) shares_.give_back(stranger);
    return {connection ? ENOMEM : EINVAL, {}};
  }
  give(*id->nic, *connection, *id);
  return {};
}

// Nothing: the program's data is too long; 0: the NIC has too many connections. The same holds for
// request().
std::optional<cm::ConnectionId> CmConnections::ask(CmId& id, const rdma_ucm_conn_param& param) {
  cm::SidrReq req{.service_id = cm::service_id(id.port_space, id.destination_port)};
  put_ip_header(req.private_data, id);
  if (!put_private(req.private_data, cm::kIpHeaderBytes, param.private_data,
                   param.private_data_len))
    return std::nullopt;
  return id.nic->endpoint->resolve({id.source, id.destination}, req, id.nic->now_ns());
}

std::optional<cm::ConnectionId> CmConnections::request(CmId& id, const rdma_ucm_conn_param& param) {
  const NicSettings& settings = id.nic->instance->plan.settings;
  id.responder_resources = param.responder_resources;
  id.initiator_depth = param.initiator_depth;
  id.retry_count = std::min<uint8_t>(param.retry_count, 7);
  id.rnr_retry_count = std::min<uint8_t>(param.rnr_retry_count, 7);
  id.path_mtu = mtu_number(settings.mtu_bytes);
  cm::Req req;
  req.service_id = cm::service_id(id.port_space, id.destination_port);
  req.local_guid = guid_of(*id.nic);
  req.qpn = param.qp_num & 0xffffff;
  req.responder_resources = id.responder_resources;
  req.initiator_depth = id.initiator_depth;
  req.remote_response_timeout = req.local_response_timeout = cm::Endpoint::kResponseTimeout;
  req.flow_control = param.flow_control != 0;
  req.starting_psn = id.own_psn;
  req.retry_count = id.retry_count;
  req.rnr_retry_count = id.rnr_retry_count;
  req.path_mtu = static_cast<uint8_t>(id.path_mtu);
  req.max_cm_retries = cm::Endpoint::kMaxRetries;
  req.srq = param.srq != 0;
  req.primary.local_gid = settings.address_of(id.source);
  req.primary.remote_gid = settings.address_of(id.destination);
  req.primary.traffic_class = id.type_of_service;
  req.primary.local_ack_timeout = id.ack_timeout;
  put_ip_header(req.private_data, id);
  if (!put_private(req.private_data, cm::kIpHeaderBytes, param.private_data,
                   param.private_data_len))
    return std::nullopt;
  return id.nic->endpoint->connect({id.source, id.destination}, req, id.nic->now_ns());
}

CmResult CmConnections::accept(CmFile& file, const rdma_ucm_accept& command) {
  CmId* id = ids_.find_of(file, command.id);
  if (id == nullptr) return {ENOENT, {}};
  if (id->connection == 0) return {EINVAL, {}};
  const rdma_ucm_conn_param& param = command.conn_param;
  cm::Endpoint& endpoint = *id->nic->endpoint;
  const TimeNs now = id->nic->now_ns();
  if (!param.valid) return {endpoint.ready(id->connection, {}) ? 0 : EINVAL, {}};
  bool done = false;
  if (id->datagram) {
    id->qkey = param.qkey != 0 ? param.qkey : kDatagramQkey;
    cm::SidrRep rep{.qpn = param.qp_num & 0xffffff,
                    .service_id = cm::service_id(id->port_space, id->source_port),
                    .qkey = id->qkey};
    if (!put_private(rep.private_data, 0, param.private_data, param.private_data_len))
      return {EINVAL, {}};
    done = endpoint.answer(id->connection, rep, now);
  } else {
    id->responder_resources = param.responder_resources;
    id->initiator_depth = param.initiator_depth;
    cm::Rep rep{.qpn = param.qp_num & 0xffffff,
                .starting_psn = id->own_psn,
                .responder_resources = param.responder_resources,
                .initiator_depth = param.initiator_depth,
                .target_ack_delay = kAckDelay,
                .flow_control = param.flow_control != 0,
                .rnr_retry_count = std::min<uint8_t>(param.rnr_retry_count, 7),
                .srq = param.srq != 0,
                .local_guid = guid_of(*id->nic)};
    if (!put_private(rep.private_data, 0, param.private_data, param.private_data_len))
      return {EINVAL, {}};
    done = endpoint.accept(id->connection, rep, now);
  }
  if (!done) return {EINVAL, {}};
  id->uid = command.uid;
  return {};
}

CmResult CmConnections::reject(CmFile& file, const rdma_ucm_reject& command) {
  CmId* id = ids_.find_of(file, command.id);
  if (id == nullptr) return {ENOENT, {}};
  if (id->connection == 0) return {EINVAL, {}};
  const TimeNs now = id->nic->now_ns();
  bool done = false;
  if (id->datagram) {
    cm::SidrRep rep{.status = static_cast<uint8_t>(cm::SidrStatus::kReject)};
    if (!put_private(rep.private_data, 0, command.private_data, command.private_data_len))
      return {EINVAL, {}};
    done = id->nic->endpoint->answer(id->connection, rep, now);
  } else {
    cm::Rej rej{.reason = static_cast<uint16_t>(cm::RejectReason::kConsumerDefined)};
    if (command.reason != 0) rej.reason = command.reason;
    if (!put_private(rej.private_data, 0, command.private_data, command.private_data_len))
      return {EINVAL, {}};
    done = id->nic->endpoint->reject(id->connection, rej, now);
  }
  return {done ? 0 : EINVAL, {}};
}

CmResult CmConnections::disconnect(CmFile& file, const rdma_ucm_disconnect& command) {
  CmId* id = ids_.find_of(file, command.id);
  if (id == nullptr) return {ENOENT, {}};
  if (id->connection == 0) return {EINVAL, {}};
  // To disconnect a connection that has ended is no error.
  id->nic->endpoint->disconnect(id->connection, id->nic->now_ns());
  return {};
}

CmResult CmConnections::notify(CmFile& file, const rdma_ucm_notify& command) {
  CmId* id = ids_.find_of(file, command.id);
  if (id == nullptr) return {ENOENT, {}};
  if (id->connection == 0 || command.event != IBV_EVENT_COMM_EST) return {EINVAL, {}};
  id->nic->endpoint->established(id->connection);
  return {};
}

CmResult CmConnections::init_qp_attr(CmFile& file, const rdma_ucm_init_qp_attr& command) {
  const CmId* id = ids_.find_of(file, command.id);
  if (id == nullptr) return {ENOENT, {}};
  if (id->nic == nullptr) return {EINVAL, {}};
  ib_uverbs_qp_attr attr{};
  attr.qp_state = command.qp_state;
  attr.port_num = kPortNumber;
  switch (command.qp_state) {
    case IBV_QPS_INIT:
      attr.qp_attr_mask = IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT;
      if (id->datagram) {
        attr.qp_attr_mask |= IBV_QP_QKEY;
        attr.qkey = id->qkey != 0 ? id->qkey : kDatagramQkey;
        break;
      }
      attr.qp_attr_mask |= IBV_QP_ACCESS_FLAGS;
      if (id->connection == 0) break;
      attr.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
      if (id->responder_resources != 0)
        attr.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
      break;
    case IBV_QPS_RTR:
      attr.qp_attr_mask = IBV_QP_STATE;
      if (id->datagram) break;
      if (id->connection == 0) return {EINVAL, {}};
      attr.qp_attr_mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN |
                           IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
      attr.ah_attr =
          addresses_.address_handle(*id, id->nic->settings().address_of(id->destination));
      attr.path_mtu = id->path_mtu;
      attr.dest_qp_num = id->peer_qpn;
      attr.rq_psn = id->own_psn;
      attr.max_dest_rd_atomic = id->responder_resources;
      break;
    case IBV_QPS_RTS:
      attr.qp_attr_mask = IBV_QP_STATE | IBV_QP_SQ_PSN;
      if (id->datagram) break;
      if (id->connection == 0) return {EINVAL, {}};
      attr.qp_attr_mask |=
          IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
      attr.sq_psn = id->peer_psn;
      attr.timeout = id->ack_timeout;
      attr.retry_cnt = id->retry_count;
      attr.rnr_retry = id->rnr_retry_count;
      attr.max_rd_atomic = id->initiator_depth;
      break;
    default:
      return {EINVAL, {}};
  }
  return respond(attr);
}

// ---- to programs

void CmConnections::take_events(CmNic& nic) {
  for (const cm::Event& event : nic.endpoint->take_events()) take_event(nic, event);
}

void CmConnections::take_reply(CmId& id, const cm::Rep& rep, rdma_ucm_event_resp to) {
  id.peer_qpn = rep.qpn;
  id.peer_psn = rep.starting_psn;
  id.rnr_retry_count = rep.rnr_retry_count;
  id.initiator_depth = rep.responder_resources;
  id.responder_resources = rep.initiator_depth;
  rdma_ucm_conn_param& param = to.param.conn;
  get_private(param, rep.private_data);
  param.responder_resources = rep.initiator_depth;
  param.initiator_depth = rep.responder_resources;
  param.flow_control = rep.flow_control;
  param.rnr_retry_count = rep.rnr_retry_count;
  param.srq = rep.srq;
  param.qp_num = rep.qpn;
  ids_.tell(id, to, CmEvent::kConnectResponse, 0);
}

void CmConnections::take_sidr_reply(CmId& id, const cm::SidrRep& rep, rdma_ucm_event_resp to) {
  get_private(to.param.ud, rep.private_data);
  if (rep.status != 0) return ids_.tell(id, to, CmEvent::kUnreachable, rep.status);
  id.qkey = rep.qkey;
  to.param.ud.qp_num = rep.qpn;
  to.param.ud.qkey = rep.qkey;
  to.param.ud.ah_attr =
      addresses_.address_handle(id, id.nic->settings().address_of(id.destination));
  ids_.tell(id, to, CmEvent::kEstablished, 0);
}

void CmConnections::take_event(CmNic& nic, const cm::Event& event) {
  if (event.kind == cm::Event::kRequest || event.kind == cm::Event::kSidrRequest)
    return take_request(nic, event);
  const auto owner = nic.ids.find(event.connection);
  CmId* id = owner == nic.ids.end() ? nullptr : ids_.find(owner->second);
  if (id == nullptr) return;
  rdma_ucm_event_resp to{};
  to.uid = id->uid;
  to.id = id->handle;
  switch (event.kind) {
    case cm::Event::kReply:
      take_reply(*id, std::get<cm::Rep>(event.message), to);
      break;
    case cm::Event::kRejected: {
      const auto& rej = std::get<cm::Rej>(event.message);
      get_private(to.param.conn, rej.private_data);
      ids_.tell(*id, to, CmEvent::kRejected, rej.reason);
      break;
    }
    case cm::Event::kSidrReply:
      take_sidr_reply(*id, std::get<cm::SidrRep>(event.message), to);
      break;
    case cm::Event::kEstablished:
      ids_.tell(*id, to, CmEvent::kEstablished, 0);
      break;
    case cm::Event::kUnreachable:
      ids_.tell(*id, to, CmEvent::kUnreachable, -ETIMEDOUT);
      break;
    case cm::Event::kDisconnected:
      ids_.tell(*id, to, CmEvent::kDisconnected, 0);
      break;
    case cm::Event::kTimeWaitExit:
      ids_.tell(*id, to, CmEvent::kTimeWaitExit, 0);
      break;
    default:
      break;
  }
}

// Refuses a request for a service that does not exist.
void CmConnections::refuse(CmNic& nic, const cm::Event& event, cm::RejectReason reason) {
  const TimeNs now = nic.now_ns();
  if (event.kind == cm::Event::kRequest) {
    nic.endpoint->reject(event.connection, cm::Rej{.reason = static_cast<uint16_t>(reason)}, now);
  } else {
    nic.endpoint->answer(event.connection,
                         cm::SidrRep{.status = static_cast<uint8_t>(cm::SidrStatus::kUnsupported)},
                         now);
  }
  nic.endpoint->destroy(event.connection, now);
}

// Keeps a request in a lab, else refuses it: a lab makes two hosts of one command line, `server &
// client`, and a client may come first. On two hosts the person is slower than the server.
void CmConnections::refuse_or_keep(CmNic& nic, const cm::Event& event) {
  constexpr TimeNs kPatienceNs = 1'000'000'000;
  constexpr size_t kMostKept = 1024;
  if (!in_lab_ || kept_.size() >= kMostKept) return refuse(nic, event);
  kept_.push_back({&nic, event, monotonic_now_ns() + kPatienceNs});
}

void CmConnections::look_at_kept() {
  const TimeNs now = monotonic_now_ns();
  for (size_t left = kept_.size(); left != 0; --left) {
    const Kept kept = kept_.front();
    kept_.pop_front();
    const cm::State state = kept.nic->endpoint->state_of(kept.event.connection);
    if (state != cm::State::kReqReceived && state != cm::State::kSidrReceived) {
      // The client's program has given up.
      kept.nic->endpoint->destroy(kept.event.connection, kept.nic->now_ns());
      continue;
    }
    const auto* req = std::get_if<cm::Req>(&kept.event.message);
    const uint64_t service =
        req != nullptr ? req->service_id : std::get<cm::SidrReq>(kept.event.message).service_id;
    if (addresses_.listener(*kept.nic, kept.event.ends.own, port_space_of(service),
                            port_of(service)) != nullptr) {
      take_request(*kept.nic, kept.event);
    } else if (now >= kept.refuse_ns) {
      refuse(*kept.nic, kept.event);
    } else {
      kept_.push_back(kept);
    }
  }
}

namespace {

constexpr Gid kIpv6Loopback = [] {
  Gid address{};
  address.back() = std::byte{1};
  return address;
}();

}  // namespace

// Gives a request's id the loopback addresses that it was made by. Only a NIC of this host's may
// say so: to programs such a peer is one that need not be doubted.
void CmConnections::name_loopback(CmId& id, const cm::IpHeader& header) const {
  const Gid source = cm::address_of(header, header.source);
  const Gid destination = cm::address_of(header, header.destination);
  const auto is_loopback_here = [&](const Gid& address) {
    const auto ip = ipv4_of(address);
    return ip ? is_loopback(*ip) && addresses_.names_this_host(*ip) : address == kIpv6Loopback;
  };
  if (!addresses_.is_of_a_nic(id.destination) || !is_loopback_here(source) ||
      !is_loopback_here(destination))
    return;
  id.named_source = destination;
  id.named_destination = source;
}

void CmConnections::take_request(CmNic& nic, const cm::Event& event) {
  const auto* req = std::get_if<cm::Req>(&event.message);
  const auto* sidr = std::get_if<cm::SidrReq>(&event.message);
  const uint64_t service = req != nullptr ? req->service_id : sidr->service_id;
  const auto ip =
      req != nullptr ? ip_header_of(req->private_data) : ip_header_of(sidr->private_data);
  CmId* listening =
      addresses_.listener(nic, event.ends.own, port_space_of(service), port_of(service));
  if (!ip) return refuse(nic, event);
  if (listening == nullptr) return refuse_or_keep(nic, event);
  if (listening->datagram != (sidr != nullptr)) return refuse(nic, event);
  const uint32_t listener_handle = listening->handle;
  CmId* id = listening->backlog == 0 ? nullptr : ids_.add(*listening->file);
  if (id == nullptr) {
    nic.endpoint->destroy(event.connection, nic.now_ns());
    return;
  }
  // The number means another host by now where the book was full of others, or nothing.
  if (addresses_.number_for(*id, nic.settings().address_of(event.ends.peer)) != event.ends.peer) {
    ids_.destroy(*id);
    return refuse(nic, event, cm::RejectReason::kNoResources);
  }
  if (!take_share(id->file->stranger())) {
    ids_.destroy(*id);
    return refuse(nic, event, cm::RejectReason::kNoResources);
  }
  listening = ids_.find(listener_handle);  // the table may have grown
  --listening->backlog;
  id->port_space = listening->port_space;
  id->datagram = listening->datagram;
  id->nic = &nic;
  id->bound = true;
  id->source = event.ends.own;
  id->source_port = port_of(service);
  id->destination = event.ends.peer;
  id->ipv6 = is_stand_in(id->source);
  name_loopback(*id, *ip);
  id->destination_port = ip->source_port;
  id->type_of_service = listening->type_of_service;
  id->ack_timeout = listening->ack_timeout;
  give(nic, event.connection, *id);
  rdma_ucm_event_resp to{};
  to.uid = listening->uid;
  to.id = id->handle;
  if (sidr != nullptr) {
    get_private(to.param.ud, sidr->private_data, cm::kIpHeaderBytes);
  } else {
    id->peer_qpn = req->qpn;
    id->peer_psn = req->starting_psn;
    id->path_mtu =
        std::min<uint32_t>(req->path_mtu, mtu_number(nic.instance->plan.settings.mtu_bytes));
    id->retry_count = req->retry_count;
    id->rnr_retry_count = req->rnr_retry_count;
    id->responder_resources = req->initiator_depth;
    id->initiator_depth = req->responder_resources;
    rdma_ucm_conn_param& param = to.param.conn;
    get_private(param, req->private_data, cm::kIpHeaderBytes);
    param.responder_resources = req->initiator_depth;
    param.initiator_depth = req->responder_resources;
    param.flow_control = req->flow_control;
    param.retry_count = req->retry_count;
    param.rnr_retry_count = req->rnr_retry_count;
    param.srq = req->srq;
    param.qp_num = req->qpn;
  }
  ids_.tell(*listening, to, CmEvent::kConnectRequest, 0, id->handle);
}

}  // namespace hostnic
