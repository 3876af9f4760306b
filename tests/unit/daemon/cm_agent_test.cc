// SPDX-License-Identifier: BSD-3-Clause
// The agent for rdma_cm: what becomes of connection requests.
#include "dataplane/daemon/cm_agent.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_user_cm.h>
#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dataplane/daemon/clock.h"
#include "dataplane/daemon/commands/command.h"
#include "dataplane/daemon/options.h"
#include "protocol/hostif/cm_message.h"
#include "protocol/hostif/control_message.h"
#include "tests/unit/daemon/eal.h"

namespace hostnic {
namespace {

constexpr uint16_t kPort = 7471;

// Sends a command, and the descriptor on which its answer is awaited.
bool send_command(int socket, std::span<const std::byte> bytes, int descriptor) {
  iovec piece{const_cast<std::byte*>(bytes.data()), bytes.size()};
  alignas(cmsghdr) std::byte control[CMSG_SPACE(sizeof descriptor)] = {};
  msghdr message{};
  message.msg_iov = &piece;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(sizeof descriptor);
  memcpy(CMSG_DATA(rights), &descriptor, sizeof descriptor);
  return sendmsg(socket, &message, 0) == static_cast<ssize_t>(bytes.size());
}

class CmAgentTest : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(eal_runs());
    auto plan = plan_from_arguments({"--nic", "ip=fd00::1/64", "--nic", "ip=fd00::2/64"});
    ASSERT_TRUE(plan) << plan.error().text;
    auto daemon = Daemon::create(*plan);
    ASSERT_TRUE(daemon) << daemon.error();
    daemon_ = std::move(*daemon);
    lcore_ = std::thread([this] { daemon_->lcores()[0]->run(); });
    epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
    agent_.emplace(*daemon_, epoll_.get());
  }
  void TearDown() override {
    agent_.reset();
    if (daemon_) daemon_->lcores()[0]->request_stop();
    if (lcore_.joinable()) lcore_.join();
  }

  // Serves the agent's descriptors until nothing has happened for a while.
  void serve() {
    epoll_event event{};
    while (epoll_wait(epoll_.get(), &event, 1, 200) == 1) {
      agent_->handle(event.data.fd);
      agent_->advance();
    }
  }

  // A program's open file, on which it gives commands.
  void open_file() {
    int ends[2];
    ASSERT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    program_ = UniqueFd(ends[0]);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.fd = ends[1];
    ASSERT_EQ(epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, ends[1], &event), 0);
    agent_->open(UniqueFd(ends[1]), {.visible_devices = 1}, false);
    std::byte reply[sizeof(ControlReply) + sizeof(OpenCmReply)];
    ASSERT_GT(recv(program_.get(), reply, sizeof reply, 0), 0);
  }

  // Gives a command and returns the answer behind CmAnswer.
  template <class Command>
  std::vector<std::byte> run(uint32_t number, const Command& command) {
    int ends[2];
    EXPECT_EQ(socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    const UniqueFd ours(ends[0]), theirs(ends[1]);
    const CmCommand header{.command = number, .reserved = 0, .other_file = 0};
    std::vector<std::byte> bytes(sizeof header + sizeof command);
    memcpy(bytes.data(), &header, sizeof header);
    memcpy(bytes.data() + sizeof header, &command, sizeof command);
    EXPECT_TRUE(send_command(program_.get(), bytes, theirs.get()));
    serve();
    std::vector<std::byte> answer(4096);
    const ssize_t size = recv(ours.get(), answer.data(), answer.size(), MSG_DONTWAIT);
    EXPECT_GE(size, static_cast<ssize_t>(sizeof(CmAnswer)));
    CmAnswer result{};
    memcpy(&result, answer.data(), sizeof result);
    EXPECT_EQ(result.error, 0);
    return {answer.begin() + sizeof result,
            answer.begin() + std::max<ssize_t>(size, sizeof result)};
  }

  // Listens on [::]:kPort.
  void listen(int backlog) {
    const auto created = run(RDMA_USER_CM_CMD_CREATE_ID,
                             rdma_ucm_create_id{.uid = 7, .ps = RDMA_PS_TCP, .qp_type = 2});
    rdma_ucm_create_id_resp response{};
    ASSERT_GE(created.size(), sizeof response);
    memcpy(&response, created.data(), sizeof response);
    rdma_ucm_bind_ip bind{};
    bind.id = response.id;
    bind.addr.sin6_family = AF_INET6;
    bind.addr.sin6_port = htons(kPort);
    run(RDMA_USER_CM_CMD_BIND_IP, bind);
    run(RDMA_USER_CM_CMD_LISTEN,
        rdma_ucm_listen{.id = response.id, .backlog = static_cast<uint32_t>(backlog)});
  }

  // A connection request for the first NIC arrives there, from a host of this number.
  void request_from(Ipv4Address peer) {
    NicInstance& nic = daemon_->nics()[0];
    const Ipv4Address own = nic.plan.settings.ip;
    cm::Endpoint endpoint(raw(peer), 1, 16);
    cm::Req req{.service_id = cm::service_id(RDMA_PS_TCP, kPort)};
    emit(cm::make_ip_header(parse_gid("fd00::9").value(), 4321, parse_gid("fd00::1").value()),
         std::span(req.private_data).first<cm::kIpHeaderBytes>());
    ASSERT_NE(endpoint.connect({peer, own}, req, monotonic_now_ns()), 0u);
    for (const cm::Outgoing& each : endpoint.take_outgoing())
      nic.lcore->run_on([&] { nic.nic->send_management(peer, own, 0, cm::build(each.mad)); });
    serve();
  }

  size_t ids() const {
    return static_cast<size_t>(
        std::ranges::count_if(agent_->describe(Asker{}),
                              [](const std::string& line) { return line.starts_with("id "); }));
  }
  // Whether the agent has told the program that an event waits.
  bool told() const {
    std::byte token{};
    return recv(program_.get(), &token, 1, MSG_DONTWAIT) == 1;
  }

  std::unique_ptr<Daemon> daemon_;
  std::thread lcore_;
  UniqueFd epoll_, program_;
  std::optional<CmAgent> agent_;
};

TEST_F(CmAgentTest, ARequestOfAHostThatCantBeNamedIsRefused) {
  open_file();
  listen(1);
  ASSERT_EQ(ids(), 1u) << "the listener";
  // The entry of its number is another host's by now, or nobody's.
  request_from(Ipv4Address{0xf0001234});
  EXPECT_EQ(ids(), 1u);
  EXPECT_FALSE(told());
  EXPECT_EQ(agent_->describe(Asker{}).back(),
            "1 connections have no id any more, and answer repeated messages for a while")
      << "with the REJ, that is";
  // It has not taken the only place of the listener's.
  const auto host = daemon_->addresses().hold(parse_gid("fd00::9").value());
  ASSERT_TRUE(host);
  request_from(*host);
  EXPECT_EQ(ids(), 2u);
  EXPECT_TRUE(told());
}

}  // namespace
}  // namespace hostnic
