// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/hooks/sysfs_tree.h"

#include <dirent.h>
#include <endian.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>
#include <unordered_map>
#include <utility>

#include "verbs-shim/abi/convert.h"
#include "verbs-shim/abi/device_attr.h"
#include "verbs-shim/abi/limits.h"

namespace hostnic::hooks {
namespace {

void remove_tree(const std::string& root) {
  std::error_code ignored;
  std::filesystem::remove_all(root, ignored);
}

// Opens and locks a tree. Returns -1 when it is gone or its owner lives.
int lock_directory(const std::string& path, int flags) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  if (fd < 0) return -1;
  struct stat status;
  // A cleaner may have won the race for the lock, and removed it.
  if (flock(fd, LOCK_EX | flags) == 0 && fstat(fd, &status) == 0 && status.st_nlink > 0 &&
      status.st_uid == geteuid()) {
    return fd;
  }
  close(fd);
  return -1;
}

// Removes the trees that programs left which were killed; their locks went with them.
void remove_abandoned(const std::string& base) {
  DIR* directory = opendir(base.c_str());
  if (directory == nullptr) return;
  std::vector<std::string> found;
  while (const dirent* entry = readdir(directory)) {
    if (strncmp(entry->d_name, kTreePrefix, strlen(kTreePrefix)) == 0) {
      found.push_back(base + "/" + entry->d_name);
    }
  }
  closedir(directory);
  for (const std::string& path : found) {
    const int fd = lock_directory(path, LOCK_NB);
    if (fd < 0) continue;
    remove_tree(path);
    close(fd);
  }
}

// Writes a file that its owner, who need not be root, can write again when the port changes.
void write_file(const std::string& path, const std::string& text) {
  const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return;
  const std::string line = text + "\n";
  [[maybe_unused]] ssize_t written = write(fd, line.data(), line.size());
  close(fd);
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

void write_device_files(const std::string& root, const DeviceInfo& info) {
  uint8_t guid[8];
  memcpy(guid, &info.node_guid, sizeof guid);
  write_file(root + "/node_guid", colon_words(guid, sizeof guid));
  write_file(root + "/sys_image_guid", colon_words(guid, sizeof guid));
  write_file(root + "/node_type", "1: CA");
  write_file(root + "/node_desc", std::string("hostnic ") + root.substr(root.rfind('/') + 1));
  write_file(root + "/board_id", "hostnic");
  write_file(root + "/hca_type", "hostnic");
  write_file(root + "/hw_rev", "0");
  write_file(root + "/fw_ver", HOSTNIC_VERSION);
  write_file(root + "/device/numa_node", "-1");
  write_file(root + "/device/local_cpus", all_cpus_mask());
  const long last_cpu = sysconf(_SC_NPROCESSORS_CONF) - 1;
  write_file(root + "/device/local_cpulist",
             last_cpu > 0 ? "0-" + std::to_string(last_cpu) : std::string("0"));
}

std::string capabilities(const DeviceInfo& info) {
  ibv_port_attr attr{};
  abi::fill_port_attr(info, abi::kPortNumber, &attr, sizeof attr);
  char text[16];
  snprintf(text, sizeof text, "0x%08x", attr.port_cap_flags);
  return text;
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

void write_port_files(const std::string& port, const DeviceInfo& info) {
  char lid[16];
  snprintf(lid, sizeof lid, "0x%x", info.lid);
  write_file(port + "/state", info.link_up ? "4: ACTIVE" : "1: DOWN");
  write_file(port + "/phys_state", info.link_up ? "5: LinkUp" : "2: Polling");
  write_file(port + "/rate", abi::link_rate(info.speed_mbps).sysfs);
  write_file(port + "/link_layer", "Ethernet");
  write_file(port + "/lid", lid);
  write_file(port + "/lid_mask_count", "0");
  // These are 0 because there is no subnet manager on Ethernet.
  write_file(port + "/sm_lid", "0x0");
  write_file(port + "/sm_sl", "0");
  write_file(port + "/cap_mask", capabilities(info));
  write_file(port + "/has_smi", "0");
  for (uint32_t i = 0; const GidEntry* entry = abi::gid_entry_at(info, i); ++i) {
    const std::string index = std::to_string(i);
    const bool v2 = entry->type == GidType::kRoceV2;
    write_file(port + "/gids/" + index, colon_words(entry->gid, sizeof entry->gid));
    write_file(port + "/gid_attrs/types/" + index, v2 ? "RoCE v2" : "IB/RoCE v1");
    write_file(port + "/gid_attrs/ndevs/" + index, abi::netdev_name(info));
  }
  // Entries that are not there are zeros, and have no type.
  constexpr uint8_t kNone[16] = {};
  for (uint32_t i = info.gid_count; i < info.gid_table_length; ++i)
    write_file(port + "/gids/" + std::to_string(i), colon_words(kNone, sizeof kNone));
  write_file(port + "/pkeys/0", "0xffff");
}

}  // namespace

std::string uverbs_name(std::string_view device) { return "uverbs_" + std::string(device); }

std::string sysfs_tree_base() {
  const char* runtime = getenv("XDG_RUNTIME_DIR");
  for (const char* candidate : {runtime, "/dev/shm"}) {
    if (candidate != nullptr && candidate[0] == '/' && access(candidate, W_OK | X_OK) == 0) {
      return candidate;
    }
  }
  return "/tmp";
}

SysfsTree SysfsTree::create(const std::string& base) {
  remove_abandoned(base);
  SysfsTree tree;
  // There are two attempts: another process may take the fresh, still unlocked directory for an
  // abandoned one.
  for (int attempt = 0; attempt < 2 && tree.lock_fd_ < 0; ++attempt) {
    std::string path = base + "/" + kTreePrefix + "XXXXXX";
    if (mkdtemp(path.data()) == nullptr) return {};
    tree.lock_fd_ = lock_directory(path, 0);
    tree.root_ = path;
  }
  if (tree.lock_fd_ < 0) return {};
  tree.owner_pid_ = getpid();
  return tree;
}

SysfsTree::SysfsTree(SysfsTree&& other) noexcept { *this = std::move(other); }

SysfsTree& SysfsTree::operator=(SysfsTree&& other) noexcept {
  std::swap(root_, other.root_);
  std::swap(lock_fd_, other.lock_fd_);
  std::swap(owner_pid_, other.owner_pid_);
  return *this;
}

SysfsTree::~SysfsTree() {
  if (lock_fd_ < 0) return;
  if (owner_pid_ == getpid()) remove_tree(root_);
  close(lock_fd_);
}

std::string SysfsTree::device_directory(std::string_view device) const {
  return root_ + "/infiniband/" + std::string(device);
}

std::string SysfsTree::verbs_directory(std::string_view uverbs) const {
  return root_ + "/infiniband_verbs/" + std::string(uverbs);
}

void SysfsTree::show(const DeviceInfo& info) {
  if (root_.empty()) return;
  const std::string name(info.name, strnlen(info.name, sizeof info.name));
  const std::string device = device_directory(name);
  const std::string port = device + "/ports/" + std::to_string(abi::kPortNumber);
  const std::string verbs = verbs_directory(uverbs_name(name));
  std::error_code ignored;
  for (const std::string& directory :
       {device + "/device", port + "/gids", port + "/gid_attrs/types", port + "/gid_attrs/ndevs",
        port + "/pkeys", port + "/counters", port + "/hw_counters", verbs}) {
    std::filesystem::create_directories(directory, ignored);
  }
  write_device_files(device, info);
  write_port_files(port, info);
  const std::string netdev = abi::netdev_name(info);
  link(device + "/device/net", netdev, "/sys/class/net/" + netdev);
  write_file(verbs + "/ibdev", name);
  std::filesystem::create_directories(cm_directory(), ignored);
  write_file(cm_directory() + "/abi_version", std::to_string(RDMA_USER_CM_ABI_VERSION));
  link(dev_directory(), "rdma_cm", "/dev/null");
  link(dev_directory(), uverbs_name(name), "/dev/null");
}

void SysfsTree::show_counters(const std::string& device, const std::string& text) {
  if (root_.empty()) return;
  const std::string port = device_directory(device) + "/ports/" + std::to_string(abi::kPortNumber);
  std::unordered_map<std::string, uint64_t> values;
  std::istringstream lines(text);
  for (std::string nic, name, line; std::getline(lines, line);) {
    std::istringstream words(line);
    uint64_t value = 0;
    // The name comes from hostnicd, and must not lead out of the directory.
    if (words >> nic >> name >> value && nic == device && name.find('/') == std::string::npos)
      values[name] = value;
  }
  for (const auto& [name, value] : values)
    write_file(port + "/hw_counters/" + name, std::to_string(value));
  for (const PortCounter& counter : kPortCounters) {
    const auto found = counter.source != nullptr ? values.find(counter.source) : values.end();
    const uint64_t value = found != values.end() ? found->second / counter.divisor : 0;
    write_file(port + "/counters/" + counter.name, std::to_string(value));
  }
}

void SysfsTree::link(const std::string& directory, const std::string& name,
                     const std::string& target) {
  if (root_.empty()) return;
  std::error_code ignored;
  std::filesystem::create_directories(directory, ignored);
  std::filesystem::create_symlink(target, directory + "/" + name, ignored);
}

}  // namespace hostnic::hooks
