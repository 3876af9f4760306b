// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <fmt/format.h>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/control/commands/nic_argument.h"

namespace hostnic {
namespace {

// Shows counters; `all` also shows those that are 0.
CommandResult show_counters(Daemon& daemon, const Asker&, std::span<const std::string_view> args) {
  const bool all = !args.empty() && args.back() == "all";
  if (all) args = args.first(args.size() - 1);
  auto instances = nics_named(daemon, args, kShowCounters);
  if (!instances) return {EINVAL, instances.error()};
  std::string text;
  for (NicInstance* instance : *instances) {
    for (size_t i = 0; i < kCounterCount; ++i) {
      const auto counter = static_cast<Counter>(i);
      const uint64_t value = instance->nic->counters().get(counter);
      if (value != 0 || all)
        text +=
            fmt::format("{} {} {}\n", instance->plan.settings.name, counter_name(counter), value);
    }
    for (const bool receive_side : {true, false}) {
      std::optional<impair::Counters> impairments;
      instance->lcore->run_on(
          [&] { impairments = instance->nic->impairment_counters(receive_side); });
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

}  // namespace

const PromptCommand kShowCounters = {"show counters", "[hnicK] [all]",
                                     "counters that are not 0 (all: every one)", show_counters};

}  // namespace hostnic
