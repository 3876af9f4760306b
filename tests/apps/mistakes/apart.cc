// SPDX-License-Identifier: BSD-3-Clause
// hostnic-mistakes-apart --listen PORT NAME, and --connect ADDRESS PORT NAME on another host: one
// mistake whose two ends are two hostnicds'. The client has the trouble, and goes on as a program
// does that has no idea; what says why is the library, on its stderr (tests/lab/apart_cases.py).
// Facts of the run are on the client's stdout.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <string_view>
#include <thread>

#include "tests/apps/mistakes/stage.h"

namespace hostnic::mistakes {
namespace {

struct Greeting {
  verbs::QpAddress address;
  uint64_t memory;
  uint32_t rkey, pid;
};

template <class T>
void give(int fd, const T& value) {
  if (write(fd, &value, sizeof value) != sizeof value) die("write");
}
template <class T>
T take(int fd) {
  T value{};
  size_t got = 0;
  while (got < sizeof value) {
    const ssize_t more = read(fd, reinterpret_cast<char*>(&value) + got, sizeof value - got);
    if (more <= 0) die("read");
    got += static_cast<size_t>(more);
  }
  return value;
}

// One end: `far` is the other one's greeting.
struct Ends {
  Side here;
  Greeting far{};
  int socket = -1;

  void greet() {
    give(socket, Greeting{here.address(), reinterpret_cast<uint64_t>(here.memory), here.mr->rkey,
                          static_cast<uint32_t>(getpid())});
    far = take<Greeting>(socket);
    here.peer = far.address;
  }
  void connect() {
    here.to_init();
    here.to_rtr();
    here.to_rts();
  }
  // The server goes on to do what the mistake has it do.
  void tell_server() const {
    give(socket, char{1});
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
  }
  void fails(ibv_wr_opcode opcode, size_t bytes, uint64_t offset, uint32_t rkey) const {
    good(here.send(opcode, here.sge(bytes), far.memory + offset, rkey), "ibv_post_send");
    const ibv_wc wc = here.completion();
    printf("status %u, vendor err %u\n", wc.status, wc.vendor_err);
  }
  void writes() const { fails(IBV_WR_RDMA_WRITE, 8, 0, far.rkey); }
};

struct Part {
  void (*before)(Side& side) = [](Side&) {};  // before anything is made
  void (*connects)(Ends& ends) = [](Ends& ends) { ends.connect(); };
  void (*acts)(Ends& ends) = [](Ends&) {};
};
struct Apart {
  Part server, client;
};

void stop(Ends& ends) {
  take<char>(ends.socket);
  raise(SIGSTOP);
}

void connect_first(Ends& ends) {
  ends.here.how.rnr_retry = 2;
  ends.connect();
}

void nothing(Ends&) {}

void send_for_long(Ends& ends) {
  ends.tell_server();
  ends.here.send(IBV_WR_SEND, ends.here.sge(8));
  ends.here.poll_for_ms(3000);
}

using Aparts = std::map<std::string, Apart>;

void add_keys(Aparts& all) {
  all["wrong-rkey"].client.acts = [](Ends& ends) {
    fact("key", ends.far.rkey ^ 0x155);
    ends.fails(IBV_WR_RDMA_WRITE, 8, 0, ends.far.rkey ^ 0x155);
  };
  all["revoked-rkey"].server.connects = [](Ends& ends) {
    good(ibv_dereg_mr(ends.here.mr), "ibv_dereg_mr");
    ends.connect();
  };
  all["revoked-rkey"].client.acts = [](Ends& ends) {
    fact("key", ends.far.rkey);
    ends.writes();
  };
  all["beyond-region"].client.acts = [](Ends& ends) {
    fact("region", ends.far.memory);
    ends.fails(IBV_WR_RDMA_WRITE, 4096, kBufferBytes - 4095, ends.far.rkey);
  };
  all["before-region"].client.acts = [](Ends& ends) {
    fact("region", ends.far.memory);
    ends.fails(IBV_WR_RDMA_READ, 64, uint64_t{0} - 16, ends.far.rkey);
  };
  all["no-remote-write"].server.before = [](Side& side) {
    side.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  };
  all["no-remote-write"].client.acts = [](Ends& ends) { ends.writes(); };
  all["qp-without-right"].server.before = [](Side& side) {
    side.how.access = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ;
  };
  all["qp-without-right"].client.acts = [](Ends& ends) { ends.writes(); };
  all["receive-too-short"].server.connects = [](Ends& ends) {
    ends.here.to_init();
    good(ends.here.receive(ends.here.sge(100)), "ibv_post_recv");
    ends.here.to_rtr();
    ends.here.to_rts();
  };
  all["receive-too-short"].client.acts = [](Ends& ends) { ends.fails(IBV_WR_SEND, 101, 0, 0); };
}

void add_connections(Aparts& all) {
  const auto writes = [](Ends& ends) { ends.writes(); };
  all["wrong-qpn"].client = {.connects =
                                 [](Ends& ends) {
                                   ends.here.peer.qpn ^= 0x5a5;
                                   fact("peer", ends.here.peer.qpn);
                                   ends.connect();
                                 },
                             .acts = writes};
  all["wrong-psn"] = {.server = {.connects =
                                     [](Ends& ends) {
                                       ends.here.peer.psn = 2000;  // and the client begins at 1000
                                       ends.connect();
                                     }},
                      .client = {.acts = writes}};
  all["peer-in-reset"] = {.server = {.connects = nothing}, .client = {.acts = writes}};
  all["peer-in-init"] = {.server = {.connects = [](Ends& ends) { ends.here.to_init(); }},
                         .client = {.acts = writes}};
  all["peer-of-another"] = {.server = {.connects =
                                           [](Ends& ends) {
                                             ends.here.peer.qpn = 0x991334;
                                             ends.connect();
                                           }},
                            .client = {.acts = writes}};
  all["other-type"] = {.server = {.before = [](Side& side) { side.how.type = IBV_QPT_UC; }},
                       .client = {.acts = writes}};
  all["mtu-of-both-ends"] = {.server = {.before = [](Side& side) { side.how.mtu = IBV_MTU_512; }},
                             .client = {.acts = [](Ends& ends) {
                               ends.fails(IBV_WR_RDMA_WRITE, 4096, 0, ends.far.rkey);
                             }}};
  all["too-many-reads"] = {.client = {.before = [](Side& side) { side.how.rd_atomic = 8; },
                                      .acts =
                                          [](Ends& ends) {
                                            for (int i = 0; i < 8; ++i)
                                              good(ends.here.send(IBV_WR_RDMA_READ,
                                                                  ends.here.sge(4096),
                                                                  ends.far.memory, ends.far.rkey),
                                                   "post");
                                            for (int i = 0; i < 8; ++i) ends.here.completion();
                                          }}};
  // The lab gives the hosts' NICs different ones.
  all["other-transport"].client.acts = writes;
  all["nobody-at-gid"].client = {
      .connects =
          [](Ends& ends) {
            ends.here.peer.gid.raw[15] = 99;
            ends.here.to_init();
            if (verbs::to_rtr(ends.here.qp, ends.here.how, ends.here.peer) != 0)
              exit(0);  // where the NIC asks for hosts itself
            ends.here.to_rts();
          },
      .acts = writes};
  // The lab makes the network, or the far hostnicd, what the case is about.
  all["writes"].client.acts = [](Ends& ends) {
    fact("now", "ready");
    std::this_thread::sleep_for(std::chrono::seconds(2));
    ends.writes();
  };
}

void add_peers(Aparts& all) {
  all["no-receive"].client = {.connects = connect_first,
                              .acts = [](Ends& ends) { ends.fails(IBV_WR_SEND, 8, 0, 0); }};
  all["rnr-for-ever"].client.acts = send_for_long;
  all["peer-killed"] = {.server = {.acts =
                                       [](Ends& ends) {
                                         take<char>(ends.socket);
                                         raise(SIGKILL);
                                       }},
                        .client = {.acts = [](Ends& ends) {
                          ends.tell_server();
                          ends.writes();
                        }}};
  all["peer-stopped"] = {.server = {.acts = stop}, .client = {.acts = send_for_long}};
  all["nobody-sends"].client.acts = [](Ends& ends) {
    good(ends.here.receive(ends.here.sge(64)), "ibv_post_recv");
    ends.here.poll_for_ms(4000);
  };
}

int tcp_to(const char* address, uint16_t port) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  if (inet_pton(AF_INET, address, &name.sin_addr) != 1) die("address");
  for (int tries = 0; tries < 600; ++tries) {
    const int fd = socket(AF_INET, SOCK_STREAM, 0);
    if (fd < 0) die("socket");
    if (connect(fd, reinterpret_cast<sockaddr*>(&name), sizeof name) == 0) return fd;
    close(fd);
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  die("connect");
}

int tcp_from(uint16_t port) {
  sockaddr_in name{};
  name.sin_family = AF_INET;
  name.sin_port = htons(port);
  const int listener = socket(AF_INET, SOCK_STREAM, 0), on = 1;
  setsockopt(listener, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  good(bind(listener, reinterpret_cast<sockaddr*>(&name), sizeof name), "bind");
  good(listen(listener, 1), "listen");
  const int fd = accept(listener, nullptr, nullptr);
  if (fd < 0) die("accept");
  return fd;
}

void serve(const Part& part, uint16_t port) {
  Ends ends;
  ends.socket = tcp_from(port);
  ends.here.open("hnic0");
  part.before(ends.here);
  ends.here.make();
  ends.greet();
  part.connects(ends);
  give(ends.socket, char{1});
  part.acts(ends);
  // Until the client has ended.
  char byte;
  while (read(ends.socket, &byte, 1) > 0) {
  }
}

void be_client(const Part& part, const char* address, uint16_t port) {
  Ends ends;
  ends.socket = tcp_to(address, port);
  ends.here.open("hnic0");
  part.before(ends.here);
  ends.here.make();
  ends.greet();
  fact("peer", ends.far.address.qpn);
  fact("pid", std::to_string(ends.far.pid).c_str());
  take<char>(ends.socket);
  part.connects(ends);
  part.acts(ends);
}

int run(int argc, char** argv) {
  Aparts all;
  add_keys(all);
  add_connections(all);
  add_peers(all);
  const bool listens = argc == 4 && std::string_view(argv[1]) == "--listen";
  const bool connects = argc == 5 && std::string_view(argv[1]) == "--connect";
  const auto found = listens || connects ? all.find(argv[argc - 1]) : all.end();
  if (found == all.end()) {
    fprintf(stderr,
            "usage: hostnic-mistakes-apart --listen PORT NAME, --connect ADDRESS PORT NAME\n");
    for (const auto& [name, apart] : all) fprintf(stderr, "%s\n", name.c_str());
    return 2;
  }
  const auto port = static_cast<uint16_t>(atoi(argv[argc - 2]));
  if (listens)
    serve(found->second.server, port);
  else
    be_client(found->second.client, argv[2], port);
  return 0;
}

}  // namespace
}  // namespace hostnic::mistakes

int main(int argc, char** argv) { return hostnic::mistakes::run(argc, argv); }
