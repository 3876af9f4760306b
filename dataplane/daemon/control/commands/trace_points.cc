// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/daemon.h"
#include "dataplane/daemon/observe/message_trace.h"

namespace hostnic {
namespace {

CommandResult trace_points(Daemon& daemon, const Asker&, std::span<const std::string_view> args) {
  MessageTrace& trace = daemon.message_trace();
  if (args.empty()) return {0, trace.state_text()};
  if (args[0] == "save") {
    if (args.size() < 2) return usage_error(kTracePoints);
    auto saved = trace.save(fmt::format("{}", fmt::join(args.subspan(1), " ")));
    return saved ? CommandResult{0, *saved} : CommandResult{EINVAL, saved.error()};
  }
  if (args.size() != 1) return usage_error(kTracePoints);
  if (args[0] == "off") {
    trace.stop();
    return {0, trace.state_text()};
  }
  if (args[0] != "on") return usage_error(kTracePoints);
  if (auto started = trace.start(); !started) return {ENOMEM, started.error()};
  return {};
}

}  // namespace

const PromptCommand kTracePoints = {command_info("trace points"), trace_points};

}  // namespace hostnic
