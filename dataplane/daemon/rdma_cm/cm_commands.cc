// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/rdma_cm/cm_commands.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>

#include <algorithm>
#include <bit>
#include <optional>

#include "dataplane/daemon/network/socket_address.h"
#include "dataplane/daemon/rdma_cm/cm_address.h"
#include "protocol/bytes_of.h"
#include "protocol/wire/multicast.h"

namespace hostnic {
namespace {

constexpr uint32_t kMaxBacklog = 1024;
constexpr uint32_t kMaxMulticasts = 256;
constexpr uint8_t kQpTypeUd = 4;
constexpr uint32_t kUnknownIndex = UINT32_MAX;

// RDMA_USER_CM_CMD_WRITE_CM_EVENT and its structure, which older headers don't have: by it newer
// librdmacms tell themselves that rdma_resolve_addrinfo is done.
constexpr uint32_t kWriteEvent = 24;
struct WriteEvent {
  uint32_t id, reserved, event, status;
  uint64_t argument;
};
constexpr uint32_t kUserEvent = 18, kInternalEvent = 19;  // of enum rdma_cm_event_type
constexpr size_t kMaxWrittenEvents = 1024;                // that wait in one file

// Takes as much of a T as the program gave: it may have been built with an older, shorter one.
template <typename T>
std::optional<T> given_value(std::span<const std::byte> bytes, size_t least = sizeof(T)) {
  if (bytes.size() < least) return std::nullopt;
  T value{};
  memcpy(&value, bytes.data(), std::min(sizeof(T), bytes.size()));
  return value;
}

template <typename T>
std::span<const std::byte> sized(const T& address, uint16_t bytes) {
  return bytes_of(address).first(std::min<size_t>(bytes, sizeof(address)));
}

// Calls `handler` with the command as a T of at least `least` bytes.
template <typename T, typename Handler>
CmResult with(std::span<const std::byte> bytes, size_t least, const Handler& handler) {
  const auto value = given_value<T>(bytes, least);
  return value ? handler(*value) : CmResult{EINVAL, {}};
}
#define HOSTNIC_CM(Type, ...) \
  with<Type>(bytes, sizeof(Type), [&](const Type& c) { return __VA_ARGS__; })

// Writes an address as the program expects it.
template <typename To>
void put_address(To& to, const CmId& id, const Gid& gid, uint16_t port) {
  const uint32_t scope = id.nic == nullptr ? 0 : if_nametoindex(id.nic->instance->netdev.c_str());
  const SocketAddress address = socket_address(gid, port, scope);
  static_assert(sizeof(To) >= sizeof(address.ipv6));
  memset(&to, 0, sizeof(to));
  memcpy(&to, &address, address.bytes());
}

}  // namespace

CmResult CmCommands::run(CmFile& file, const CmCommand& command, std::span<const std::byte> bytes) {
  switch (command.command) {
    case RDMA_USER_CM_CMD_CREATE_ID:
      return HOSTNIC_CM(rdma_ucm_create_id, create_id(file, c));
    case RDMA_USER_CM_CMD_DESTROY_ID:
      return HOSTNIC_CM(rdma_ucm_destroy_id, destroy_id(file, c));
    case RDMA_USER_CM_CMD_BIND_IP:
      return HOSTNIC_CM(rdma_ucm_bind_ip, bind_address(file, c.id, bytes_of(c.addr)));
    case RDMA_USER_CM_CMD_BIND:
      return HOSTNIC_CM(rdma_ucm_bind, bind_address(file, c.id, sized(c.addr, c.addr_size)));
    case RDMA_USER_CM_CMD_RESOLVE_IP:
      return HOSTNIC_CM(rdma_ucm_resolve_ip,
                        resolution_.resolve_address(file, c.id, c.timeout_ms, bytes_of(c.src_addr),
                                                    bytes_of(c.dst_addr)));
    case RDMA_USER_CM_CMD_RESOLVE_ADDR:
      return HOSTNIC_CM(rdma_ucm_resolve_addr,
                        resolution_.resolve_address(file, c.id, c.timeout_ms, bytes_of(c.src_addr),
                                                    sized(c.dst_addr, c.dst_size)));
    case RDMA_USER_CM_CMD_RESOLVE_ROUTE:
      return HOSTNIC_CM(rdma_ucm_resolve_route, resolve_route(file, c));
    case RDMA_USER_CM_CMD_QUERY_ROUTE:
      // The offset is written out because `option` is a reserved word here.
      return with<rdma_ucm_query>(bytes, offsetof(rdma_ucm_query, option),
                                  [&](const rdma_ucm_query& c) { return query_route(file, c); });
    case RDMA_USER_CM_CMD_QUERY:
      return HOSTNIC_CM(rdma_ucm_query, query(file, c));
    case RDMA_USER_CM_CMD_GET_EVENT:
      return get_event(file);
    case RDMA_USER_CM_CMD_SET_OPTION:
      return HOSTNIC_CM(rdma_ucm_set_option, set_option(file, c, bytes.subspan(sizeof(c))));
    case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
      return HOSTNIC_CM(rdma_ucm_join_ip_mcast, join(file, c.id, c.uid, bytes_of(c.addr)));
    case RDMA_USER_CM_CMD_JOIN_MCAST:
      return HOSTNIC_CM(rdma_ucm_join_mcast, join(file, c.id, c.uid, sized(c.addr, c.addr_size)));
    case RDMA_USER_CM_CMD_LEAVE_MCAST:
      return HOSTNIC_CM(rdma_ucm_destroy_id, leave(file, c));
    case RDMA_USER_CM_CMD_MIGRATE_ID:
      return HOSTNIC_CM(rdma_ucm_migrate_id, migrate(file, command, c));
    case kWriteEvent:
      return HOSTNIC_CM(WriteEvent, write_event(file, c.id, c.event, c.status, c.argument));
    case kCmTokenTaken:
      file.token_out = false;
      return {};
    default:
      return run_connection(file, command, bytes);
  }
}

CmResult CmCommands::run_connection(CmFile& file, const CmCommand& command,
                                    std::span<const std::byte> bytes) {
  // The sizes that these commands had at first; they have grown.
  constexpr size_t kConnectBytes = offsetof(rdma_ucm_connect, ece);
  constexpr size_t kAcceptBytes = offsetof(rdma_ucm_accept, ece);
  switch (command.command) {
    case RDMA_USER_CM_CMD_CONNECT:
      return with<rdma_ucm_connect>(bytes, kConnectBytes, [&](const rdma_ucm_connect& c) {
        return connections_.connect(file, c);
      });
    case RDMA_USER_CM_CMD_ACCEPT:
      return with<rdma_ucm_accept>(bytes, kAcceptBytes, [&](const rdma_ucm_accept& c) {
        return connections_.accept(file, c);
      });
    case RDMA_USER_CM_CMD_REJECT:
      return HOSTNIC_CM(rdma_ucm_reject, connections_.reject(file, c));
    case RDMA_USER_CM_CMD_DISCONNECT:
      return HOSTNIC_CM(rdma_ucm_disconnect, connections_.disconnect(file, c));
    case RDMA_USER_CM_CMD_INIT_QP_ATTR:
      return HOSTNIC_CM(rdma_ucm_init_qp_attr, connections_.init_qp_attr(file, c));
    case RDMA_USER_CM_CMD_NOTIFY:
      return HOSTNIC_CM(rdma_ucm_notify, connections_.notify(file, c));
    case RDMA_USER_CM_CMD_LISTEN:
      return HOSTNIC_CM(rdma_ucm_listen, listen(file, c));
    default:
      return {ENOSYS, {}};
  }
}
#undef HOSTNIC_CM

CmResult CmCommands::create_id(CmFile& file, const rdma_ucm_create_id& command) {
  switch (command.ps) {
    case RDMA_PS_TCP:
    case RDMA_PS_UDP:
    case RDMA_PS_IPOIB:
    case RDMA_PS_IB:
      break;
    default:
      return {EPROTONOSUPPORT, {}};
  }
  CmId* id = ids_.add(file);
  if (id == nullptr) return {ENOMEM, {}};
  id->uid = command.uid;
  id->port_space = command.ps;
  id->datagram = command.ps == RDMA_PS_UDP || command.ps == RDMA_PS_IPOIB ||
                 (command.ps == RDMA_PS_IB && command.qp_type == kQpTypeUd);
  return respond(rdma_ucm_create_id_resp{id->handle});
}

CmResult CmCommands::destroy_id(CmFile& file, const rdma_ucm_destroy_id& command) {
  CmId* id = ids_.find_of(file, command.id);
  if (id == nullptr) return {ENOENT, {}};
  const rdma_ucm_destroy_id_resp response{id->events_reported};
  ids_.destroy(*id);
  return respond(response);
}

CmResult CmCommands::bind_address(CmFile& file, uint32_t handle, std::span<const std::byte> bytes) {
  CmId* id = ids_.find_of(file, handle);
  if (id == nullptr) return {ENOENT, {}};
  const auto address = parse_cm_address(bytes);
  if (!address) return {address.error(), {}};
  if (!address->given) return {EAFNOSUPPORT, {}};
  if (address->nobodys) return {EADDRNOTAVAIL, {}};
  if (!id->bound) id->ipv6 = address->ipv6;
  const auto number = addresses_.number_for(*id, address->address);
  if (!number) return {ENOMEM, {}};
  const int error = addresses_.bind(*id, *number, address->port);
  if (error == 0 && id->nic != nullptr && addresses_.names_this_host(*number))
    id->named_source = address->named;
  return {error, {}};
}

CmResult CmCommands::resolve_route(CmFile& file, const rdma_ucm_resolve_route& command) {
  CmId* id = ids_.find_of(file, command.id);
  if (id == nullptr) return {ENOENT, {}};
  if (id->nic == nullptr || raw(id->destination) == 0 || id->resolving_until_ns != 0)
    return {EINVAL, {}};
  ids_.tell(*id, CmEvent::kRouteResolved, 0);
  return {};
}

CmResult CmCommands::query_route(CmFile& file, const rdma_ucm_query& command) {
  const CmId* id = ids_.find_of(file, command.id);
  if (id == nullptr) return {ENOENT, {}};
  rdma_ucm_query_route_resp response{};
  put_address(response.src_addr, *id, addresses_.shown_source(*id), id->source_port);
  if (raw(id->destination) != 0)
    put_address(response.dst_addr, *id, addresses_.shown_destination(*id), id->destination_port);
  response.ibdev_index = kUnknownIndex;
  if (id->nic == nullptr) return respond(response);
  const NicSettings& settings = id->nic->instance->plan.settings;
  response.node_guid = daemon_.device_info(*id->nic->instance).node_guid;
  response.port_num = kPortNumber;
  ib_user_path_rec& path = response.ib_route[0];
  const Gid own = settings.address_of(id->source), peer = settings.address_of(id->destination);
  memcpy(path.sgid, own.data(), own.size());
  if (raw(id->destination) != 0) {
    response.num_paths = 1;
    memcpy(path.dgid, peer.data(), peer.size());
  }
  path.pkey = htons(0xffff);
  path.reversible = 1;
  path.mtu = static_cast<uint32_t>(std::bit_width(settings.mtu_bytes) - 8);
  path.mtu_selector = path.rate_selector = path.packet_life_time_selector = 2;  // exactly
  path.hop_limit = 64;
  path.traffic_class = id->type_of_service;
  path.packet_life_time = 16;
  return respond(response);
}

CmResult CmCommands::query(CmFile& file, const rdma_ucm_query& command) {
  const CmId* id = ids_.find_of(file, command.id);
  if (id == nullptr) return {ENOENT, {}};
  if (command.option != RDMA_USER_CM_QUERY_ADDR) return {ENOSYS, {}};
  rdma_ucm_query_addr_resp response{};
  const auto size_of = [](const Gid& address) {
    return static_cast<uint16_t>(ipv4_of(address) ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
  };
  put_address(response.src_addr, *id, addresses_.shown_source(*id), id->source_port);
  response.src_size = size_of(addresses_.shown_source(*id));
  if (raw(id->destination) != 0) {
    put_address(response.dst_addr, *id, addresses_.shown_destination(*id), id->destination_port);
    response.dst_size = size_of(addresses_.shown_destination(*id));
  }
  response.pkey = 0xffff;
  response.ibdev_index = kUnknownIndex;
  if (id->nic != nullptr) {
    response.node_guid = daemon_.device_info(*id->nic->instance).node_guid;
    response.port_num = kPortNumber;
  }
  return respond(response);
}

CmResult CmCommands::listen(CmFile& file, const rdma_ucm_listen& command) {
  CmId* id = ids_.find_of(file, command.id);
  if (id == nullptr) return {ENOENT, {}};
  if (id->listening || raw(id->destination) != 0) return {EINVAL, {}};
  if (!id->bound) {
    if (const int error = addresses_.bind(*id, Ipv4Address{}, 0)) return {error, {}};
  }
  // Ids that share the port by REUSEADDR may not both listen.
  id->listening = true;
  const bool reused = std::exchange(id->reuse_address, false);
  const bool free = addresses_.port_free(*id, id->source_port);
  id->reuse_address = reused;
  id->listening = free;
  if (!free) return {EADDRINUSE, {}};
  id->backlog =
      command.backlog > 0 && command.backlog < kMaxBacklog ? command.backlog : kMaxBacklog;
  return {};
}

CmResult CmCommands::get_event(CmFile& file) {
  file.token_out = false;
  if (file.events.empty()) return {EAGAIN, {}};
  const CmFile::Waiting waiting = file.events.front();
  file.events.pop_front();
  if (CmId* owner = ids_.find(waiting.owner)) {
    ++owner->events_reported;
    if (waiting.request != 0) ++owner->backlog;
    for (CmMulticast& each : owner->multicasts)
      if (each.handle == waiting.multicast) ++each.events_reported;
  }
  file.give_token();
  return respond(waiting.event);
}

CmResult CmCommands::set_option(CmFile& file, const rdma_ucm_set_option& command,
                                std::span<const std::byte> value) {
  CmId* id = ids_.find_of(file, command.id);
  if (id == nullptr) return {ENOENT, {}};
  if (value.size() != command.optlen) return {EINVAL, {}};
  if (command.level != RDMA_OPTION_ID) return {ENOSYS, {}};
  const auto byte = given_value<uint8_t>(value);
  const auto number = given_value<int>(value);
  switch (command.optname) {
    case RDMA_OPTION_ID_TOS:
      if (value.size() != 1) return {EINVAL, {}};
      id->type_of_service = *byte;
      return {};
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      if (value.size() != 1 || *byte > 31) return {EINVAL, {}};
      id->ack_timeout = *byte;
      return {};
    case RDMA_OPTION_ID_REUSEADDR:
      if (!number || value.size() != sizeof(int)) return {EINVAL, {}};
      id->reuse_address = *number != 0;
      return {};
    case RDMA_OPTION_ID_AFONLY:
      if (!number || value.size() != sizeof(int) || id->listening || raw(id->destination) != 0)
        return {EINVAL, {}};
      id->family_only = *number != 0;
      return {};
    default:
      return {ENOSYS, {}};
  }
}

CmResult CmCommands::join(CmFile& file, uint32_t handle, uint64_t uid,
                          std::span<const std::byte> bytes) {
  CmId* id = ids_.find_of(file, handle);
  if (id == nullptr) return {ENOENT, {}};
  const auto address = parse_cm_address(bytes);
  if (!address) return {address.error(), {}};
  if (address->nobodys) return {EADDRNOTAVAIL, {}};
  // Which IPv4 group stands for another group is what ibv_attach_mcast makes of the handle's GID.
  const auto ip = ipv4_of(address->address);
  const bool group = ip ? wire::is_multicast(*ip) : address->address[0] == std::byte{0xff};
  if (id->nic == nullptr || id->resolving_until_ns != 0 || !group) return {EINVAL, {}};
  if (id->multicasts.size() >= kMaxMulticasts) return {ENOMEM, {}};
  const uint32_t multicast = ids_.new_handle();
  id->multicasts.push_back({multicast, uid, 0});
  rdma_ucm_event_resp event{};
  event.uid = uid;
  event.id = multicast;
  event.param.ud.qp_num = raw(wire::kMulticastQpn);
  event.param.ud.qkey = id->qkey != 0 ? id->qkey : kDatagramQkey;
  event.param.ud.ah_attr = addresses_.address_handle(*id, address->address);
  ids_.tell(*id, event, CmEvent::kMulticastJoin, 0, 0, multicast);
  return respond(rdma_ucm_create_id_resp{multicast});
}

CmResult CmCommands::leave(CmFile& file, const rdma_ucm_destroy_id& command) {
  for (auto& [handle, id] : ids_.all()) {
    if (id.file != &file) continue;
    const auto found = std::find_if(id.multicasts.begin(), id.multicasts.end(),
                                    [&](const auto& each) { return each.handle == command.id; });
    if (found == id.multicasts.end()) continue;
    const rdma_ucm_destroy_id_resp response{found->events_reported};
    std::erase_if(file.events, [&](const auto& each) { return each.multicast == command.id; });
    id.multicasts.erase(found);
    return respond(response);
  }
  return {ENOENT, {}};
}

// Puts an event of the program's own behind those that wait.
CmResult CmCommands::write_event(CmFile& file, uint32_t handle, uint32_t event, uint32_t status,
                                 uint64_t argument) {
  CmId* id = ids_.find_of(file, handle);
  if (id == nullptr) return {ENOENT, {}};
  if (event != kUserEvent && event != kInternalEvent) return {EINVAL, {}};
  if (file.events.size() >= kMaxWrittenEvents) return {ENOMEM, {}};
  rdma_ucm_event_resp told{};
  told.uid = id->uid;
  told.id = id->handle;
  memcpy(&told.param, &argument, sizeof argument);
  ids_.tell(*id, told, static_cast<CmEvent>(event), static_cast<int>(status));
  return {};
}

// Moves an id and its events from another file to this one.
CmResult CmCommands::migrate(CmFile& file, const CmCommand& command,
                             const rdma_ucm_migrate_id& migrate) {
  CmId* id = ids_.find(migrate.id);
  // The name is no secret: another user's file is none of the program's.
  if (id == nullptr || id->file->name != command.other_file || id->file->uid != file.uid)
    return {ENOENT, {}};
  const rdma_ucm_migrate_resp response{id->events_reported};
  CmFile& from = *id->file;
  if (&from == &file) return respond(response);
  for (const CmFile::Waiting& waiting : from.events) {
    if (waiting.owner != id->handle) continue;
    file.events.push_back(waiting);
    if (CmId* request = ids_.find(waiting.request)) request->file = &file;
  }
  std::erase_if(from.events, [&](const auto& each) { return each.owner == id->handle; });
  id->file = &file;
  // Where no event is left the other file has a datagram too many, which its program takes away.
  CmResult result = respond(response);
  result.other_token_stale = from.token_out && from.events.empty();
  return result;
}

}  // namespace hostnic
