// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/metrics_listener.h"

#include <errno.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>

namespace hostnic {
namespace {

std::string response(std::string_view status, std::string_view type, std::string_view body) {
  return fmt::format(
      "HTTP/1.1 {}\r\nContent-Type: {}\r\nContent-Length: {}\r\nConnection: close\r\n\r\n{}",
      status, type, body.size(), body);
}

std::string refusal(std::string_view status) {
  return response(status, "text/plain; charset=utf-8", fmt::format("{}\n", status));
}

}  // namespace

MetricsRequest parse_metrics_request(std::string_view text) {
  using Kind = MetricsRequest::Kind;
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string_view::npos)
    return {text.size() >= MetricsListener::kMaxRequestBytes ? Kind::kBad : Kind::kUnfinished};
  const std::string_view head = text.substr(0, end);
  const std::string_view line = head.substr(0, head.find("\r\n"));
  const size_t path_at = line.find(' ');
  const size_t path_end = line.rfind(' ');
  if (path_at == std::string_view::npos || path_end <= path_at ||
      !line.substr(path_end + 1).starts_with("HTTP/1."))
    return {Kind::kBad};
  if (line.substr(0, path_at) != "GET") return {Kind::kBadMethod};
  std::string_view path = line.substr(path_at + 1, path_end - path_at - 1);
  path = path.substr(0, path.find('?'));
  if (path != "/metrics" && path != "/") return {Kind::kNotFound};
  const bool open = head.find("application/openmetrics-text") != std::string_view::npos;
  return {Kind::kGood, open ? MetricsFormat::kOpenMetrics : MetricsFormat::kPrometheus};
}

Expected<std::unique_ptr<MetricsListener>, std::string> MetricsListener::create(uint16_t port) {
  const auto failed = [&] {
    return Unexpected(
        fmt::format("metrics_port {}: 127.0.0.1:{}: {}", port, port, strerror(errno)));
  };
  std::unique_ptr<MetricsListener> made(new MetricsListener);
  made->listener_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  made->epoll_fd_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!made->listener_ || !made->epoll_fd_) return failed();
  const int on = 1;
  setsockopt(made->listener_.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* const raw = reinterpret_cast<sockaddr*>(&address);
  if (bind(made->listener_.get(), raw, length) != 0 || listen(made->listener_.get(), 16) != 0 ||
      getsockname(made->listener_.get(), raw, &length) != 0)
    return failed();
  made->port_ = ntohs(address.sin_port);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = made->listener_.get();
  if (epoll_ctl(made->epoll_fd_.get(), EPOLL_CTL_ADD, event.data.fd, &event) != 0) return failed();
  return made;
}

void MetricsListener::accept_connections() {
  for (size_t i = 0; i < kMaxConnections; ++i) {
    Connection connection;
    connection.socket =
        UniqueFd(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!connection.socket) return;
    if (connections_.size() == kMaxConnections) connections_.pop_front();
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = connection.socket.get();
    if (epoll_ctl(epoll_fd_.get(), EPOLL_CTL_ADD, event.data.fd, &event) == 0)
      connections_.push_back(std::move(connection));
  }
}

void MetricsListener::handle(const std::function<std::string(MetricsFormat)>& metrics) {
  epoll_event events[kMaxConnections + 1];
  const int count = epoll_wait(epoll_fd_.get(), events, kMaxConnections + 1, 0);
  for (int i = 0; i < count; ++i) {
    const int fd = events[i].data.fd;
    if (fd == listener_.get()) continue;
    const auto connection = std::ranges::find_if(
        connections_, [&](const Connection& each) { return each.socket.get() == fd; });
    if (connection != connections_.end() && !serve(*connection, metrics))
      connections_.erase(connection);
  }
  // New ones last: a descriptor that was closed above may be theirs.
  accept_connections();
}

// Returns false where the connection is to be closed.
bool MetricsListener::serve(Connection& connection,
                            const std::function<std::string(MetricsFormat)>& metrics) {
  if (!connection.answer.empty()) return send_answer(connection);
  char part[2048];
  const ssize_t got = recv(connection.socket.get(), part, sizeof(part), 0);
  if (got < 0) return errno == EAGAIN || errno == EINTR;
  if (got == 0) return false;
  connection.request.append(part, static_cast<size_t>(got));
  const MetricsRequest request = parse_metrics_request(connection.request);
  switch (request.kind) {
    case MetricsRequest::Kind::kUnfinished:
      return true;
    case MetricsRequest::Kind::kGood:
      connection.answer =
          response("200 OK", media_type(request.format), fresh_text(request.format, metrics));
      break;
    case MetricsRequest::Kind::kBadMethod:
      connection.answer = refusal("405 Method Not Allowed");
      break;
    case MetricsRequest::Kind::kNotFound:
      connection.answer = refusal("404 Not Found");
      break;
    case MetricsRequest::Kind::kBad:
      connection.answer = refusal("400 Bad Request");
      break;
  }
  return send_answer(connection);
}

const std::string& MetricsListener::fresh_text(
    MetricsFormat format, const std::function<std::string(MetricsFormat)>& metrics) {
  Text& text = texts_[static_cast<size_t>(format)];
  const auto now = std::chrono::steady_clock::now();
  if (text.text.empty() || now - text.made >= kFresh) text = {metrics(format), now};
  return text.text;
}

// Sends what there is room for, and comes again when there is more.
bool MetricsListener::send_answer(Connection& connection) {
  while (connection.sent < connection.answer.size()) {
    const ssize_t sent = send(connection.socket.get(), connection.answer.data() + connection.sent,
                              connection.answer.size() - connection.sent, MSG_NOSIGNAL);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && errno == EAGAIN) {
      epoll_event event{};
      event.events = EPOLLOUT;
      event.data.fd = connection.socket.get();
      return epoll_ctl(epoll_fd_.get(), EPOLL_CTL_MOD, event.data.fd, &event) == 0;
    }
    if (sent <= 0) return false;
    connection.sent += static_cast<size_t>(sent);
  }
  return false;
}

}  // namespace hostnic
