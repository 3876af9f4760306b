// SPDX-License-Identifier: BSD-3-Clause
// Attacks by requests that keep whoever serves them: descriptors whose close waits, and more
// requests and connections than others get through.
#include <arpa/inet.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <netinet/in.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <list>
#include <span>
#include <thread>
#include <utility>
#include <vector>

#include "protocol/hostif/cm_message.h"
#include "tests/hostile/attacks.h"
#include "tests/hostile/fuse_file.h"
#include "tests/hostile/raw_client.h"

namespace hostnic::hostile {
namespace {

void wait(const Target& target) {
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::seconds(target.seconds));
}

// A TCP socket that is full, whose peer does not read, and whose close waits for it.
class LingeringSocket {
 public:
  LingeringSocket() {
    const UniqueFd listener(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    auto* const at = reinterpret_cast<sockaddr*>(&address);
    need(bind(listener.get(), at, length) == 0 && listen(listener.get(), 1) == 0 &&
             getsockname(listener.get(), at, &length) == 0,
         "a TCP listener");
    fd_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    need(connect(fd_.get(), at, length) == 0, "a TCP connection");
    peer_ = UniqueFd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    const std::vector<std::byte> bytes(1 << 20);
    while (send(fd_.get(), bytes.data(), bytes.size(), MSG_DONTWAIT) > 0) {
    }
    constexpr linger kLong{1, 3600};
    need(setsockopt(fd_.get(), SOL_SOCKET, SO_LINGER, &kLong, sizeof(kLong)) == 0, "SO_LINGER");
  }
  int fd() const { return fd_.get(); }
  void give_up_ours() { fd_.reset(); }

 private:
  UniqueFd fd_, peer_;
};

void send_with(int to, const void* bytes, size_t length, std::span<const int> fds) {
  iovec part{const_cast<void*>(bytes), length};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  std::vector<std::byte> control(CMSG_SPACE(fds.size_bytes()));
  message.msg_control = control.data();
  message.msg_controllen = control.size();
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(fds.size_bytes());
  std::memcpy(CMSG_DATA(rights), fds.data(), fds.size_bytes());
  need(sendmsg(to, &message, MSG_NOSIGNAL) >= 0, "sending descriptors");
}

// A UNIX socket in whose queue the descriptors lie.
UniqueFd wrapped(std::span<const int> fds) {
  int pair[2];
  need(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) == 0, "a pair of sockets");
  const UniqueFd other(pair[1]);
  send_with(other.get(), "x", 1, fds);
  return UniqueFd(pair[0]);
}

UniqueFd open_cm(const Target& target) {
  UniqueFd file = connect_to(target.socket);
  const OpenCmRequest request{1};
  need(send_request(file.get(), ControlKind::kOpenCm, std::as_bytes(std::span(&request, 1))),
       "opening the rdma_cm device");
  need(receive_reply(file.get()).has_value(), "the rdma_cm device");
  return file;
}

}  // namespace

// Where hostnicd takes descriptors, where the kernel drops them, and where they lie in others.
void descriptors_that_linger(const Target& target) {
  target.become();
  std::list<LingeringSocket> sockets;
  std::list<UniqueFd> connections;
  const auto lingering = [&] { return sockets.emplace_back().fd(); };
  // Closes what has been sent while hostnicd looks at it, so that its close is the last one, which
  // waits; where it was faster this waits, in a thread of its own.
  const auto give_up = [&](UniqueFd outer) {
    std::thread([&ours = sockets.back(), fd = std::move(outer)]() mutable {
      fd.reset();
      ours.give_up_ours();
    }).detach();
  };
  const auto request = [&](ControlKind kind, std::span<const std::byte> payload,
                           std::span<const int> fds) {
    const int to = connections.emplace_back(connect_to(target.socket)).get();
    send_request(to, kind, payload, fds);
  };
  const auto command = std::as_bytes(std::span("show nic", 8));
  OpenRequest open{};
  open.device_index = target.device;
  const auto open_bytes = std::as_bytes(std::span(&open, 1));
  for (const bool in_another : {false, true, true, false, true}) {
    UniqueFd outer;
    const auto descriptor = [&] {
      const int fd = lingering();
      if (!in_another) return fd;
      outer = wrapped({&fd, 1});
      return outer.get();
    };
    for (const auto& [kind, payload] :
         {std::pair(ControlKind::kText, command), std::pair(static_cast<ControlKind>(77), command),
          std::pair(ControlKind::kListDevices, std::span<const std::byte>{}),
          std::pair(ControlKind::kOpen, open_bytes),
          std::pair(ControlKind::kRegisterMr, open_bytes)}) {
      const int fd = descriptor();
      request(kind, payload, {&fd, 1});
      give_up(std::exchange(outer, UniqueFd()));
    }
    // The rdma_cm device's answers are awaited on such a descriptor; and too many come along.
    for (const size_t count : {1, 2, 64, 200}) {
      const int fd = descriptor();
      const std::vector<int> fds(count, fd);
      const int file = connections.emplace_back(open_cm(target)).get();
      const CmCommand first{};
      send_with(file, &first, sizeof(first), fds);
      const int plain = connections.emplace_back(connect_to(target.socket)).get();
      send_with(plain, "nonsense", 8, fds);
      give_up(std::exchange(outer, UniqueFd()));
    }
    // A connection that goes with what lies in it.
    const int fd = descriptor();
    send_with(connect_to(target.socket).get(), "nonsense", 8, {&fd, 1});
    give_up(std::exchange(outer, UniqueFd()));
  }
  fmt::print("{} sockets linger\n", sockets.size());
  wait(target);
}

// Requests for a device whose descriptors take for ever to be looked at.
// Files of other kinds in the places of /proc/self/mem and of the pidfd: some would keep whoever
// reads or polls them.
void open_with_other_files(const Target& target) {
  target.become();
  const UniqueFd memory(open("/proc/self/mem", O_RDWR | O_CLOEXEC));
  const UniqueFd process(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));
  const UniqueFd event(eventfd(0, EFD_CLOEXEC)), file(memfd_create("pidfd", MFD_CLOEXEC));
  need(memory && process && event && file, "descriptors");
  const auto open_with = [&](int first, int second) {
    OpenRequest request{};
    request.device_index = target.device;
    const int fds[] = {first, second};
    const UniqueFd socket = connect_to(target.socket);
    need(send_request(socket.get(), ControlKind::kOpen, std::as_bytes(std::span(&request, 1)), fds),
         "sending open");
    const auto reply = receive_reply(socket.get());
    return reply ? reply->header.error : uint32_t{EPIPE};
  };
  unsigned refused = 0;
  for (const auto& [first, second] :
       {std::pair{file.get(), process.get()}, std::pair{memory.get(), file.get()},
        std::pair{memory.get(), event.get()}, std::pair{memory.get(), memory.get()}})
    refused += open_with(first, second) == EBADF ? 1 : 0;
  fmt::print("refused {} of 4, and the right ones: error {}\n", refused,
             open_with(memory.get(), process.get()));
}

void requests_that_wait(const Target& target) {
  auto file = FuseFile::create(target.directory);
  if (file == nullptr) {
    fmt::print("skipped: no FUSE here\n");
    return;
  }
  target.become();
  const int fd = file->fd();
  OpenRequest open{};
  open.device_index = target.device;
  std::list<UniqueFd> connections;
  constexpr int kRequests = 400;
  for (int i = 0; i < kRequests; ++i)
    send_request(connections.emplace_back(connect_to(target.socket)).get(), ControlKind::kOpen,
                 std::as_bytes(std::span(&open, 1)), {&fd, 1});
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  fmt::print("sent {} requests, {} are looked at\n", kRequests, file->waiting());
  wait(target);
  file.reset();
  _exit(0);
}

// Connections that ask for nothing, as many as there can be and again and again.
void connections_that_wait(const Target& target) {
  target.become();
  std::list<UniqueFd> connections;
  constexpr size_t kMost = 1000;
  while (connections.size() < kMost) connections.push_back(connect_to(target.socket));
  fmt::print("connected {} times\n", connections.size());
  std::fflush(stdout);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(target.seconds);
  while (std::chrono::steady_clock::now() < end) {
    connections.pop_front();
    connections.push_back(connect_to(target.socket));
  }
}

// Many devices, each with as many mappings of files as it gets.
void take_all_mappings(const Target& target) {
  target.become();
  std::list<RawClient> clients;
  std::vector<UniqueFd> files;
  constexpr uint64_t kPageBytes = 4096;
  constexpr unsigned kDevices = 9, kFiles = 2048;
  for (unsigned i = 0; i < kFiles; ++i) {
    const int fd = files.emplace_back(memfd_create("one-page", MFD_CLOEXEC)).get();
    const std::array<std::byte, kPageBytes> page{};
    need(write(fd, page.data(), page.size()) == kPageBytes, "a file of a page");
  }
  unsigned count = 0;
  std::string said;
  for (unsigned i = 0; i < kDevices; ++i) {
    RawClient& client = clients.emplace_back(target.socket, target.device);
    need(client.error() == 0, client.message());
    for (unsigned at = 0; at < kFiles; ++at) {
      const MemoryRegion region{kPageBytes, kPageBytes, RegionKind::kFile, 0, 0};
      const int file = files[at].get();
      if (client.register_memory(kPageBytes, kPageBytes, {&region, 1}, {&file, 1}).lkey == 0) break;
      ++count;
    }
    said = client.message();
  }
  fmt::print("took {} mappings with {} devices: {}\n", count, kDevices, said);
  wait(target);
}

}  // namespace hostnic::hostile
