// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/start/service_manager.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <charconv>
#include <optional>

namespace hostnic {
namespace {

constexpr int kFirstPassed = 3;  // SD_LISTEN_FDS_START
constexpr uint64_t kMostPassed = 64;

std::optional<uint64_t> number_of_variable(const char* name) {
  const char* const text = getenv(name);
  if (text == nullptr) return {};
  uint64_t value = 0;
  const char* const end = text + strlen(text);
  const auto [at, code] = std::from_chars(text, end, value);
  if (code != std::errc() || at != end) return {};
  return value;
}

// What a process has from its parent is meant for the one that is named.
bool is_for_us(const char* pid_variable) {
  const auto pid = number_of_variable(pid_variable);
  return pid && *pid == static_cast<uint64_t>(getpid());
}

}  // namespace

bool tell_service_manager(std::string_view state) {
  const char* path = getenv("NOTIFY_SOCKET");
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  const size_t length = path == nullptr ? 0 : strlen(path);
  if (length == 0 || length >= sizeof(address.sun_path)) return false;
  memcpy(address.sun_path, path, length);
  // A name that begins with @ is one in the abstract namespace: it begins with a null byte, and its
  // length counts.
  if (path[0] == '@') address.sun_path[0] = 0;
  const UniqueFd socket_fd(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket_fd) return false;
  // The control thread waits for no manager that does not read.
  return sendto(socket_fd.get(), state.data(), state.size(), MSG_NOSIGNAL | MSG_DONTWAIT,
                reinterpret_cast<const sockaddr*>(&address),
                static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + length)) > 0;
}

Expected<std::vector<UniqueFd>, std::string> take_passed_sockets() {
  std::vector<UniqueFd> sockets;
  const bool ours = is_for_us("LISTEN_PID");
  const auto count = number_of_variable("LISTEN_FDS");
  for (const char* name : {"LISTEN_PID", "LISTEN_FDS", "LISTEN_FDNAMES"}) unsetenv(name);
  if (!ours) return sockets;
  if (!count || *count > kMostPassed)
    return Unexpected(fmt::format("LISTEN_FDS is no number up to {}", kMostPassed));
  for (int fd = kFirstPassed; fd < kFirstPassed + static_cast<int>(*count); ++fd) {
    if (fcntl(fd, F_SETFD, FD_CLOEXEC) != 0)
      return Unexpected(fmt::format("descriptor {} of LISTEN_FDS: {}", fd, strerror(errno)));
    sockets.emplace_back(fd);
  }
  return sockets;
}

uint64_t watchdog_limit_ns() {
  // Without WATCHDOG_PID it is meant for whoever reads it.
  if (getenv("WATCHDOG_PID") != nullptr && !is_for_us("WATCHDOG_PID")) return 0;
  const uint64_t limit_us = number_of_variable("WATCHDOG_USEC").value_or(0);
  return limit_us > UINT64_MAX / 1000 ? 0 : limit_us * 1000;
}

}  // namespace hostnic
