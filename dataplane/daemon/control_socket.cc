#include "dataplane/daemon/control_socket.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <filesystem>

namespace hostnic {
namespace {

Unexpected<std::string> failed(const std::string& path, const char* what) {
  return Unexpected(fmt::format("socket {}: {}: {}", path, what, strerror(errno)));
}

sockaddr_un address_of(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  memcpy(address.sun_path, path.data(), std::min(path.size(), sizeof(address.sun_path) - 1));
  return address;
}

Expected<void, std::string> make_directory(const std::string& path) {
  const std::filesystem::path directory = std::filesystem::path(path).parent_path();
  if (directory.empty()) return {};
  std::error_code error;
  if (std::filesystem::exists(directory, error)) return {};
  std::filesystem::create_directories(directory.parent_path(), error);
  if (mkdir(directory.c_str(), 0700) != 0 && errno != EEXIST)
    return Unexpected(fmt::format("directory {}: {} (choose a place by --socket PATH)",
                                  directory.string(), strerror(errno)));
  return {};
}

Expected<UniqueFd, std::string> take_lock(const std::string& path) {
  const std::string lock_path = path + ".lock";
  for (;;) {
    UniqueFd fd(open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
    if (!fd) return failed(lock_path, "open");
    if (flock(fd.get(), LOCK_EX | LOCK_NB) != 0)
      return Unexpected(fmt::format(
          "another hostnicd already listens on {} (stop it, or choose another --socket)", path));
    // Its last owner may have removed the file between our open and our lock.
    struct stat ours {
    }, named{};
    if (fstat(fd.get(), &ours) == 0 && stat(lock_path.c_str(), &named) == 0 &&
        ours.st_ino == named.st_ino && ours.st_dev == named.st_dev)
      return fd;
  }
}

// Whether somebody accepts connections there.
bool somebody_listens(const sockaddr_un& address) {
  const UniqueFd probe(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  return connect(probe.get(), reinterpret_cast<const sockaddr*>(&address), sizeof(address)) == 0 ||
         errno != ECONNREFUSED;
}

}  // namespace

Expected<ControlListener, std::string> ControlListener::create(const std::string& path) {
  sockaddr_un address = address_of(path);
  if (path.empty() || path.size() >= sizeof(address.sun_path))
    return Unexpected(fmt::format("socket path {}: between 1 and {} bytes are possible", path,
                                  sizeof(address.sun_path) - 1));
  if (auto made = make_directory(path); !made) return Unexpected(made.error());
  ControlListener listener;
  auto lock = take_lock(path);
  if (!lock) return Unexpected(lock.error());
  listener.lock_ = std::move(*lock);
  struct stat existing {};
  if (lstat(path.c_str(), &existing) == 0) {
    if (!S_ISSOCK(existing.st_mode))
      return Unexpected(fmt::format("{} exists and is no socket (choose another --socket)", path));
    if (somebody_listens(address))
      return Unexpected(fmt::format(
          "somebody already listens on {} (stop it, or choose another --socket)", path));
    unlink(path.c_str());
  }
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd) return failed(path, "socket");
  if (bind(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    return failed(path, "bind");
  listener.path_ = path;  // from here on it is ours to remove
  listener.socket_ = std::move(fd);
  if (chmod(path.c_str(), 0600) != 0 || listen(listener.socket_.get(), 128) != 0)
    return failed(path, "listen");
  return listener;
}

ControlListener::~ControlListener() {
  if (path_.empty() || !socket_) return;
  unlink(path_.c_str());
  unlink((path_ + ".lock").c_str());
}

ReceiveResult receive_datagram(int fd, int flags, ControlDatagram& out) {
  out.bytes.resize(kMaxControlBytes);
  out.fds.clear();
  alignas(cmsghdr) char control[CMSG_SPACE(kMaxControlFds * sizeof(int))];
  iovec part{out.bytes.data(), out.bytes.size()};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof(control);
  const ssize_t received = recvmsg(fd, &message, flags | MSG_CMSG_CLOEXEC);
  if (received < 0)
    return errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR ? ReceiveResult::kAgain
                                                                     : ReceiveResult::kClosed;
  for (cmsghdr* header = CMSG_FIRSTHDR(&message); header != nullptr;
       header = CMSG_NXTHDR(&message, header)) {
    if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int passed = -1;
      memcpy(&passed, CMSG_DATA(header) + i * sizeof(int), sizeof(int));
      out.fds.emplace_back(passed);
    }
  }
  // An empty datagram looks like the end; no request is empty.
  if (received == 0) return ReceiveResult::kClosed;
  out.bytes.resize(static_cast<size_t>(received));
  out.cut = (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC)) != 0;
  return ReceiveResult::kOk;
}

bool send_reply(int fd, int flags, ControlReply reply, std::span<const std::byte> payload,
                std::span<const int> fds) {
  reply.payload_bytes = static_cast<uint32_t>(payload.size());
  iovec parts[2] = {{&reply, sizeof(reply)},
                    {const_cast<std::byte*>(payload.data()), payload.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  alignas(cmsghdr) char control[CMSG_SPACE(8 * sizeof(int))] = {};
  if (!fds.empty()) {
    message.msg_control = control;
    message.msg_controllen = CMSG_SPACE(fds.size_bytes());
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(fds.size_bytes());
    memcpy(CMSG_DATA(header), fds.data(), fds.size_bytes());
  }
  ssize_t sent = -1;
  do {
    sent = sendmsg(fd, &message, flags | MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  return sent >= 0;
}

}  // namespace hostnic
