// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/telemetry.h"

#include <rte_telemetry.h>
#include <rte_version.h>

#include <mutex>

#include "dataplane/daemon/daemon.h"

namespace hostnic {
namespace {

// The daemon is global, because the callbacks get no context, and telemetry has no way to take a
// command back.
std::mutex mutex;
Daemon* current = nullptr;

// DPDK 23.03 has given it another name, and warns of the old one.
void add_number(rte_tel_data* out, const char* name, uint64_t value) {
#if RTE_VERSION >= RTE_VERSION_NUM(23, 3, 0, 0)
  rte_tel_data_add_dict_uint(out, name, value);
#else
  rte_tel_data_add_dict_u64(out, name, value);
#endif
}

int list_nics(const char*, const char*, rte_tel_data* out) {
  std::lock_guard lock(mutex);
  rte_tel_data_start_array(out, RTE_TEL_STRING_VAL);
  if (current == nullptr) return 0;
  for (const NicInstance& instance : current->nics())
    rte_tel_data_add_array_string(out, instance.plan.settings.name.c_str());
  return 0;
}

int nic_counters(const char*, const char* name, rte_tel_data* out) {
  std::lock_guard lock(mutex);
  NicInstance* instance =
      current == nullptr ? nullptr : current->find_nic(name == nullptr ? "" : name);
  if (instance == nullptr) return -1;
  rte_tel_data_start_dict(out);
  for (size_t i = 0; i < kCounterCount; ++i) {
    const auto counter = static_cast<Counter>(i);
    add_number(out, counter_name(counter), instance->nic->counters().get(counter));
  }
  return 0;
}

}  // namespace

void register_telemetry(Daemon& daemon) {
  {
    std::lock_guard lock(mutex);
    current = &daemon;
  }
  rte_telemetry_register_cmd("/hostnic/nics", list_nics, "Names of the NICs. No parameters");
  rte_telemetry_register_cmd("/hostnic/counters", nic_counters,
                             "Counters of a NIC. Parameter: its name");
}

void unregister_telemetry() {
  std::lock_guard lock(mutex);
  current = nullptr;
}

}  // namespace hostnic
