// SPDX-License-Identifier: BSD-3-Clause
// Connections that have not opened a device: accepting them, how many there may be, and which one
// makes room.
#include <errno.h>
#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <iterator>
#include <map>
#include <thread>

#include "dataplane/daemon/log.h"
#include "dataplane/daemon/server/server.h"
#include "dataplane/daemon/trust/foreign_descriptors.h"
#include "dataplane/daemon/trust/owner.h"

namespace hostnic {
namespace {

// The most connections that have not opened a device, if there are descriptors for them; programs
// are in that state for milliseconds, unless many begin at once.
constexpr uint64_t kMaxIdleConnections = 512;
// How many connections are accepted before others have their turn.
constexpr int kAcceptedAtOnce = 32;
// A user whom nobody is.
constexpr uint32_t kNobodyKnown = UINT32_MAX;
ucred peer_of(int socket) {
  ucred peer{};
  socklen_t length = sizeof(peer);
  if (getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &length) != 0) peer.uid = kNobodyKnown;
  return peer;
}

}  // namespace

// Three quarters for users without privileges, half of these for each.
UserShares::Limits ControlServer::connections_for(uint64_t descriptors) {
  const uint64_t all = std::clamp<uint64_t>(descriptors / 8, 16, kMaxIdleConnections);
  return {.all = all, .strangers = all * 3 / 4, .user = all * 3 / 8};
}

uint64_t ControlServer::descriptor_limit() {
  rlimit limit{};
  getrlimit(RLIMIT_NOFILE, &limit);
  return limit.rlim_cur;
}

bool ControlServer::try_watch(int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return epoll_ctl(epoll_fd_.get(), EPOLL_CTL_ADD, fd, &event) == 0;
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
    if (!try_watch(connections_.back().socket.get())) remove(std::prev(connections_.end()));
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

}  // namespace hostnic
