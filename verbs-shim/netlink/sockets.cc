// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/netlink/sockets.h"

#include <fcntl.h>
#include <linux/netlink.h>
#include <net/if.h>
#include <poll.h>
#include <sys/sysmacros.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <iterator>
#include <memory>
#include <mutex>
#include <new>
#include <unordered_map>

#include "protocol/hostif/device_facts.h"
#include "protocol/hostif/unique_fd.h"
#include "protocol/nldev/answer.h"
#include "verbs-shim/base/cancellation.h"
#include "verbs-shim/base/log.h"
#include "verbs-shim/base/own_descriptors.h"
#include "verbs-shim/cm/device_number.h"
#include "verbs-shim/netlink/kernel_answers.h"
#include "verbs-shim/runtime/discovery.h"

namespace hostnic::netlink {
namespace {

constexpr int kMiscMajor = 10;
constexpr int kNullMajor = 1, kNullMinor = 3;  // /dev/null, which uverbsN are shown as
constexpr size_t kKernelDatagramBytes = 32 * 1024;

thread_local uint32_t kernels_only = 0;

struct Socket {
  std::mutex mutex;
  OwnFd other_end;  // of the pair
  OwnFd kernels;    // a socket of the kernel's; none: it knows no RDMA netlink
  uint32_t port_id = 0;
  uint32_t first_index = 0;  // of our devices
  bool bound = false, short_acks = false, wants_words = false;
  std::deque<Bytes> answers;  // those that there was no room for yet

  nldev::Asker asker() const {
    return {.port_id = port_id, .short_acks = short_acks, .wants_words = wants_words};
  }
};

// The sockets, which are never destroyed: other threads may still use one while the process exits.
struct Sockets {
  std::mutex mutex;
  std::unordered_map<uint64_t, std::shared_ptr<Socket>> by_name;
  uint64_t last_name = 0;
};

Sockets& sockets() {
  static Sockets& instance = *new Sockets;
  return instance;
}

std::shared_ptr<Socket> find(int fd) {
  const uint64_t name = known_name(fd, SocketKind::kNetlink);
  const std::lock_guard lock(sockets().mutex);
  const auto found = sockets().by_name.find(name);
  return found == sockets().by_name.end() ? nullptr : found->second;
}

// Drops what programs have closed. The lock must be held.
void drop_closed() {
  std::erase_if(sockets().by_name, [](const auto& each) {
    pollfd end{each.second->other_end.get(), 0, 0};
    return poll(&end, 1, 0) == 1 && (end.revents & POLLHUP) != 0;
  });
}

// The first socket of a process has its PID, as the kernel does it. The lock must be held.
uint32_t free_port_id(uint64_t name) {
  const auto pid = static_cast<uint32_t>(getpid());
  const bool taken = std::ranges::any_of(
      sockets().by_name, [pid](const auto& each) { return each.second->port_id == pid; });
  return taken ? UINT32_MAX - static_cast<uint32_t>(name % INT32_MAX) : pid;
}

// Asks the kernel, which answers while it is being asked, and goes on with a list as long as it is
// read.
std::vector<Bytes> ask_kernel(int fd, std::span<const std::byte> request) {
  std::vector<Bytes> answers;
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  if (sendto(fd, request.data(), request.size(), MSG_NOSIGNAL,
             reinterpret_cast<const sockaddr*>(&kernel), sizeof(kernel)) < 0)
    return answers;
  for (;;) {
    Bytes answer(kKernelDatagramBytes);
    const ssize_t got = recv(fd, answer.data(), answer.size(), MSG_DONTWAIT);
    if (got <= 0) return answers;
    answer.resize(static_cast<size_t>(got));
    answers.push_back(std::move(answer));
  }
}

// Opens the kernel's socket too, where it has RDMA netlink: its devices come first.
void open_kernels(Socket& socket) {
  const KernelsOnly kernels_alone;
  const UniqueFd fd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_RDMA));
  sockaddr_nl address{};
  address.nl_family = AF_NETLINK;
  socklen_t length = sizeof(address);
  if (!fd || ::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), length) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0)
    return;
  socket.kernels = OwnFd::copy_of(fd.get());
  if (!socket.kernels) return;
  socket.port_id = address.nl_pid;
  socket.first_index = std::min(
      index_behind(ask_kernel(socket.kernels.get(), device_list_request())), kMostRdmaIndex);
}

RdmaNetlinkRequest question_of(const Socket& socket, const std::vector<DeviceInfo>& devices) {
  RdmaNetlinkRequest request{};
  request.port_id = socket.port_id;
  request.short_acks = socket.short_acks ? 1 : 0;
  request.wants_words = socket.wants_words ? 1 : 0;
  request.first_index = socket.first_index;
  request.rdma_cm_device = static_cast<uint32_t>(makedev(kMiscMajor, cm_device::device_minor()));
  request.verbs_device = static_cast<uint32_t>(makedev(kNullMajor, kNullMinor));
  for (const DeviceInfo& device : devices) {
    if (request.device_count == kMaxDevices) break;
    request.devices[request.device_count++] = {device.index,
                                               if_nametoindex(netdev_name(device).c_str())};
  }
  return request;
}

Bytes ask_hostnicd(const Socket& socket, std::span<const std::byte> datagram) {
  const auto devices = runtime::list_devices();
  if (!devices) return nldev::refuse_all(datagram, socket.asker(), ENODEV);
  datagram = datagram.first(std::min(datagram.size(), nldev::kMostRequestBytes));
  auto answer = runtime::ask_netlink(question_of(socket, *devices), datagram);
  if (!answer) return nldev::refuse_all(datagram, socket.asker(), answer.error());
  const std::string_view why = nldev::words_of(static_cast<nldev::Refusal>(answer->refused));
  if (!why.empty()) log_warn("%.*s", static_cast<int>(why.size()), why.data());
  return std::move(answer->messages);
}

void answer(Socket& socket, std::span<const std::byte> datagram) {
  const Whose is_whose = socket.kernels ? whose(datagram, socket.first_index) : Whose::kOurs;
  if (is_whose != Whose::kOurs) {
    auto answers = ask_kernel(socket.kernels.get(), datagram);
    if (is_whose == Whose::kBoths) answers = without_end(std::move(answers));
    std::ranges::move(answers, std::back_inserter(socket.answers));
  }
  if (is_whose == Whose::kKernels) return;
  const Bytes messages = ask_hostnicd(socket, datagram);
  for (const auto& each : nldev::datagrams_of(messages))
    socket.answers.emplace_back(each.begin(), each.end());
}

void serve(Socket& socket) {
  const std::lock_guard lock(socket.mutex);
  const int fd = socket.other_end.get();
  Bytes datagram(nldev::kMostRequestBytes);
  for (;;) {
    const ssize_t got = recv(fd, datagram.data(), datagram.size(), MSG_DONTWAIT);
    if (got <= 0) break;
    answer(socket, std::span(datagram).first(static_cast<size_t>(got)));
  }
  while (!socket.answers.empty()) {
    const Bytes& next = socket.answers.front();
    if (send(fd, next.data(), next.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0) break;
    socket.answers.pop_front();
  }
}

int open_ours(int type) {
  int pair[2];
  if (socketpair(AF_UNIX, SOCK_SEQPACKET | (type & (SOCK_CLOEXEC | SOCK_NONBLOCK)), 0, pair) != 0)
    return -1;
  const UniqueFd first(pair[0]);
  const UniqueFd other(pair[1]);
  const auto socket = std::make_shared<Socket>();
  socket->other_end = OwnFd::copy_of(other.get());
  if (!socket->other_end) return -1;
  open_kernels(*socket);
  const std::lock_guard lock(sockets().mutex);
  drop_closed();
  const uint64_t name = ++sockets().last_name;
  if (socket->port_id == 0) socket->port_id = free_port_id(name);
  const int fd = fcntl(first.get(), (type & SOCK_CLOEXEC) != 0 ? F_DUPFD_CLOEXEC : F_DUPFD, 0);
  if (fd < 0) return -1;
  if (!add_known(fd, SocketKind::kNetlink, name)) {
    close(fd);
    errno = ENOMEM;
    return -1;
  }
  sockets().by_name.emplace(name, socket);
  return fd;
}

}  // namespace

KernelsOnly::KernelsOnly() { ++kernels_only; }
KernelsOnly::~KernelsOnly() { --kernels_only; }

int open_socket(int type) noexcept {
  constexpr int kFlags = SOCK_CLOEXEC | SOCK_NONBLOCK;
  const int kind = type & ~kFlags;
  if (kernels_only != 0 || (kind != SOCK_RAW && kind != SOCK_DGRAM)) return -2;
  const CancellationOff cancellation_off;
  const int saved_errno = errno;
  try {
    const auto devices = runtime::list_devices();
    errno = saved_errno;
    return devices && !devices->empty() ? open_ours(type) : -2;
  } catch (const std::bad_alloc&) {
    errno = ENOMEM;
    return -1;
  }
}

void serve(int fd) noexcept {
  const CancellationOff cancellation_off;
  const int saved_errno = errno;
  try {
    if (const auto socket = find(fd)) serve(*socket);
  } catch (const std::bad_alloc&) {
    // The program waits for an answer that there is no memory for, as it may with the kernel.
  }
  errno = saved_errno;
}

int bind_socket(int fd, const sockaddr* address, socklen_t length) noexcept {
  const auto socket = find(fd);
  sockaddr_nl wanted{};
  if (address == nullptr || length < sizeof(wanted) || socket == nullptr) {
    errno = EINVAL;
    return -1;
  }
  memcpy(&wanted, address, sizeof(wanted));
  const std::lock_guard lock(socket->mutex);
  if (wanted.nl_family != AF_NETLINK || (socket->bound && wanted.nl_pid != socket->port_id)) {
    errno = EINVAL;
    return -1;
  }
  // The kernel's answers say its own number.
  if (wanted.nl_pid != 0 && !socket->kernels) socket->port_id = wanted.nl_pid;
  socket->bound = true;
  return 0;
}

int socket_name(int fd, sockaddr* address, socklen_t* length) noexcept {
  const auto socket = find(fd);
  if (address == nullptr || length == nullptr || socket == nullptr) {
    errno = EFAULT;
    return -1;
  }
  sockaddr_nl own{};
  own.nl_family = AF_NETLINK;
  {
    const std::lock_guard lock(socket->mutex);
    own.nl_pid = socket->bound ? socket->port_id : 0;
  }
  memcpy(address, &own, std::min<size_t>(*length, sizeof(own)));
  *length = sizeof(own);
  return 0;
}

// Groups may be joined, and nothing is told there.
int set_option(int fd, int option, const void* value, socklen_t length) noexcept {
  const auto socket = find(fd);
  int number = 0;
  if (value == nullptr || length < sizeof(number) || socket == nullptr) {
    errno = EINVAL;
    return -1;
  }
  memcpy(&number, value, sizeof(number));
  const std::lock_guard lock(socket->mutex);
  if (option == NETLINK_CAP_ACK) socket->short_acks = number != 0;
  if (option == NETLINK_EXT_ACK) socket->wants_words = number != 0;
  if (socket->kernels) setsockopt(socket->kernels.get(), SOL_NETLINK, option, value, length);
  return 0;
}

socklen_t put_sender(void* address, socklen_t room) noexcept {
  sockaddr_nl kernel{};
  kernel.nl_family = AF_NETLINK;
  if (address != nullptr) memcpy(address, &kernel, std::min<size_t>(room, sizeof(kernel)));
  return sizeof(kernel);
}

}  // namespace hostnic::netlink
