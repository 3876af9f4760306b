// SPDX-License-Identifier: BSD-3-Clause
// hostnic-mrc: two processes with a connection by libmrc.so, by two devices that speak MRC, which
// make the calls that programs for MRC make (docs/mrc.md, "libmrc.so").
//   hostnic lab --nic transport=mrc --nic transport=mrc -- hostnic-mrc
// Exit status: 0 all went as it should and all bytes are right, 1 not.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>

#include "tests/apps/mrc/end.h"

int main() {
  int sockets[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, sockets) != 0) return 1;
  const pid_t receiver = fork();
  if (receiver < 0) return 1;
  close(sockets[receiver == 0 ? 0 : 1]);
  if (receiver == 0) return hostnic::mrc_app::receive_all(sockets[1]);
  const int sent = hostnic::mrc_app::send_all(sockets[0]);
  int status = 0;
  waitpid(receiver, &status, 0);
  return sent != 0 || !WIFEXITED(status) || WEXITSTATUS(status) != 0 ? 1 : 0;
}
