// SPDX-License-Identifier: BSD-3-Clause
// rdma_cm through the stock librdmacm: addresses and ports, the descriptor, private data and
// reasons, connections that end in each way.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <rdma/rdma_cma.h>
#include <rdma/rdma_verbs.h>
#include <sched.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <memory>
#include <span>
#include <string>
#include <thread>

#include "tests/conformance/bench.h"
#include "tests/conformance/cm_bench.h"

namespace hostnic::conformance {
namespace {

class RdmaCm : public testing::Test {
 protected:
  const ibv_gid ip = device_address(), any = is_ipv4(ip) ? ipv4_gid(0) : ibv_gid{};
};

TEST_F(RdmaCm, PortsAreGivenOutOnce) {
  Channel channel;
  Id first(channel), second(channel), third(channel);
  ASSERT_EQ(first.bind(any, 0), 0) << strerror(errno);
  const uint16_t port = ntohs(rdma_get_src_port(first.id));
  EXPECT_NE(port, 0);
  EXPECT_EQ(first.id->verbs, nullptr) << "it belongs to no device";
  EXPECT_EQ(second.bind(ip, port), -1);
  EXPECT_EQ(errno, EADDRINUSE);
  // Another port space is another service.
  Id datagram(channel, RDMA_PS_UDP);
  EXPECT_EQ(datagram.bind(ip, port), 0) << strerror(errno);
  EXPECT_NE(datagram.id->verbs, nullptr);
  const ibv_gid foreign = ipv4_gid(0xc0000201);
  EXPECT_EQ(third.bind(foreign, 0), -1);
  EXPECT_EQ(errno, EADDRNOTAVAIL);
}

TEST_F(RdmaCm, AListenerHasItsPortAlone) {
  Channel channel;
  Id first(channel);
  int on = 1;
  ASSERT_EQ(rdma_set_option(first.id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)), 0)
      << strerror(errno);
  ASSERT_EQ(first.bind(ip, 0), 0);
  const uint16_t port = ntohs(rdma_get_src_port(first.id));
  {
    Id second(channel);
    ASSERT_EQ(rdma_set_option(second.id, RDMA_OPTION_ID, RDMA_OPTION_ID_REUSEADDR, &on, sizeof(on)),
              0);
    ASSERT_EQ(second.bind(ip, port), 0) << strerror(errno);
    EXPECT_EQ(rdma_listen(first.id, 1), -1);
    EXPECT_EQ(errno, EADDRINUSE);
  }
  EXPECT_EQ(rdma_listen(first.id, 1), 0) << strerror(errno);
  Id third(channel);
  EXPECT_EQ(third.bind(ip, port), -1);
  EXPECT_EQ(errno, EADDRINUSE);
}

// As iSER's target listens: once for each family.
TEST_F(RdmaCm, IPv6AloneLeavesThePortToIPv4) {
  Channel channel;
  Id four(channel), six(channel), both(channel);
  ASSERT_EQ(four.bind(ipv4_gid(0), 0), 0) << strerror(errno);
  sockaddr_in6 address{};
  address.sin6_family = AF_INET6;
  address.sin6_port = rdma_get_src_port(four.id);
  auto* const any_six = reinterpret_cast<sockaddr*>(&address);
  EXPECT_EQ(rdma_bind_addr(both.id, any_six), -1) << "it would have IPv4 as well";
  EXPECT_EQ(errno, EADDRINUSE);
  int on = 1;
  ASSERT_EQ(rdma_set_option(six.id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)), 0);
  ASSERT_EQ(rdma_bind_addr(six.id, any_six), 0) << strerror(errno);
  EXPECT_EQ(rdma_listen(six.id, 1), 0) << strerror(errno);
  EXPECT_EQ(rdma_set_option(six.id, RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on)), -1)
      << "too late";
  EXPECT_EQ(rdma_listen(four.id, 1), 0) << strerror(errno);
  Id client(channel);
  resolve_all(channel, client, ip, ntohs(address.sin6_port));
  client.make_qp();
  rdma_conn_param param = with_data("");
  ASSERT_EQ(rdma_connect(client.id, &param), 0) << strerror(errno);
  Taken request(channel);
  ASSERT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
  EXPECT_EQ(request.event->listen_id, is_ipv4(ip) ? four.id : six.id);
  const Id made(request.event->id);
}

// As qperf's server does: it tells its port before it listens.
TEST_F(RdmaCm, LoopbackLeadsToWhereAPortIsBound) {
  const ibv_gid second = device_address(1);
  if (!is_ipv4(second) && second.global.interface_id == 0) GTEST_SKIP() << "there is one device";
  Channel channel;
  Id server(channel), client(channel);
  ASSERT_EQ(server.bind(second, 0), 0) << strerror(errno);
  resolve_all(channel, client, ipv4_gid(INADDR_LOOPBACK), ntohs(rdma_get_src_port(server.id)));
  ASSERT_EQ(client.id->route.num_paths, 1);
  EXPECT_EQ(memcmp(&client.id->route.path_rec->dgid, &second, sizeof second), 0);
}

// A loopback address is told as it was named, at both ends, as the kernel does (and TCP).
TEST_F(RdmaCm, LoopbackAddressesKeepTheirNames) {
  const ibv_gid loopback = ipv4_gid(INADDR_LOOPBACK);
  const auto is_loopback = [](const sockaddr* address) {
    sockaddr_in ipv4;
    memcpy(&ipv4, address, sizeof ipv4);
    return ipv4.sin_family == AF_INET && ipv4.sin_addr.s_addr == htonl(INADDR_LOOPBACK);
  };
  Channel server, client;
  Id listener(server), id(client);
  ASSERT_EQ(listener.bind(loopback, 0), 0) << strerror(errno);
  ASSERT_NE(listener.id->verbs, nullptr);
  EXPECT_TRUE(is_loopback(rdma_get_local_addr(listener.id)));
  ASSERT_EQ(rdma_listen(listener.id, 1), 0);
  const uint16_t port = ntohs(rdma_get_src_port(listener.id));
  resolve_all(client, id, loopback, port);
  EXPECT_TRUE(is_loopback(rdma_get_local_addr(id.id)));
  EXPECT_TRUE(is_loopback(rdma_get_peer_addr(id.id)));
  EXPECT_EQ(ntohs(rdma_get_dst_port(id.id)), port);
  id.make_qp();
  rdma_conn_param param = with_data("");
  ASSERT_EQ(rdma_connect(id.id, &param), 0) << strerror(errno);
  Taken request(server);
  ASSERT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
  const Id made(request.event->id);
  EXPECT_TRUE(is_loopback(rdma_get_local_addr(made.id)));
  EXPECT_TRUE(is_loopback(rdma_get_peer_addr(made.id)));
  EXPECT_EQ(rdma_get_src_port(made.id), htons(port));
}

TEST_F(RdmaCm, AnyAddressIsOfTheFamilyThatWasNamed) {
  Channel channel;
  const Id any(channel), any_ipv6(channel);
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  ASSERT_EQ(rdma_bind_addr(any.id, reinterpret_cast<sockaddr*>(&ipv4)), 0) << strerror(errno);
  sockaddr_in6 ipv6{};
  ipv6.sin6_family = AF_INET6;
  ASSERT_EQ(rdma_bind_addr(any_ipv6.id, reinterpret_cast<sockaddr*>(&ipv6)), 0) << strerror(errno);
  EXPECT_EQ(rdma_get_local_addr(any.id)->sa_family, AF_INET);
  const sockaddr* const shown = rdma_get_local_addr(any_ipv6.id);
  ASSERT_EQ(shown->sa_family, AF_INET6);
  memcpy(&ipv6, shown, sizeof ipv6);
  EXPECT_TRUE(IN6_IS_ADDR_UNSPECIFIED(&ipv6.sin6_addr));
  EXPECT_NE(rdma_get_src_port(any_ipv6.id), 0);
  EXPECT_EQ(any_ipv6.id->verbs, nullptr);
}

// An id's events go with it; the channel that it leaves is not readable for them any more.
TEST_F(RdmaCm, MigratedIdsTakeTheirEventsAlong) {
  Channel before, after;
  Id id(before), other(before);
  ASSERT_EQ(id.resolve(ip, 1), 0);
  ASSERT_TRUE(before.readable(5000));
  ASSERT_EQ(rdma_migrate_id(id.id, after.channel), 0) << strerror(errno);
  EXPECT_FALSE(before.readable(0));
  EXPECT_EQ(Taken(after).event->id, id.id);
  EXPECT_FALSE(after.readable(0));
  // What stays is told all the same.
  ASSERT_EQ(rdma_migrate_id(id.id, before.channel), 0) << strerror(errno);
  ASSERT_EQ(rdma_resolve_route(id.id, 1000), 0);
  ASSERT_EQ(other.resolve(ip, 1), 0);
  ASSERT_EQ(rdma_migrate_id(id.id, after.channel), 0) << strerror(errno);
  EXPECT_EQ(Taken(before).event->id, other.id);
  EXPECT_FALSE(before.readable(0));
  EXPECT_EQ(Taken(after).type(), RDMA_CM_EVENT_ROUTE_RESOLVED);
}

TEST_F(RdmaCm, OptionsAreCheckedAndIbAddressesRefused) {
  Channel channel;
  Id id(channel);
  uint8_t tos = 32, timeout = 40;
  EXPECT_EQ(rdma_set_option(id.id, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &tos, 1), 0);
  EXPECT_EQ(rdma_set_option(id.id, RDMA_OPTION_ID, RDMA_OPTION_ID_ACK_TIMEOUT, &timeout, 1), -1);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(rdma_set_option(id.id, RDMA_OPTION_ID, 77, &tos, 1), -1);
  EXPECT_EQ(errno, ENOSYS);
  sockaddr_storage ib{};
  ib.ss_family = AF_IB;
  EXPECT_EQ(rdma_bind_addr(id.id, reinterpret_cast<sockaddr*>(&ib)), -1);
}

TEST_F(RdmaCm, TheDescriptorIsReadableWhileAnEventWaits) {
  Channel channel;
  struct stat status;
  ASSERT_EQ(fstat(channel.fd(), &status), 0);
  EXPECT_TRUE(S_ISCHR(status.st_mode));
  EXPECT_FALSE(channel.readable(0));
  fcntl(channel.fd(), F_SETFL, fcntl(channel.fd(), F_GETFL) | O_NONBLOCK);
  rdma_cm_event* none = nullptr;
  EXPECT_EQ(rdma_get_cm_event(channel.channel, &none), -1);
  EXPECT_EQ(errno, EAGAIN);
  const int epoll = epoll_create1(0);
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  epoll_ctl(epoll, EPOLL_CTL_ADD, channel.fd(), &event);
  Id first(channel);
  auto second = std::make_unique<Id>(channel);
  ASSERT_EQ(first.resolve(ip, 7), 0);
  ASSERT_EQ(epoll_wait(epoll, &event, 1, 5000), 1);
  EXPECT_EQ(epoll_wait(epoll, &event, 1, 0), 0) << "an edge comes once";
  ASSERT_EQ(second->resolve(ip, 7), 0);
  EXPECT_EQ(Taken(channel).event->id, first.id);
  EXPECT_TRUE(channel.readable(5000)) << "the second one";
  second.reset();
  EXPECT_FALSE(channel.readable(0)) << "events go with their id";
  EXPECT_EQ(rdma_get_cm_event(channel.channel, &none), -1);
  EXPECT_EQ(errno, EAGAIN);
  close(epoll);
}

// Waits until a thread of this process sleeps.
void await_sleep(pid_t thread) {
  for (;;) {
    std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
    std::string line;
    std::getline(stat, line);
    const size_t behind_name = line.rfind(") ");
    if (behind_name != std::string::npos && line[behind_name + 2] == 'S') return;
    sched_yield();
  }
}

// A thread that waits at the channel which an id leaves hears of those that stay, and of nothing
// else.
TEST_F(RdmaCm, WhoWaitsHearsNothingOfAnIdThatHasMigrated) {
  for (int i = 0; i < 50; ++i) {
    Channel before, after;
    Id id(before), other(before);
    ASSERT_EQ(id.resolve(ip, 1), 0);
    ASSERT_TRUE(before.readable(5000));
    std::atomic<pid_t> waiting{0};
    rdma_cm_id* heard = nullptr;
    // One round in two the event goes while it is being waited for.
    if (i % 2 == 0) {
      ASSERT_EQ(rdma_migrate_id(id.id, after.channel), 0) << strerror(errno);
    }
    std::thread waiter([&] {
      waiting = gettid();
      rdma_cm_event* event = nullptr;
      if (rdma_get_cm_event(before.channel, &event) != 0) return;
      heard = event->id;
      rdma_ack_cm_event(event);  // an id migrates when its events are acknowledged
    });
    if (i % 2 == 0) {
      while (waiting == 0) sched_yield();
      await_sleep(waiting);
    } else {
      ASSERT_EQ(rdma_migrate_id(id.id, after.channel), 0) << strerror(errno);
    }
    ASSERT_EQ(other.resolve(ip, 1), 0);
    waiter.join();
    const bool was_first = heard == id.id;
    ASSERT_TRUE(heard == other.id || (i % 2 == 1 && was_first));
    if (was_first) {
      EXPECT_EQ(Taken(before).event->id, other.id);
    } else {
      EXPECT_EQ(Taken(after).event->id, id.id);
    }
    EXPECT_FALSE(before.readable(0));
    EXPECT_FALSE(after.readable(0));
  }
}

// As in a kernel, where the event may go with its id before the waiting thread has looked, and the
// thread goes on waiting, whatever becomes of the descriptor. It waits for ever then, so it is
// nobody's.
TEST_F(RdmaCm, WhoWaitsHearsNothingOfAClosedDescriptor) {
  static std::atomic<int> errors{0};
  for (int i = 0; i < 100; ++i) {
    rdma_event_channel* const channel = rdma_create_event_channel();
    std::atomic<pid_t> waiting{0};
    std::thread([channel, &waiting] {
      rdma_cm_event* event = nullptr;
      waiting = gettid();
      if (rdma_get_cm_event(channel, &event) != 0)
        ++errors;
      else
        rdma_ack_cm_event(event);
    }).detach();
    while (waiting == 0) sched_yield();
    await_sleep(waiting);
    rdma_cm_id* id = nullptr;
    ASSERT_EQ(rdma_create_id(channel, &id, nullptr, RDMA_PS_TCP), 0) << strerror(errno);
    SocketAddress address = socket_address(ip, 1);
    ASSERT_EQ(rdma_resolve_addr(id, nullptr, &address.any, 2000), 0) << strerror(errno);
    ASSERT_EQ(rdma_destroy_id(id), 0) << strerror(errno);
    rdma_destroy_event_channel(channel);
  }
  EXPECT_EQ(errors.load(), 0);
}

TEST_F(RdmaCm, CopiesOfTheDescriptorServeAsWell) {
  Channel channel;
  const int copy = dup(channel.fd());
  close(channel.channel->fd);
  // The old number becomes an ordinary file.
  const int null = open("/dev/null", O_WRONLY);
  EXPECT_EQ(write(null, "x", 1), 1);
  channel.channel->fd = copy;
  Id id(channel);
  ASSERT_EQ(id.resolve(ip, 7), 0) << strerror(errno);
  EXPECT_EQ(Taken(channel).type(), RDMA_CM_EVENT_ADDR_RESOLVED);
  close(null);
}

TEST_F(RdmaCm, PrivateDataAndReasonsArrive) {
  Channel server, client;
  Id listener(server), id(client);
  ASSERT_EQ(listener.bind(ip, 0), 0);
  ASSERT_EQ(rdma_listen(listener.id, 4), 0);
  resolve_all(client, id, ip, ntohs(rdma_get_src_port(listener.id)));
  id.make_qp();
  rdma_conn_param param = with_data("let me in");
  ASSERT_EQ(rdma_connect(id.id, &param), 0) << strerror(errno);
  {
    Taken request(server);
    ASSERT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
    EXPECT_EQ(request.event->listen_id, listener.id);
    EXPECT_EQ(request.data(), "let me in");
    EXPECT_EQ(request.event->param.conn.private_data_len, 56);
    EXPECT_EQ(request.event->param.conn.qp_num, id.id->qp->qp_num);
    EXPECT_EQ(rdma_reject(request.event->id, "no", 2), 0) << strerror(errno);
    rdma_destroy_id(request.event->id);
  }
  Taken rejected(client);
  ASSERT_EQ(rejected.type(), RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(rejected.event->status, 28);
  EXPECT_EQ(rejected.data(), "no");
}

TEST_F(RdmaCm, ConnectsTransfersAndDisconnects) {
  Channel server, client;
  Id listener(server);
  ASSERT_EQ(listener.bind(any, 0), 0);
  ASSERT_EQ(rdma_listen(listener.id, 4), 0);
  for (int round = 0; round < 20; ++round) {
    Id id(client), accepted(nullptr);
    resolve_all(client, id, ip, ntohs(rdma_get_src_port(listener.id)));
    id.make_qp();
    rdma_conn_param param = with_data("hello");
    ASSERT_EQ(rdma_connect(id.id, &param), 0) << strerror(errno);
    {
      Taken request(server);
      ASSERT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
      accepted.id = request.event->id;
    }
    accepted.make_qp();
    char sent[32] = "over the queue pair", received[32] = {};
    ibv_mr* to = rdma_reg_msgs(accepted.id, received, sizeof(received));
    ibv_mr* from = rdma_reg_msgs(id.id, sent, sizeof(sent));
    ASSERT_EQ(rdma_post_recv(accepted.id, nullptr, received, sizeof(received), to), 0);
    param = with_data("welcome");
    ASSERT_EQ(rdma_accept(accepted.id, &param), 0) << strerror(errno);
    {
      Taken established(client);
      ASSERT_EQ(established.type(), RDMA_CM_EVENT_ESTABLISHED);
      EXPECT_EQ(established.data(), "welcome");
    }
    ASSERT_EQ(Taken(server).type(), RDMA_CM_EVENT_ESTABLISHED);
    ASSERT_EQ(rdma_post_send(id.id, nullptr, sent, sizeof(sent), from, IBV_SEND_SIGNALED), 0);
    ibv_wc wc;
    ASSERT_EQ(rdma_get_send_comp(id.id, &wc), 1);
    EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
    ASSERT_EQ(rdma_get_recv_comp(accepted.id, &wc), 1);
    EXPECT_STREQ(received, sent);
    ASSERT_EQ(rdma_disconnect(id.id), 0);
    ASSERT_EQ(Taken(server).type(), RDMA_CM_EVENT_DISCONNECTED);
    ASSERT_EQ(rdma_disconnect(accepted.id), 0);
    ASSERT_EQ(Taken(client).type(), RDMA_CM_EVENT_DISCONNECTED);
    rdma_dereg_mr(to);
    rdma_dereg_mr(from);
  }
}

constexpr char kPortPipe[] = "RDMA_CM_TEST_PORT_PIPE";

// Run as a program of its own by the next test, since devices do not survive a fork.
TEST_F(RdmaCm, DISABLED_AcceptsAndWaits) {
  if (getenv(kPortPipe) == nullptr) GTEST_SKIP() << "is the other process of the next test";
  Channel server;
  Id listener(server);
  ASSERT_EQ(listener.bind(ip, 0), 0);
  ASSERT_EQ(rdma_listen(listener.id, 1), 0);
  const uint16_t port = ntohs(rdma_get_src_port(listener.id));
  ASSERT_EQ(write(atoi(getenv(kPortPipe)), &port, sizeof(port)), 2);
  Id accepted(nullptr);
  {
    Taken request(server);
    accepted.id = request.event->id;
  }
  accepted.make_qp();
  rdma_conn_param param = with_data("");
  ASSERT_EQ(rdma_accept(accepted.id, &param), 0);
  pause();
}

TEST_F(RdmaCm, AKilledPeerIsADisconnection) {
  int ports[2];
  ASSERT_EQ(pipe(ports), 0);
  setenv(kPortPipe, std::to_string(ports[1]).c_str(), 1);
  const pid_t child = fork();
  if (child == 0) {
    execl("/proc/self/exe", "rdma_cm_test", "--gtest_also_run_disabled_tests",
          "--gtest_filter=RdmaCm.DISABLED_AcceptsAndWaits", nullptr);
    _exit(127);
  }
  unsetenv(kPortPipe);
  uint16_t port = 0;
  ASSERT_EQ(read(ports[0], &port, sizeof(port)), 2);
  Channel client;
  Id id(client);
  resolve_all(client, id, ip, port);
  id.make_qp();
  rdma_conn_param param = with_data("");
  ASSERT_EQ(rdma_connect(id.id, &param), 0);
  EXPECT_EQ(Taken(client).type(), RDMA_CM_EVENT_ESTABLISHED);
  kill(child, SIGKILL);
  waitpid(child, nullptr, 0);
  EXPECT_EQ(Taken(client).type(), RDMA_CM_EVENT_DISCONNECTED);
  // And its port is free again.
  Id other(client);
  EXPECT_EQ(other.bind(ip, port), 0) << strerror(errno);
  close(ports[0]);
  close(ports[1]);
}

TEST_F(RdmaCm, NobodyListensAndNobodyIsThere) {
  Channel channel;
  Id id(channel), far(channel), lost(channel);
  resolve_all(channel, id, ip, 1);
  id.make_qp();
  rdma_conn_param param = with_data("");
  ASSERT_EQ(rdma_connect(id.id, &param), 0);
  {
    Taken rejected(channel);
    EXPECT_EQ(rejected.type(), RDMA_CM_EVENT_REJECTED);
    EXPECT_EQ(rejected.event->status, 8) << "no such service";
  }
  ibv_gid absent = ip;
  absent.raw[15] = 250;
  ASSERT_EQ(far.resolve(absent, 1), 0);
  // All of 127.0.0.0/8 is this machine where the kernel is the network.
  const bool all_answer = !on_virtual_wire() && is_ipv4(ip) && ip.raw[12] == 127;
  {
    Taken told(channel);
    EXPECT_EQ(told.event->id, far.id);
    EXPECT_EQ(told.type(), all_answer ? RDMA_CM_EVENT_ADDR_RESOLVED : RDMA_CM_EVENT_ADDR_ERROR);
    if (!all_answer) {
      EXPECT_TRUE(told.event->status == -EHOSTUNREACH || told.event->status == -ETIMEDOUT);
    }
  }
  // No NIC leads there, or nobody can have the address (RFC 1112): that is an event, too, after
  // which the id can be used.
  for (const uint32_t nowhere : {0xc0000201u, 0xf0000000u}) {
    ASSERT_EQ(lost.resolve(ipv4_gid(nowhere), 1), 0) << strerror(errno);
    Taken told(channel);
    EXPECT_EQ(told.type(), RDMA_CM_EVENT_ADDR_ERROR);
    EXPECT_EQ(told.event->status, -ENETUNREACH);
  }
  resolve_all(channel, lost, ip, 1);
}

// More wait than the backlog has room for.
TEST_F(RdmaCm, ABacklogIsABound) {
  Channel server, client;
  Id listener(server);
  ASSERT_EQ(listener.bind(ip, 0), 0);
  ASSERT_EQ(rdma_listen(listener.id, 2), 0);
  Id first(client), second(client), third(client);
  for (Id* id : {&first, &second, &third}) {
    resolve_all(client, *id, ip, ntohs(rdma_get_src_port(listener.id)));
    id->make_qp();
    rdma_conn_param param = with_data("");
    ASSERT_EQ(rdma_connect(id->id, &param), 0);
    if (id == &third) break;
  }
  Taken refused(client);
  EXPECT_EQ(refused.type(), RDMA_CM_EVENT_REJECTED);
  EXPECT_EQ(refused.event->id, third.id);
}

}  // namespace
}  // namespace hostnic::conformance
