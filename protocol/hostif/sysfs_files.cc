// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/hostif/sysfs_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <unordered_map>

#include "protocol/hostif/device_facts.h"
#include "protocol/hostif/unique_fd.h"
#include "protocol/hostif/version.h"

namespace hostnic {
namespace {

std::string device_name(const DeviceInfo& info) {
  return std::string(info.name, strnlen(info.name, sizeof info.name));
}

std::string port_directory(const std::string& device) {
  return device + "/ports/" + std::to_string(kDevicePort);
}

// Prints groups of four hexadecimal digits, as the kernel prints GIDs and GUIDs.
std::string colon_words(const uint8_t* bytes, size_t count) {
  std::string text;
  for (size_t i = 0; i < count; i += 2) {
    char word[8];
    snprintf(word, sizeof word, "%s%02x%02x", i == 0 ? "" : ":", bytes[i], bytes[i + 1]);
    text += word;
  }
  return text;
}

std::string all_cpus_mask() {
  const long cpus = sysconf(_SC_NPROCESSORS_CONF);
  std::string text;
  for (long first = (cpus - 1) / 32 * 32; first >= 0; first -= 32) {
    const long in_word = std::min<long>(cpus - first, 32);
    const uint32_t bits = in_word == 32 ? UINT32_MAX : (1u << in_word) - 1;
    char word[16];
    snprintf(word, sizeof word, "%s%08x", text.empty() ? "" : ",", bits);
    text += word;
  }
  return text;
}

void write_node_files(const std::string& root, const DeviceInfo& info) {
  uint8_t guid[8];
  memcpy(guid, &info.node_guid, sizeof guid);
  write_sysfs_file(root + "/node_guid", colon_words(guid, sizeof guid));
  write_sysfs_file(root + "/sys_image_guid", colon_words(guid, sizeof guid));
  write_sysfs_file(root + "/node_type", "1: CA");
  write_sysfs_file(root + "/node_desc", "hostnic " + device_name(info));
  write_sysfs_file(root + "/board_id", "hostnic");
  write_sysfs_file(root + "/hca_type", "hostnic");
  write_sysfs_file(root + "/hw_rev", "0");
  write_sysfs_file(root + "/fw_ver", HOSTNIC_VERSION);
  write_sysfs_file(root + "/device/numa_node", "-1");
  write_sysfs_file(root + "/device/local_cpus", all_cpus_mask());
  const long last_cpu = sysconf(_SC_NPROCESSORS_CONF) - 1;
  write_sysfs_file(root + "/device/local_cpulist",
                   last_cpu > 0 ? "0-" + std::to_string(last_cpu) : std::string("0"));
}

// One of InfiniBand's port counters, with what a NIC counts for it; the others never count anything
// on a RoCE port. Data are counted in words of four bytes.
struct PortCounter {
  const char* name;
  const char* source;  // null: the counter is always 0
  uint32_t divisor = 1;
};
constexpr PortCounter kPortCounters[] = {
    {"VL15_dropped", nullptr},
    {"excessive_buffer_overrun_errors", nullptr},
    {"link_downed", nullptr},
    {"link_error_recovery", nullptr},
    {"local_link_integrity_errors", nullptr},
    {"multicast_rcv_packets", nullptr},
    {"multicast_xmit_packets", nullptr},
    {"port_rcv_constraint_errors", nullptr},
    {"port_rcv_data", "rx_bytes", 4},
    {"port_rcv_errors", "rx_icrc_error"},
    {"port_rcv_packets", "rx_packets"},
    {"port_rcv_remote_physical_errors", nullptr},
    {"port_rcv_switch_relay_errors", nullptr},
    {"port_xmit_constraint_errors", nullptr},
    {"port_xmit_data", "tx_bytes", 4},
    {"port_xmit_discards", "tx_unresolved"},
    {"port_xmit_packets", "tx_packets"},
    {"port_xmit_wait", "tx_no_buffer"},
    {"symbol_error", nullptr},
    {"unicast_rcv_packets", "rx_packets"},
    {"unicast_xmit_packets", "tx_packets"},
};

// Entries that are empty are zeros, and have no type and no interface.
void write_gid_files(const std::string& port, const DeviceInfo& info, uint32_t index) {
  const std::string number = std::to_string(index);
  const std::string type = port + "/gid_attrs/types/" + number;
  const std::string netdev = port + "/gid_attrs/ndevs/" + number;
  constexpr uint8_t kNone[16] = {};
  const GidEntry* const entry = gid_entry_at(info, index);
  if (entry == nullptr) {
    unlink(type.c_str());
    unlink(netdev.c_str());
  } else {
    write_sysfs_file(type, entry->type == GidType::kRoceV2 ? "RoCE v2" : "IB/RoCE v1");
    write_sysfs_file(netdev, netdev_name(info));
  }
  write_sysfs_file(port + "/gids/" + number,
                   colon_words(entry == nullptr ? kNone : entry->gid, sizeof kNone));
}

void write_port_files(const std::string& port, const DeviceInfo& info) {
  char lid[16], capabilities[16];
  snprintf(lid, sizeof lid, "0x%x", info.lid);
  snprintf(capabilities, sizeof capabilities, "0x%08x", kPortCapabilities);
  write_sysfs_file(port + "/state", info.link_up ? "4: ACTIVE" : "1: DOWN");
  write_sysfs_file(port + "/phys_state", info.link_up ? "5: LinkUp" : "2: Polling");
  write_sysfs_file(port + "/rate", link_rate(info.speed_mbps).sysfs);
  write_sysfs_file(port + "/link_layer", "Ethernet");
  write_sysfs_file(port + "/lid", lid);
  write_sysfs_file(port + "/lid_mask_count", "0");
  // These are 0 because there is no subnet manager on Ethernet.
  write_sysfs_file(port + "/sm_lid", "0x0");
  write_sysfs_file(port + "/sm_sl", "0");
  write_sysfs_file(port + "/cap_mask", capabilities);
  write_sysfs_file(port + "/has_smi", "0");
  for (uint32_t i = 0; i < info.gid_table_length; ++i) write_gid_files(port, info, i);
  write_sysfs_file(port + "/pkeys/0", "0xffff");
}

}  // namespace

void write_sysfs_file(const std::string& path, const std::string& text) {
  const UniqueFd fd(open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644));
  if (!fd) return;
  // The file is never empty in between: somebody may be reading.
  const std::string line = text + "\n";
  if (pwrite(fd.get(), line.data(), line.size(), 0) == static_cast<ssize_t>(line.size()))
      [[maybe_unused]]
    const int cut = ftruncate(fd.get(), static_cast<off_t>(line.size()));
}

void write_device_files(const std::string& directory, const DeviceInfo& info) {
  const std::string port = port_directory(directory);
  std::error_code ignored;
  for (const std::string& each :
       {directory + "/device/net", port + "/gids", port + "/gid_attrs/types",
        port + "/gid_attrs/ndevs", port + "/pkeys", port + "/counters", port + "/hw_counters"})
    std::filesystem::create_directories(each, ignored);
  write_node_files(directory, info);
  write_port_files(port, info);
  const std::string netdev = netdev_name(info);
  std::filesystem::create_symlink("/sys/class/net/" + netdev, directory + "/device/net/" + netdev,
                                  ignored);
}

void write_counter_files(const std::string& directory, const std::string& name,
                         const std::string& text) {
  const std::string port = port_directory(directory);
  std::unordered_map<std::string, uint64_t> values;
  std::istringstream lines(text);
  for (std::string nic, counter, line; std::getline(lines, line);) {
    std::istringstream words(line);
    uint64_t value = 0;
    // The name comes from hostnicd, and must not lead out of the directory.
    if (words >> nic >> counter >> value && nic == name && counter.find('/') == std::string::npos)
      values[counter] = value;
  }
  for (const auto& [counter, value] : values)
    write_sysfs_file(port + "/hw_counters/" + counter, std::to_string(value));
  for (const PortCounter& counter : kPortCounters) {
    const auto found = counter.source != nullptr ? values.find(counter.source) : values.end();
    const uint64_t value = found != values.end() ? found->second / counter.divisor : 0;
    write_sysfs_file(port + "/counters/" + counter.name, std::to_string(value));
  }
}

}  // namespace hostnic
