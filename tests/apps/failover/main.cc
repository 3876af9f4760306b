// SPDX-License-Identifier: BSD-3-Clause
// hostnic-failover: two processes with two connections each, by two devices each (rails), as NCCL
// and its like have them. Chunks of data go by both; a rail that fails, on whatever side and at
// whatever moment, costs nothing but time (docs/failover.md).
//   hostnic lab --nics 4 -- hostnic-failover [--no-failover]
// RANK is 0 in the process that sends and 1 in the other, for rules of `hostnic fault`. Exit
// status: 0 all bytes are right, 2 they are not, 3 no rail is left, 4 a failure without failover.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include "tests/apps/failover/rail.h"

namespace {

// The program anew, as one of the two: whoever looks for its rank looks once, at the beginning.
[[noreturn]] void become(const char* rank, int socket, bool failover) {
  setenv("RANK", rank, 1);
  setenv("HOSTNIC_FAILOVER_SOCKET", std::to_string(socket).c_str(), 1);
  execl("/proc/self/exe", "hostnic-failover", failover ? nullptr : "--no-failover", nullptr);
  perror("hostnic-failover: exec");
  _exit(1);
}

int exit_status_of(pid_t child) {
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 1;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace hostnic::failover;
  const bool failover = argc < 2;
  if (argc > 2 || (argc == 2 && std::string_view(argv[1]) != "--no-failover")) {
    fprintf(stderr, "usage: hostnic lab --nics 4 -- hostnic-failover [--no-failover]\n");
    return 2;
  }
  if (const char* socket = getenv("HOSTNIC_FAILOVER_SOCKET"); socket != nullptr) {
    const bool sends = std::string_view(getenv("RANK")) == "0";
    return (sends ? send_all : receive_all)(std::stoi(socket), failover);
  }
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return 1;
  pid_t sides[2];
  for (const int side : {0, 1}) {
    sides[side] = fork();
    if (sides[side] != 0) continue;
    close(sockets[1 - side]);
    become(side == 0 ? "0" : "1", sockets[side], failover);
  }
  close(sockets[0]);
  close(sockets[1]);
  const int sender = exit_status_of(sides[0]), receiver = exit_status_of(sides[1]);
  return sender > 1 || receiver == 0 ? sender : receiver;
}
