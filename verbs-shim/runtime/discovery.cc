// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/runtime/discovery.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <span>

#include "verbs-shim/runtime/control_client.h"

namespace hostnic::runtime {
namespace {

bool name_selected(const char* name, const char* selection) {
  if (selection == nullptr || *selection == '\0') return true;
  const size_t length = strlen(name);
  for (const char* at = selection; *at != '\0';) {
    const size_t item = strcspn(at, ",");
    if (item == length && strncmp(at, name, length) == 0) return true;
    at += item + (at[item] == ',' ? 1 : 0);
  }
  return false;
}

// The whole of a file in memory that came with an answer; it is sealed, and hostnicd's.
std::vector<std::byte> content_of(int file) {
  struct stat status {};
  if (fstat(file, &status) != 0 || status.st_size <= 0) return {};
  std::vector<std::byte> bytes(static_cast<size_t>(status.st_size));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got =
        pread(file, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
    if (got <= 0) return {};
    done += static_cast<size_t>(got);
  }
  return bytes;
}

}  // namespace

Expected<std::vector<DeviceInfo>, ContextError> list_devices() {
  auto client = ControlClient::connect();
  if (!client) return Unexpected(client.error());
  auto answer = client->call(ControlKind::kListDevices, {}, {});
  if (!answer) return Unexpected(answer.error());
  std::vector<DeviceInfo> devices;
  const char* selection = getenv("HOSTNIC_DEVICE");
  for (uint32_t i = 0; i < answer->count && (i + 1) * sizeof(DeviceInfo) <= answer->payload.size();
       ++i) {
    DeviceInfo device = answer->as<DeviceInfo>(i);
    device.name[sizeof(device.name) - 1] = '\0';
    if (name_selected(device.name, selection)) devices.push_back(device);
  }
  return devices;
}

std::string counters_text(std::string_view device) {
  auto client = ControlClient::connect();
  if (!client) return {};
  const std::string command = "show counters " + std::string(device) + " all";
  auto answer = client->call(ControlKind::kText, std::as_bytes(std::span(command)), {});
  if (!answer) return {};
  return {reinterpret_cast<const char*>(answer->payload.data()), answer->payload.size()};
}

Expected<NetlinkAnswer, int> ask_netlink(const RdmaNetlinkRequest& as,
                                         std::span<const std::byte> datagram) {
  auto client = ControlClient::connect();
  if (!client) return Unexpected(EIO);
  const auto header = std::as_bytes(std::span(&as, 1));
  std::vector<std::byte> payload;
  payload.reserve(header.size() + datagram.size());
  payload.insert(payload.end(), header.begin(), header.end());
  payload.insert(payload.end(), datagram.begin(), datagram.end());
  auto answer = client->call(ControlKind::kRdmaNetlink, payload, {});
  if (!answer) return Unexpected(answer.error().error);
  if (answer->fds.empty()) return NetlinkAnswer{std::move(answer->payload), answer->count};
  return NetlinkAnswer{content_of(answer->fds[0].get()), answer->count};
}

}  // namespace hostnic::runtime
