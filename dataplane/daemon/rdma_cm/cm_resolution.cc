// SPDX-License-Identifier: BSD-3-Clause
// As in the kernel, the way to a destination takes as long as the host takes to answer, or as the
// program is ready to wait.
#include "dataplane/daemon/rdma_cm/cm_resolution.h"

#include <errno.h>
#include <net/if.h>
#include <netinet/in.h>
#include <string.h>

#include <algorithm>

#include "dataplane/daemon/lcore/clock.h"
#include "dataplane/daemon/ports/udp/udp_port.h"
#include "dataplane/daemon/rdma_cm/cm_address.h"
#include "protocol/wire/multicast.h"

namespace hostnic {
namespace {

constexpr TimeNs kLookNs = 10'000'000;      // between two looks at hosts that have not answered
constexpr TimeNs kAskNs = 1'000'000'000;    // between two questions of ours to the kernel's network
constexpr uint32_t kLongestMs = 3'600'000;  // a program's patience, at most
constexpr size_t kLooksAtATime = 32;        // each is two system calls of the control thread's

}  // namespace

Expected<CmAddress, int> parse_cm_address(std::span<const std::byte> bytes) {
  sa_family_t family = AF_UNSPEC;
  if (bytes.size() < sizeof(family)) return Unexpected(EINVAL);
  memcpy(&family, bytes.data(), sizeof(family));
  if (family == AF_UNSPEC) return CmAddress{};
  CmAddress named{.given = true, .ipv6 = family == AF_INET6};
  if (family == AF_INET && bytes.size() >= sizeof(sockaddr_in)) {
    sockaddr_in v4;
    memcpy(&v4, bytes.data(), sizeof(v4));
    named.named = gid_of(Ipv4Address{ntohl(v4.sin_addr.s_addr)});
    named.port = ntohs(v4.sin_port);
  } else if (family == AF_INET6 && bytes.size() >= sizeof(sockaddr_in6)) {
    sockaddr_in6 v6;
    memcpy(&v6, bytes.data(), sizeof(v6));
    named.port = ntohs(v6.sin6_port);
    memcpy(named.named.data(), &v6.sin6_addr, named.named.size());
  } else {
    return Unexpected(EAFNOSUPPORT);
  }
  in6_addr as_ipv6;
  memcpy(&as_ipv6, named.named.data(), sizeof(as_ipv6));
  named.address = IN6_IS_ADDR_UNSPECIFIED(&as_ipv6) ? gid_of(Ipv4Address{})
                  : IN6_IS_ADDR_LOOPBACK(&as_ipv6)  ? gid_of(Ipv4Address{INADDR_LOOPBACK})
                                                    : named.named;
  // Numbers that stand for IPv6 addresses are no addresses that a host can have.
  const auto ip = ipv4_of(named.address);
  named.nobodys =
      ip ? is_stand_in(*ip) : !is_ipv6_host(named.address) && named.address[0] != std::byte{0xff};
  return named;
}

CmResult CmResolution::resolve_address(CmFile& file, uint32_t handle, uint32_t timeout_ms,
                                       std::span<const std::byte> source_bytes,
                                       std::span<const std::byte> destination_bytes) {
  CmId* id = ids_.find_of(file, handle);
  if (id == nullptr) return {ENOENT, {}};
  const auto source = parse_cm_address(source_bytes);
  const auto destination = parse_cm_address(destination_bytes);
  if (!source) return {source.error(), {}};
  if (!destination) return {destination.error(), {}};
  if (source->nobodys) return {EADDRNOTAVAIL, {}};
  if (!destination->given || id->listening || id->connection != 0 || id->resolving_until_ns != 0)
    return {EINVAL, {}};
  const auto from = addresses_.number_for(*id, source->address);
  const auto to =
      destination->nobodys ? Ipv4Address{} : addresses_.number_for(*id, destination->address);
  if (!from || !to) return {ENOMEM, {}};
  if (!id->bound) {
    if (const int error = addresses_.bind(*id, *from, source->port)) return {error, {}};
    if (id->nic != nullptr && addresses_.names_this_host(*from)) id->named_source = source->named;
  }
  // A destination that no NIC leads to is an event, as it is where the kernel has a default route.
  const bool has_source = id->nic != nullptr && !id->routed;
  CmNic* const nic = destination->nobodys ? nullptr
                     : has_source         ? id->nic
                                          : addresses_.route(file, *to);
  if (nic == nullptr) {
    ids_.tell(*id, CmEvent::kAddrError, -ENETUNREACH);
    return {};
  }
  const bool here = addresses_.names_this_host(*to);
  const Ipv4Address found = !here ? *to
                            : file.alone
                                ? nic->ip()
                                : addresses_.this_host(*nic, id->port_space, destination->port);
  const Ipv4Address own = has_source ? id->source : nic->settings().own_for(found);
  if (is_stand_in(own) != is_stand_in(found) && !wire::is_multicast(*to)) return {EAFNOSUPPORT, {}};
  id->nic = nic;
  id->routed = !has_source;
  id->source = own;
  id->destination = found;
  id->destination_port = destination->port;
  // A loopback address stays what it was called, and so is this end's, unless it has another name.
  const bool loopback = here && raw(*to) != 0;
  id->named_destination = loopback ? std::optional(destination->named) : std::nullopt;
  if (!loopback)
    id->named_source.reset();
  else if (!has_source)
    id->named_source = destination->named;
  if (!addresses_.reachable(*nic, found)) {
    end(*id, EHOSTUNREACH);
    return {};
  }
  const TimeNs now = monotonic_now_ns();
  id->ask_again_ns = 0;
  if (knows(*id, now)) {
    end(*id, 0);
    return {};
  }
  id->resolving_until_ns = now + TimeNs{std::min(timeout_ms, kLongestMs)} * 1'000'000;
  if (resolving_.empty()) look_ns_ = now + kLookNs;
  resolving_.push_back(id->handle);
  return {};
}

// Whether the host that an id's destination is, or the router to it, is there. Asks for it if not.
bool CmResolution::knows(CmId& id, TimeNs now) {
  const CmNic& nic = *id.nic;
  NicInstance& instance = *nic.instance;
  if (instance.network == nullptr || wire::is_multicast(id.destination) ||
      nic.settings().is_own(id.destination))
    return true;
  if (instance.plan.port != kUdpPort) {
    bool known = true;
    instance.lcore->run_on([&] { known = instance.nic->knows_host(id.destination); });
    return known;
  }
  const Gid own = nic.settings().address_of(id.source);
  const Gid peer = nic.settings().address_of(id.destination);
  const uint32_t interface_index = if_nametoindex(instance.netdev.c_str());
  const KernelNeighbours::Known known = neighbours_.look_up(own, peer, interface_index);
  if (known == KernelNeighbours::Known::kUnasked && now >= id.ask_again_ns) {
    KernelNeighbours::ask(own, peer, interface_index);
    id.ask_again_ns = now + kAskNs;
  }
  return known == KernelNeighbours::Known::kYes;
}

void CmResolution::end(CmId& id, int error) {
  id.resolving_until_ns = 0;
  if (error == 0) return ids_.tell(id, CmEvent::kAddrResolved, 0);
  // The id is as it was, and may try another destination.
  id.destination = {};
  id.destination_port = 0;
  id.named_destination.reset();
  if (id.routed) {
    id.nic = nullptr;
    id.routed = false;
    id.source = {};
    id.named_source.reset();
  }
  ids_.tell(id, CmEvent::kAddrError, -error);
}

void CmResolution::look() {
  const TimeNs now = monotonic_now_ns();
  if (resolving_.empty() || now < look_ns_) return;
  look_ns_ = now + kLookNs;
  // The ids that were looked at go behind the others.
  const size_t looks = std::min(resolving_.size(), kLooksAtATime);
  for (size_t i = 0; i < looks; ++i) {
    const uint32_t handle = resolving_[i];
    CmId* const id = ids_.find(handle);
    if (id == nullptr || id->resolving_until_ns == 0) continue;
    if (knows(*id, now))
      end(*id, 0);
    else if (now >= id->resolving_until_ns)
      end(*id, ETIMEDOUT);
    else
      resolving_.push_back(handle);
  }
  resolving_.erase(resolving_.begin(), resolving_.begin() + static_cast<std::ptrdiff_t>(looks));
}

}  // namespace hostnic
