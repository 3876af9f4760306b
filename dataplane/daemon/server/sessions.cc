// SPDX-License-Identifier: BSD-3-Clause
// Devices that programs open: how many, for whom, who waits, and what is left of those that end.
#include <errno.h>
#include <fmt/format.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>

#include "dataplane/daemon/log.h"
#include "dataplane/daemon/server/server.h"
#include "dataplane/daemon/trust/owner.h"
#include "protocol/hostif/control_socket.h"

namespace hostnic {
namespace {

constexpr std::chrono::seconds kWaitsForThread{10};

}  // namespace

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

// Tells the log that a user's programs meet a limit, once.
void ControlServer::note_limit(const Connection& connection, const std::string& limit) {
  if (limit_noted_.insert(connection.peer.uid).second)
    log_problem("a program of user {} (pid {}) has met a limit: {}", connection.peer.uid,
                connection.peer.pid, limit);
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
  note_limit(connection, why);
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
