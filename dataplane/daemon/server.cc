// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/server.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>

#include <algorithm>

#include "dataplane/daemon/commands/command.h"
#include "dataplane/daemon/log.h"
#include "dataplane/daemon/prompt.h"
#include "protocol/hostif/control_socket.h"

namespace hostnic {
namespace {

// The most connections that have not opened a device; programs are in that state for milliseconds.
constexpr size_t kMaxIdleConnections = 128;
constexpr int kReapIntervalMs = 1000, kLookIntervalMs = 100;
// The most descriptors that hostnicd keeps open beside its sessions' ones.
constexpr uint32_t kOwnDescriptors = kMaxIdleConnections + 96;

int watch(int epoll_fd, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

std::span<const std::byte> bytes_of(std::string_view text) {
  return std::as_bytes(std::span(text.data(), text.size()));
}

}  // namespace

ControlServer::ControlServer(Daemon& daemon, std::vector<ControlListener> listeners, int signal_fd,
                             Prompt* prompt)
    : daemon_(daemon),
      listeners_(std::move(listeners)),
      signal_fd_(signal_fd),
      prompt_(prompt),
      epoll_fd_(epoll_create1(EPOLL_CLOEXEC)),
      finished_fd_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      cm_(daemon, epoll_fd_.get()),
      sysfs_(daemon, daemon.plan().sysfs_directory),
      network_(daemon, [this] { tell_sessions(); }) {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  const uint64_t allowed = (std::max<uint64_t>(limit.rlim_cur, kOwnDescriptors) - kOwnDescriptors) /
                           ClientSession::kDescriptors;
  max_sessions_ = std::max<uint64_t>(std::min<uint64_t>(allowed, daemon_.plan().max_clients), 1);
  if (max_sessions_ < daemon_.plan().max_clients)
    log_line(
        "{} devices can be open at a time, not {} (limits.max_clients): each takes {} "
        "descriptors, and RLIMIT_NOFILE is {}",
        max_sessions_, daemon_.plan().max_clients, ClientSession::kDescriptors, limit.rlim_cur);
  for (const ControlListener& listener : listeners_) watch(epoll_fd_.get(), listener.fd());
  watch(epoll_fd_.get(), signal_fd_);
  watch(epoll_fd_.get(), finished_fd_.get());
  if (network_.fd() >= 0) watch(epoll_fd_.get(), network_.fd());
  if (prompt_ != nullptr) watch(epoll_fd_.get(), STDIN_FILENO);
  sysfs_.refresh(true);
}

ControlServer::~ControlServer() {
  // All sessions are asked at once, so that they end in the time of one.
  for (ClientSession& session : sessions_) session.request_stop();
  sessions_.clear();
}

int ControlServer::wait_ms() {
  const int cm_ms = cm_.wait_ms();
  const int own_ms = !sessions_.empty() ? kLookIntervalMs
                     : retired_left_    ? kReapIntervalMs
                     : sysfs_.wanted()  ? SysfsExport::kIntervalMs
                                        : -1;
  if (cm_ms < 0 || own_ms < 0) return std::max(cm_ms, own_ms);
  return std::min(cm_ms, own_ms);
}

void ControlServer::look_at_sessions() {
  const auto now = std::chrono::steady_clock::now();
  if (now < look_at_sessions_) return;
  look_at_sessions_ = now + std::chrono::milliseconds(kLookIntervalMs);
  tell_sessions();
  network_.look();
}

void ControlServer::tell_sessions() {
  for (ClientSession& session : sessions_) session.look();
}

int ControlServer::run() {
  while (!daemon_.quitting()) {
    epoll_event events[32];
    const int count = epoll_wait(epoll_fd_.get(), events, 32, wait_ms());
    if (count < 0 && errno != EINTR) {
      log_line("epoll_wait: {}", strerror(errno));
      return 1;
    }
    for (int i = 0; i < count && !daemon_.quitting(); ++i) handle(events[i].data.fd);
    cm_.advance();
    look_at_sessions();
    sysfs_.refresh();
    if (retired_left_) retired_left_ = daemon_.reap_retired() != 0;
  }
  return 0;
}

void ControlServer::handle(int fd) {
  for (size_t i = 0; i < listeners_.size(); ++i)
    if (fd == listeners_[i].fd()) return accept_connections(i);
  if (fd == finished_fd_.get()) return reap_sessions();
  if (fd == signal_fd_) {
    signalfd_siginfo info{};
    if (read(signal_fd_, &info, sizeof(info)) == sizeof(info)) daemon_.quit();
    return;
  }
  if (fd == network_.fd()) return network_.handle();
  if (cm_.handle(fd)) return;
  if (prompt_ != nullptr && fd == STDIN_FILENO) {
    if (!prompt_->handle_input()) daemon_.quit();
    return;
  }
  const auto connection =
      std::find_if(connections_.begin(), connections_.end(),
                   [&](const Connection& each) { return each.socket.get() == fd; });
  if (connection != connections_.end() && !serve_connection(*connection))
    connections_.erase(connection);
}

void ControlServer::accept_connections(size_t listener) {
  const View* view = listener == 0 ? nullptr : &daemon_.plan().views[listener - 1];
  for (;;) {
    UniqueFd fd(accept4(listeners_[listener].fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd) return;
    // The oldest connection that has not opened a device makes room.
    if (connections_.size() >= kMaxIdleConnections) connections_.pop_front();
    if (watch(epoll_fd_.get(), fd.get()) == 0) connections_.push_back({std::move(fd), view});
  }
}

bool ControlServer::serve_connection(Connection& connection) {
  ControlDatagram datagram;
  const int fd = connection.socket.get();
  switch (receive_datagram(fd, MSG_DONTWAIT, datagram)) {
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
  if (datagram.cut) return refuse({EMSGSIZE, "request too long, or with too many descriptors"});
  auto call = parse_control_request(datagram.bytes, datagram.fds.size());
  if (!call) return refuse(call.error());
  if (std::holds_alternative<ListDevices>(*call)) return answer_list(connection);
  if (const auto* text = std::get_if<TextCommand>(&*call))
    return answer_text(connection, text->text);
  if (const auto* cm = std::get_if<OpenCmRequest>(&*call)) {
    open_cm(connection, *cm);
    return false;
  }
  const auto* open = std::get_if<OpenDevice>(&*call);
  if (open == nullptr) return refuse({EINVAL, "open a device first"});
  if (sessions_.size() >= max_sessions_)
    return refuse({EMFILE, fmt::format("{} devices are open already ({})", sessions_.size(),
                                       max_sessions_ == daemon_.plan().max_clients
                                           ? "limits.max_clients"
                                           : "hostnicd's RLIMIT_NOFILE allows no more")});
  open_session(connection, *open, std::move(datagram.fds));
  return false;
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
  CommandResult result = run_command(daemon_, view != nullptr ? view->command(text) : text);
  if (view != nullptr) result.text = view->answer(result.text);
  if (result.error == 0 && text.starts_with("st")) sysfs_.refresh(true);  // start, stop
  if (result.error != 0)
    return send_reply(fd, MSG_DONTWAIT, error_reply({result.error, result.text}),
                      bytes_of(result.text));
  constexpr size_t kRoom = kMaxControlBytes - sizeof(ControlReply);
  if (result.text.size() > kRoom) {
    constexpr std::string_view kCut = "... (more than fits; name one NIC)\n";
    result.text.resize(result.text.rfind('\n', kRoom - kCut.size()) + 1);
    result.text += kCut;
  }
  return send_reply(fd, MSG_DONTWAIT, ControlReply{}, bytes_of(result.text));
}

void ControlServer::open_cm(Connection& connection, OpenCmRequest request) {
  const bool alone = connection.view != nullptr;
  if (alone) request.visible_devices = (request.visible_devices & 1) << connection.view->nic;
  cm_.open(std::move(connection.socket), request, alone);
}

void ControlServer::open_session(Connection& connection, OpenDevice request,
                                 std::vector<UniqueFd> fds) {
  // Only one device can be named there.
  if (connection.view != nullptr && request.device_index == 0)
    request.device_index = static_cast<uint32_t>(connection.view->nic);
  else if (connection.view != nullptr)
    request.device_index = UINT32_MAX;
  epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, connection.socket.get(), nullptr);
  sessions_.emplace_back(daemon_, std::move(connection.socket), request, std::move(fds),
                         finished_fd_.get(), connection.view);
}

void ControlServer::reap_sessions() {
  eventfd_t count = 0;
  eventfd_read(finished_fd_.get(), &count);
  std::erase_if(sessions_, [](const ClientSession& session) { return session.finished(); });
  retired_left_ = daemon_.reap_retired() != 0;
}

}  // namespace hostnic
