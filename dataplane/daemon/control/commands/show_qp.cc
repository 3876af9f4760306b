// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/control/commands/nic_argument.h"
#include "dataplane/daemon/observe/view_json.h"
#include "dataplane/daemon/observe/view_text.h"

namespace hostnic {
namespace {

// Calls visit(instance, queue pair) for those that the asker sees.
template <typename Visit>
void visit_qps(const std::vector<NicInstance*>& instances, const Asker& asker, Visit&& visit) {
  for (NicInstance* instance : instances) {
    // A few at a time: the lcore serves everybody else in between.
    for (uint32_t from = 0; from != NicViews::kNoMoreQps;) {
      std::vector<QpView> qps;
      instance->lcore->run_on([&] {
        qps = instance->nic->views().qps(
            from, asker.is_owner ? std::nullopt
                                 : std::optional(asker.is_one_user ? asker.uid : UINT32_MAX));
      });
      for (const QpView& qp : qps) visit(*instance, qp);
    }
  }
}

CommandResult show_qp(Daemon& daemon, const Asker& asker, std::span<const std::string_view> args) {
  auto instances = nics_named(daemon, args, kShowQp);
  if (!instances) return {EINVAL, instances.error()};
  std::string text;
  visit_qps(*instances, asker, [&](const NicInstance& instance, const QpView& qp) {
    text += to_text(instance.plan.settings.name, qp, peer_address(daemon, qp)) + '\n';
  });
  return {0, text.empty() ? "no queue pairs\n" : text};
}

CommandResult show_qp_json(Daemon& daemon, const Asker& asker,
                           std::span<const std::string_view> args) {
  auto instances = nics_named(daemon, args, kShowQp);
  if (!instances) return {EINVAL, instances.error()};
  JsonWriter json;
  json.begin_array();
  visit_qps(*instances, asker, [&](const NicInstance& instance, const QpView& qp) {
    json.begin_object();
    write_members(json, instance.plan.settings.name, qp, peer_address(daemon, qp));
    json.end_object().line();
  });
  return {0, json.end_array().line().take()};
}

}  // namespace

const PromptCommand kShowQp = {command_info("show qp"), show_qp, show_qp_json};

}  // namespace hostnic
