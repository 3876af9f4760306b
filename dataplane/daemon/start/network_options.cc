// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/start/network_options.h"

#include <fmt/format.h>

#include "config/config.h"
#include "protocol/impair/switch_spec.h"
#include "protocol/transport/mrc/entropy_set.h"

namespace hostnic {
namespace {

using Error = Unexpected<std::string>;
using Done = Expected<void, std::string>;

// The rate of the switch that planes need where none is described.
constexpr const char* kRateOfPlanes = "10Gbit";

// Hangs every NIC on the switch, whose rate then is that of its port.
Done apply_switch(const NetworkOptions& options, DaemonPlan& plan) {
  std::string text = options.network_switch;
  const uint32_t planes = options.planes;
  if (text.empty() && planes > 1 && !plan.network_switch.is_there())
    text = fmt::format("rate {} planes {}", kRateOfPlanes, planes);
  if (!text.empty()) {
    auto spec = impair::parse_switch(text);
    if (!spec) return Error(fmt::format("--switch: {}", spec.error().message()));
    plan.network_switch = *spec;
  }
  if (planes > 1 && plan.network_switch.plan.planes != planes)
    return Error(fmt::format("--planes {}: the switch has {} (add planes {} to its words)", planes,
                             plan.network_switch.plan.planes, planes));
  for (NicPlan& nic : plan.nics) {
    nic.settings.network_switch = plan.network_switch;
    for (const impair::Spec* rules : {&nic.rx, &nic.tx})
      if (const std::string why = impair::why_no_path(*rules, plan.network_switch); !why.empty())
        return Error(fmt::format("{}: {}", nic.settings.name, why));
  }
  return {};
}

// MRC's paths are entropy values, of which a queue pair may have more than a native one.
Done apply_paths(const NetworkOptions& options, NicSettings& nic) {
  if (options.mrc) nic.transport = Transport::kMrc;
  const bool is_mrc = nic.transport == Transport::kMrc;
  if (options.planes > 1 && !is_mrc)
    return Error(fmt::format("--planes {}: {} has transport \"{}\" (add --mrc)", options.planes,
                             nic.name, to_string(nic.transport)));
  if (options.planes != 0) nic.mrc_planes = options.planes;
  if (options.paths != 0 && !is_mrc) {
    if (options.paths > kMostPaths)
      return Error(fmt::format("--paths {}: {} has transport \"{}\" (use 1 to {}, or add --mrc)",
                               options.paths, nic.name, to_string(nic.transport), kMostPaths));
    nic.paths = options.paths;
  }
  if (options.paths != 0 && is_mrc) nic.mrc_entropy_values = options.paths;
  if (auto error = config::check_mrc(nic.name, nic.transport,
                                     {.window = nic.window,
                                      .policy = nic.policy,
                                      .entropy_values = nic.mrc_entropy_values,
                                      .planes = nic.mrc_planes}))
    return Error(*error);
  if (auto error = config::check_paths(nic.name, nic.paths, nic.policy)) return Error(*error);
  return {};
}

}  // namespace

void declare_network(CLI::App& app, NetworkOptions& options) {
  app.add_option("--switch", options.network_switch,
                 "the switch that the NICs hang on: rate 10Gbit queue 128 ecn 64 paths 4 trim");
  app.add_flag("--mrc", options.mrc, "all NICs speak MRC: transport = \"mrc\"");
  app.add_option("--planes", options.planes,
                 "how many planes (networks of their own) MRC's queue pairs use evenly; without "
                 "--switch one of 10 Gb/s has them")
      ->check(CLI::IsMember({1, 2, 4, 8, 16}));
  app.add_option("--paths", options.paths,
                 "how many paths (UDP source ports) queue pairs spray their packets over: native "
                 "ones up to 16 (default 1), MRC's up to 256 (default 16)")
      ->check(CLI::Range(uint32_t{1}, mrc::EntropySet::kMost));
}

Done apply_network(const NetworkOptions& options, DaemonPlan& plan) {
  if (auto done = apply_switch(options, plan); !done) return done;
  for (NicPlan& nic : plan.nics)
    if (auto done = apply_paths(options, nic.settings); !done) return done;
  return {};
}

}  // namespace hostnic
