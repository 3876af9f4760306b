// SPDX-License-Identifier: BSD-3-Clause
// ibv_get_device_list and what can be asked about a device that is not open.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <mutex>
#include <string>
#include <unordered_map>

#include "verbs-shim/abi/devices.h"
#include "verbs-shim/abi/exports.h"
#include "verbs-shim/abi/fork.h"
#include "verbs-shim/abi/real_verbs.h"
#include "verbs-shim/abi/registry.h"
#include "verbs-shim/base/log.h"
#include "verbs-shim/elf/imports.h"
#include "verbs-shim/hooks/path_map.h"
#include "verbs-shim/netlink/sockets.h"
#include "verbs-shim/runtime/discovery.h"

namespace hostnic::abi {
namespace {

// The known devices [registry], which are never destroyed, like the objects in them.
struct Devices {
  std::vector<DeviceObject*> known;
  // Our arrays, with the real library's list that each was merged from.
  std::unordered_map<ibv_device**, ibv_device**> lists;
};

Devices& devices() {
  static Devices& instance = *new Devices;
  return instance;
}

void copy_text(char* to, size_t size, const std::string& text) {
  snprintf(to, size, "%s", text.c_str());
}

// Reports once that hostnicd is silent: the real library's own search leads here again, through the
// path hook.
void report_silence(const runtime::ContextError& error) {
  static std::atomic<bool> said{false};
  if (said.exchange(true)) return;
  const char* socket = getenv("HOSTNIC_SOCKET");
  if (socket != nullptr && *socket != '\0') {
    log_warn("%s", error.message.c_str());
  } else {
    log_debug("no hnic devices: %s", error.message.c_str());
  }
}

DeviceObject* find_or_create(const DeviceInfo& info) {
  for (DeviceObject* known : devices().known) {
    if (strncmp(known->info.name, info.name, sizeof info.name) == 0) {
      known->info = info;
      return known;
    }
  }
  auto* object = new DeviceObject;
  object->info = info;
  ibv_device& device = object->device;
  device.node_type = IBV_NODE_CA;
  device.transport_type = IBV_TRANSPORT_IB;
  const std::string name(info.name, strnlen(info.name, sizeof info.name));
  copy_text(device.name, sizeof device.name, name);
  copy_text(device.dev_name, sizeof device.dev_name, hooks::uverbs_name(name));
  devices().known.push_back(object);
  return object;
}

// Sets a device's paths once, when the directories exist: the program already has the device.
void set_paths(ibv_device& device, const hooks::SysfsTree& tree) {
  if (device.ibdev_path[0] != '\0') return;
  copy_text(device.dev_path, sizeof device.dev_path, tree.verbs_directory(device.dev_name));
  copy_text(device.ibdev_path, sizeof device.ibdev_path, tree.device_directory(device.name));
}

}  // namespace

std::vector<DeviceObject*> current_devices() {
  elf::lead_new_imports_here();
  watch_forks();  // from here on there are locks that a fork could catch
  auto listed = runtime::list_devices();
  if (!listed) {
    report_silence(listed.error());
    return {};
  }
  const hooks::SysfsTree& tree = hooks::show_in_sysfs(*listed);
  std::vector<DeviceObject*> found;
  ObjectLock lock = lock_objects();
  for (const DeviceInfo& info : *listed) {
    found.push_back(find_or_create(info));
    set_paths(found.back()->device, tree);
  }
  return found;
}

bool is_our_device(const ibv_device* device) {
  ObjectLock lock = lock_objects();
  for (const DeviceObject* known : devices().known) {
    if (&known->device == device) return true;
  }
  return false;
}

DeviceObject* object_of(ibv_device* device) {
  static_assert(offsetof(DeviceObject, device) == 0);
  return reinterpret_cast<DeviceObject*>(device);
}

DeviceInfo info_of(const DeviceObject& device) {
  ObjectLock lock = lock_objects();
  return device.info;
}

namespace {

ibv_device** merge(const std::vector<DeviceObject*>& ours, ibv_device** real, int* count) {
  size_t real_count = 0;
  while (real != nullptr && real[real_count] != nullptr) ++real_count;
  // The list is the start of a malloc block: qperf frees it with free().
  auto** list =
      static_cast<ibv_device**>(calloc(ours.size() + real_count + 1, sizeof(ibv_device*)));
  if (list == nullptr) return nullptr;
  size_t used = 0;
  for (DeviceObject* device : ours) list[used++] = &device->device;
  for (size_t i = 0; i < real_count; ++i) list[used++] = real[i];
  if (count != nullptr) *count = static_cast<int>(used);
  ObjectLock lock = lock_objects();
  devices().lists[list] = real;
  return list;
}

// The mutex is held while the real library looks for devices, under a lock of its own that a fork
// must not catch. It is taken before any other lock of ours.
constinit std::mutex real_search_mutex;

}  // namespace

void lock_real_search_across_fork() { real_search_mutex.lock(); }
void unlock_real_search_after_fork() { real_search_mutex.unlock(); }

}  // namespace hostnic::abi

using namespace hostnic;
using namespace hostnic::abi;

HOSTNIC_VERB ibv_device** ibv_get_device_list(int* count) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<ibv_device**(int*)> real("ibv_get_device_list", "IBVERBS_1.1");
  static constinit RealVerb<void(ibv_device**)> real_free("ibv_free_device_list", "IBVERBS_1.1");
  return without_exceptions([&]() -> ibv_device** {
    const std::vector<DeviceObject*> ours = current_devices();
    ibv_device** real_list = nullptr;
    {
      const std::lock_guard lock(real_search_mutex);
      const netlink::KernelsOnly kernels_only;
      real_list = real.call(nullptr);
    }
    if (real_list == nullptr && ours.empty()) {
      if (count != nullptr) *count = 0;
      return nullptr;  // errno says why: usually ENOSYS, no RDMA in this kernel
    }
    ibv_device** list = merge(ours, real_list, count);
    if (list == nullptr && real_list != nullptr) real_free.call(real_list);
    if (list == nullptr) errno = ENOMEM;
    return list;
  });
}

HOSTNIC_VERB void ibv_free_device_list(ibv_device** list) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<void(ibv_device**)> real("ibv_free_device_list", "IBVERBS_1.1");
  ibv_device** real_list = nullptr;
  {
    ObjectLock lock = lock_objects();
    const auto found = devices().lists.find(list);
    if (found == devices().lists.end()) return;  // the list is null, or was freed before
    real_list = found->second;
    devices().lists.erase(found);
  }
  if (real_list != nullptr) real.call(real_list);
  free(list);
}

HOSTNIC_VERB __be64 ibv_get_device_guid(ibv_device* device) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<__be64(ibv_device*)> real("ibv_get_device_guid", "IBVERBS_1.1");
  if (!is_our_device(device)) return real.call(device);
  return info_of(*hostnic::abi::object_of(device)).node_guid;
}

HOSTNIC_VERB int ibv_get_device_index(ibv_device* device) {
  const CancellationOff cancellation_off;
  static constinit RealVerb<int(ibv_device*)> real("ibv_get_device_index", "IBVERBS_1.9");
  if (!is_our_device(device)) return real.call(device);
  return -1;  // the kernel does not know such a device
}
