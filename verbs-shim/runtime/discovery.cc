// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/runtime/discovery.h"

#include <stdlib.h>
#include <string.h>

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

}  // namespace hostnic::runtime
