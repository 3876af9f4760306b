// SPDX-License-Identifier: BSD-3-Clause
// What a program posts just before it disconnects, closes its device or ends arrives
// (docs/transport.md rule 28). Queue pairs that end by themselves: last_sends_test.cc.
#include <rdma/rdma_verbs.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <tuple>

#include "tests/conformance/bench.h"
#include "tests/conformance/cm_bench.h"

namespace hostnic::conformance {
namespace {

constexpr int kRounds = 20;
constexpr uint64_t kReceive = 7;

// What is in memory of kEnds goes with the program, as far as the program can tell.
enum class Deed { kClosesTheDevice, kEnds, kExits, kIsKilled };

// One end of the talk between the test and the program that sends.
class Talk {
 public:
  explicit Talk(int fd) : fd_(fd) {}
  ~Talk() { close(fd_); }
  Talk(const Talk&) = delete;
  Talk& operator=(const Talk&) = delete;
  template <class T>
  bool say(const T& value) const {
    return send(fd_, &value, sizeof value, MSG_NOSIGNAL) == sizeof value;
  }
  template <class T>
  bool hear(T& value) const {
    return recv(fd_, &value, sizeof value, MSG_WAITALL) == sizeof value;
  }

 private:
  int fd_;
};

// The program: a device of its own, a queue pair, one SEND, and its deed at once.
int send_and_do(const Talk& talk, const ConnectOptions& options, uint32_t bytes, int round,
                const ibv_gid& peer_gid, Deed deed) {
  Host host("hnic0");
  if (!host.valid()) return 1;
  Endpoint end(host, options);
  verbs::QpAddress peer;
  if (!end.valid() || !talk.say(end.address()) || !talk.hear(peer)) return 2;
  if (end.to_init() != 0 || verbs::to_rtr(end.qp, options, peer) != 0 || end.to_rts() != 0)
    return 3;
  std::ranges::fill(host.bytes().first(bytes), std::byte(round));
  ibv_sge sge = host.sge(bytes);
  static std::byte static_buffer[4096];
  ibv_mr* const static_mr = ibv_reg_mr(host.pd, static_buffer, sizeof static_buffer, 0);
  if (static_mr == nullptr) return 8;
  if (deed == Deed::kEnds) {
    std::ranges::fill(static_buffer, std::byte(round));
    sge = {reinterpret_cast<uint64_t>(static_buffer), bytes, static_mr->lkey};
  }
  ibv_send_wr wr{};
  wr.opcode = IBV_WR_SEND;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  if (options.type == IBV_QPT_UD) {
    ibv_ah_attr path{};
    path.is_global = 1;
    path.grh.dgid = peer_gid;
    path.grh.hop_limit = 64;
    path.port_num = 1;
    ibv_ah* const handle = ibv_create_ah(host.pd, &path);
    if (handle == nullptr) return 4;
    wr.wr.ud = {handle, peer.qpn, options.qkey};
  }
  if (end.post(wr) != 0) return 5;
  // With the handlers of the program's end, but without its static objects' destructors.
  if (deed == Deed::kEnds) quick_exit(0);
  if (deed == Deed::kExits) _exit(0);
  if (deed == Deed::kIsKilled) kill(getpid(), SIGKILL);
  if (ibv_dereg_mr(static_mr) != 0 || ibv_close_device(host.context) != 0) return 6;
  // What has the message sent is not the end of the program.
  bool seen = false;
  _exit(talk.hear(seen) ? 0 : 7);
}

class LastDeeds : public Conformance,
                  public testing::WithParamInterface<std::tuple<ibv_qp_type, Deed>> {};

TEST_P(LastDeeds, WhatWasPostedBeforeArrives) {
  const auto [type, deed] = GetParam();
  ConnectOptions options;
  options.type = type;
  const size_t header = type == IBV_QPT_UD ? kGrhBytes : 0;
  for (int round = 1; round <= kRounds; ++round) {
    const uint32_t bytes = round % 2 == 0 ? 8 : 1024;
    far = std::make_unique<Endpoint>(*far_host, options);
    ASSERT_TRUE(far->valid());
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    const ibv_gid gid = far_host->gid();
    const pid_t child = fork();
    if (child == 0) {
      close(ends[0]);
      alarm(60);
      const Talk talk(ends[1]);
      _exit(send_and_do(talk, options, bytes, round, gid, deed));
    }
    close(ends[1]);
    ASSERT_GT(child, 0);
    const Talk talk(ends[0]);
    verbs::QpAddress sender;
    ASSERT_TRUE(talk.hear(sender));
    ASSERT_EQ(far->to_init(), 0);
    ASSERT_EQ(verbs::to_rtr(far->qp, options, sender), 0);
    ASSERT_EQ(far->to_rts(), 0);
    ASSERT_EQ(far->post_receive(kReceive, 4096), 0);
    ASSERT_TRUE(talk.say(far->address()));
    const ibv_wc received = far->expect(kReceive);
    EXPECT_EQ(received.byte_len, bytes + header) << "round " << round;
    EXPECT_EQ(far_host->bytes()[header + bytes - 1], std::byte(round));
    talk.say(true);
    int status = -1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, deed == Deed::kIsKilled ? SIGKILL : 0);
    far.reset();
    if (HasFailure()) break;
  }
}

std::string name_of_case(const testing::TestParamInfo<LastDeeds::ParamType>& info) {
  const auto [type, deed] = info.param;
  const char* const service = type == IBV_QPT_RC ? "RC" : type == IBV_QPT_UC ? "UC" : "UD";
  return std::string(service) + (deed == Deed::kClosesTheDevice ? "Close"
                                 : deed == Deed::kEnds          ? "End"
                                 : deed == Deed::kExits         ? "Exit"
                                                                : "Kill");
}

INSTANTIATE_TEST_SUITE_P(Services, LastDeeds,
                         testing::Combine(testing::Values(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD),
                                          testing::Values(Deed::kClosesTheDevice, Deed::kEnds,
                                                          Deed::kExits, Deed::kIsKilled)),
                         name_of_case);

// A completion of a queue that librdmacm has made; status -1: none came.
ibv_wc next_of(ibv_cq* cq) {
  const auto give_up = std::chrono::steady_clock::now() + kPatience;
  ibv_wc wc{};
  while (ibv_poll_cq(cq, 1, &wc) == 0) {
    if (std::chrono::steady_clock::now() > give_up) {
      wc.status = static_cast<ibv_wc_status>(-1);
      break;
    }
    sched_yield();
  }
  return wc;
}

// As a server that says good-bye: it does not wait for the completion.
TEST(LastDeedsOfRdmaCm, WhatWasPostedBeforeADisconnectArrives) {
  const ibv_gid ip = device_address();
  Channel server, client;
  Id listener(server);
  ASSERT_EQ(listener.bind(ip, 0), 0);
  ASSERT_EQ(rdma_listen(listener.id, 4), 0);
  for (int round = 1; round <= kRounds; ++round) {
    Id id(client), accepted(nullptr);
    resolve_all(client, id, ip, ntohs(rdma_get_src_port(listener.id)));
    id.make_qp();
    rdma_conn_param param = with_data("");
    ASSERT_EQ(rdma_connect(id.id, &param), 0) << strerror(errno);
    {
      Taken request(server);
      ASSERT_EQ(request.type(), RDMA_CM_EVENT_CONNECT_REQUEST);
      accepted.id = request.event->id;
    }
    accepted.make_qp();
    std::string sent(round % 2 == 0 ? 8 : 1024, static_cast<char>('a' + round)), received(1024, 0);
    ibv_mr* const into = rdma_reg_msgs(id.id, received.data(), received.size());
    ibv_mr* const from = rdma_reg_msgs(accepted.id, sent.data(), sent.size());
    ASSERT_EQ(rdma_post_recv(id.id, nullptr, received.data(), received.size(), into), 0);
    ASSERT_EQ(rdma_accept(accepted.id, &param), 0) << strerror(errno);
    ASSERT_EQ(Taken(client).type(), RDMA_CM_EVENT_ESTABLISHED);
    ASSERT_EQ(Taken(server).type(), RDMA_CM_EVENT_ESTABLISHED);
    ASSERT_EQ(rdma_post_send(accepted.id, nullptr, sent.data(), sent.size(), from, 0), 0);
    ASSERT_EQ(rdma_disconnect(accepted.id), 0);
    const ibv_wc wc = next_of(id.id->recv_cq);
    ASSERT_EQ(wc.status, IBV_WC_SUCCESS) << "round " << round;
    EXPECT_EQ(received.substr(0, wc.byte_len), sent);
    ASSERT_EQ(Taken(client).type(), RDMA_CM_EVENT_DISCONNECTED);
    ASSERT_EQ(rdma_disconnect(id.id), 0);
    ASSERT_EQ(Taken(server).type(), RDMA_CM_EVENT_DISCONNECTED);
    rdma_dereg_mr(into);
    rdma_dereg_mr(from);
  }
}

}  // namespace
}  // namespace hostnic::conformance
