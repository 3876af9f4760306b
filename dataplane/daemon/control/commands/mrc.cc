// SPDX-License-Identifier: BSD-3-Clause
// What a controller of MRC asks and says (docs/mrc.md, "hostnic mrc").
#include <errno.h>
#include <fmt/format.h>

#include <charconv>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/control/commands/host_argument.h"
#include "dataplane/daemon/control/commands/nic_argument.h"
#include "dataplane/daemon/control/commands/visit_qps.h"
#include "dataplane/daemon/observe/view_json.h"
#include "dataplane/daemon/observe/view_text.h"
#include "dataplane/nic/transport/mrc/endpoint.h"
#include "protocol/json_writer.h"
#include "protocol/wire/flow_tag.h"

namespace hostnic {
namespace {

using mrc::ProbeOutcome;

std::optional<uint32_t> number(std::string_view text) {
  uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string speaks_no_mrc(const NicInstance& nic) {
  return fmt::format("{} does not speak MRC: its transport is \"{}\"", nic.plan.settings.name,
                     to_string(nic.plan.settings.transport));
}
bool speaks_mrc(const NicInstance& nic) { return nic.plan.settings.transport == Transport::kMrc; }

NicView mrc_view(NicInstance& nic) {
  NicView view;
  nic.lcore->run_on([&] { view = nic.nic->views().nic(); });
  return view;
}

// ---- show mrc

std::string mrc_text(const NicView& nic) {
  std::string text = fmt::format("{} {} entropy values, planes {}:", nic.name, nic.mrc_values,
                                 nic.mrc_planes.size());
  for (size_t i = 0; i < nic.mrc_planes.size(); ++i)
    text += fmt::format("{} port {} {}", i == 0 ? "" : ",", i + 1,
                        nic.mrc_planes[i].is_up ? "up" : "down");
  return text + "\n";
}

std::string mrc_text(const std::string& nic, const QpView& qp, const std::string& peer) {
  std::string text = fmt::format("{} qp {:#08x} peer {}:{:#08x}", nic, qp.qpn, peer, qp.dest_qpn);
  if (qp.mrc_planes.empty()) return text + " has sent nothing\n";
  for (size_t i = 0; i < qp.mrc_planes.size(); ++i)
    text += fmt::format("{} plane {}{}", i == 0 ? "" : ",", i + 1, to_text(qp.mrc_planes[i]));
  return text + "\n";
}

CommandResult show_mrc(Daemon& daemon, const Asker& asker, std::span<const std::string_view> args) {
  auto instances = nics_named(daemon, args, kShowMrc);
  if (!instances) return {EINVAL, instances.error()};
  std::string text;
  for (NicInstance* nic : *instances) {
    if (!speaks_mrc(*nic)) continue;
    text += mrc_text(mrc_view(*nic));
    visit_qps(*nic, asker, [&](const QpView& qp) {
      if (qp.transport == Transport::kMrc)
        text += mrc_text(nic->plan.settings.name, qp, peer_address(daemon, qp));
    });
  }
  if (!text.empty()) return {0, text};
  return {0, "no NIC speaks MRC (transport = \"mrc\", or hostnic lab --mrc)\n"};
}

CommandResult show_mrc_json(Daemon& daemon, const Asker& asker,
                            std::span<const std::string_view> args) {
  auto instances = nics_named(daemon, args, kShowMrc);
  if (!instances) return {EINVAL, instances.error()};
  JsonWriter json;
  json.begin_array();
  for (NicInstance* nic : *instances) {
    if (!speaks_mrc(*nic)) continue;
    const NicView view = mrc_view(*nic);
    json.begin_object().member("nic", view.name).member("entropy_values", view.mrc_values);
    json.key("ports").begin_array();
    for (const MrcPlaneView& plane : view.mrc_planes)
      json.begin_object().member("up", plane.is_up).end_object();
    json.end_array().key("queue_pairs").begin_array();
    visit_qps(*nic, asker, [&](const QpView& qp) {
      if (qp.transport != Transport::kMrc) return;
      json.begin_object()
          .member("qpn", qp.qpn)
          .member("peer", peer_address(daemon, qp))
          .member("peer_qpn", qp.dest_qpn);
      write_planes(json.key("planes"), qp.mrc_planes);
      json.end_object();
    });
    json.end_array().end_object().line();
  }
  return {0, json.end_array().line().take()};
}

// ---- set mrc

CommandResult set_port(NicInstance& nic, std::string_view which, std::string_view state) {
  const auto port = number(which);
  const std::string& name = nic.plan.settings.name;
  const uint32_t planes = nic.plan.settings.mrc_planes;
  int error = EINVAL;
  if (port)
    nic.lcore->run_on([&] { error = nic.nic->mrc_endpoint().set_port(*port, state == "up"); });
  if (error == EBUSY)
    return {EBUSY, fmt::format("port {} is the last of {} that is up", *port, name)};
  if (error != 0)
    return {EINVAL,
            fmt::format("{} has ports 1 to {} (mrc_planes), and no port {}", name, planes, which)};
  return {};
}

CommandResult set_value(NicInstance& nic, std::string_view which, std::string_view state) {
  const auto value = number(which);
  int error = EINVAL;
  if (value)
    nic.lcore->run_on([&] { error = nic.nic->mrc_endpoint().deny(*value, state == "denied"); });
  if (error != 0)
    return {EINVAL, fmt::format("{} is no entropy value: they are UDP source ports, {} to 65535",
                                which, wire::kFlowTagBase)};
  return {};
}

CommandResult set_mrc(Daemon& daemon, const Asker&, std::span<const std::string_view> args) {
  if (args.size() != 4) return usage_error(kSetMrc);
  const bool is_port = args[1] == "port" && (args[3] == "up" || args[3] == "down");
  const bool is_value = args[1] == "value" && (args[3] == "good" || args[3] == "denied");
  if (!is_port && !is_value) return usage_error(kSetMrc);
  const auto nic = nic_named(daemon, args[0]);
  if (!nic) return {EINVAL, nic.error()};
  if (!speaks_mrc(**nic)) return {EINVAL, speaks_no_mrc(**nic)};
  return is_port ? set_port(**nic, args[2], args[3]) : set_value(**nic, args[2], args[3]);
}

// ---- mrc probe

// What is asked: a host, by some entropy values.
struct Question {
  Ipv4Address own{}, peer{};
  std::vector<uint16_t> values;
};

// What has become of the probes; those that were never made are.
std::vector<ProbeOutcome> ask(NicInstance& nic, const Question& question) {
  using State = ProbeOutcome::State;
  std::vector<ProbeOutcome> outcomes;
  nic.lcore->run_on([&] {
    MrcEndpoint& endpoint = nic.nic->mrc_endpoint();
    bool is_waiting = false;
    for (const uint16_t value : question.values) {
      ProbeOutcome outcome = endpoint.requests().outcome(question.peer, value);
      if (outcome.state == State::kNone && endpoint.probe(question.own, question.peer, value))
        outcome.state = State::kWaiting;
      is_waiting |= outcome.state == State::kWaiting;
      outcomes.push_back(outcome);
    }
    if (!is_waiting) endpoint.requests().forget_probes(question.peer);
  });
  return outcomes;
}

std::string mrc_text(const ProbeOutcome& outcome) {
  switch (outcome.state) {
    case ProbeOutcome::State::kAnswered:
      return fmt::format("answered after {:.1f} us", static_cast<double>(outcome.rtt_ns) / 1000);
    case ProbeOutcome::State::kWaiting:
      return "is being asked";
    case ProbeOutcome::State::kLost:
      return "no answer within a second";
    case ProbeOutcome::State::kNone:
      break;
  }
  return "not asked: too many have not been answered";
}

CommandResult probe(Daemon& daemon, const Asker& asker, std::span<const std::string_view> args) {
  if (args.size() < 2 || args.size() > 3) return usage_error(kMrcProbe);
  const auto nic = nic_named(daemon, args[0]);
  if (!nic) return {EINVAL, nic.error()};
  if (!speaks_mrc(**nic)) return {EINVAL, speaks_no_mrc(**nic)};
  const auto gid = host_named(args[1]);
  if (!gid) return {EINVAL, gid.error()};
  const HeldNumber held(daemon.addresses(), *gid, asker.uid);
  if (!held.number()) return {ENOMEM, "too many hosts are known by their IPv6 addresses"};
  const Candidate way = candidate_of(**nic, *held.number());
  if (way.is_host) return {EINVAL, fmt::format("{} is {} itself", args[1], args[0])};
  Question question{.own = way.own, .peer = *held.number(), .values = {}};
  const uint32_t planes = (*nic)->plan.settings.mrc_planes;
  if (args.size() == 3) {
    const auto value = number(args[2]);
    if (!value || *value < wire::kFlowTagBase || *value > UINT16_MAX)
      return {EINVAL, fmt::format("{} is no entropy value: they are UDP source ports, {} to 65535",
                                  args[2], wire::kFlowTagBase)};
    question.values.push_back(static_cast<uint16_t>(*value));
  } else {
    for (uint32_t plane = 0; plane < planes; ++plane)
      question.values.push_back(static_cast<uint16_t>(wire::kFlowTagBase + plane));
  }
  const std::vector<ProbeOutcome> outcomes = ask(**nic, question);
  CommandResult result;
  for (size_t i = 0; i < outcomes.size(); ++i) {
    result.more |= outcomes[i].state == ProbeOutcome::State::kWaiting;
    result.text += fmt::format("{} by value {}, plane {}: {}\n", args[1], question.values[i],
                               1 + question.values[i] % planes, mrc_text(outcomes[i]));
  }
  return result;
}

}  // namespace

const PromptCommand kShowMrc = {command_info("show mrc"), show_mrc, show_mrc_json};
const PromptCommand kSetMrc = {command_info("set mrc"), set_mrc};
// It takes of the room for requests that updates of ports need.
const PromptCommand kMrcProbe = {command_info("mrc probe"), probe};

}  // namespace hostnic
