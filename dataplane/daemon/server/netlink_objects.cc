// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/server/netlink_objects.h"

#include <endian.h>
#include <fmt/format.h>
#include <string.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>

#include "dataplane/daemon/observe/view_json.h"
#include "dataplane/daemon/rdma_cm/cm_agent.h"
#include "protocol/hostif/device_facts.h"
#include "protocol/hostif/version.h"

namespace hostnic {
namespace {

using nldev::Device;

std::string text_in(const char* field, size_t size) { return {field, strnlen(field, size)}; }

// The client of that number, or null.
const ClientInfo* find(const std::vector<ClientInfo>& clients, uint32_t client_id) {
  const auto found = std::ranges::find(clients, client_id, &ClientInfo::client_id);
  return found == clients.end() ? nullptr : &*found;
}

}  // namespace

std::vector<Device> NetlinkObjects::devices() const {
  std::vector<Device> devices;
  for (uint32_t i = 0; i < request_.device_count; ++i) {
    const uint32_t index = request_.devices[i].index;
    const size_t place = view_ != nullptr ? view_->nic : index;
    if (view_ != nullptr ? index != 0 : index >= daemon_.nics().size()) continue;
    DeviceInfo info = daemon_.device_info(daemon_.nics()[place]);
    if (view_ != nullptr) info = view_->shown(info);
    devices.push_back({.index = request_.first_index + index,
                       .place = place,
                       .name = text_in(info.name, sizeof(info.name)),
                       .firmware = HOSTNIC_VERSION,
                       .node_guid = be64toh(info.node_guid),
                       .capabilities = device_capabilities(info),
                       .link_up = info.link_up != 0,
                       .netdev = netdev_name(info),
                       .netdev_index = request_.devices[i].netdev_index});
  }
  return devices;
}

std::vector<ClientInfo> NetlinkObjects::clients(const Device& device) const {
  std::vector<ClientInfo> clients = daemon_.clients().all();
  std::erase_if(clients, [&](const ClientInfo& client) {
    return client.nic != device.place || !asker_.sees(client.uid);
  });
  return clients;
}

std::vector<QpView> NetlinkObjects::qp_views(const Device& device) const {
  NicInstance& instance = daemon_.nics()[device.place];
  const auto user =
      asker_.is_owner ? std::nullopt : std::optional(asker_.is_one_user ? asker_.uid : UINT32_MAX);
  std::vector<QpView> views;
  // A few at a time: the lcore serves everybody else in between.
  for (uint32_t from = 0; from != NicViews::kNoMoreQps;) {
    std::vector<QpView> some;
    instance.lcore->run_on([&] { some = instance.nic->views().qps(from, user); });
    std::ranges::move(some, std::back_inserter(views));
  }
  return views;
}

std::vector<nldev::Qp> NetlinkObjects::qps(const Device& device) const {
  std::vector<nldev::Qp> qps;
  for (const QpView& view : qp_views(device)) {
    const bool has_peer = view.type != QpType::kUd;
    qps.push_back({.qpn = view.qpn,
                   .peer_qpn = view.dest_qpn,
                   .pd = view.pd,
                   .pid = view.pid,
                   .type = static_cast<uint8_t>(view.type),
                   .state = static_cast<uint8_t>(view.state),
                   .has_peer = has_peer,
                   .send_psn = view.transmitted & Psn::kMask,
                   .receive_psn = view.expected & Psn::kMask,
                   .peer = has_peer && view.dest_ip != 0 ? peer_address(daemon_, view) : "",
                   .retransmitted_packets = view.retransmitted_packets});
  }
  return qps;
}

template <typename Visit>
void NetlinkObjects::visit_lines(const Device& device, ObjectKind kind, Visit&& visit) const {
  const std::vector<ClientInfo> seen = clients(device);
  for (ClientSession& session : sessions_) {
    const ClientSession::ClientObjects board = session.objects();
    const ClientInfo* const client = find(seen, board.client_id);
    if (client == nullptr) continue;
    for (const ObjectLine& line : board.lines)
      if (line.kind == kind) visit(*client, line);
  }
}

std::vector<nldev::Cq> NetlinkObjects::cqs(const Device& device) const {
  std::vector<nldev::Cq> cqs;
  visit_lines(device, ObjectKind::kCq, [&](const ClientInfo& client, const ObjectLine& line) {
    cqs.push_back({line.handle, line.entries, line.users, client.client_id, client.pid});
  });
  return cqs;
}

// Its users are the queue pairs, regions and shared receive queues in it.
std::vector<nldev::Pd> NetlinkObjects::pds(const Device& device) const {
  std::map<std::pair<uint32_t, uint32_t>, uint32_t> users;  // by client and handle
  for (const QpView& qp : qp_views(device)) ++users[{qp.client_id, qp.pd}];
  for (const auto& region : daemon_.regions().views()) ++users[{region.client_id, region.pd}];
  visit_lines(device, ObjectKind::kSrq, [&](const ClientInfo& client, const ObjectLine& line) {
    ++users[{client.client_id, line.pd}];
  });
  std::vector<nldev::Pd> pds;
  visit_lines(device, ObjectKind::kPd, [&](const ClientInfo& client, const ObjectLine& line) {
    const auto found = users.find({client.client_id, line.handle});
    pds.push_back(
        {line.handle, found == users.end() ? 0 : found->second, client.client_id, client.pid});
  });
  return pds;
}

std::vector<nldev::Mr> NetlinkObjects::mrs(const Device& device) const {
  const std::vector<ClientInfo> seen = clients(device);
  std::vector<nldev::Mr> mrs;
  for (const auto& region : daemon_.regions().views()) {
    const ClientInfo* const client = find(seen, region.client_id);
    if (client == nullptr) continue;
    mrs.push_back({.number = region.number,
                   .lkey = region.key,
                   .rkey = region.key,
                   .pd = region.pd,
                   .pid = client->pid,
                   .iova = region.iova,
                   .length_bytes = region.length_bytes});
  }
  return mrs;
}

std::vector<nldev::Srq> NetlinkObjects::srqs(const Device& device) const {
  std::vector<nldev::Srq> srqs;
  visit_lines(device, ObjectKind::kSrq, [&](const ClientInfo& client, const ObjectLine& line) {
    srqs.push_back({line.handle, line.pd, client.client_id, client.pid});
  });
  return srqs;
}

std::vector<nldev::OpenContext> NetlinkObjects::contexts(const Device& device) const {
  std::vector<nldev::OpenContext> contexts;
  for (const ClientInfo& client : clients(device))
    contexts.push_back({client.client_id, client.pid});
  return contexts;
}

std::vector<nldev::CmId> NetlinkObjects::cm_ids(const Device& device) const {
  std::vector<nldev::CmId> ids;
  if (daemon_.cm() == nullptr) return ids;
  const std::string& name = daemon_.nics()[device.place].plan.settings.name;
  for (const CmIdView& view : daemon_.cm()->view(asker_)) {
    if (view.nic != name) continue;
    nldev::CmId& id = ids.emplace_back();
    id.number = view.id;
    id.pid = view.pid;
    id.qp_type = static_cast<uint8_t>(view.datagram ? QpType::kUd : QpType::kRc);
    id.state = view.kernel_state;
    id.port_space = view.port_space;
    id.source = view.source_end;
    if (!view.destination.empty()) id.destination = view.destination_end;
  }
  return ids;
}

std::vector<std::pair<std::string, uint64_t>> NetlinkObjects::counters(const Device& device) const {
  NicInstance& instance = daemon_.nics()[device.place];
  std::vector<std::pair<std::string, uint64_t>> counters;
  for (size_t i = 0; i < kCounterCount; ++i) {
    const auto counter = static_cast<Counter>(i);
    counters.emplace_back(counter_name(counter), instance.nic->counters().get(counter));
  }
  for (const bool receive_side : {true, false}) {
    std::optional<impair::Counters> impaired;
    instance.lcore->run_on([&] { impaired = instance.nic->impairment_counters(receive_side); });
    if (!impaired) continue;
    impaired->for_each([&](const char* name, uint64_t value) {
      counters.emplace_back(fmt::format("impair_{}_{}", receive_side ? "rx" : "tx", name), value);
    });
  }
  return counters;
}

}  // namespace hostnic
