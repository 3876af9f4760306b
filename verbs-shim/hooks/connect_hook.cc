// SPDX-License-Identifier: BSD-3-Clause
// Inside a lab, a blocking TCP connect to this host that is refused is tried again for a while.
//
// A lab makes two hosts of one command line: `server & client 127.0.0.1`. Verbs programs exchange
// their addresses over TCP, and clients such as perftest's give up at once when the server, started
// a moment ago, does not listen yet. On two real hosts the person is slower than the server. Only
// with HOSTNIC_LAB set (by `hostnic lab`, `hostnic on`), only loopback and the lab's hosts, only
// ECONNREFUSED, and only while another program of the lab has just begun: connect_patience.h.
// Compiled without sanitizers, like path_hook.cc.
#include <arpa/inet.h>
#include <fcntl.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <time.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <new>

#include "protocol/types.h"
#include "verbs-shim/base/cancellation.h"
#include "verbs-shim/elf/next_function.h"
#include "verbs-shim/hooks/lab_programs.h"

namespace {

using hostnic::hooks::ConnectPatience;

constexpr long kPauseNs = long{ConnectPatience::kPauseMs} * 1'000'000;

bool in_lab() { return getenv("HOSTNIC_LAB") != nullptr; }

// Whether an address is that of a host of this lab: HOSTNIC_ADDRESSES=10.77.0.1,10.77.0.2,...
bool is_lab_host(const in_addr& address) {
  char text[INET_ADDRSTRLEN];
  const char* at = getenv("HOSTNIC_ADDRESSES");
  if (at == nullptr || inet_ntop(AF_INET, &address, text, sizeof text) == nullptr) return false;
  const size_t length = strlen(text);
  while (*at != '\0') {
    const size_t item = strcspn(at, ",");
    if (item == length && strncmp(at, text, length) == 0) return true;
    at += item + (at[item] == ',' ? 1 : 0);
  }
  return false;
}

bool is_in_lab(const sockaddr* address, socklen_t length) {
  if (address == nullptr || length < sizeof(sa_family_t)) return false;
  if (address->sa_family == AF_INET && length >= sizeof(sockaddr_in)) {
    const auto* v4 = reinterpret_cast<const sockaddr_in*>(address);
    return hostnic::is_loopback(hostnic::Ipv4Address{ntohl(v4->sin_addr.s_addr)}) ||
           is_lab_host(v4->sin_addr);
  }
  if (address->sa_family == AF_INET6 && length >= sizeof(sockaddr_in6)) {
    const auto* v6 = reinterpret_cast<const sockaddr_in6*>(address);
    return IN6_IS_ADDR_LOOPBACK(&v6->sin6_addr) ||
           (IN6_IS_ADDR_V4MAPPED(&v6->sin6_addr) && v6->sin6_addr.s6_addr[12] == 127);
  }
  return false;
}

bool blocks(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return flags >= 0 && (flags & O_NONBLOCK) == 0;
}

// The port of an address; both families have it in the same place.
uint16_t port_of(const sockaddr* address) {
  return ntohs(reinterpret_cast<const sockaddr_in*>(address)->sin_port);
}

uint64_t own_cpu_ms() {
  timespec used{};
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
  return static_cast<uint64_t>(used.tv_sec) * 1000 +
         static_cast<uint64_t>(used.tv_nsec) / 1'000'000;
}

// Whether to connect once more; not inline, because connect() is a cancellation point, and its
// frame has nothing to clean up.
[[gnu::noinline]] bool once_more() {
  static constinit ConnectPatience patience;
  const hostnic::CancellationOff cancellation_off;
  try {
    return patience.once_more(hostnic::hooks::other_lab_programs(ConnectPatience::kStarvedMs),
                              own_cpu_ms());
  } catch (const std::bad_alloc&) {
    return false;
  }
}

}  // namespace

extern "C" __attribute__((visibility("default"))) int connect(int fd, const sockaddr* address,
                                                              socklen_t length) {
  static constinit std::atomic<int (*)(int, const sockaddr*, socklen_t)> known{nullptr};
  const auto real = hostnic::elf::next_function(known, "connect");
  int result = real(fd, address, length);
  if (result == 0 || errno != ECONNREFUSED || !in_lab() || !is_in_lab(address, length) ||
      !ConnectPatience::concerns(port_of(address)) || !blocks(fd))
    return result;
  while (once_more()) {
    const timespec pause{0, kPauseNs};
    nanosleep(&pause, nullptr);
    result = real(fd, address, length);
    if (result == 0 || errno != ECONNREFUSED) return result;
  }
  errno = ECONNREFUSED;
  return result;
}
