// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/observe/metrics.h"

namespace hostnic {
namespace {

CommandResult show_metrics(Daemon& daemon, const Asker& asker,
                           std::span<const std::string_view> args) {
  const bool old = args.size() == 1 && args[0] == "prometheus";
  if (!args.empty() && !old) return usage_error(kShowMetrics);
  return {
      0, metrics_of(daemon, asker, old ? MetricsFormat::kPrometheus : MetricsFormat::kOpenMetrics)};
}

}  // namespace

const PromptCommand kShowMetrics = {command_info("show metrics"), show_metrics};

}  // namespace hostnic
