// SPDX-License-Identifier: BSD-3-Clause
#include "config/network.h"

#include <fmt/format.h>

#include "protocol/impair/spec_values.h"

namespace hostnic::config {

Expected<Network, std::string> parse_network(const std::string& text, size_t count) {
  using Error = Unexpected<std::string>;
  constexpr uint32_t kLeastPrefix = 8, kMostPrefix = 30;
  const size_t slash = text.find('/');
  const auto base = impair::parse_ipv4(text.substr(0, slash));
  const uint64_t prefix =
      slash == std::string::npos ? 0 : impair::parse_integer(text.substr(slash + 1)).value_or(0);
  if (!base || prefix < kLeastPrefix || prefix > kMostPrefix)
    return Error(fmt::format("--addresses {}: not a network such as 10.77.0.0/24", text));
  const auto prefix_length = static_cast<uint32_t>(prefix);
  const auto first = Ipv4Address{raw(*base) & raw(network_mask(prefix_length))};
  if (first != *base)
    return Error(fmt::format("--addresses {}: the network is {}/{}", text,
                             impair::format_ipv4(first), prefix_length));
  const uint32_t highest = raw(first) >> 24;
  if (highest == 0 || highest >= 224)
    return Error(fmt::format("--addresses {}: these are no addresses of hosts", text));
  const uint64_t room = (uint64_t{1} << (32 - prefix_length)) - 2;
  if (count > room)
    return Error(
        fmt::format("--addresses {}: there is room for {}, not for {}", text, room, count));
  return Network{first, prefix_length};
}

}  // namespace hostnic::config
