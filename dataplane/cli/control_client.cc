// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/control_client.h"

#include <errno.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <span>

#include "protocol/hostif/control_socket.h"

namespace hostnic::cli {
namespace {

constexpr uint32_t kAnswerLimitS = 60;

Expected<UniqueFd, std::string> connect_to(const std::string& path) {
  const auto address = socket_address(path);
  if (!address) return Unexpected(fmt::format("socket path {} is too long", path));
  UniqueFd fd(socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
  if (!fd) return Unexpected(fmt::format("socket: {}", strerror(errno)));
  limit_waiting(fd.get(), kAnswerLimitS);
  if (connect(fd.get(), reinterpret_cast<const sockaddr*>(&*address), sizeof(*address)) != 0)
    return Unexpected(fmt::format(
        "no hostnicd listens on {}: {} (start `hostnicd`, or use `hostnic lab`, or name another "
        "socket by --socket)",
        path, strerror(errno)));
  return fd;
}

std::string closed(const std::string& path) {
  return fmt::format(
      "hostnicd on {} closed the connection (its log says so, if it has no descriptor left)", path);
}

Expected<ReceivedReply, std::string> request_on(int fd, const std::string& path, ControlKind kind,
                                                std::span<const std::byte> payload) {
  if (!send_request(fd, kind, payload))
    return Unexpected(errno == EPIPE ? closed(path)
                                     : fmt::format("socket {}: {}", path, strerror(errno)));
  auto reply = receive_reply(fd);
  if (!reply && errno == ETIMEDOUT)
    return Unexpected(
        fmt::format("hostnicd on {} does not answer (for {} s)", path, kAnswerLimitS));
  if (!reply) return Unexpected(closed(path));
  return std::move(*reply);
}

Expected<ReceivedReply, std::string> request(const std::string& path, ControlKind kind,
                                             std::span<const char> payload) {
  auto fd = connect_to(path);
  if (!fd) return Unexpected(fd.error());
  return request_on(fd->get(), path, kind, std::as_bytes(payload));
}

std::string text_of(const std::vector<std::byte>& bytes) {
  return std::string(reinterpret_cast<const char*>(bytes.data()), bytes.size());
}

// A long answer comes as a file.
Expected<std::string, std::string> text_in(int file) {
  std::string text;
  char part[65536];
  for (;;) {
    const ssize_t got = pread(file, part, sizeof(part), static_cast<off_t>(text.size()));
    if (got < 0) return Unexpected(fmt::format("reading hostnicd's answer: {}", strerror(errno)));
    if (got == 0) return text;
    text.append(part, static_cast<size_t>(got));
  }
}

}  // namespace

Expected<std::vector<DeviceInfo>, std::string> list_devices(const std::string& socket_path) {
  auto answer = request(socket_path, ControlKind::kListDevices, {});
  if (!answer) return Unexpected(answer.error());
  if (answer->header.error != 0) return Unexpected(std::string(answer->header.message));
  std::vector<DeviceInfo> devices(answer->payload.size() / sizeof(DeviceInfo));
  if (devices.size() != answer->header.count)
    return Unexpected(fmt::format("hostnicd on {} sent a list of a wrong length", socket_path));
  if (!devices.empty())
    memcpy(devices.data(), answer->payload.data(), devices.size() * sizeof(DeviceInfo));
  for (DeviceInfo& device : devices) {
    device.name[sizeof(device.name) - 1] = 0;
    device.port[sizeof(device.port) - 1] = 0;
  }
  return devices;
}

Expected<OpenedCapture, std::string> open_capture(const std::string& socket_path,
                                                  const CaptureRequest& request) {
  auto fd = connect_to(socket_path);
  if (!fd) return Unexpected(fd.error());
  auto reply = request_on(fd->get(), socket_path, ControlKind::kCapture,
                          std::as_bytes(std::span(&request, 1)));
  if (!reply) return Unexpected(reply.error());
  if (reply->header.error != 0) return Unexpected(std::string(reply->header.message));
  return OpenedCapture{std::move(*fd), std::move(*reply)};
}

Expected<std::vector<CaptureState>, std::string> dump_captures(const std::string& socket_path,
                                                               bool wish) {
  const DumpCapturesRequest wanted{.wish = wish ? 1u : 0u};
  auto answer = request(socket_path, ControlKind::kDumpCaptures,
                        std::span(reinterpret_cast<const char*>(&wanted), sizeof(wanted)));
  if (!answer) return Unexpected(answer.error());
  if (answer->header.error != 0) return Unexpected(std::string(answer->header.message));
  std::vector<CaptureState> states(answer->payload.size() / sizeof(CaptureState));
  if (states.size() != answer->header.count)
    return Unexpected(fmt::format("hostnicd on {} sent a list of a wrong length", socket_path));
  if (!states.empty())
    memcpy(states.data(), answer->payload.data(), states.size() * sizeof(CaptureState));
  for (CaptureState& state : states) {
    state.nic[sizeof(state.nic) - 1] = 0;
    state.file[sizeof(state.file) - 1] = 0;
  }
  return states;
}

// Hosts that hostnicd asks answer in milliseconds, or are given up in 1.3 s.
Expected<std::string, std::string> run_text(const std::string& socket_path,
                                            const std::string& command) {
  constexpr uint32_t kMostTries = 120, kPauseUs = 20'000;
  auto answer = request(socket_path, ControlKind::kText, command);
  for (uint32_t i = 0;
       i < kMostTries && answer && answer->header.error == 0 && answer->header.count != 0; ++i) {
    usleep(kPauseUs);
    answer = request(socket_path, ControlKind::kText, command);
  }
  if (!answer) return Unexpected(answer.error());
  if (answer->header.error == 0 && !answer->fds.empty()) return text_in(answer->fds[0].get());
  if (answer->header.error == 0) return text_of(answer->payload);
  // The reply's own message is cut at its field's length; the payload has all of it.
  return Unexpected(answer->payload.empty() ? std::string(answer->header.message)
                                            : text_of(answer->payload));
}

}  // namespace hostnic::cli
