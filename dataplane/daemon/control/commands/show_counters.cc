// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <fmt/format.h>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/control/commands/nic_argument.h"
#include "protocol/json_writer.h"

namespace hostnic {
namespace {

std::optional<impair::Counters> impairments_of(NicInstance& instance, bool receive_side) {
  std::optional<impair::Counters> counters;
  instance.lcore->run_on([&] { counters = instance.nic->impairment_counters(receive_side); });
  return counters;
}

// Shows counters; `all` also shows those that are 0, `help` says of each what it counts.
CommandResult show_counters(Daemon& daemon, const Asker&, std::span<const std::string_view> args) {
  const bool help = !args.empty() && args.back() == "help";
  const bool all = help || (!args.empty() && args.back() == "all");
  if (all) args = args.first(args.size() - 1);
  auto instances = nics_named(daemon, args, kShowCounters);
  if (!instances) return {EINVAL, instances.error()};
  std::string text;
  for (NicInstance* instance : *instances) {
    for (size_t i = 0; i < kCounterCount; ++i) {
      const auto counter = static_cast<Counter>(i);
      const uint64_t value = instance->nic->counters().get(counter);
      if (value != 0 || all)
        text += fmt::format("{} {} {}{}{}\n", instance->plan.settings.name, counter_name(counter),
                            value, help ? "  # " : "", help ? counter_help(counter) : "");
    }
    for (const bool receive_side : {true, false}) {
      const auto impairments = impairments_of(*instance, receive_side);
      if (!impairments) continue;
      impairments->for_each([&](const char* name, uint64_t value) {
        if (value != 0 || all)
          text += fmt::format("{} impair_{}_{} {}\n", instance->plan.settings.name,
                              receive_side ? "rx" : "tx", name, value);
      });
    }
  }
  return {0, text.empty() ? "all counters are 0\n" : text};
}

// Shows all counters, those that are 0, too.
CommandResult show_counters_json(Daemon& daemon, const Asker&,
                                 std::span<const std::string_view> args) {
  if (!args.empty() && (args.back() == "all" || args.back() == "help"))
    args = args.first(args.size() - 1);
  auto instances = nics_named(daemon, args, kShowCounters);
  if (!instances) return {EINVAL, instances.error()};
  JsonWriter json;
  json.begin_array();
  for (NicInstance* instance : *instances) {
    json.begin_object().member("nic", instance->plan.settings.name).key("counters").begin_array();
    for (size_t i = 0; i < kCounterCount; ++i) {
      const auto counter = static_cast<Counter>(i);
      json.begin_object()
          .member("name", counter_name(counter))
          .member("value", instance->nic->counters().get(counter))
          .member("help", counter_help(counter))
          .end_object();
    }
    json.end_array().key("impairments").begin_object();
    for (const bool receive_side : {true, false}) {
      const auto impairments = impairments_of(*instance, receive_side);
      if (!impairments) continue;
      json.key(receive_side ? "rx" : "tx").begin_object();
      impairments->for_each([&](const char* name, uint64_t value) { json.member(name, value); });
      json.end_object();
    }
    json.end_object().end_object();
  }
  return {0, json.end_array().line().take()};
}

}  // namespace

const PromptCommand kShowCounters = {command_info("show counters"), show_counters,
                                     show_counters_json};

}  // namespace hostnic
