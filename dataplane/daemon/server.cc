// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/server.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <iterator>
#include <map>
#include <system_error>
#include <thread>

#include "dataplane/daemon/control/command.h"
#include "dataplane/daemon/control/commands/commands.h"
#include "dataplane/daemon/control/prompt.h"
#include "dataplane/daemon/log.h"
#include "dataplane/daemon/observe/metrics.h"
#include "dataplane/daemon/start/service_manager.h"
#include "dataplane/daemon/trust/foreign_descriptors.h"
#include "dataplane/daemon/trust/owner.h"
#include "protocol/hostif/control_socket.h"

namespace hostnic {
namespace {

// The most connections that have not opened a device, if there are descriptors for them; programs
// are in that state for milliseconds, unless many begin at once.
constexpr uint64_t kMaxIdleConnections = 512;
// Requests of users without privileges that are being looked at, of each and of all: a thread each.
constexpr UserShares::Limits kOpening{.strangers = 32, .user = 8};
constexpr std::chrono::seconds kWaitsForThread{10};
constexpr int kWaitingIntervalMs = 5;
// How many connections are accepted before others have their turn.
constexpr int kAcceptedAtOnce = 32;
// A user whom nobody is.
constexpr uint32_t kNobodyKnown = UINT32_MAX;
// Sessions end in that time, or wait for what will not come.
constexpr std::chrono::seconds kSessionsEnd{20};
constexpr std::chrono::seconds kLinesEvery{60};
constexpr int kReapIntervalMs = 1000, kLookIntervalMs = 100;
// The most descriptors that hostnicd keeps open beside its sessions' ones and those of connections.
constexpr uint32_t kOwnDescriptors = 96;

// Three quarters for users without privileges, half of these for each.
UserShares::Limits connections_for(uint64_t descriptors) {
  const uint64_t all = std::clamp<uint64_t>(descriptors / 8, 16, kMaxIdleConnections);
  return {.all = all, .strangers = all * 3 / 4, .user = all * 3 / 8};
}

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

ucred peer_of(int socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) peer.uid = kNobodyKnown;
  return peer;
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

// Threads that wait in the kernel for a stranger's file (FUSE) can't be killed, and keep the
// process, and with it sockets, ports and locks, which whoever starts hostnicd anew needs. A
// thread closes them, since it may come to such a file, too; what was opened first is ours.
void give_descriptors_back() {
  constexpr std::chrono::milliseconds kPatience{1000};
  static std::atomic<bool> closed{false};
  try {
    std::thread([] {
      syscall(SYS_close_range, STDERR_FILENO + 1, ~0u, 0);
      closed.store(true);
    }).detach();
  } catch (const std::system_error&) {
    return;  // no thread is left
  }
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (!closed.load() && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

// A long answer as a file in memory. Not for strangers, who could keep such files: they are
// hostnicd's memory.
UniqueFd file_of(const std::string& text) {
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
      error_watch_(daemon),
      network_(daemon, [this] { tell_sessions(); }) {
  const uint64_t limit = descriptor_limit();
  most_connections_ = connections_for(limit);
  opening_.set_limits(kOpening);
  closers().start();
  const uint64_t own = most_connections_.all + kOwnDescriptors;
  const uint64_t allowed = (std::max(limit, own) - own) / ClientSession::kDescriptors;
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

void ControlServer::serve_metrics(std::unique_ptr<MetricsListener> listener) {
  metrics_ = std::move(listener);
  watch(epoll_fd_.get(), metrics_->fd());
}

ControlServer::~ControlServer() {
  error_watch_.look();
  error_book().save();
  captures_.clear();
  // All sessions are asked at once, so that they end in the time of one.
  for (ClientSession& session : sessions_) session.request_stop();
  // A session that looks at a stranger's file, or closes it, may wait for ever.
  const auto end = std::chrono::steady_clock::now() + kSessionsEnd;
  const auto left = [&] { return std::ranges::count(sessions_, false, &ClientSession::finished); };
  while (left() != 0 && std::chrono::steady_clock::now() < end)
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  if (left() != 0) {
    log_problem("{} programs' files do not answer: ending without closing them", left());
    listeners_.clear();
    give_descriptors_back();
    _exit(0);
  }
  sessions_.clear();
  while (!connections_.empty()) remove(connections_.begin());
}

int ControlServer::wait_ms() {
  const int own_ms = waiting_ != 0                             ? kWaitingIntervalMs
                     : !sessions_.empty()                      ? kLookIntervalMs
                     : retired_left_ || error_book().unsaved() ? kReapIntervalMs
                     : sysfs_.wanted()                         ? SysfsExport::kIntervalMs
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
  error_watch_.look();
}

// Writes what has gone wrong lately, at most once a second.
void ControlServer::keep_errors() {
  const auto now = std::chrono::steady_clock::now();
  if (!error_book().unsaved() || now < save_errors_from_) return;
  save_errors_from_ = now + std::chrono::milliseconds(kReapIntervalMs);
  if (const int error = error_book().save(); error != 0)
    log_line("errors_directory {}: {}", daemon_.plan().errors_directory, strerror(error));
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
    serve_waiting();
    look_at_sessions();
    sysfs_.refresh();
    watchdog_.look();
    keep_errors();
    if (retired_left_) retired_left_ = daemon_.regions().reap() != 0;
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
  // Whoever opened that port wants everything to be seen (SECURITY.md).
  if (metrics_ != nullptr && fd == metrics_->fd())
    return metrics_->handle(
        [this](MetricsFormat format) { return metrics_of(daemon_, Asker{}, format); });
  if (cm_.handle(fd)) return;
  if (prompt_ != nullptr && fd == STDIN_FILENO) {
    if (!prompt_->handle_input()) daemon_.quit();
    return;
  }
  const auto capture =
      std::ranges::find_if(captures_, [&](const auto& each) { return each->socket() == fd; });
  if (capture != captures_.end()) return end_capture(capture);
  const auto connection =
      std::find_if(connections_.begin(), connections_.end(),
                   [&](const Connection& each) { return each.socket.get() == fd; });
  if (connection != connections_.end() && !serve_connection(*connection)) remove(connection);
}

// Closes what is left of a connection where nobody waits for that.
void ControlServer::remove(Connections::iterator connection) {
  if (connection->waits_until) --waiting_;
  if (connection->socket) {
    epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, connection->socket.get(), nullptr);
    shutdown(connection->socket.get(), SHUT_RDWR);
  }
  closers().close(std::move(connection->socket), connection->stranger);
  connections_.erase(connection);
}

void ControlServer::accept_connections(size_t listener) {
  const View* view = listener == 0 ? nullptr : &daemon_.plan().views[listener - 1];
  for (int i = 0; i < kAcceptedAtOnce; ++i) {
    UniqueFd fd(accept4(listeners_[listener].fd(), nullptr, nullptr, SOCK_CLOEXEC));
    if (!fd && (errno == EMFILE || errno == ENFILE)) {
      accept_one_without_descriptor(listener);
      return;  // there may be more, and then epoll says so again
    }
    if (!fd) return;
    Connection connection{.socket = {}, .peer = peer_of(fd.get()), .view = view};
    connection.socket = std::move(fd);
    connection.stranger = limited_user(connection.peer.uid);
    make_room(connection.stranger);
    connections_.push_back(std::move(connection));
    if (watch(epoll_fd_.get(), connections_.back().socket.get()) != 0)
      remove(std::prev(connections_.end()));
  }
}

// Before another connection of a user's: where he, or all users without privileges, have as many as
// they may, one of them makes room.
void ControlServer::make_room(std::optional<uint32_t> stranger) {
  const auto of_user = std::ranges::count(connections_, stranger, &Connection::stranger);
  const auto strangers = std::ranges::count_if(
      connections_, [](const Connection& each) { return each.stranger.has_value(); });
  if (stranger && static_cast<uint64_t>(of_user) >= most_connections_.user)
    remove(std::ranges::find(connections_, stranger, &Connection::stranger));
  else if (connections_.size() >= most_connections_.all ||
           (stranger && static_cast<uint64_t>(strangers) >= most_connections_.strangers))
    remove_one();
}

// Removes the oldest connection of the user without privileges who has most, or of all.
void ControlServer::remove_one() {
  std::map<uint32_t, uint64_t> of_user;
  for (const Connection& each : connections_)
    if (each.stranger) ++of_user[*each.stranger];
  const auto most =
      std::ranges::max_element(of_user, {}, [](const auto& user) { return user.second; });
  const auto oldest =
      most == of_user.end()
          ? connections_.begin()
          : std::ranges::find(connections_, std::optional(most->first), &Connection::stranger);
  if (oldest != connections_.end()) remove(oldest);
}

// Closes the connection that waits first, so that its program learns it, by the descriptor that is
// kept for this.
void ControlServer::accept_one_without_descriptor(size_t listener) {
  // Descriptors come and go while they are few: a line a minute says enough.
  const auto now = std::chrono::steady_clock::now();
  if (now >= say_descriptors_from_) {
    say_descriptors_from_ = now + kLinesEvery;
    log_problem(
        "no descriptor is left, connections are closed: {} devices are open, {} other "
        "connections, and RLIMIT_NOFILE is {}",
        sessions_.size(), connections_.size(), descriptor_limit());
  }
  remove_one();
  spare_fd_.reset();
  UniqueFd fd(accept4(listeners_[listener].fd(), nullptr, nullptr, SOCK_CLOEXEC));
  if (fd) {
    shutdown(fd.get(), SHUT_RDWR);
    const std::optional<uint32_t> stranger = limited_user(peer_of(fd.get()).uid);
    closers().close(std::move(fd), stranger);
  }
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
  const auto refuse = [&](const ControlError& error) {
    return send_reply(fd, MSG_DONTWAIT, error_reply(error));
  };
  const bool opens = is_open_request(datagram.bytes);
  if (opens) {
    const std::string no_session = why_no_session(connection.peer.uid);
    // Its session takes it, with its descriptors.
    if (no_session.empty()) return open_session(connection);
    if (limit_noted_.insert(connection.peer.uid).second)
      log_problem("a program of user {} (pid {}) has met a limit: {}", connection.peer.uid,
                  connection.peer.pid, no_session);
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

// Why no further session may be opened; empty: it may.
std::string ControlServer::why_no_session(uint32_t uid) const {
  if (sessions_.size() >= max_sessions_)
    return fmt::format("{} devices are open already ({})", sessions_.size(),
                       max_sessions_ == daemon_.plan().max_clients
                           ? "limits.max_clients"
                           : "hostnicd's RLIMIT_NOFILE allows no more");
  if (is_owner(uid)) return {};
  if (const auto left = penalties_.left(uid, std::chrono::steady_clock::now()); left.count() > 0)
    return fmt::format(
        "a program of user {} took memory away that the NIC was using: no device for {} s", uid,
        std::chrono::ceil<std::chrono::seconds>(left).count());
  const auto of_user = std::ranges::count(sessions_, uid, &ClientSession::uid);
  const uint64_t allowed = std::min<uint64_t>(daemon_.plan().user_clients, (max_sessions_ + 1) / 2);
  if (static_cast<uint64_t>(of_user) >= allowed)
    return fmt::format("user {} has {} devices open already (limits.user_clients)", uid, of_user);
  const auto strangers = std::ranges::count_if(
      sessions_, [](const ClientSession& session) { return !is_owner(session.uid()); });
  if (static_cast<uint64_t>(strangers) >= UserShares::shares_of(max_sessions_).strangers)
    return fmt::format(
        "{} devices are open already, and the rest is kept for hostnicd's own user and root "
        "(limits.max_clients)",
        strangers);
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
  const uint32_t uid = connection.peer.uid;
  const Asker asker{uid, is_owner(uid), names_one_user(uid)};
  CommandResult result = run_command(daemon_, asker, view != nullptr ? view->command(text) : text);
  if (view != nullptr) result.text = view->answer(result.text);
  if (result.error == 0 && text.starts_with("st")) sysfs_.refresh(true);  // start, stop
  if (result.error != 0)
    return send_reply(fd, MSG_DONTWAIT, error_reply({result.error, result.text}),
                      bytes_of(result.text));
  constexpr size_t kRoom = kMaxControlBytes - sizeof(ControlReply);
  if (result.text.size() > kRoom && asker.is_owner) {
    if (const UniqueFd file = file_of(result.text))
      return send_reply(fd, MSG_DONTWAIT, ControlReply{}, {}, std::array{file.get()});
  }
  if (result.text.size() > kRoom && is_for_programs(text)) {
    const std::string_view error = "the answer is longer than 128 KiB: name one NIC";
    return send_reply(fd, MSG_DONTWAIT, error_reply({EMSGSIZE, std::string(error)}),
                      bytes_of(error));
  }
  if (result.text.size() > kRoom) {
    constexpr std::string_view kCut = "... (more than fits; name one NIC)\n";
    result.text.resize(result.text.rfind('\n', kRoom - kCut.size()) + 1);
    result.text += kCut;
  }
  return send_reply(fd, MSG_DONTWAIT, ControlReply{}, bytes_of(result.text));
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
  payload.insert(payload.end(), bytes_of(names).begin(), bytes_of(names).end());
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

// Returns false if the connection was handed over, or refused.
bool ControlServer::open_session(Connection& connection) {
  const int fd = connection.socket.get();
  if (!opening_.take(connection.stranger)) return hold(connection);
  epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, fd, nullptr);
  ClientSession& session =
      sessions_.emplace_back(daemon_, std::move(connection.socket), connection.peer,
                             finished_fd_.get(), connection.view, opening_);
  if (session.start()) return false;
  opening_.give_back(connection.stranger);
  connection.socket = session.take_socket();
  sessions_.pop_back();
  const std::string why = fmt::format(
      "hostnicd can start no further thread: {} devices are open (see ulimit -u of its user, and "
      "pids.max of its cgroup)",
      sessions_.size());
  const auto now = std::chrono::steady_clock::now();
  if (now >= say_threads_from_) {
    say_threads_from_ = now + kLinesEvery;
    log_problem("a program of user {} (pid {}) was refused: {}", connection.peer.uid,
                connection.peer.pid, why);
  }
  send_reply(fd, MSG_DONTWAIT, error_reply({EAGAIN, why}));
  return false;
}

// Lets a request wait until others of its user's have been looked at. Returns whether it may.
bool ControlServer::hold(Connection& connection) {
  const int fd = connection.socket.get();
  const auto now = std::chrono::steady_clock::now();
  if (!connection.waits_until) {
    epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, fd, nullptr);
    connection.waits_until = now + kWaitsForThread;
    ++waiting_;
  }
  if (now < *connection.waits_until) return true;
  const std::string why =
      fmt::format("as many programs of user {} as may open devices at a time do so, and don't end",
                  connection.peer.uid);
  if (limit_noted_.insert(connection.peer.uid).second)
    log_problem("a program of user {} (pid {}) has met a limit: {}", connection.peer.uid,
                connection.peer.pid, why);
  send_reply(fd, MSG_DONTWAIT, error_reply({EAGAIN, why}));
  return false;
}

void ControlServer::serve_waiting() {
  if (waiting_ == 0) return;
  std::set<uint32_t> full;  // users whose next request would wait as well
  for (auto next = connections_.begin(); next != connections_.end();) {
    const auto connection = next++;
    if (!connection->waits_until) continue;
    const uint32_t uid = connection->peer.uid;
    if (full.contains(uid) && std::chrono::steady_clock::now() < *connection->waits_until) continue;
    if (!serve_connection(*connection))
      remove(connection);
    else
      full.insert(uid);
  }
}

void ControlServer::reap_sessions() {
  eventfd_t count = 0;
  eventfd_read(finished_fd_.get(), &count);
  const auto now = std::chrono::steady_clock::now();
  std::erase_if(sessions_, [&](const ClientSession& session) {
    if (!session.finished()) return false;
    if (session.took_memory_away()) penalties_.note(session.uid(), now);
    return true;
  });
  error_watch_.look();
  retired_left_ = daemon_.regions().reap() != 0;
}

}  // namespace hostnic
