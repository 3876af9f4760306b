#include "dataplane/cli/control_client.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>

#include <span>

#include "dataplane/daemon/unique_fd.h"

namespace hostnic::cli {
namespace {

struct Answer {
  ControlReply reply;
  std::vector<std::byte> payload;
};

Expected<UniqueFd, std::string> connect_to(const std::string& path) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (path.size() >= sizeof(address.sun_path))
    return Unexpected(fmt::format("socket path {} is too long", path));
  memcpy(address.sun_path, path.data(), path.size());
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) return Unexpected(fmt::format("socket: {}", strerror(errno)));
  if (connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)) != 0)
    return Unexpected(fmt::format(
        "no hostnicd listens on {}: {} (start `hostnicd`, or use `hostnic lab`, or name another "
        "socket by --socket)",
        path, strerror(errno)));
  return fd;
}

Expected<Answer, std::string> request(const std::string& path, ControlKind kind,
                                      std::span<const char> payload) {
  auto fd = connect_to(path);
  if (!fd) return Unexpected(fd.error());
  ControlRequest header;
  header.kind = kind;
  header.payload_bytes = static_cast<uint32_t>(payload.size());
  iovec parts[2] = {{&header, sizeof(header)}, {const_cast<char*>(payload.data()), payload.size()}};
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  if (sendmsg(fd->get(), &message, MSG_NOSIGNAL) < 0)
    return Unexpected(fmt::format("socket {}: {}", path, strerror(errno)));
  std::vector<std::byte> bytes(kMaxControlBytes);
  const ssize_t received = recv(fd->get(), bytes.data(), bytes.size(), 0);
  Answer answer;
  if (received < static_cast<ssize_t>(sizeof(answer.reply)))
    return Unexpected(fmt::format("hostnicd on {} closed the connection", path));
  memcpy(&answer.reply, bytes.data(), sizeof(answer.reply));
  answer.reply.message[sizeof(answer.reply.message) - 1] = 0;
  answer.payload.assign(bytes.begin() + sizeof(answer.reply), bytes.begin() + received);
  return answer;
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

}  // namespace

Expected<std::vector<DeviceInfo>, std::string> list_devices(const std::string& socket_path) {
  auto answer = request(socket_path, ControlKind::kListDevices, {});
  if (!answer) return Unexpected(answer.error());
  if (answer->reply.error != 0) return Unexpected(std::string(answer->reply.message));
  std::vector<DeviceInfo> devices(answer->payload.size() / sizeof(DeviceInfo));
  if (devices.size() != answer->reply.count)
    return Unexpected(fmt::format("hostnicd on {} sent a list of a wrong length", socket_path));
  if (!devices.empty())
    memcpy(devices.data(), answer->payload.data(), devices.size() * sizeof(DeviceInfo));
  for (DeviceInfo& device : devices) {
    device.name[sizeof(device.name) - 1] = 0;
    device.port[sizeof(device.port) - 1] = 0;
  }
  return devices;
}

Expected<std::string, std::string> run_text(const std::string& socket_path,
                                            const std::string& command) {
  auto answer = request(socket_path, ControlKind::kText, command);
  if (!answer) return Unexpected(answer.error());
  if (answer->reply.error == 0) return text_of(answer->payload);
  // The reply's own message is cut at its field's length; the payload has all of it.
  return Unexpected(answer->payload.empty() ? std::string(answer->reply.message)
                                            : text_of(answer->payload));
}

}  // namespace hostnic::cli
