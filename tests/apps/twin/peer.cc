// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/twin/peer.h"

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
#include <string>
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
      const ssize_t got = recv(socket_, &command, sizeof(command), 0);
      if (got == 0 || (got < 0 && errno == ECONNRESET)) return 0;
      if (got < 0 && errno == EINTR) continue;
      if (got != sizeof(command)) die("recv");
      const Reply reply = serve(command);
      if (send(socket_, &reply, sizeof(reply), MSG_NOSIGNAL) != sizeof(reply)) return 0;
    }
  }

 private:
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

void Peer::tell(const Command& command) {
  ssize_t sent = 0;
  do {
    sent = send(socket_, &command, sizeof(command), MSG_NOSIGNAL);
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
