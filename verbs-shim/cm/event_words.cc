// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/cm/event_words.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <string.h>

#include <algorithm>
#include <cerrno>
#include <initializer_list>

namespace hostnic::cm_device {
namespace {

// What a request for a connection has room for behind the addresses, and its answer has.
constexpr uint32_t kConnectPrivateBytes = 56, kAcceptPrivateBytes = 196;

// InfiniBand's reasons for a rejection (12.6.7.2), as far as a program can meet them.
const char* rejection(int32_t reason) {
  switch (reason) {
    case 1:
      return "the peer has no queue pair for it";
    case 3:
      return "the peer has no room for another connection";
    case 4:
      return "the peer's program has not answered in time";
    case 6:
      return "the peer does not know the connection";
    case 8:
      return "nobody listens on that port there (or with another rdma_port_space)";
    case 10:
      return "the peer still has a connection of that queue pair's";
    case 28:
      return "the peer's program has refused it (rdma_reject), or destroyed its id, or ended";
    default:
      return "the peer has refused it";
  }
}

const char* of_address(int32_t status) {
  switch (-status) {
    case ENETUNREACH:
      return "no NIC here is on a network that leads to that address";
    case EHOSTUNREACH:
      return "no host has that address, or it does not answer";
    case ENODEV:
    case EADDRNOTAVAIL:
      return "no NIC here has the address that the id is bound to";
    case ETIMEDOUT:
      return "no answer within rdma_resolve_addr's timeout";
    default:
      return "the address can't be resolved";
  }
}

// InfiniBand's answers to the question for a datagram service (16.1.1), where rdma_cm says
// UNREACHABLE.
const char* no_datagrams(int32_t status) {
  switch (status) {
    case 1:
      return "nobody listens on that port there (or with another rdma_port_space)";
    case 2:
      return "the peer's program has refused it (rdma_reject), or destroyed its id, or ended";
    case 3:
      return "the peer has no queue pair for it";
    default:
      return status > 0 ? "the peer has refused it"
                        : "the peer's host does not answer: is its hostnicd there, and UDP port "
                          "4791 open?";
  }
}

std::string with_status(const char* name, const std::string& to, const char* why, int32_t status) {
  const char* const error = status < 0 ? strerrorname_np(-status) : nullptr;
  return std::string(name) + (to.empty() ? "" : " (to " + to + ")") + ": " + why + " (status " +
         std::to_string(status) + (error == nullptr ? "" : std::string(", ") + error) + ")";
}

std::string private_data(const char* call, const rdma_ucm_conn_param& param, uint32_t most) {
  if (param.private_data_len <= most) return {};
  return std::string(call) + ": private data of " + std::to_string(param.private_data_len) +
         " bytes, " + std::to_string(most) + " at most (EINVAL)";
}

template <class Command>
bool read(std::span<const std::byte> bytes, Command& command) {
  // What is behind the parameters came later.
  constexpr size_t kNeeded = offsetof(Command, conn_param) + sizeof(rdma_ucm_conn_param);
  if (bytes.size() < kNeeded) return false;
  memcpy(&command, bytes.data(), kNeeded);
  return true;
}

// The words for one errno value of a command.
struct Words {
  int error;
  const char* text;
};

std::string choose(const char* call, const std::string& about, int error,
                   std::initializer_list<Words> all) {
  for (const Words& words : all) {
    if (words.error != error) continue;
    const char* const name = strerrorname_np(error);
    return std::string(call) + ": " + (about.empty() ? "" : about + ": ") + words.text + " (" +
           (name == nullptr ? "error" : name) + ")";
  }
  return {};
}

// The bytes of a command from `offset` on; none if it ends before.
std::span<const std::byte> behind(std::span<const std::byte> bytes, size_t offset) {
  return bytes.subspan(std::min(offset, bytes.size()));
}

std::string refused_binding(std::span<const std::byte> address, int error) {
  return choose("rdma_bind_addr", address_words(address), error,
                {{EADDRINUSE, "another id has that port"},
                 {EADDRNOTAVAIL, "no NIC here has that address, or HOSTNIC_DEVICE hides it"},
                 {EINVAL, "the id is bound already"}});
}

std::string refused_resolution(std::span<const std::byte> source,
                               std::span<const std::byte> destination, int error) {
  constexpr const char* kCall = "rdma_resolve_addr";
  if (error == EADDRNOTAVAIL)
    return choose(kCall, address_words(source), error,
                  {{error, "no NIC here has that source address, or HOSTNIC_DEVICE hides it"}});
  return choose(kCall, address_words(destination), error,
                {{EINVAL, "the id listens, or is connected, or its address is being resolved"}});
}

std::string refused_group(std::span<const std::byte> address, int error) {
  return choose("rdma_join_multicast", address_words(address), error,
                {{EINVAL, "no multicast group, or the id has no address of its own yet"}});
}

}  // namespace

std::string address_words(std::span<const std::byte> address) {
  sockaddr_in6 v6{};
  if (!address.empty()) memcpy(&v6, address.data(), std::min(sizeof(v6), address.size()));
  char host[INET6_ADDRSTRLEN] = "";
  if (sockaddr_in v4{}; v6.sin6_family == AF_INET) {
    memcpy(&v4, &v6, sizeof(v4));
    inet_ntop(AF_INET, &v4.sin_addr, host, sizeof(host));
  } else if (v6.sin6_family == AF_INET6) {
    inet_ntop(AF_INET6, &v6.sin6_addr, host, sizeof(host));
  }
  if (host[0] == '\0') return {};
  const uint16_t port = ntohs(v6.sin6_port);  // lies at the same place in both
  return std::string(host) + (port == 0 ? "" : ", port " + std::to_string(port));
}

std::string event_words(uint32_t event, int32_t status, const std::string& to) {
  switch (event) {
    case kAddrError:
      return with_status("RDMA_CM_EVENT_ADDR_ERROR", to, of_address(status), status);
    case kRouteError:
      return with_status("RDMA_CM_EVENT_ROUTE_ERROR", to, "no way leads to the peer", status);
    case kConnectError:
      return with_status("RDMA_CM_EVENT_CONNECT_ERROR", to,
                         "the connection was agreed upon, and could not be made", status);
    case kUnreachable:
      return with_status("RDMA_CM_EVENT_UNREACHABLE", to, no_datagrams(status), status);
    case kRejected:
      return with_status("RDMA_CM_EVENT_REJECTED", to, rejection(status), status);
    default:
      return {};
  }
}

std::string refused_words(uint32_t command, std::span<const std::byte> bytes, int error) {
  switch (command) {
    case RDMA_USER_CM_CMD_BIND_IP:
      return refused_binding(behind(bytes, offsetof(rdma_ucm_bind_ip, addr)), error);
    case RDMA_USER_CM_CMD_BIND:
      return refused_binding(behind(bytes, offsetof(rdma_ucm_bind, addr)), error);
    case RDMA_USER_CM_CMD_LISTEN:
      return choose("rdma_listen", "", error,
                    {{EADDRINUSE, "another id listens on that port"},
                     {EINVAL, "the id listens already, or has a destination"}});
    case RDMA_USER_CM_CMD_RESOLVE_IP:
      return refused_resolution(bytes, behind(bytes, offsetof(rdma_ucm_resolve_ip, dst_addr)),
                                error);
    case RDMA_USER_CM_CMD_RESOLVE_ADDR:
      return refused_resolution(behind(bytes, offsetof(rdma_ucm_resolve_addr, src_addr)),
                                behind(bytes, offsetof(rdma_ucm_resolve_addr, dst_addr)), error);
    case RDMA_USER_CM_CMD_JOIN_IP_MCAST:
      return refused_group(behind(bytes, offsetof(rdma_ucm_join_ip_mcast, addr)), error);
    case RDMA_USER_CM_CMD_JOIN_MCAST:
      return refused_group(behind(bytes, offsetof(rdma_ucm_join_mcast, addr)), error);
    case RDMA_USER_CM_CMD_CONNECT:
      if (rdma_ucm_connect connect{}; error == EINVAL && read(bytes, connect)) {
        const std::string words =
            private_data("rdma_connect", connect.conn_param, kConnectPrivateBytes);
        return !words.empty() ? words
                              : choose("rdma_connect", "", error,
                                       {{EINVAL,
                                         "the id's address is not resolved (rdma_resolve_addr), "
                                         "or it is connected already"}});
      }
      return {};
    case RDMA_USER_CM_CMD_ACCEPT:
      if (rdma_ucm_accept accept{}; error == EINVAL && read(bytes, accept))
        return private_data("rdma_accept", accept.conn_param, kAcceptPrivateBytes);
      return {};
    default:
      return {};
  }
}

}  // namespace hostnic::cm_device
