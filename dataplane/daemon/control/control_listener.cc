// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/control/control_listener.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <grp.h>
#include <stddef.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <charconv>
#include <filesystem>

#include "protocol/hostif/control_socket.h"

namespace hostnic {
namespace {

Unexpected<std::string> listening_failed(const std::string& path, const char* what) {
  return Unexpected(fmt::format("socket {}: {}: {}", path, what, strerror(errno)));
}

Expected<void, std::string> make_directory(const std::string& path, mode_t mode) {
  const std::filesystem::path directory = std::filesystem::path(path).parent_path();
  if (directory.empty()) return {};
  std::error_code error;
  if (std::filesystem::exists(directory, error)) return {};
  std::filesystem::create_directories(directory.parent_path(), error);
  if (mkdir(directory.c_str(), mode) != 0 && errno != EEXIST)
    return Unexpected(fmt::format("directory {}: {} (choose a place by --socket PATH)",
                                  directory.string(), strerror(errno)));
  return {};
}

Expected<UniqueFd, std::string> take_lock(const std::string& path) {
  const std::string lock_path = path + ".lock";
  for (;;) {
    UniqueFd fd(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return listening_failed(lock_path, "open");
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
      return Unexpected(fmt::format(
          "another hostnicd already listens on {} (stop it, or choose another --socket)", path));
    // The lock must be on the file that has the name: its last owner may have removed it between
    // our open and our lock.
    struct stat ours {
    }, named{};
    if (fstat(fd.get(), &ours) == 0 && stat(lock_path.c_str(), &named) == 0 &&
        ours.st_ino == named.st_ino && ours.st_dev == named.st_dev)
      return fd;
  }
}

// The id of a group; -1: none wanted.
Expected<gid_t, std::string> group_id(const std::string& group) {
  if (group.empty()) return static_cast<gid_t>(-1);
  gid_t number = 0;
  const char* const end = group.data() + group.size();
  const auto [at, code] = std::from_chars(group.data(), end, number);
  if (code == std::errc() && at == end) return number;
  if (const struct group* known = getgrnam(group.c_str())) return known->gr_gid;
  return Unexpected(fmt::format("there is no group {} (socket_group)", group));
}

// Whether somebody accepts connections at the address.
bool somebody_listens(const sockaddr_un& address) {
  const UniqueFd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
         errno != ECONNREFUSED;
}

}  // namespace

Expected<ControlListener, std::string> ControlListener::create(const std::string& path,
                                                               const SocketAccess& access) {
  const auto address = socket_address(path);
  if (path.empty() || !address)
    return Unexpected(fmt::format("socket path {}: between 1 and {} bytes are possible", path,
                                  sizeof(sockaddr_un::sun_path) - 1));
  const auto group = group_id(access.group);
  if (!group) return Unexpected(group.error());
  const bool for_others = (access.mode & 0077) != 0;
  if (auto made = make_directory(path, for_others ? 0711 : 0700); !made)
    return Unexpected(made.error());
  ControlListener listener;
  auto lock = take_lock(path);
  if (!lock) return Unexpected(lock.error());
  listener.lock_ = std::move(*lock);
  struct stat existing {};
  if (lstat(path.c_str(), &existing) == 0) {
    if (!S_ISSOCK(existing.st_mode))
      return Unexpected(fmt::format("{} exists and is no socket (choose another --socket)", path));
    if (somebody_listens(*address))
      return Unexpected(fmt::format(
          "somebody already listens on {} (stop it, or choose another --socket)", path));
    unlink(path.c_str());
  }
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return listening_failed(path, "socket");
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0)
    return listening_failed(path, "bind");
  listener.path_ = path;  // from here on the file is ours to remove
  listener.socket_ = std::move(fd);
  // The group is changed first, so that another group has the rights at no moment.
  if (*group != static_cast<gid_t>(-1) &&
      (chmod(path.c_str(), 0600) != 0 || chown(path.c_str(), static_cast<uid_t>(-1), *group) != 0))
    return listening_failed(path, "group");
  if (chmod(path.c_str(), access.mode) != 0 || listen(listener.socket_.get(), 128) != 0)
    return listening_failed(path, "listen");
  return listener;
}

Expected<ControlListener, std::string> ControlListener::adopt(UniqueFd socket) {
  const auto option = [&socket](int name) {
    int value = -1;
    socklen_t bytes = sizeof(value);
    return getsockopt(socket.get(), SOL_SOCKET, name, &value, &bytes) == 0 ? value : -1;
  };
  sockaddr_un address{};
  socklen_t bytes = sizeof(address);
  if (option(SO_DOMAIN) != AF_UNIX || option(SO_TYPE) != SOCK_SEQPACKET ||
      option(SO_ACCEPTCONN) != 1 ||
      getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &bytes) != 0 ||
      bytes <= offsetof(sockaddr_un, sun_path) || address.sun_path[0] == 0)
    return Unexpected(
        fmt::format("descriptor {}, passed by the service manager, is no listening UNIX socket of "
                    "type SOCK_SEQPACKET that has a path (ListenSequentialPacket=PATH)",
                    socket.get()));
  ControlListener listener;
  listener.path_.assign(address.sun_path, strnlen(address.sun_path, sizeof(address.sun_path)));
  if (fcntl(socket.get(), F_SETFL, fcntl(socket.get(), F_GETFL) | O_NONBLOCK) != 0)
    return listening_failed(listener.path_, "O_NONBLOCK");
  listener.socket_ = std::move(socket);
  return listener;
}

ControlListener::~ControlListener() {
  if (!lock_ || !socket_) return;
  unlink(path_.c_str());
  unlink((path_ + ".lock").c_str());
}

}  // namespace hostnic
