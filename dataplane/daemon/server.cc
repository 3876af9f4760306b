// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/server.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <thread>

#include "dataplane/daemon/commands/command.h"
#include "dataplane/daemon/log.h"
#include "dataplane/daemon/prompt.h"
#include "dataplane/daemon/service_manager.h"
#include "protocol/hostif/control_socket.h"

namespace hostnic {
namespace {

// The most connections that have not opened a device; programs are in that state for milliseconds.
constexpr size_t kMaxIdleConnections = 128;
// Sessions end in that time, or wait for what will not come.
constexpr std::chrono::seconds kSessionsEnd{20};
constexpr std::chrono::seconds kDescriptorLines{60};
constexpr int kReapIntervalMs = 1000, kLookIntervalMs = 100;
// The most descriptors that hostnicd keeps open beside its sessions' ones.
constexpr uint32_t kOwnDescriptors = kMaxIdleConnections + 96;

int watch(int epoll_fd, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return epoll_ctl(epoll_fd, EPOLL_CTL_ADD, fd, &event);
}

uint64_t descriptor_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

// Whether a datagram asks for a device in our version; its session says what else is wrong with it.
bool is_open_request(std::span<const std::byte> bytes) {
  ControlRequest header;
  if (bytes.size() < sizeof(header)) return false;
  memcpy(&header, bytes.data(), sizeof(header));
  return header.magic == kControlMagic && header.abi_version == kHostAbiVersion &&
         header.kind == ControlKind::kOpen;
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
      spare_fd_(open("/dev/null", O_RDONLY | O_CLOEXEC)),
      cm_(daemon, epoll_fd_.get()),
      sysfs_(daemon, daemon.plan().sysfs_directory),
      watchdog_(daemon.lcores(), watchdog_limit_ns()),
      network_(daemon, [this] { tell_sessions(); }) {
  const uint64_t limit = descriptor_limit();
  const uint64_t allowed =
      (std::max<uint64_t>(limit, kOwnDescriptors) - kOwnDescriptors) / ClientSession::kDescriptors;
  max_sessions_ = std::max<uint64_t>(std::min<uint64_t>(allowed, daemon_.plan().max_clients), 1);
  if (max_sessions_ < daemon_.plan().max_clients)
    log_line(
        "{} devices can be open at a time, not {} (limits.max_clients): each takes {} "
        "descriptors, and RLIMIT_NOFILE is {}",
        max_sessions_, daemon_.plan().max_clients, ClientSession::kDescriptors, limit);
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
  // A session that looks at a stranger's file, or closes it, may wait for ever.
  const auto end = std::chrono::steady_clock::now() + kSessionsEnd;
  const auto left = [&] { return std::ranges::count(sessions_, false, &ClientSession::finished); };
  while (left() != 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (left() != 0) {
    log_line("{} programs' files do not answer: ending without closing them", left());
    _exit(0);
  }
  sessions_.clear();
}

int ControlServer::wait_ms() {
  const int own_ms = !sessions_.empty() ? kLookIntervalMs
                     : retired_left_    ? kReapIntervalMs
                     : sysfs_.wanted()  ? SysfsExport::kIntervalMs
                                        : -1;
  // -1, for ever, is the longest as an unsigned number.
  return static_cast<int>(
      std::min({static_cast<unsigned>(own_ms), static_cast<unsigned>(cm_.wait_ms()),
                static_cast<unsigned>(watchdog_.wait_ms())}));
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
    watchdog_.look();
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
    if (!fd && (errno == EMFILE || errno == ENFILE)) {
      accept_one_without_descriptor(listener);
      return;  // there may be more, and then epoll says so again
    }
    if (!fd) return;
    // The oldest connection that has not opened a device makes room.
    if (connections_.size() >= kMaxIdleConnections) connections_.pop_front();
    Connection connection{.socket = std::move(fd), .view = view};
    socklen_t length = sizeof(connection.peer);
    if (getsockopt(connection.socket.get(), SOL_SOCKET, SO_PEERCRED, &connection.peer, &length) ==
            0 &&
        watch(epoll_fd_.get(), connection.socket.get()) == 0)
      connections_.push_back(std::move(connection));
  }
}

// Closes the connection that waits first, so that its program learns it, by the descriptor that is
// kept for this.
void ControlServer::accept_one_without_descriptor(size_t listener) {
  // Descriptors come and go while they are few: a line a minute says enough.
  const auto now = std::chrono::steady_clock::now();
  if (now >= say_descriptors_from_) {
    say_descriptors_from_ = now + kDescriptorLines;
    log_line(
        "no descriptor is left, connections are closed: {} devices are open, {} other "
        "connections, and RLIMIT_NOFILE is {}",
        sessions_.size(), connections_.size(), descriptor_limit());
  }
  if (!connections_.empty()) connections_.pop_front();
  spare_fd_.reset();
  UniqueFd(accept4(listeners_[listener].fd(), nullptr, nullptr, SOCK_CLOEXEC));
  spare_fd_ = UniqueFd(open("/dev/null", O_RDONLY | O_CLOEXEC));
  // Somebody else was faster: the others wait a little rather than we spin.
  if (!spare_fd_) std::this_thread::sleep_for(std::chrono::milliseconds(10));
}

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
  // Its session takes it, with its descriptors.
  const bool opens = is_open_request(datagram.bytes);
  const std::string no_session = opens ? why_no_session(connection.peer.uid) : std::string();
  if (opens && no_session.empty()) return open_session(connection);
  if (receive_bytes(fd, MSG_DONTWAIT, datagram) != ReceiveResult::kOk) return false;
  const auto refuse = [&](const ControlError& error) {
    return send_reply(fd, MSG_DONTWAIT, error_reply(error));
  };
  if (datagram.cut) return refuse({EMSGSIZE, "request too long, or with too many descriptors"});
  if (opens) {
    if (limit_noted_.insert(connection.peer.uid).second)
      log_line("a program of user {} (pid {}) has met a limit: {}", connection.peer.uid,
               connection.peer.pid, no_session);
    return refuse({ENOMEM, no_session});
  }
  auto call = parse_control_request(datagram.bytes, datagram.had_descriptors ? 1 : 0);
  if (!call) return refuse(call.error());
  if (std::holds_alternative<ListDevices>(*call)) return answer_list(connection);
  if (const auto* text = std::get_if<TextCommand>(&*call))
    return answer_text(connection, text->text);
  if (const auto* cm = std::get_if<OpenCmRequest>(&*call)) {
    open_cm(connection, *cm);
    return false;
  }
  return refuse({EINVAL, "open a device first"});
}

// Why no further session may be opened; empty: it may.
std::string ControlServer::why_no_session(uint32_t uid) const {
  if (sessions_.size() >= max_sessions_)
    return fmt::format("{} devices are open already ({})", sessions_.size(),
                       max_sessions_ == daemon_.plan().max_clients
                           ? "limits.max_clients"
                           : "hostnicd's RLIMIT_NOFILE allows no more");
  const auto of_user = std::ranges::count(sessions_, uid, &ClientSession::uid);
  const uint64_t allowed = std::min<uint64_t>(daemon_.plan().user_clients, (max_sessions_ + 1) / 2);
  if (!is_owner(uid) && static_cast<uint64_t>(of_user) >= allowed)
    return fmt::format("user {} has {} devices open already (limits.user_clients)", uid, of_user);
  return {};
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
  const Asker asker{connection.peer.uid, is_owner(connection.peer.uid)};
  CommandResult result = run_command(daemon_, asker, view != nullptr ? view->command(text) : text);
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

// Returns false: the connection was handed over.
bool ControlServer::open_session(Connection& connection) {
  epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, connection.socket.get(), nullptr);
  sessions_.emplace_back(daemon_, std::move(connection.socket), connection.peer, finished_fd_.get(),
                         connection.view);
  return false;
}

void ControlServer::reap_sessions() {
  eventfd_t count = 0;
  eventfd_read(finished_fd_.get(), &count);
  std::erase_if(sessions_, [](const ClientSession& session) { return session.finished(); });
  retired_left_ = daemon_.reap_retired() != 0;
}

}  // namespace hostnic
