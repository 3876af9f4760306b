// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/runtime/lab_peer.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <new>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "verbs-shim/base/log.h"
#include "verbs-shim/runtime/control_client.h"

namespace hostnic::runtime {
namespace {

// A program that reaches another lab does so with its first connections. More are not asked for:
// the answer is as long as hostnicd has queue pairs.
constexpr uint32_t kAskedConnections = 16;
// QP 0 and QP 1 are the NIC's.
constexpr uint32_t kLastSpecialQpn = 1;

// Hosts of a lab have a network of their own.
bool in_plain_lab() {
  return getenv("HOSTNIC_LAB") != nullptr && getenv("HOSTNIC_HOSTS") == nullptr;
}

// Others are not told of all queue pairs.
bool owns_hostnicd() {
  struct stat status {};
  return stat(default_socket_path().c_str(), &status) == 0 &&
         (geteuid() == 0 || geteuid() == status.st_uid);
}

std::optional<ControlAnswer> ask(ControlKind kind, std::string_view words) {
  auto client = ControlClient::connect();
  if (!client) return std::nullopt;
  auto answer = client->call(kind, std::as_bytes(std::span(words)), {});
  if (!answer) return std::nullopt;
  return std::move(*answer);
}

bool is_on_wire(const ControlAnswer& devices, const uint8_t* gid) {
  for (uint32_t i = 0; i < devices.count; ++i) {
    const auto device = devices.as<DeviceInfo>(i);
    if (device.on_wire != 0 && memcmp(device.address, gid, sizeof device.address) == 0) return true;
  }
  return false;
}

// Whether hostnicd says that there is no such queue pair; false where it says nothing.
bool is_missing(const uint8_t* gid, uint32_t qpn) {
  const auto devices = ask(ControlKind::kListDevices, {});
  if (!devices || !is_on_wire(*devices, gid)) return false;
  const auto listed = ask(ControlKind::kText, "show qp");
  if (!listed || listed->payload.empty()) return false;
  char wanted[24];
  snprintf(wanted, sizeof wanted, " qp 0x%06x ", qpn);
  const std::string_view text(reinterpret_cast<const char*>(listed->payload.data()),
                              listed->payload.size());
  return text.find(wanted) == std::string_view::npos;
}

}  // namespace

void warn_of_peer_outside_lab(const uint8_t* gid, uint32_t qpn) {
  static constinit std::atomic<uint32_t> asked{0};
  static constinit std::atomic<bool> said{false};
  if (!log_enabled(LogLevel::kWarn) || asked.load(std::memory_order_relaxed) >= kAskedConnections ||
      !in_plain_lab() || asked.fetch_add(1, std::memory_order_relaxed) >= kAskedConnections)
    return;
  try {
    if (!owns_hostnicd() || !is_missing(gid, qpn) || said.exchange(true)) return;
  } catch (const std::bad_alloc&) {
    return;
  }
  if (qpn <= kLastSpecialQpn) {
    log_warn(
        "dest_qp_num is %u, which is no program's queue pair: the peer's number has not come here, "
        "or the peer has accepted without a queue pair",
        qpn);
    return;
  }
  char address[INET6_ADDRSTRLEN] = "?";
  inet_ntop(AF_INET6, gid, address, sizeof address);
  log_warn(
      "queue pair 0x%06x of %s, to which this program connects, is none of this lab's: whoever "
      "named it belongs to another lab, or has ended. Labs share this machine's TCP ports: use "
      "different ones, or `hostnic lab --hosts`",
      qpn, address);
}

}  // namespace hostnic::runtime
