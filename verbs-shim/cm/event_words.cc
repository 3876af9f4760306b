// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/cm/event_words.h"

#include <rdma/rdma_user_cm.h>
#include <string.h>

#include <cerrno>

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

std::string with_status(const char* name, const char* why, int32_t status) {
  const char* const error = status < 0 ? strerrorname_np(-status) : nullptr;
  return std::string(name) + ": " + why + " (status " + std::to_string(status) +
         (error == nullptr ? "" : std::string(", ") + error) + ")";
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

}  // namespace

std::string event_words(uint32_t event, int32_t status) {
  switch (event) {
    case kAddrError:
      return with_status("RDMA_CM_EVENT_ADDR_ERROR", of_address(status), status);
    case kRouteError:
      return with_status("RDMA_CM_EVENT_ROUTE_ERROR", "no way leads to the peer", status);
    case kConnectError:
      return with_status("RDMA_CM_EVENT_CONNECT_ERROR",
                         "the connection was agreed upon, and could not be made", status);
    case kUnreachable:
      return with_status("RDMA_CM_EVENT_UNREACHABLE",
                         "the peer's host does not answer: is its hostnicd there, and UDP port "
                         "4791 open?",
                         status);
    case kRejected:
      return with_status("RDMA_CM_EVENT_REJECTED", rejection(status), status);
    default:
      return {};
  }
}

std::string refused_words(uint32_t command, std::span<const std::byte> bytes, int error) {
  if (error != EINVAL) return {};
  if (rdma_ucm_connect connect{}; command == RDMA_USER_CM_CMD_CONNECT && read(bytes, connect))
    return private_data("rdma_connect", connect.conn_param, kConnectPrivateBytes);
  if (rdma_ucm_accept accept{}; command == RDMA_USER_CM_CMD_ACCEPT && read(bytes, accept))
    return private_data("rdma_accept", accept.conn_param, kAcceptPrivateBytes);
  return {};
}

}  // namespace hostnic::cm_device
