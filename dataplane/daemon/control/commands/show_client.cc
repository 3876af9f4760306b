// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/daemon.h"

namespace hostnic {
namespace {

CommandResult show_client(Daemon& daemon, const Asker& asker,
                          std::span<const std::string_view> args) {
  if (!args.empty()) return usage_error(kShowClient);
  std::string text;
  for (const ClientInfo& client : daemon.clients()) {
    if (!asker.sees(client.uid)) continue;
    text += fmt::format(
        "client {} {} program {} pid {} uid {} queue-pairs {} memory-regions {} bytes-mapped {} "
        "bytes-by-mem-fd {} bytes-sent {} memory-windows {} ipv6-hosts {} rings-in {}\n",
        client.client_id, daemon.nics()[client.nic].plan.settings.name, client.program, client.pid,
        client.uid, client.use->queue_pairs.load(std::memory_order_relaxed), client.regions,
        client.bytes_mapped, client.bytes_mem_fd,
        client.use->sent_bytes.load(std::memory_order_relaxed),
        client.use->windows.load(std::memory_order_relaxed), client.named_hosts,
        client.huge_pages ? "huge-pages" : "ordinary-pages");
  }
  return {0, text.empty() ? "no clients\n" : text};
}

}  // namespace

const PromptCommand kShowClient = {"show client", "", "programs that have a device open",
                                   show_client};

}  // namespace hostnic
