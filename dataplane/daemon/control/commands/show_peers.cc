// SPDX-License-Identifier: BSD-3-Clause
#include <errno.h>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/control/commands/nic_argument.h"
#include "dataplane/daemon/observe/view_text.h"
#include "dataplane/nic/management/peers.h"
#include "protocol/json_writer.h"

namespace hostnic {
namespace {

Expected<std::vector<PeerView>, std::string> peer_views(Daemon& daemon,
                                                        std::span<const std::string_view> args) {
  auto instances = nics_named(daemon, args, kShowPeers);
  if (!instances) return Unexpected(instances.error());
  std::vector<PeerView> all;
  for (NicInstance* instance : *instances) {
    std::vector<PeerView> views;
    instance->lcore->run_on([&] { views = instance->nic->views().peers(); });
    all.insert(all.end(), views.begin(), views.end());
  }
  return all;
}

CommandResult show_peers(Daemon& daemon, const Asker&, std::span<const std::string_view> args) {
  const auto peers = peer_views(daemon, args);
  if (!peers) return {EINVAL, peers.error()};
  std::string text;
  for (const PeerView& peer : *peers) text += to_text(peer) + '\n';
  return {0, text.empty() ? "no hosts have been asked what they speak\n" : text};
}

CommandResult show_peers_json(Daemon& daemon, const Asker&,
                              std::span<const std::string_view> args) {
  const auto peers = peer_views(daemon, args);
  if (!peers) return {EINVAL, peers.error()};
  JsonWriter json;
  json.begin_array();
  for (const PeerView& peer : *peers) {
    json.begin_object()
        .member("nic", peer.nic)
        .member("own", peer.own)
        .member("peer", peer.peer)
        .member("asked", peer.asked);
    if (peer.asked)
      json.member("questions", peer.questions);
    else
      json.member("transport", peer.transport)
          .member("says", peer.says)
          .member("age_s", peer.age_s)
          .member("doubted", peer.doubted)
          .member("outdated", peer.outdated);
    json.end_object();
  }
  return {0, json.end_array().line().take()};
}

}  // namespace

// It changes nothing, but says whom other users' programs are connected to.
const PromptCommand kShowPeers = {command_info("show peers"), show_peers, show_peers_json};

}  // namespace hostnic
