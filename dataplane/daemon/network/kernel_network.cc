// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/network/kernel_network.h"

#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>

#include <algorithm>
#include <optional>

#include "dataplane/daemon/network/front_as.h"

namespace hostnic {
namespace {

// IFF_LOWER_UP of <linux/if.h>, which can't be included beside <net/if.h>.
constexpr unsigned kIffLowerUp = 1 << 16;

// Removes so many bytes, and the pad behind them, from the front.
std::span<const std::byte> without_front(std::span<const std::byte> bytes, size_t count) {
  return bytes.subspan(std::min(bytes.size(), NLMSG_ALIGN(count)));
}

// Calls visit(type, value) for each attribute behind a message's fixed part.
template <class Visit>
void for_each_attribute(std::span<const std::byte> bytes, Visit&& visit) {
  while (const auto attribute = front_as<rtattr>(bytes)) {
    if (attribute->rta_len < sizeof(rtattr) || attribute->rta_len > bytes.size()) return;
    visit(attribute->rta_type, bytes.subspan(sizeof(rtattr), attribute->rta_len - sizeof(rtattr)));
    bytes = without_front(bytes, attribute->rta_len);
  }
}

std::string attribute_text(std::span<const std::byte> value) {
  const auto* const begin = reinterpret_cast<const char*>(value.data());
  return {begin, strnlen(begin, value.size())};
}

}  // namespace

bool KernelNetwork::apply_link(std::span<const std::byte> body, bool gone) {
  const auto link = front_as<ifinfomsg>(body);
  // Bridges send messages of their own about their members, and of one that leaves, that it is
  // gone.
  if (!link || link->ifi_family != AF_UNSPEC || link->ifi_index <= 0) return false;
  const auto index = static_cast<uint32_t>(link->ifi_index);
  if (gone) return interfaces_.erase(index) != 0;
  Interface& known = interfaces_[index];
  const Interface before = known;
  known.index = index;
  known.enabled = (link->ifi_flags & IFF_UP) != 0;
  // The kernel says that it runs until it comes to look at a carrier that was lost.
  constexpr unsigned kCarries = IFF_RUNNING | kIffLowerUp;
  known.up = known.enabled && (link->ifi_flags & kCarries) == kCarries;
  // Some messages, as of wireless drivers, have few attributes: what they don't say stays.
  for_each_attribute(without_front(body, sizeof(ifinfomsg)), [&](uint16_t type, auto value) {
    if (type == IFLA_IFNAME) known.name = attribute_text(value);
    if (type == IFLA_MTU) known.mtu_bytes = front_as<uint32_t>(value).value_or(known.mtu_bytes);
    if (type == IFLA_CARRIER_DOWN_COUNT)
      known.carrier_losses = front_as<uint32_t>(value).value_or(known.carrier_losses);
  });
  return before.index != index || before.up != known.up || before.name != known.name ||
         before.mtu_bytes != known.mtu_bytes || before.carrier_losses != known.carrier_losses;
}

namespace {

// The address in an attribute's value, of the family that its message says.
std::optional<Gid> attribute_gid(uint8_t family, std::span<const std::byte> value) {
  if (family == AF_INET6) return front_as<Gid>(value);
  const auto ip = front_as<uint32_t>(value);
  if (!ip) return std::nullopt;
  return gid_of(Ipv4Address{ntohl(*ip)});
}

}  // namespace

bool KernelNetwork::apply_address(std::span<const std::byte> body, bool gone) {
  const auto header = front_as<ifaddrmsg>(body);
  if (!header || (header->ifa_family != AF_INET && header->ifa_family != AF_INET6)) return false;
  const auto interface = interfaces_.find(header->ifa_index);
  if (interface == interfaces_.end()) return false;
  std::optional<Gid> own, other_end;
  uint32_t flags = header->ifa_flags;
  for_each_attribute(without_front(body, sizeof(ifaddrmsg)), [&](uint16_t type, auto value) {
    if (type == IFA_LOCAL) own = attribute_gid(header->ifa_family, value);
    if (type == IFA_ADDRESS) other_end = attribute_gid(header->ifa_family, value);
    if (type == IFA_FLAGS) flags = front_as<uint32_t>(value).value_or(flags);
  });
  if (!own) own = other_end;
  if (!own) return false;
  auto& addresses = interface->second.addresses;
  // One that is tried for duplicates can't be used yet, and one that is a duplicate never.
  const bool unusable =
      (flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED)) != 0 && (flags & IFA_F_OPTIMISTIC) == 0;
  if (gone || unusable) return std::erase(addresses, *own) != 0;
  if (std::ranges::find(addresses, *own) != addresses.end()) return false;
  addresses.push_back(*own);
  return true;
}

KernelNetwork::Outcome KernelNetwork::apply(std::span<const std::byte> datagram,
                                            const std::function<void()>& changed) {
  Outcome outcome;
  while (const auto header = front_as<nlmsghdr>(datagram)) {
    if (header->nlmsg_len < sizeof(nlmsghdr) || header->nlmsg_len > datagram.size()) break;
    const auto body = datagram.subspan(sizeof(nlmsghdr), header->nlmsg_len - sizeof(nlmsghdr));
    bool news = false;
    switch (header->nlmsg_type) {
      case RTM_NEWLINK:
      case RTM_DELLINK:
        news = apply_link(body, header->nlmsg_type == RTM_DELLINK);
        break;
      case RTM_NEWADDR:
      case RTM_DELADDR:
        news = apply_address(body, header->nlmsg_type == RTM_DELADDR);
        break;
      case NLMSG_ERROR:
        if (const auto refused = front_as<nlmsgerr>(body)) outcome.error = -refused->error;
        break;
      case NLMSG_DONE:
        outcome.dump_ended = true;
        break;
      default:
        break;
    }
    if (news) changed();
    datagram = without_front(datagram, header->nlmsg_len);
  }
  return outcome;
}

const KernelNetwork::Interface* KernelNetwork::named(std::string_view name) const {
  for (const auto& [index, interface] : interfaces_)
    if (interface.name == name) return &interface;
  return nullptr;
}

const KernelNetwork::Interface* KernelNetwork::at(uint32_t index) const {
  const auto found = interfaces_.find(index);
  return found == interfaces_.end() ? nullptr : &found->second;
}

const KernelNetwork::Interface* KernelNetwork::with(const Gid& address,
                                                    std::string_view preferred) const {
  const Interface *loopback = nullptr, *found = nullptr;
  for (const auto& [index, interface] : interfaces_)
    for (const Gid& own : interface.addresses) {
      if (own == address && (found == nullptr || interface.name == preferred)) found = &interface;
      if (is_ipv4_loopback(address) && is_ipv4_loopback(own)) loopback = &interface;
    }
  return found != nullptr ? found : loopback;
}

}  // namespace hostnic
