// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/control/commands/host_argument.h"

#include <fmt/format.h>

namespace hostnic {

Expected<Gid, std::string> host_named(std::string_view text) {
  const auto gid = parse_gid(text);
  if (!gid) return Unexpected(fmt::format("\"{}\" is no address", text));
  if (!ipv4_of(*gid) && !is_ipv6_host(*gid))
    return Unexpected(fmt::format("{} is the address of no host", text));
  return *gid;
}

Candidate candidate_of(NicInstance& instance, Ipv4Address peer) {
  Candidate found{.nic = &instance};
  instance.lcore->run_on([&] {
    const NicSettings& settings = instance.nic->settings();
    found.is_host = settings.is_own(peer);
    found.own = settings.own_for(peer);
    found.is_near = same_network(settings.address_of(settings.ip), settings.address_of(peer),
                                 settings.prefix_length + (is_stand_in(settings.ip) ? 0 : 96));
  });
  // Nothing leads from one family to the other.
  if (!found.is_host &&
      (instance.network == nullptr || is_stand_in(found.own) != is_stand_in(peer)))
    found.nic = nullptr;
  return found;
}

}  // namespace hostnic
