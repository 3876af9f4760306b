// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <fmt/format.h>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/control/commands/nic_argument.h"
#include "dataplane/daemon/observe/view_json.h"
#include "dataplane/daemon/observe/view_text.h"
#include "protocol/hostif/device_facts.h"
#include "protocol/json_writer.h"

namespace hostnic {
namespace {

// The entries of the GID table; an empty entry is an empty text.
std::vector<std::string> gids_of(const Daemon& daemon, const NicInstance& instance) {
  const DeviceInfo info = daemon.device_info(instance);
  std::vector<std::string> gids;
  for (uint32_t i = 0; i < info.gid_count; ++i) {
    const GidEntry* const entry = gid_entry_at(info, i);
    gids.push_back(entry == nullptr ? "" : to_string(gid_in(entry->gid)));
  }
  return gids;
}

// The GID table in one word: "10.0.0.1,-,fd00::1", of which the second entry is empty.
std::string joined(const std::vector<std::string>& gids) {
  std::string text;
  for (const std::string& gid : gids)
    text += (text.empty() ? "" : ",") + (gid.empty() ? std::string("-") : gid);
  return text;
}

NicView nic_view(NicInstance& instance) {
  NicView view;
  instance.lcore->run_on([&] { view = instance.nic->views().nic(); });
  return view;
}

uint64_t longest_turn_us(const NicInstance& instance) {
  return (instance.lcore->longest_turn_ns() + 999) / 1000;
}

CommandResult show_nic(Daemon& daemon, const Asker&, std::span<const std::string_view> args) {
  auto instances = nics_named(daemon, args, kShowNic);
  if (!instances) return {EINVAL, instances.error()};
  std::string text;
  for (NicInstance* instance : *instances) {
    text += fmt::format("{} lcore {}{} longest turn {} us gids {}\n", to_text(nic_view(*instance)),
                        instance->lcore_number, instance->lcore->handling() ? "" : " stopped",
                        longest_turn_us(*instance), joined(gids_of(daemon, *instance)));
  }
  return {0, text};
}

CommandResult show_nic_json(Daemon& daemon, const Asker&, std::span<const std::string_view> args) {
  auto instances = nics_named(daemon, args, kShowNic);
  if (!instances) return {EINVAL, instances.error()};
  JsonWriter json;
  json.begin_array();
  for (NicInstance* instance : *instances) {
    const NicView nic = nic_view(*instance);
    json.begin_object()
        .member("nic", nic.name)
        .member("address", nic.address)
        .member("prefix_length", nic.prefix_length)
        .member("mtu_bytes", nic.mtu_bytes)
        .member("window_packets", nic.window)
        .member("transport", nic.transport)
        .member("policy", nic.policy)
        .member("icrc", nic.icrc)
        .member("segmentation", nic.no_bundles.empty())
        .member("no_segmentation_because", nic.no_bundles)
        .member("clients", nic.clients)
        .member("queue_pairs", nic.qps);
    if (nic.has_neighbours)
      json.member("neighbours", nic.neighbours)
          .member("neighbours_unanswered", nic.neighbours_unanswered);
    json.member("buffers_in_use", nic.buffers_in_use)
        .member("buffers", nic.buffers)
        .member("port", to_text(nic.port))
        .key("port_state");
    write_port(json, nic.port);
    json.member("lcore", instance->lcore_number)
        .member("stopped", !instance->lcore->handling())
        .member("up", daemon.port_up(*instance))
        .member("longest_turn_us", longest_turn_us(*instance))
        .key("gids")
        .begin_array();
    for (const std::string& gid : gids_of(daemon, *instance)) json.value(gid);
    json.end_array().end_object();
  }
  return {0, json.end_array().line().take()};
}

}  // namespace

const PromptCommand kShowNic = {command_info("show nic"), show_nic, show_nic_json};

}  // namespace hostnic
