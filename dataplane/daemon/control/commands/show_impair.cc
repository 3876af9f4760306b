// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <fmt/format.h>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/control/commands/nic_argument.h"
#include "protocol/json_writer.h"

namespace hostnic {
namespace {

// What is done to one direction of a NIC.
struct ImpairView {
  std::string nic;
  bool receive_side = false;
  std::string spec;
  std::optional<impair::Counters> counters;  // nothing: nothing is done
};

Expected<std::vector<ImpairView>, std::string> impair_views(
    Daemon& daemon, std::span<const std::string_view> args) {
  auto instances = nics_named(daemon, args, kShowImpair);
  if (!instances) return Unexpected(instances.error());
  std::vector<ImpairView> views;
  for (NicInstance* instance : *instances) {
    for (const bool receive_side : {true, false}) {
      ImpairView& view = views.emplace_back();
      view.nic = instance->plan.settings.name;
      view.receive_side = receive_side;
      view.spec = impair::to_string(receive_side ? instance->plan.rx : instance->plan.tx);
      instance->lcore->run_on(
          [&] { view.counters = instance->nic->impairment_counters(receive_side); });
    }
  }
  return views;
}

CommandResult show_impair(Daemon& daemon, const Asker&, std::span<const std::string_view> args) {
  const auto views = impair_views(daemon, args);
  if (!views) return {EINVAL, views.error()};
  std::string text;
  for (const ImpairView& view : *views) {
    const std::string side = view.nic + (view.receive_side ? " rx " : " tx ");
    text += side + view.spec + "\n";
    if (!view.counters) continue;
    text += side + "packets:";
    view.counters->for_each([&](const char* name, uint64_t value) {
      if (value != 0) text += fmt::format(" {} {}", name, value);
    });
    text += "\n";
  }
  return {0, text};
}

CommandResult show_impair_json(Daemon& daemon, const Asker&,
                               std::span<const std::string_view> args) {
  const auto views = impair_views(daemon, args);
  if (!views) return {EINVAL, views.error()};
  JsonWriter json;
  json.begin_array();
  for (const ImpairView& view : *views) {
    json.begin_object()
        .member("nic", view.nic)
        .member("direction", view.receive_side ? "rx" : "tx")
        .member("spec", view.spec)
        .key("packets")
        .begin_object();
    if (view.counters)
      view.counters->for_each([&](const char* name, uint64_t value) { json.member(name, value); });
    json.end_object().end_object();
  }
  return {0, json.end_array().line().take()};
}

}  // namespace

const PromptCommand kShowImpair = {command_info("show impair"), show_impair, show_impair_json};

}  // namespace hostnic
