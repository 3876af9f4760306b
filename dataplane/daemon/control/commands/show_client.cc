// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/daemon.h"
#include "protocol/json_writer.h"

namespace hostnic {
namespace {

template <typename T>
T read(const std::atomic<T>& value) {
  return value.load(std::memory_order_relaxed);
}

CommandResult show_client(Daemon& daemon, const Asker& asker,
                          std::span<const std::string_view> args) {
  if (!args.empty()) return usage_error(kShowClient);
  std::string text;
  for (const ClientInfo& client : daemon.clients().all()) {
    if (!asker.sees(client.uid)) continue;
    text += fmt::format(
        "client {} {} program {} pid {} uid {} queue-pairs {} memory-regions {} bytes-mapped {} "
        "bytes-by-mem-fd {} bytes-sent {} memory-windows {} ipv6-hosts {} rings-in {}\n",
        client.client_id, daemon.nics()[client.nic].plan.settings.name, client.program, client.pid,
        client.uid, read(client.use->queue_pairs), client.regions, client.bytes_mapped,
        client.bytes_mem_fd, read(client.use->sent_bytes), read(client.use->windows),
        client.named_hosts, client.huge_pages ? "huge-pages" : "ordinary-pages");
  }
  return {0, text.empty() ? "no clients\n" : text};
}

CommandResult show_client_json(Daemon& daemon, const Asker& asker,
                               std::span<const std::string_view> args) {
  if (!args.empty()) return usage_error(kShowClient);
  JsonWriter json;
  json.begin_array();
  for (const ClientInfo& client : daemon.clients().all()) {
    if (!asker.sees(client.uid)) continue;
    json.begin_object()
        .member("client", client.client_id)
        .member("nic", daemon.nics()[client.nic].plan.settings.name)
        .member("program", client.program)
        .member("pid", client.pid)
        .member("uid", client.uid)
        .member("queue_pairs", read(client.use->queue_pairs))
        .member("memory_regions", client.regions)
        .member("mapped_bytes", client.bytes_mapped)
        .member("mem_fd_bytes", client.bytes_mem_fd)
        .member("sent_bytes", read(client.use->sent_bytes))
        .member("memory_windows", read(client.use->windows))
        .member("ipv6_hosts", client.named_hosts)
        .member("huge_pages", client.huge_pages)
        .end_object();
  }
  return {0, json.end_array().line().take()};
}

}  // namespace

const PromptCommand kShowClient = {command_info("show client"), show_client, show_client_json};

}  // namespace hostnic
