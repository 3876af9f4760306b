#include <errno.h>

#include "dataplane/daemon/commands/commands.h"
#include "dataplane/daemon/commands/nic_argument.h"

namespace hostnic {
namespace {

CommandResult show_qp(Daemon& daemon, std::span<const std::string_view> args) {
  auto units = nics_named(daemon, args, kShowQp);
  if (!units) return {EINVAL, units.error()};
  std::string text;
  for (NicUnit* unit : *units) {
    std::vector<std::string> lines;
    unit->lcore->run_on([&] { lines = unit->nic->describe_qps(); });
    for (const std::string& line : lines) text += line + '\n';
  }
  return {0, text.empty() ? "no queue pairs\n" : text};
}

}  // namespace

const PromptCommand kShowQp = {"show qp", "[hnicK]", "queue pairs, one a line", show_qp};

}  // namespace hostnic
