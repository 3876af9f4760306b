// SPDX-License-Identifier: BSD-3-Clause
// udp-pair: what a bare program moves over UDP sockets with segmentation (UDP_SEGMENT, UDP_GRO),
// for comparison with the udp port.
//
//   udp-pair receive PORT SECONDS              prints payload bytes per second
//   udp-pair send ADDRESS PORT PAYLOAD SECONDS
//
// Each packet is a header, as long as that of a WRITE from BTH on, and a payload; the sender leaves
// both where they are (one call for as many packets as a datagram holds), the receiver copies each
// payload away.
#include <arpa/inet.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <netinet/udp.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kHeaderBytes = 32;  // BTH, RETH, ICRC
constexpr size_t kMaxDatagramBytes = 65'507, kMaxSegments = 64;
constexpr size_t kMemoryBytes = 1 << 20;
constexpr int kBufferBytes = 16 << 20;
constexpr size_t kMaxPayloadBytes = 8192;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

bool set_option(int fd, int level, int option, int value) {
  return setsockopt(fd, level, option, &value, sizeof value) == 0;
}

int fail(const char* what) {
  perror(what);
  return 1;
}

int send(const char* address, uint16_t port, size_t payload_bytes, double seconds) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const size_t segment_bytes = payload_bytes + kHeaderBytes;
  const size_t packets = std::min(kMaxSegments, kMaxDatagramBytes / segment_bytes);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(port);
  if (inet_pton(AF_INET, address, &to.sin_addr) != 1) return fail(address);
  set_option(fd, SOL_SOCKET, SO_SNDBUF, kBufferBytes);
  if (!set_option(fd, IPPROTO_UDP, UDP_SEGMENT, static_cast<int>(segment_bytes)) ||
      !set_option(fd, IPPROTO_IP, IP_MTU_DISCOVER, IP_PMTUDISC_DO))
    return fail("setsockopt");
  std::vector<std::array<char, kHeaderBytes>> headers(packets);
  std::vector<char> memory(kMemoryBytes + kMaxPayloadBytes, 1);
  std::vector<iovec> pieces(2 * packets);
  size_t at = 0;
  for (const auto start = Clock::now(); seconds_since(start) < seconds;) {
    for (size_t i = 0; i < packets; ++i) {
      pieces[2 * i] = {headers[i].data(), kHeaderBytes};
      pieces[2 * i + 1] = {memory.data() + at, payload_bytes};
      at = (at + payload_bytes) % kMemoryBytes;
    }
    msghdr message{};
    message.msg_name = &to;
    message.msg_namelen = sizeof to;
    message.msg_iov = pieces.data();
    message.msg_iovlen = pieces.size();
    if (sendmsg(fd, &message, 0) < 0) return fail("sendmsg");
  }
  close(fd);
  return 0;
}

int receive(uint16_t port, double seconds) {
  const int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  set_option(fd, SOL_SOCKET, SO_RCVBUF, kBufferBytes);
  sockaddr_in own{};
  own.sin_family = AF_INET;
  own.sin_port = htons(port);
  if (bind(fd, reinterpret_cast<sockaddr*>(&own), sizeof own) != 0 ||
      !set_option(fd, IPPROTO_UDP, UDP_GRO, 1))
    return fail("receive");
  const timeval patience{0, 200'000};
  setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
  std::vector<char> datagram(1 << 16), memory(kMemoryBytes + (1 << 16));
  alignas(cmsghdr) std::array<char, 256> control;
  size_t at = 0, payload_bytes = 0;
  Clock::time_point first, last;
  for (const auto start = Clock::now(); seconds_since(start) < seconds;) {
    iovec piece{datagram.data(), datagram.size()};
    msghdr message{};
    message.msg_iov = &piece;
    message.msg_iovlen = 1;
    message.msg_control = control.data();
    message.msg_controllen = control.size();
    const ssize_t got = recvmsg(fd, &message, 0);
    if (got <= 0) continue;
    last = Clock::now();
    if (payload_bytes == 0) first = last;
    auto segment_bytes = static_cast<size_t>(got);
    for (cmsghdr* each = CMSG_FIRSTHDR(&message); each != nullptr;
         each = CMSG_NXTHDR(&message, each)) {
      int value = 0;
      if (each->cmsg_level != IPPROTO_UDP || each->cmsg_type != UDP_GRO) continue;
      memcpy(&value, CMSG_DATA(each), sizeof value);
      segment_bytes = static_cast<size_t>(value);
    }
    for (size_t done = 0; done + kHeaderBytes < static_cast<size_t>(got); done += segment_bytes) {
      const size_t bytes = std::min(segment_bytes, static_cast<size_t>(got) - done) - kHeaderBytes;
      memcpy(memory.data() + at, datagram.data() + done + kHeaderBytes, bytes);
      at = (at + bytes) % kMemoryBytes;
      payload_bytes += bytes;
    }
  }
  const double took = std::chrono::duration<double>(last - first).count();
  fmt::print("{:.0f}\n", took > 0 ? static_cast<double>(payload_bytes) / took : 0.0);
  close(fd);
  return 0;
}

}  // namespace

int main(int count, char** arguments) {
  const std::string mode = count > 1 ? arguments[1] : "";
  const auto number = [&](int i) { return strtod(arguments[i], nullptr); };
  if (mode == "receive" && count == 4) return receive(static_cast<uint16_t>(number(2)), number(3));
  if (mode == "send" && count == 6 && number(4) > 0 && number(4) <= kMaxPayloadBytes)
    return send(arguments[2], static_cast<uint16_t>(number(3)), static_cast<size_t>(number(4)),
                number(5));
  fmt::print(stderr, "usage: udp-pair receive PORT SECONDS | send ADDRESS PORT PAYLOAD SECONDS\n");
  return 2;
}
