// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <fmt/format.h>

#include <algorithm>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/control/commands/nic_argument.h"
#include "protocol/json_writer.h"

namespace hostnic {
namespace {

// A NIC's side of the switch.
struct SwitchView {
  std::string nic;
  SwitchCounters links;
};

Expected<std::vector<SwitchView>, std::string> switch_views_of(
    Daemon& daemon, std::span<const std::string_view> args) {
  auto instances = nics_named(daemon, args, kShowSwitch);
  if (!instances) return Unexpected(instances.error());
  std::vector<SwitchView> views;
  for (NicInstance* instance : *instances) {
    std::optional<SwitchCounters> links;
    instance->lcore->run_on([&] { links = instance->nic->switch_counters(); });
    if (links) views.push_back({instance->plan.settings.name, std::move(*links)});
  }
  return views;
}

std::string line_of(const std::string& nic, const std::string& link,
                    const impair::LinkCounters& counters) {
  std::string text = fmt::format("{} {}:", nic, link);
  counters.for_each([&](const char* name, uint64_t value) {
    std::string words = name;
    std::ranges::replace(words, '_', '-');
    text += fmt::format(" {} {}", words, value);
  });
  return text + "\n";
}

CommandResult show_switch(Daemon& daemon, const Asker&, std::span<const std::string_view> args) {
  const auto views = switch_views_of(daemon, args);
  if (!views) return {EINVAL, views.error()};
  std::string text = fmt::format("switch {}\n", impair::to_string(daemon.plan().network_switch));
  for (const SwitchView& view : *views) {
    text += line_of(view.nic, "port", view.links.port);
    for (size_t i = 0; i < view.links.paths.size(); ++i)
      text += line_of(view.nic, fmt::format("path {}", i + 1), view.links.paths[i]);
  }
  return {0, text};
}

void write_link(JsonWriter& json, const impair::LinkCounters& counters) {
  json.begin_object();
  counters.for_each([&](const char* name, uint64_t value) { json.member(name, value); });
  json.end_object();
}

CommandResult show_switch_json(Daemon& daemon, const Asker&,
                               std::span<const std::string_view> args) {
  const auto views = switch_views_of(daemon, args);
  if (!views) return {EINVAL, views.error()};
  JsonWriter json;
  json.begin_object()
      .member("switch", impair::to_string(daemon.plan().network_switch))
      .key("nics")
      .begin_array();
  for (const SwitchView& view : *views) {
    json.begin_object().member("nic", view.nic).key("port");
    write_link(json, view.links.port);
    json.key("paths").begin_array();
    for (const impair::LinkCounters& path : view.links.paths) write_link(json, path);
    json.end_array().end_object();
  }
  return {0, json.end_array().end_object().line().take()};
}

}  // namespace

const PromptCommand kShowSwitch = {command_info("show switch"), show_switch, show_switch_json};

}  // namespace hostnic
