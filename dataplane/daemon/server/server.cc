// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/server/server.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/signalfd.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <system_error>
#include <thread>

#include "dataplane/daemon/control/prompt.h"
#include "dataplane/daemon/log.h"
#include "dataplane/daemon/observe/metrics.h"
#include "dataplane/daemon/start/service_manager.h"
#include "dataplane/daemon/trust/foreign_descriptors.h"

namespace hostnic {
namespace {

// Requests of users without privileges that are being looked at, of each and of all: a thread each.
constexpr UserShares::Limits kOpening{.strangers = 32, .user = 8};
constexpr int kWaitingIntervalMs = 5;
// Sessions end in that time, or wait for what will not come.
constexpr std::chrono::seconds kSessionsEnd{20};
constexpr int kReapIntervalMs = 1000, kLookIntervalMs = 100;
// The most descriptors that hostnicd keeps open beside its sessions' ones and those of connections.
constexpr uint32_t kOwnDescriptors = 96;

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
      inquiries_(daemon),
      cm_(daemon, epoll_fd_.get(),
          [this](NicInstance& nic, const ManagementDatagram& datagram, const cm::Mad& mad) {
            return inquiries_.receive(nic, datagram, mad);
          }),
      sysfs_(daemon, daemon.plan().sysfs_directory),
      watchdog_(daemon.lcores(), watchdog_limit_ns()),
      error_watch_(daemon),
      network_(daemon, [this] { tell_sessions(); }),
      adapters_(daemon, [this] { tell_sessions(); }) {
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
  for (const ControlListener& listener : listeners_) watch(listener.fd());
  watch(signal_fd_);
  watch(finished_fd_.get());
  if (network_.fd() >= 0) watch(network_.fd());
  if (prompt_ != nullptr) watch(STDIN_FILENO);
  sysfs_.refresh(true);
}

void ControlServer::serve_metrics(std::unique_ptr<MetricsListener> listener) {
  metrics_ = std::move(listener);
  watch(metrics_->fd());
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
  const int own_ms = waiting_ != 0        ? kWaitingIntervalMs
                     : !sessions_.empty() ? kLookIntervalMs
                     : retired_left_ || error_book().unsaved() || adapters_.watches()
                         ? kReapIntervalMs
                     : sysfs_.wanted() ? SysfsExport::kIntervalMs
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
  adapters_.look();
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

}  // namespace hostnic
