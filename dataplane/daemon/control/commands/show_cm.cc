// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/daemon.h"
#include "dataplane/daemon/rdma_cm/cm_agent.h"
#include "protocol/json_writer.h"

namespace hostnic {
namespace {

std::vector<CmIdView> ids_of(const Daemon& daemon, const Asker& asker) {
  return daemon.cm() == nullptr ? std::vector<CmIdView>() : daemon.cm()->view(asker);
}

CommandResult show_cm(Daemon& daemon, const Asker& asker, std::span<const std::string_view> args) {
  if (!args.empty()) return usage_error(kShowCm);
  std::string text;
  for (const CmIdView& id : ids_of(daemon, asker)) text += to_text(id) + '\n';
  if (daemon.cm() != nullptr && asker.is_owner && daemon.cm()->ended_connections() != 0)
    text += fmt::format(
        "{} connections have no id any more, and answer repeated messages for a while\n",
        daemon.cm()->ended_connections());
  return {0, text.empty() ? "no rdma_cm ids\n" : text};
}

CommandResult show_cm_json(Daemon& daemon, const Asker& asker,
                           std::span<const std::string_view> args) {
  if (!args.empty()) return usage_error(kShowCm);
  JsonWriter json;
  json.begin_array();
  for (const CmIdView& id : ids_of(daemon, asker)) {
    json.begin_object()
        .member("id", id.id)
        .member("pid", id.pid)
        .member("nic", id.nic)
        .member("kind", id.datagram ? "datagrams" : "connection")
        .member("source", id.source)
        .member("destination", id.destination)
        .member("state", id.state)
        .end_object();
  }
  return {0, json.end_array().line().take()};
}

}  // namespace

const PromptCommand kShowCm = {command_info("show cm"), show_cm, show_cm_json};

}  // namespace hostnic
