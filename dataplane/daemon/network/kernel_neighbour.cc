// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/network/kernel_neighbour.h"

#include <errno.h>
#include <linux/neighbour.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <algorithm>

#include "dataplane/daemon/network/front_as.h"
#include "dataplane/daemon/network/socket_address.h"

namespace hostnic {
namespace {

constexpr uint16_t kDiscardPort = 9;

// The attribute's value behind the fixed part of a message's body; nothing: there is none.
std::optional<std::span<const std::byte>> attribute_of(std::span<const std::byte> body,
                                                       size_t fixed_bytes, uint16_t type) {
  body = body.subspan(std::min(body.size(), static_cast<size_t>(NLMSG_ALIGN(fixed_bytes))));
  while (const auto attribute = front_as<rtattr>(body)) {
    if (attribute->rta_len < sizeof(rtattr) || attribute->rta_len > body.size()) break;
    if (attribute->rta_type == type)
      return body.subspan(sizeof(rtattr), attribute->rta_len - sizeof(rtattr));
    body =
        body.subspan(std::min(body.size(), static_cast<size_t>(NLMSG_ALIGN(attribute->rta_len))));
  }
  return std::nullopt;
}

// The body of the answer's first message, if it is of that type.
std::optional<std::span<const std::byte>> body_of(std::span<const std::byte> answer,
                                                  uint16_t type) {
  const auto header = front_as<nlmsghdr>(answer);
  if (!header || header->nlmsg_type != type || header->nlmsg_len < sizeof(nlmsghdr) ||
      header->nlmsg_len > answer.size())
    return std::nullopt;
  return answer.subspan(sizeof(nlmsghdr), header->nlmsg_len - sizeof(nlmsghdr));
}

std::optional<Gid> address_in(std::span<const std::byte> value) {
  if (value.size() == sizeof(in6_addr)) return front_as<Gid>(value);
  const auto ip = front_as<uint32_t>(value);
  return ip && value.size() == sizeof *ip ? std::optional(gid_of(Ipv4Address{ntohl(*ip)}))
                                          : std::nullopt;
}

// A question for one object: a message with a fixed part and attributes.
template <class Fixed>
class Request {
 public:
  explicit Request(uint16_t type, const Fixed& fixed) {
    header_.nlmsg_type = type;
    header_.nlmsg_flags = NLM_F_REQUEST;
    memcpy(bytes_ + NLMSG_HDRLEN, &fixed, sizeof fixed);
    size_ = NLMSG_ALIGN(NLMSG_HDRLEN + sizeof fixed);
  }
  void add(uint16_t type, std::span<const std::byte> value) {
    const rtattr attribute{static_cast<uint16_t>(RTA_LENGTH(value.size())), type};
    memcpy(bytes_ + size_, &attribute, sizeof attribute);
    memcpy(bytes_ + size_ + sizeof attribute, value.data(), value.size());
    size_ += RTA_SPACE(value.size());
  }
  void add_address(uint16_t type, const Gid& address) {
    const SocketAddress as = socket_address(address, 0, 0);
    if (as.any.sa_family == AF_INET)
      add(type, std::as_bytes(std::span(&as.ipv4.sin_addr, 1)));
    else
      add(type, std::as_bytes(std::span(&as.ipv6.sin6_addr, 1)));
  }
  std::span<const std::byte> finished(uint32_t sequence) {
    header_.nlmsg_len = static_cast<uint32_t>(size_);
    header_.nlmsg_seq = sequence;
    memcpy(bytes_, &header_, sizeof header_);
    return {bytes_, size_};
  }

 private:
  nlmsghdr header_{};
  std::byte bytes_[256] = {};
  size_t size_ = 0;
};

int family_of(const Gid& address) { return ipv4_of(address) ? AF_INET : AF_INET6; }

// Whether hosts on the interface have no link addresses that could be asked for.
bool needs_no_answer(uint32_t interface_index) {
  ifreq request{};
  if (if_indextoname(interface_index, request.ifr_name) == nullptr) return true;
  const UniqueFd asking(socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  return !asking || ioctl(asking.get(), SIOCGIFFLAGS, &request) != 0 ||
         (request.ifr_flags & (IFF_NOARP | IFF_LOOPBACK)) != 0;
}

}  // namespace

std::optional<KernelRoute> parse_route(std::span<const std::byte> answer) {
  const auto body = body_of(answer, RTM_NEWROUTE);
  const auto fixed = body ? front_as<rtmsg>(*body) : std::nullopt;
  if (!fixed) return std::nullopt;
  KernelRoute route{.is_unicast = fixed->rtm_type == RTN_UNICAST, .gateway = std::nullopt};
  if (const auto index = attribute_of(*body, sizeof *fixed, RTA_OIF))
    route.interface_index = front_as<uint32_t>(*index).value_or(0);
  if (const auto gateway = attribute_of(*body, sizeof *fixed, RTA_GATEWAY))
    route.gateway = address_in(*gateway);
  route.gateway_is_foreign = attribute_of(*body, sizeof *fixed, RTA_VIA).has_value();
  return route;
}

std::optional<uint16_t> parse_neighbour(std::span<const std::byte> answer) {
  const auto body = body_of(answer, RTM_NEWNEIGH);
  const auto fixed = body ? front_as<ndmsg>(*body) : std::nullopt;
  return fixed ? std::optional(fixed->ndm_state) : std::nullopt;
}

// Sends a question; returns the answer, or nothing, with error_ set. Answers of the kernel's are
// there when the question has been sent.
std::optional<std::span<const std::byte>> KernelNeighbours::exchange(
    std::span<const std::byte> request) {
  error_ = 0;
  if (send(socket_.get(), request.data(), request.size(), MSG_DONTWAIT) !=
      static_cast<ssize_t>(request.size())) {
    error_ = errno;
    return std::nullopt;
  }
  for (;;) {
    sockaddr_nl from{};
    socklen_t bytes_of_name = sizeof from;
    const ssize_t bytes = recvfrom(socket_.get(), answer_, sizeof answer_, MSG_DONTWAIT,
                                   reinterpret_cast<sockaddr*>(&from), &bytes_of_name);
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) {
      error_ = errno;
      return std::nullopt;
    }
    const std::span<const std::byte> answer(answer_, static_cast<size_t>(bytes));
    const auto header = front_as<nlmsghdr>(answer);
    // Anybody may send to a netlink socket, and what came too late answers an older question.
    if (from.nl_pid != 0 || !header || header->nlmsg_seq != sequence_) continue;
    if (header->nlmsg_type != NLMSG_ERROR) return answer;
    const auto refused = front_as<nlmsgerr>(answer.subspan(sizeof(nlmsghdr)));
    error_ = refused ? -refused->error : EPROTO;
    return std::nullopt;
  }
}

KernelNeighbours::Known KernelNeighbours::look_up(const Gid& own, const Gid& destination,
                                                  uint32_t interface_index) {
  if (!socket_) {
    socket_ = UniqueFd(socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    if (!socket_) return Known::kYes;
  }
  const int family = family_of(destination);
  rtmsg asked{};
  asked.rtm_family = static_cast<uint8_t>(family);
  asked.rtm_dst_len = asked.rtm_src_len = family == AF_INET ? 32 : 128;
  Request route_request(RTM_GETROUTE, asked);
  route_request.add_address(RTA_DST, destination);
  route_request.add_address(RTA_SRC, own);
  if (is_link_local(destination))
    route_request.add(RTA_OIF, std::as_bytes(std::span(&interface_index, 1)));
  const auto route_answer = exchange(route_request.finished(++sequence_));
  const auto route = route_answer ? parse_route(*route_answer) : std::nullopt;
  if (!route || !route->is_unicast || route->gateway_is_foreign ||
      needs_no_answer(route->interface_index))
    return Known::kYes;

  const Gid neighbour = route->gateway.value_or(destination);
  ndmsg wanted{};
  wanted.ndm_family = static_cast<uint8_t>(family_of(neighbour));
  wanted.ndm_ifindex = static_cast<int>(route->interface_index);
  Request request(RTM_GETNEIGH, wanted);
  request.add_address(NDA_DST, neighbour);
  const auto answer = exchange(request.finished(++sequence_));
  // Linux before 5.0 does not answer for one neighbour.
  if (!answer) return error_ == ENOENT ? Known::kUnasked : Known::kYes;
  const auto state = parse_neighbour(*answer);
  constexpr uint16_t kValid =
      NUD_PERMANENT | NUD_NOARP | NUD_REACHABLE | NUD_PROBE | NUD_STALE | NUD_DELAY;
  if (!state || (*state & kValid) != 0) return Known::kYes;
  return (*state & NUD_INCOMPLETE) != 0 ? Known::kNotYet : Known::kUnasked;
}

void KernelNeighbours::ask(const Gid& own, const Gid& destination, uint32_t interface_index) {
  const SocketAddress from = socket_address(own, 0, interface_index);
  const SocketAddress to = socket_address(destination, kDiscardPort, interface_index);
  const UniqueFd asking(socket(from.any.sa_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!asking || bind(asking.get(), &from.any, from.bytes()) != 0) return;
  sendto(asking.get(), nullptr, 0, MSG_NOSIGNAL, &to.any, to.bytes());
}

}  // namespace hostnic
