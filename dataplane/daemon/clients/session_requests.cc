// SPDX-License-Identifier: BSD-3-Clause
// What a program that has opened a device asks for by its control socket.
#include <errno.h>
#include <fmt/format.h>

#include <algorithm>
#include <string_view>

#include "dataplane/daemon/clients/session.h"
#include "dataplane/daemon/observe/error_book.h"
#include "dataplane/daemon/observe/explain.h"
#include "protocol/bytes_of.h"

namespace hostnic {
namespace {

// What fits a line of the library's log.
std::string_view limited_text(std::string_view text) {
  constexpr size_t kLongest = 600;
  return text.substr(0, kLongest);
}

}  // namespace

bool ClientSession::handle(ControlDatagram& datagram) {
  if (datagram.cut) return refuse({EMSGSIZE, "request too long, or with too many descriptors"});
  auto call = parse_control_request(datagram.bytes, datagram.fds.size());
  if (!call) return refuse(call.error());
  if (auto* registration = std::get_if<RegisterMr>(&*call)) {
    const auto added = regions_->add(*registration, datagram.fds);
    if (!added) return refuse(added.error());
    return send_reply(socket_.get(), 0, ControlReply{}, bytes_of(*added));
  }
  if (auto* deregistration = std::get_if<DeregisterMr>(&*call))
    return answer(regions_->remove(deregistration->lkey));
  if (auto* change = std::get_if<MemoryChange>(&*call)) return answer(regions_->follow(*change));
  if (auto* filled = std::get_if<MemoryFilled>(&*call))
    return answer(regions_->note_filled(filled->lkey));
  if (auto* naming = std::get_if<NameHost>(&*call)) return handle_name(*naming);
  if (auto* question = std::get_if<ExplainRequest>(&*call)) return handle_explain(*question);
  if (std::holds_alternative<ListDevices>(*call)) return handle_list();
  return refuse({EINVAL, "this connection is an open device already"});
}

bool ClientSession::answer(const Expected<void, ControlError>& done) {
  return done ? send_reply(socket_.get(), 0, ControlReply{}) : refuse(done.error());
}

bool ClientSession::handle_name(const NameHost& call) {
  if (named_hosts_.size() >= kMaxNamedHosts)
    return refuse({ENOMEM, fmt::format("a program names {} hosts by IPv6 addresses at most",
                                       kMaxNamedHosts)});
  const auto number = daemon_.addresses().acquire(call.address, limited_user(info_.uid));
  if (!number) {
    daemon_.clients().note_limit(info_.client_id,
                                 "the IPv6 addresses that its user or all may name");
    return refuse({ENOMEM, "no room for more IPv6 addresses in this hostnicd, or of this user"});
  }
  named_hosts_.push_back(*number);
  daemon_.clients().note_named_host(info_.client_id);
  return send_reply(socket_.get(), 0, ControlReply{}, bytes_of(NameHostReply{raw(*number)}));
}

// Keeps a question whose answer comes later; those that nobody asked for again go.
uint32_t ClientSession::owe(const QpView& qp, const ExplainRequest& request) {
  if (owed_.size() == kMostOwed) owed_.erase(owed_.begin());
  // 0 is no ticket.
  next_ticket_ = std::max(next_ticket_ + 1, 1u);
  owed_.push_back({next_ticket_, qp, request});
  return next_ticket_;
}

// Says why, of a queue pair of this client's.
bool ClientSession::handle_explain(const ExplainRequest& request) {
  Explanation found;
  if (request.ticket == 0) {
    found = explain(daemon_, *unit_, info_.client_id, request);
  } else {
    const auto owed = std::ranges::find(owed_, request.ticket, &OwedExplanation::ticket);
    if (owed == owed_.end()) return send_reply(socket_.get(), 0, ControlReply{});
    found = explain_peer(daemon_, *unit_, owed->qp, info_.client_id, owed->request);
    if (!found.comes_later) owed_.erase(owed);
  }
  if (found.comes_later) {
    ControlReply later;
    later.count = request.ticket != 0 ? request.ticket : owe(*found.comes_later, request);
    return send_reply(socket_.get(), 0, later);
  }
  const std::string_view text = limited_text(found.text);
  if (!text.empty())
    note_error(fmt::format("{} QP {:#x} of {} (pid {}): {}", unit_->plan.settings.name, request.qpn,
                           info_.program, info_.pid, text));
  return send_reply(socket_.get(), 0, ControlReply{}, std::as_bytes(std::span(text)));
}

// Tells of the open device alone, as it is now.
bool ClientSession::handle_list() {
  ControlReply reply;
  reply.count = 1;
  return send_reply(socket_.get(), 0, reply, bytes_of(device()));
}

}  // namespace hostnic
