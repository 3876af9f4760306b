// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/verify/channel.h"

#include <fmt/format.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstring>
#include <memory>
#include <thread>

namespace hostnic::verify {
namespace {

constexpr auto kConnectPatience = std::chrono::seconds(20);

using Addresses = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

Addresses resolve(const char* host, const std::string& port) {
  addrinfo hints{};
  hints.ai_family = AF_INET;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = host == nullptr ? AI_PASSIVE : 0;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(host, port.c_str(), &hints, &found); error != 0)
    throw Failure{fmt::format("{}:{}: {}", host ? host : "*", port, gai_strerror(error))};
  return {found, freeaddrinfo};
}

void set_option(int fd, int level, int name) {
  const int on = 1;
  setsockopt(fd, level, name, &on, sizeof on);
}

}  // namespace

Channel::~Channel() {
  if (fd_ >= 0) close(fd_);
}

Channel Channel::listen(const std::string& port) {
  const Addresses address = resolve(nullptr, port);
  const int listener = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  set_option(listener, SOL_SOCKET, SO_REUSEADDR);
  if (bind(listener, address->ai_addr, address->ai_addrlen) != 0 || ::listen(listener, 1) != 0) {
    const int error = errno;
    close(listener);
    throw Failure{fmt::format("can't listen on TCP port {}: {}", port, strerror(error))};
  }
  const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
  const int error = errno;
  close(listener);
  if (fd < 0) throw Failure{fmt::format("accept on TCP port {}: {}", port, strerror(error))};
  set_option(fd, IPPROTO_TCP, TCP_NODELAY);
  return Channel(fd);
}

Channel Channel::connect(const std::string& host, const std::string& port) {
  const Addresses address = resolve(host.c_str(), port);
  const auto give_up = std::chrono::steady_clock::now() + kConnectPatience;
  for (;;) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    if (::connect(fd, address->ai_addr, address->ai_addrlen) == 0) {
      set_option(fd, IPPROTO_TCP, TCP_NODELAY);
      return Channel(fd);
    }
    const int error = errno;
    close(fd);
    if (std::chrono::steady_clock::now() > give_up)
      throw Failure{fmt::format("can't connect to {}:{}: {}", host, port, strerror(error))};
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
}

void Channel::send(std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::send(fd_, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw Failure{"the other side is gone (its own message says why)"};
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

void Channel::receive(std::span<std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t n = recv(fd_, bytes.data(), bytes.size(), 0);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) throw Failure{"the other side is gone (its own message says why)"};
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
}

bool Channel::peer_gone() const {
  std::byte next;
  return recv(fd_, &next, 1, MSG_PEEK | MSG_DONTWAIT) == 0;
}

void Channel::barrier(unsigned tag) {
  const unsigned theirs = exchange(tag);
  if (theirs != tag)
    throw Failure{fmt::format("the sides took different ways: {} here, {} there", tag, theirs)};
}

}  // namespace hostnic::verify
