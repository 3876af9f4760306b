// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/control/commands/nic_argument.h"
#include "dataplane/daemon/control/commands/visit_qps.h"
#include "dataplane/daemon/observe/view_json.h"
#include "dataplane/daemon/observe/view_text.h"

namespace hostnic {
namespace {

CommandResult show_qp(Daemon& daemon, const Asker& asker, std::span<const std::string_view> args) {
  auto instances = nics_named(daemon, args, kShowQp);
  if (!instances) return {EINVAL, instances.error()};
  std::string text;
  for (NicInstance* nic : *instances)
    visit_qps(*nic, asker, [&](const QpView& qp) {
      text += to_text(nic->plan.settings.name, qp, peer_address(daemon, qp)) + '\n';
    });
  return {0, text.empty() ? "no queue pairs\n" : text};
}

CommandResult show_qp_json(Daemon& daemon, const Asker& asker,
                           std::span<const std::string_view> args) {
  auto instances = nics_named(daemon, args, kShowQp);
  if (!instances) return {EINVAL, instances.error()};
  JsonWriter json;
  json.begin_array();
  for (NicInstance* nic : *instances)
    visit_qps(*nic, asker, [&](const QpView& qp) {
      json.begin_object();
      write_members(json, nic->plan.settings.name, qp, peer_address(daemon, qp));
      json.end_object().line();
    });
  return {0, json.end_array().line().take()};
}

}  // namespace

const PromptCommand kShowQp = {command_info("show qp"), show_qp, show_qp_json};

}  // namespace hostnic
