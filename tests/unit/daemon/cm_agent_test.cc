// SPDX-License-Identifier: BSD-3-Clause
// The agent for rdma_cm: what becomes of connection requests.
#include "dataplane/daemon/cm_agent.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <sys/epoll.h>

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
#include "tests/support/cm_program.h"
#include "tests/unit/daemon/eal.h"

namespace hostnic {
namespace {

constexpr uint16_t kPort = 7471;

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

  void open_file() {
    program_.emplace(*agent_, epoll_.get());
    ASSERT_TRUE(program_->open());
  }

  // Gives a command and returns the response.
  template <class Command>
  std::vector<std::byte> run(uint32_t number, const Command& command) {
    EXPECT_TRUE(program_->give({.command = number, .reserved = 0, .other_file = 0},
                               std::as_bytes(std::span(&command, 1))));
    serve();
    const auto answer = program_->answer();
    EXPECT_TRUE(answer && answer->result.error == 0);
    return answer ? answer->response : std::vector<std::byte>{};
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
  std::unique_ptr<Daemon> daemon_;
  std::thread lcore_;
  UniqueFd epoll_;
  std::optional<CmAgent> agent_;
  std::optional<CmProgram> program_;
};

TEST_F(CmAgentTest, ARequestOfAHostThatCantBeNamedIsRefused) {
  open_file();
  listen(1);
  ASSERT_EQ(ids(), 1u) << "the listener";
  // The entry of its number is another host's by now, or nobody's.
  request_from(Ipv4Address{0xf0001234});
  EXPECT_EQ(ids(), 1u);
  EXPECT_FALSE(program_->take_token());
  EXPECT_EQ(agent_->describe(Asker{}).back(),
            "1 connections have no id any more, and answer repeated messages for a while")
      << "with the REJ, that is";
  // It has not taken the only place of the listener's.
  const auto host = daemon_->addresses().acquire(parse_gid("fd00::9").value());
  ASSERT_TRUE(host);
  request_from(*host);
  EXPECT_EQ(ids(), 2u);
  EXPECT_TRUE(program_->take_token());
}

}  // namespace
}  // namespace hostnic
