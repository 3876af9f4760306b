// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <fmt/format.h>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/control/commands/nic_argument.h"
#include "protocol/hostif/device_facts.h"

namespace hostnic {
namespace {

// The GID table: "10.0.0.1,-,fd00::1", of which the second entry is empty.
std::string gids_of(const Daemon& daemon, const NicInstance& instance) {
  const DeviceInfo info = daemon.device_info(instance);
  std::string text;
  for (uint32_t i = 0; i < info.gid_count; ++i) {
    const GidEntry* const entry = gid_entry_at(info, i);
    if (i != 0) text += ',';
    text += entry == nullptr ? "-" : to_string(gid_in(entry->gid));
  }
  return text;
}

CommandResult show_nic(Daemon& daemon, const Asker&, std::span<const std::string_view> args) {
  auto instances = nics_named(daemon, args, kShowNic);
  if (!instances) return {EINVAL, instances.error()};
  std::string text;
  for (NicInstance* instance : *instances) {
    std::string line;
    instance->lcore->run_on([&] { line = instance->nic->describe(); });
    text +=
        fmt::format("{} lcore {}{} longest turn {} us gids {}\n", line, instance->lcore_number,
                    instance->lcore->handling() ? "" : " stopped",
                    (instance->lcore->longest_turn_ns() + 999) / 1000, gids_of(daemon, *instance));
  }
  return {0, text};
}

}  // namespace

const PromptCommand kShowNic = {"show nic", "[hnicK]",
                                "address, MTU, port, GIDs, lcore and its longest turn", show_nic};

}  // namespace hostnic
