// SPDX-License-Identifier: BSD-3-Clause
// Attacks by answers that nobody reads, and by all of what a NIC has few of.
#include <errno.h>
#include <fmt/format.h>
#include <sys/socket.h>

#include <chrono>
#include <cstring>
#include <list>
#include <span>
#include <string>
#include <thread>
#include <vector>

#include "protocol/hostif/control_message.h"
#include "tests/hostile/attacks.h"
#include "tests/hostile/raw_client.h"

namespace hostnic::hostile {
namespace {

// Sends the request until the socket takes no more; how often that was.
unsigned send_until_full(int fd, ControlKind kind, std::span<const std::byte> payload) {
  constexpr unsigned kMost = 20'000;
  ControlRequest request;
  request.kind = kind;
  request.payload_bytes = static_cast<uint32_t>(payload.size());
  std::vector<std::byte> datagram(sizeof(request) + payload.size());
  std::memcpy(datagram.data(), &request, sizeof(request));
  if (!payload.empty())
    std::memcpy(datagram.data() + sizeof(request), payload.data(), payload.size());
  unsigned sent = 0;
  for (unsigned waits = 0; sent < kMost && waits < 100;) {
    if (send(fd, datagram.data(), datagram.size(), MSG_DONTWAIT | MSG_NOSIGNAL) > 0) {
      ++sent;
      waits = 0;
    } else if (errno == EAGAIN) {
      ++waits;
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    } else {
      break;
    }
  }
  return sent;
}

}  // namespace

// Answers fill the sockets: long ones to commands, and those of open devices' threads.
void never_read(const Target& target) {
  target.become();
  RawClient large(target.socket, target.device);
  need(large.error() == 0, large.message());
  uint32_t qps = 0;
  while (qps < 256 && large.create_qp(qps, QpType::kRc, 0) != 0) ++qps;
  constexpr unsigned kDevices = 6, kConnections = 60;
  std::list<RawClient> devices;
  std::vector<UniqueFd> connections;
  uint64_t sent = 0;
  const std::string question = "show qp";
  for (unsigned i = 0; i < kDevices; ++i) {
    RawClient& client = devices.emplace_back(target.socket, target.device);
    need(client.error() == 0, client.message());
    sent += send_until_full(client.socket_fd(), ControlKind::kListDevices, {});
  }
  for (unsigned i = 0; i < kConnections; ++i) {
    const int fd = connections.emplace_back(connect_to(target.socket)).get();
    sent += send_until_full(fd, ControlKind::kText, std::as_bytes(std::span(question)));
  }
  fmt::print("asked {} times and reads nothing\n", sent);
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::seconds(target.seconds));
}

// Windows, multicast groups and named hosts, by several devices.
void take_few_things(const Target& target) {
  target.become();
  constexpr unsigned kDevices = 6;
  std::list<RawClient> clients;
  unsigned windows = 0, groups = 0, hosts = 0;
  for (unsigned i = 0; i < kDevices; ++i) {
    RawClient& client = clients.emplace_back(target.socket, target.device);
    need(client.error() == 0, client.message());
    const auto succeeds = [&client](const Command& command) {
      const auto response = client.execute(command);
      return response && response->error == 0;
    };
    Command window{};
    window.kind = CommandKind::kCreateWindow;
    window.create_window = {.pd = 1, .type = WindowType::k2};
    while (windows <= kMaxWindows && succeeds(window)) ++windows;
    Command group{};
    group.kind = CommandKind::kAttachGroup;
    group.group = {.qpn = client.create_qp(0, QpType::kUd, 0), .group_ip = 0};
    need(group.group.qpn != 0, "a queue pair");
    for (uint32_t n = 0; n <= kMaxGroups; ++n) {
      group.group.group_ip = 0xef000000u + i * 1000 + n;
      if (!succeeds(group)) break;
      ++groups;
    }
    while (hosts < 100'000 && client.name_host(hosts) == 0) ++hosts;
  }
  fmt::print("took {} of {} windows, {} of {} groups, {} hosts' names\n", windows, kMaxWindows,
             groups, kMaxGroups, hosts);
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::seconds(target.seconds));
}

// Devices that come and go as fast as they can.
void open_for_ever(const Target& target) {
  target.become();
  fmt::print("opens\n");
  std::fflush(stdout);
  unsigned opened = 0, refused = 0;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(target.seconds);
  while (std::chrono::steady_clock::now() < end) {
    RawClient client(target.socket, target.device);
    ++(client.error() == 0 ? opened : refused);
    if (client.error() == 0) client.create_qp(0);
  }
  fmt::print("opened {} devices, {} were refused\n", opened, refused);
}

}  // namespace hostnic::hostile
