// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/twin/peer.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "tests/apps/twin/content.h"

namespace hostnic::twin {
namespace {

[[noreturn]] void die(const char* what) {
  fprintf(stderr, "hostnic-twin: the peer: %s: %s\n", what, strerror(errno));
  _exit(2);
}

uint8_t* map_shared(int memory) {
  void* at = mmap(nullptr, kPeerBytes, PROT_READ | PROT_WRITE, MAP_SHARED, memory, 0);
  if (at == MAP_FAILED) die("mmap");
  return static_cast<uint8_t*>(at);
}

class Server {
 public:
  Server(int socket, int memory, const char* device)
      : socket_(socket), ends_(device), bytes_(map_shared(memory)) {
    mr_ = ibv_reg_mr(ends_.pd, bytes_, kPeerBytes, kAllAccess);
    if (mr_ == nullptr) die("ibv_reg_mr");
  }

  int run() {
    for (;;) {
      Command command;
      const ssize_t got = receive(command);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return 0;
      if (got < 0 && errno == EINTR) continue;
      if (got != sizeof(command)) die("recv");
      const Reply reply = serve(command);
      if (send(socket_, &reply, sizeof(reply), MSG_NOSIGNAL) != sizeof(reply)) return 0;
    }
  }

 private:
  // With the descriptor that came along in file_.
  ssize_t receive(Command& command) {
    iovec part{&command, sizeof(command)};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    const ssize_t got = recvmsg(socket_, &message, MSG_CMSG_CLOEXEC);
    file_ = -1;
    if (const cmsghdr* header = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr)
      std::memcpy(&file_, CMSG_DATA(header), sizeof(file_));
    return got;
  }

  void reply_now(const Reply& reply) const {
    if (send(socket_, &reply, sizeof(reply), MSG_NOSIGNAL) != sizeof(reply)) _exit(0);
  }

  Reply serve(const Command& command) {
    Reply reply;
    switch (command.order) {
      case Order::kConnect:
        ends_.connect(command.addresses);
        reply.addresses = ends_.addresses();
        reply.address = reinterpret_cast<uint64_t>(bytes_) + kPeerHalf;
        reply.rkey = mr_->rkey;
        break;
      case Order::kWrite:
      case Order::kSend:
      case Order::kSendDatagram:
        fill(bytes_, command.length, command.seed);
        reply = request(command.order == Order::kWrite ? IBV_WR_RDMA_WRITE : IBV_WR_SEND, command,
                        0, command.order == Order::kSendDatagram ? ends_.datagram : ends_.reliable);
        break;
      case Order::kRead:
        reply = request(IBV_WR_RDMA_READ, command, kPeerHalf, ends_.reliable);
        break;
      case Order::kFetchAdd:
      case Order::kCompareSwap:
        reply = request(command.order == Order::kFetchAdd ? IBV_WR_ATOMIC_FETCH_AND_ADD
                                                          : IBV_WR_ATOMIC_CMP_AND_SWP,
                        command, kPeerHalf, ends_.reliable);
        std::memcpy(&reply.value, bytes_ + kPeerHalf, 8);
        break;
      case Order::kPostReceive:
        reply.status =
            ends_.post_receive(reinterpret_cast<uint64_t>(bytes_) + kPeerHalf,
                               static_cast<uint32_t>(command.length), mr_->lkey, ends_.reliable);
        break;
      case Order::kReceived:
        reply = wait();
        break;
      case Order::kStream:
        reply = stream(command);
        break;
      case Order::kStreamEnd:
        break;  // the answer to kStream has been given
      case Order::kMemRead:
      case Order::kMemWrite:
        reply = by_proc(command);
        break;
      case Order::kStopChild:
        reply = stop_child(command);
        break;
      case Order::kShareAtomics:
        reply = share_atomics(command);
        break;
      case Order::kVmRead:
      case Order::kVmWrite: {
        const bool is_write = command.order == Order::kVmWrite;
        if (is_write) fill(bytes_, command.length, command.seed);
        const iovec local{bytes_ + (is_write ? 0 : kPeerHalf), command.length};
        const iovec remote{reinterpret_cast<void*>(command.address), command.length};
        const auto pid = static_cast<pid_t>(command.a);
        const ssize_t moved = is_write ? process_vm_writev(pid, &local, 1, &remote, 1, 0)
                                       : process_vm_readv(pid, &local, 1, &remote, 1, 0);
        reply.status = moved < 0 ? errno : 0;
        reply.value = moved < 0 ? 0 : static_cast<uint64_t>(moved);
        break;
      }
    }
    return reply;
  }

  Reply wait() {
    Reply reply;
    ibv_wc completion{};
    const bool came = ends_.next(completion);
    reply.status = came ? static_cast<int>(completion.status) : -1;
    reply.value = came && reply.status == 0 ? completion.byte_len : 0;
    return reply;
  }

  Reply request(ibv_wr_opcode opcode, const Command& command, uint64_t local, ibv_qp* qp) {
    ibv_sge sge{reinterpret_cast<uint64_t>(bytes_) + local, static_cast<uint32_t>(command.length),
                mr_->lkey};
    ibv_send_wr wr{};
    wr.opcode = opcode;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    if (opcode == IBV_WR_ATOMIC_FETCH_AND_ADD || opcode == IBV_WR_ATOMIC_CMP_AND_SWP) {
      wr.wr.atomic.remote_addr = command.address;
      wr.wr.atomic.rkey = command.rkey;
      wr.wr.atomic.compare_add = command.a;
      wr.wr.atomic.swap = command.b;
    } else if (opcode != IBV_WR_SEND) {
      wr.wr.rdma.remote_addr = command.address;
      wr.wr.rdma.rkey = command.rkey;
    }
    Reply reply;
    const double start = now_s();
    if (const int error = ends_.post(wr, qp); error != 0) {
      errno = error;
      die("ibv_post_send");
    }
    reply = wait();
    reply.longest_s = now_s() - start;
    return reply;
  }

  Reply by_proc(const Command& command) {
    Reply reply;
    const std::string path = "/proc/" + std::to_string(command.a) + "/mem";
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    const auto at = static_cast<off_t>(command.address);
    if (command.order == Order::kMemWrite) fill(bytes_, command.length, command.seed);
    const ssize_t moved = file < 0 ? -1
                          : command.order == Order::kMemWrite
                              ? pwrite(file, bytes_, command.length, at)
                              : pread(file, bytes_ + kPeerHalf, command.length, at);
    reply.status = moved < 0 ? errno : 0;
    reply.value = moved < 0 ? 0 : static_cast<uint64_t>(moved);
    if (file >= 0) close(file);
    return reply;
  }

  static std::set<pid_t> children(uint64_t process) {
    const std::string pid = std::to_string(process);
    std::ifstream file("/proc/" + pid + "/task/" + pid + "/children");
    std::set<pid_t> all;
    for (pid_t each = 0; file >> each;) all.insert(each);
    return all;
  }

  Reply stop_child(const Command& command) {
    constexpr double kLookS = 6;
    const std::set<pid_t> before = children(command.a);
    reply_now({});
    Reply reply;
    for (const double end = now_s() + kLookS; now_s() < end;) {
      for (const pid_t each : children(command.a)) {
        if (before.contains(each)) continue;
        kill(each, SIGSTOP);
        usleep(static_cast<useconds_t>(command.b * 1000));
        kill(each, SIGCONT);
        reply.value = static_cast<uint64_t>(each);
        return reply;
      }
    }
    return reply;
  }

  Reply share_atomics(const Command& command) {
    void* page = mmap(nullptr, kPage, PROT_READ | PROT_WRITE, MAP_SHARED, file_,
                      static_cast<off_t>(command.a * kPage));
    if (page == MAP_FAILED) die("mmap of a shared file");
    ibv_mr* mr = ibv_reg_mr(ends_.pd, page, kPage, kAllAccess);
    if (mr == nullptr) die("ibv_reg_mr of a shared file");
    Reply place;
    place.address = reinterpret_cast<uint64_t>(page);
    place.rkey = mr->rkey;
    reply_now(place);
    Command one = command;
    one.a = 1;
    Reply reply;
    for (uint64_t i = 0; i < command.b && reply.status == 0; ++i)
      reply = request(IBV_WR_ATOMIC_FETCH_AND_ADD, one, kPeerHalf, ends_.reliable);
    shared_.push_back({mr, page});
    close(file_);
    // The program's own atomics may still go on: the last but this one are over.
    while (shared_.size() > 1) {
      ibv_dereg_mr(shared_.front().first);
      munmap(shared_.front().second, kPage);
      shared_.erase(shared_.begin());
    }
    return reply;
  }

  // Page by page: a READ, which must find what the last WRITE has put there, and a WRITE.
  Reply stream(const Command& command) {
    Reply all;
    std::vector<uint8_t> expected(kPage);
    for (uint64_t turn = 0;; ++turn) {
      const uint64_t page = turn % command.a;
      Command one = command;
      one.address = command.address + page * kPage;
      one.length = kPage;
      if (turn >= command.a) {
        const Reply got = request(IBV_WR_RDMA_READ, one, kPeerHalf, ends_.reliable);
        all.status = got.status;
        all.longest_s = std::max(all.longest_s, got.longest_s);
        fill(expected.data(), kPage, stream_seed(command.seed, command.a, page, turn));
        if (got.status == 0 && std::memcmp(expected.data(), bytes_ + kPeerHalf, kPage) != 0) {
          all.a = 1 + page;
          break;
        }
      }
      if (all.status == 0) {
        fill(bytes_, kPage, command.seed + turn);
        const Reply put = request(IBV_WR_RDMA_WRITE, one, 0, ends_.reliable);
        all.status = put.status;
        all.longest_s = std::max(all.longest_s, put.longest_s);
        if (put.status == 0) ++all.value;
      }
      if (all.status != 0) break;
      pollfd told{socket_, POLLIN, 0};
      // As long as every page has been written: nobody knows what was there before.
      if (turn + 1 >= command.a && poll(&told, 1, 0) > 0) break;
    }
    return all;
  }

  int socket_;
  Ends ends_;
  uint8_t* bytes_;
  ibv_mr* mr_ = nullptr;
  int file_ = -1;
  std::vector<std::pair<ibv_mr*, void*>> shared_;
};

}  // namespace

uint64_t stream_seed(uint64_t seed, uint64_t pages, uint64_t page, uint64_t writes) {
  // Turns page, page + pages, page + 2 * pages ... below `writes` wrote it.
  return seed + page + (writes - 1 - page) / pages * pages;
}

int run_peer(int socket, int memory, const char* device) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  Server* server = new Server(socket, memory, device);  // its device goes with the process
  return server->run();
}

Peer::Peer(const char* program, const char* device) {
  int pair[2];
  const int memory = memfd_create("twin-peer", 0);
  if (memory < 0 || ftruncate(memory, kPeerBytes) != 0) die("memfd_create");
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, pair) != 0) die("socketpair");
  process_ = fork();
  if (process_ < 0) die("fork");
  if (process_ == 0) {
    close(pair[0]);
    // The peer's memory is the simplest that there is.
    unsetenv("HOSTNIC_MEMORY");
    unsetenv("HOSTNIC_MIGRATE");
    const std::string socket = std::to_string(pair[1]), fd = std::to_string(memory);
    execl(program, "hostnic-twin", "--peer", socket.c_str(), fd.c_str(), device, nullptr);
    die("execl");
  }
  close(pair[1]);
  socket_ = pair[0];
  shared_ = map_shared(memory);
  madvise(shared_, kPeerBytes, MADV_DONTFORK);
  close(memory);
}

Peer::~Peer() {
  close(socket_);
  munmap(shared_, kPeerBytes);
  // It ends when the socket does; a seed doesn't hang for its sake.
  kill(process_, SIGKILL);
  waitpid(process_, nullptr, 0);
}

void Peer::connect(Ends& mine) {
  Command command;
  command.order = Order::kConnect;
  command.addresses = mine.addresses();
  const Reply reply = ask(command);
  remote_address_ = reply.address;
  remote_key_ = reply.rkey;
  mine.connect(reply.addresses);
}

void Peer::tell(const Command& command, int fd) {
  Command copy = command;
  iovec part{&copy, sizeof(copy)};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
  msghdr message{};
  message.msg_iov = &part;
  message.msg_iovlen = 1;
  if (fd >= 0) {
    message.msg_control = control;
    message.msg_controllen = sizeof(control);
    cmsghdr* header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof(int));
    std::memcpy(CMSG_DATA(header), &fd, sizeof(fd));
  }
  ssize_t sent = 0;
  do {
    sent = sendmsg(socket_, &message, MSG_NOSIGNAL);
  } while (sent < 0 && errno == EINTR);
  if (sent != sizeof(command)) die("send (it has ended?)");
}

bool Peer::answer(Reply& reply) {
  const double end = now_s() + kPatienceS + 5;
  do {
    pollfd told{socket_, POLLIN, 0};
    if (poll(&told, 1, 100) <= 0) continue;
    const ssize_t got = recv(socket_, &reply, sizeof(reply), 0);
    if (got == sizeof(reply)) return true;
    if (got == 0 || (got < 0 && errno != EINTR)) die("recv (it has ended?)");
  } while (now_s() < end);
  return false;
}

Reply Peer::ask(const Command& command) {
  tell(command);
  Reply reply;
  if (!answer(reply)) reply.status = -1;
  return reply;
}

}  // namespace hostnic::twin
