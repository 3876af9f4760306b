// SPDX-License-Identifier: BSD-3-Clause
// Requests of connections that have not opened a device: lists, commands, captures, and the ones
// that hand the connection over.
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>

#include "dataplane/daemon/control/command.h"
#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/log.h"
#include "dataplane/daemon/server/netlink_objects.h"
#include "dataplane/daemon/server/server.h"
#include "dataplane/daemon/trust/foreign_descriptors.h"
#include "dataplane/daemon/trust/owner.h"
#include "protocol/hostif/control_socket.h"
#include "protocol/nldev/answer.h"

namespace hostnic {
namespace {

// Whether a datagram asks for a device in our version; its session says what else is wrong with it.
bool is_open_request(std::span<const std::byte> bytes) {
  ControlRequest header;
  if (bytes.size() < sizeof(header)) return false;
  memcpy(&header, bytes.data(), sizeof(header));
  return header.magic == kControlMagic && header.abi_version == kHostAbiVersion &&
         header.kind == ControlKind::kOpen;
}

std::span<const std::byte> text_bytes(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

// A long answer as a file in memory. Not for strangers, who could keep such files: they are
// hostnicd's memory.
UniqueFd file_of(std::span<const std::byte> text) {
  UniqueFd file(memfd_create("hostnic-answer", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  for (size_t done = 0; file && done < text.size();) {
    const ssize_t written = write(file.get(), text.data() + done, text.size() - done);
    if (written <= 0) return {};
    done += static_cast<size_t>(written);
  }
  if (file) fcntl(file.get(), F_ADD_SEALS, F_SEAL_WRITE | F_SEAL_SHRINK | F_SEAL_GROW);
  return file;
}

// Packets are other users' data.
ControlReply not_for(const ucred& peer) {
  return error_reply({EPERM, fmt::format("packets are for the user who runs hostnicd (uid {}) and "
                                         "for root, not for uid {}",
                                         geteuid(), peer.uid)});
}

// Whether an answer is read by programs, which could not read a part of it.
bool is_for_programs(std::string_view command) {
  const ParsedLine parsed = parse_command_line(command);
  return parsed.wants_json || parsed.command == &kShowMetrics;
}

}  // namespace

bool ControlServer::serve_connection(Connection& connection) {
  ControlDatagram datagram;
  const int fd = connection.socket.get();
  switch (receive_bytes(fd, MSG_DONTWAIT | MSG_PEEK, datagram)) {
    case ReceiveResult::kAgain:
      return true;
    case ReceiveResult::kClosed:
      return false;
    case ReceiveResult::kOk:
      break;
  }
  const auto refuse = [&](const ControlError& error) {
    return send_reply(fd, MSG_DONTWAIT, error_reply(error));
  };
  const bool opens = is_open_request(datagram.bytes);
  if (opens) {
    const std::string no_session = why_no_session(connection.peer.uid);
    // Its session takes it, with its descriptors.
    if (no_session.empty()) return open_session(connection);
    note_limit(connection, no_session);
    refuse({ENOMEM, no_session});
    return false;
  }
  if (datagram.cut) {
    refuse({EMSGSIZE, "request too long, or with too many descriptors"});
    return false;
  }
  auto call = parse_control_request(datagram.bytes, datagram.had_descriptors ? 1 : 0);
  // Descriptors are nothing that this thread takes: they go with the connection.
  if (datagram.had_descriptors) {
    refuse(call ? ControlError{EINVAL, "open a device first"} : call.error());
    return false;
  }
  if (receive_bytes(fd, MSG_DONTWAIT, datagram) != ReceiveResult::kOk) return false;
  if (!call) return refuse(call.error());
  if (std::holds_alternative<ListDevices>(*call)) return answer_list(connection);
  if (const auto* text = std::get_if<TextCommand>(&*call))
    return answer_text(connection, text->text);
  if (const auto* netlink = std::get_if<RdmaNetlink>(&*call))
    return answer_netlink(connection, *netlink);
  if (const auto* capture = std::get_if<CaptureRequest>(&*call))
    return start_capture(connection, *capture);
  if (const auto* dump = std::get_if<DumpCapturesRequest>(&*call))
    return answer_dump(connection, *dump);
  if (const auto* cm = std::get_if<OpenCmRequest>(&*call)) {
    open_cm(connection, *cm);
    return false;
  }
  return refuse({EINVAL, "open a device first"});
}

bool ControlServer::answer_list(const Connection& connection) {
  std::vector<DeviceInfo> devices;
  if (connection.view != nullptr)
    devices.push_back(
        connection.view->shown(daemon_.device_info(daemon_.nics()[connection.view->nic])));
  else
    for (const NicInstance& instance : daemon_.nics())
      devices.push_back(daemon_.device_info(instance));
  ControlReply reply;
  reply.count = static_cast<uint32_t>(devices.size());
  return send_reply(connection.socket.get(), MSG_DONTWAIT, reply,
                    std::as_bytes(std::span(devices)));
}

bool ControlServer::answer_text(const Connection& connection, const std::string& text) {
  const int fd = connection.socket.get();
  const View* const view = connection.view;
  const uint32_t uid = connection.peer.uid;
  const Asker asker{uid, is_owner(uid), names_one_user(uid)};
  CommandResult result = run_command(daemon_, asker, view != nullptr ? view->command(text) : text);
  if (view != nullptr) result.text = view->answer(result.text);
  if (result.error == 0 && text.starts_with("st")) sysfs_.refresh(true);  // start, stop
  if (result.error != 0)
    return send_reply(fd, MSG_DONTWAIT, error_reply({result.error, result.text}),
                      text_bytes(result.text));
  constexpr size_t kRoom = kMaxControlBytes - sizeof(ControlReply);
  if (result.text.size() > kRoom && asker.is_owner) {
    if (const UniqueFd file = file_of(text_bytes(result.text)))
      return send_reply(fd, MSG_DONTWAIT, ControlReply{}, {}, std::array{file.get()});
  }
  if (result.text.size() > kRoom && is_for_programs(text)) {
    const std::string_view error = "the answer is longer than 128 KiB: name one NIC";
    return send_reply(fd, MSG_DONTWAIT, error_reply({EMSGSIZE, std::string(error)}),
                      text_bytes(error));
  }
  if (result.text.size() > kRoom) {
    constexpr std::string_view kCut = "... (more than fits; name one NIC)\n";
    result.text.resize(result.text.rfind('\n', kRoom - kCut.size()) + 1);
    result.text += kCut;
  }
  ControlReply reply;
  reply.count = result.more ? 1 : 0;
  return send_reply(fd, MSG_DONTWAIT, reply, text_bytes(result.text));
}

bool ControlServer::answer_netlink(const Connection& connection, const RdmaNetlink& request) {
  const int fd = connection.socket.get();
  const uint32_t uid = connection.peer.uid;
  const Asker asker{uid, is_owner(uid), names_one_user(uid)};
  const NetlinkObjects objects(daemon_, asker, connection.view, request.fixed, sessions_);
  const nldev::Asker program{.port_id = request.fixed.port_id,
                             .short_acks = request.fixed.short_acks != 0,
                             .wants_words = request.fixed.wants_words != 0,
                             .sees_one_host = connection.view != nullptr,
                             .rdma_cm_device = request.fixed.rdma_cm_device,
                             .verbs_device = request.fixed.verbs_device};
  nldev::Answer answer = nldev::answer(request.datagram, program, objects);
  ControlReply reply;
  reply.count = static_cast<uint32_t>(answer.refused);
  constexpr size_t kRoom = kMaxControlBytes - sizeof(ControlReply);
  if (answer.messages.size() > kRoom && asker.is_owner) {
    if (const UniqueFd file = file_of(answer.messages))
      return send_reply(fd, MSG_DONTWAIT, reply, {}, std::array{file.get()});
  }
  if (answer.messages.size() > kRoom)
    answer.messages = nldev::refuse_all(request.datagram, program, EMSGSIZE);
  return send_reply(fd, MSG_DONTWAIT, reply, answer.messages);
}

bool ControlServer::start_capture(Connection& connection, CaptureRequest request) {
  const int fd = connection.socket.get();
  const auto refuse = [&](int error, const std::string& why) {
    return send_reply(fd, MSG_DONTWAIT, error_reply({error, why}));
  };
  if (!is_owner(connection.peer.uid)) return send_reply(fd, MSG_DONTWAIT, not_for(connection.peer));
  if (connection.view != nullptr)
    request.device_index =
        request.device_index == 0 ? static_cast<uint32_t>(connection.view->nic) : UINT32_MAX;
  if (request.device_index >= daemon_.nics().size())
    return refuse(ENODEV, fmt::format("no device {}", request.device_index));
  NicInstance& nic = daemon_.nics()[request.device_index];
  for (const auto& each : captures_)
    if (&each->nic() == &nic)
      return refuse(EBUSY, fmt::format("process {} captures this NIC already: one can at a time",
                                       each->pid()));
  auto capture = Capture::start(nic, request, connection.peer.pid);
  if (!capture) return refuse(ENOMEM, capture.error());
  std::string names;
  for (size_t i = 0; i < kCounterCount; ++i)
    names.append(counter_name(static_cast<Counter>(i))).push_back('\0');
  CaptureReply reply{};
  reply.device = daemon_.device_info(nic);
  if (connection.view != nullptr) reply.device = connection.view->shown(reply.device);
  reply.ring_bytes = request.ring_bytes;
  reply.counter_count = static_cast<uint32_t>(kCounterCount);
  reply.names_bytes = static_cast<uint32_t>(names.size());
  std::vector<std::byte> payload(sizeof(reply));
  memcpy(payload.data(), &reply, sizeof(reply));
  payload.insert(payload.end(), text_bytes(names).begin(), text_bytes(names).end());
  const int fds[] = {(*capture)->ring_fd(), (*capture)->index_fd()};
  if (!send_reply(fd, MSG_DONTWAIT, ControlReply{}, payload, fds)) return false;
  log_line("process {} captures the packets of {}", connection.peer.pid, nic.plan.settings.name);
  (*capture)->set_socket(std::move(connection.socket));
  captures_.push_back(std::move(*capture));
  return false;
}

bool ControlServer::answer_dump(const Connection& connection, const DumpCapturesRequest& request) {
  const int fd = connection.socket.get();
  if (!is_owner(connection.peer.uid)) return send_reply(fd, MSG_DONTWAIT, not_for(connection.peer));
  std::vector<CaptureState> states;
  for (const auto& each : captures_) {
    if (connection.view != nullptr && &each->nic() != &daemon_.nics()[connection.view->nic])
      continue;
    if (const auto state = each->state(request.wish != 0)) states.push_back(*state);
  }
  ControlReply reply;
  reply.count = static_cast<uint32_t>(states.size());
  return send_reply(fd, MSG_DONTWAIT, reply, std::as_bytes(std::span(states)));
}

// Whatever comes on a capture's socket ends it: nothing is said there but its end.
void ControlServer::end_capture(std::list<std::unique_ptr<Capture>>::iterator capture) {
  UniqueFd socket = (*capture)->take_socket();
  epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, socket.get(), nullptr);
  captures_.erase(capture);
  shutdown(socket.get(), SHUT_RDWR);
  closers().close(std::move(socket), std::nullopt);
}

void ControlServer::open_cm(Connection& connection, OpenCmRequest request) {
  const bool alone = connection.view != nullptr;
  if (alone) request.visible_devices = (request.visible_devices & 1) << connection.view->nic;
  cm_.open(std::move(connection.socket), request, alone);
}

}  // namespace hostnic
