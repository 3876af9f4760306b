// SPDX-License-Identifier: BSD-3-Clause
// `probe ADDRESS`: whether the way to a host carries what a NIC will send, and what the host is;
// lines as `hostnic doctor` has them, which asks for this.
#include <errno.h>
#include <fmt/format.h>

#include <array>
#include <optional>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/control/commands/host_argument.h"
#include "dataplane/daemon/control/commands/nic_argument.h"
#include "dataplane/daemon/observe/ends.h"
#include "dataplane/daemon/observe/inquiries.h"
#include "protocol/wire/hostnic/headers.h"

namespace hostnic {
namespace {

using State = InquiryResult::State;

constexpr std::array<uint32_t, 5> kSizes = {256, 512, 1024, 2048, 4096};

std::string line(const char* verdict, const char* subject, const std::string& text) {
  return fmt::format("{} {:<12} {}\n", verdict, subject, text);
}
std::string fine(const char* subject, const std::string& text) {
  return line("fine ", subject, text);
}
std::string to_do(const char* subject, const std::string& text) {
  return line("TO DO", subject, text);
}

// What was found out by datagrams of each size.
struct Found {
  Ipv4Address own{}, peer{};
  std::string host;
  InquiryResult first;  // of the smallest
  uint32_t largest_bytes = 0, tried_bytes = 0;
  bool is_asking = false;
};

// From an own address to a host, by their numbers.
struct Way {
  Ipv4Address own{}, peer{};
};

// Each user has a share of the questions, beside programs' by their numbers.
Found ask_all(Inquiries& inquiries, NicInstance& nic, const Way& way, uint32_t uid) {
  const NicSettings& settings = nic.plan.settings;
  Found found{.own = way.own, .peer = way.peer, .host = host_name(nic, way.peer)};
  for (const uint32_t bytes : kSizes) {
    if (bytes > settings.mtu_bytes) break;
    const InquiryResult result = inquiries.ask(nic, {.nic = &nic,
                                                     .client_id = uid | uint32_t{1} << 31,
                                                     .own = way.own,
                                                     .peer = way.peer,
                                                     .datagram_bytes = bytes});
    if (bytes == kSizes[0]) found.first = result;
    found.is_asking |= result.state == State::kAsking;
    found.tried_bytes = bytes;
    // The others are sent when the first has been answered: each may be refused by ICMP, which
    // speaks but once a second.
    if (found.first.state != State::kAnswered) break;
    if (result.state == State::kAnswered) found.largest_bytes = bytes;
  }
  return found;
}

std::string transport_line(const NicInstance& nic, const Found& found) {
  const NicSettings& settings = nic.plan.settings;
  const cm::PeerFacts& theirs = found.first.answer.facts;
  const cm::PeerFacts ours{.version = wire::kNativeVersion,
                           .policy = static_cast<uint8_t>(settings.policy),
                           .wanted = settings.wanted_to(found.peer)};
  const bool leaves_it = ours.wanted == Transport::kAuto || theirs.wanted == Transport::kAuto;
  if (!leaves_it && ours.wanted != theirs.wanted)
    return to_do(
        "transport",
        fmt::format("{} speaks {} to {}, which speaks {}: give both NICs the same "
                    "transport, or \"auto\"",
                    settings.name, to_string(ours.wanted), found.host, to_string(theirs.wanted)));
  // What finds out speaks the native transport or the standard's, and never MRC.
  if (ours.wanted != theirs.wanted &&
      (ours.wanted == Transport::kMrc || theirs.wanted == Transport::kMrc))
    return to_do("transport", fmt::format("{} wants {}, and {} {}: MRC takes both ends: give both "
                                          "NICs transport \"mrc\"",
                                          settings.name, to_string(ours.wanted), found.host,
                                          to_string(theirs.wanted)));
  if (ours.wanted == Transport::kMrc) return fine("transport", "MRC, at both ends");
  if (ours.wanted == Transport::kRoce || (leaves_it && !cm::native_between(ours, theirs)))
    return fine("transport", "RoCE, the standard's, at both ends");
  if (ours.version != theirs.version || ours.policy != theirs.policy)
    return to_do("transport",
                 fmt::format("native version {} and policy {} here, {} and {} there: give both "
                             "hosts the same hostnic and policy, or transport \"auto\"",
                             ours.version, wire::to_string(wire::Policy{ours.policy}),
                             theirs.version, wire::to_string(wire::Policy{theirs.policy})));
  return fine("transport", fmt::format("native, version {}, policy {}, at both ends", ours.version,
                                       wire::to_string(wire::Policy{ours.policy})));
}

std::string mtu_line(const NicInstance& nic, const Found& found) {
  const std::string& name = nic.plan.settings.name;
  if (found.largest_bytes == found.tried_bytes)
    return fine("path MTU",
                fmt::format("{}: packets as large as {} sends arrive", found.largest_bytes, name));
  return to_do("path MTU",
               fmt::format("{}: packets of {} bytes, which {} may send, don't arrive. Raise the "
                           "MTU of the interfaces on the way, or connect with path_mtu {}",
                           found.largest_bytes, found.tried_bytes, name, found.largest_bytes));
}

std::string found_text(const NicInstance& nic, const Found& found) {
  if (found.first.state == State::kUnknown)
    return fine("UDP 4791", fmt::format("packets to {} and answers pass", found.host)) +
           line("note ", "host",
                fmt::format("{} is no hostnic that answers probes: an adapter, rdma_rxe or an "
                            "older hostnic. The path's MTU is not known",
                            found.host));
  if (found.first.state != State::kAnswered)
    return to_do("UDP 4791", why_untold(nic, found.peer, found.first));
  const cm::InquiryAnswer& answer = found.first.answer;
  return fine("UDP 4791", fmt::format("packets to {} and answers pass", found.host)) +
         fine("host",
              fmt::format("{} is hostnic {}, its NIC {}", found.host, answer.version, answer.nic)) +
         transport_line(nic, found) + mtu_line(nic, found);
}

// The NIC that has the address, else that whose network the host is in, else the first one that is
// on a network.
Candidate way_towards(Daemon& daemon, Ipv4Address peer) {
  Candidate best;
  for (NicInstance& instance : daemon.nics()) {
    const Candidate found = candidate_of(instance, peer);
    if (found.is_host) return found;
    if (found.nic != nullptr && (best.nic == nullptr || (found.is_near && !best.is_near)))
      best = found;
  }
  return best;
}

CommandResult run_probe(Daemon& daemon, const Asker& asker,
                        std::span<const std::string_view> args) {
  if (args.empty() || args.size() > 2) return usage_error(kProbe);
  const auto gid = host_named(args[0]);
  if (!gid) return {EINVAL, gid.error()};
  const HeldNumber held(daemon.addresses(), *gid, asker.uid);
  if (!held.number()) return {ENOMEM, "too many hosts are known by their IPv6 addresses"};
  const Ipv4Address peer = *held.number();
  Candidate way = way_towards(daemon, peer);
  if (way.is_host)
    return {0, fine("host", fmt::format("{} is {} of this hostnicd", args[0],
                                        way.nic->plan.settings.name))};
  if (args.size() == 2) {
    const auto named = nic_named(daemon, args[1]);
    if (!named) return {EINVAL, named.error()};
    way = candidate_of(**named, peer);
  }
  if (way.nic == nullptr || daemon.inquiries() == nullptr)
    return {ENETUNREACH, fmt::format("no NIC of this hostnicd is on a network that leads to {}: "
                                     "none has an {} address there",
                                     args[0], is_stand_in(peer) ? "IPv6" : "IPv4")};
  const Found found = ask_all(*daemon.inquiries(), *way.nic, {way.own, peer}, asker.uid);
  return {0,
          found.is_asking ? fmt::format("{} is being asked\n", found.host)
                          : found_text(*way.nic, found),
          found.is_asking};
}

}  // namespace

// It makes hostnicd send a few datagrams, as every program with a queue pair may.
const PromptCommand kProbe = {command_info("probe"), run_probe};

}  // namespace hostnic
