// SPDX-License-Identifier: BSD-3-Clause
// The agent for rdma_cm: what becomes of connection requests.
#include "dataplane/daemon/rdma_cm/cm_agent.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <sys/epoll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "dataplane/daemon/control/command.h"
#include "dataplane/daemon/lcore/clock.h"
#include "dataplane/daemon/start/options.h"
#include "tests/support/cm_program.h"
#include "tests/unit/daemon/eal.h"

namespace hostnic {
namespace {

constexpr uint16_t kPort = 7471;
// Users without privileges.
constexpr uid_t kOne = 65533, kOther = 65532;

class CmAgentTest : public testing::Test {
 protected:
  // A process makes each wire port once.
  static void SetUpTestSuite() {
    ASSERT_TRUE(eal_runs());
    auto plan = plan_from_arguments({"--nic", "ip=fd00::1/64", "--nic", "ip=fd00::2/64"});
    ASSERT_TRUE(plan) << plan.error().text;
    auto daemon = Daemon::create(*plan);
    ASSERT_TRUE(daemon) << daemon.error();
    daemon_ = std::move(*daemon);
    lcore_ = std::thread([] { daemon_->lcores()[0]->run(); });
  }
  static void TearDownTestSuite() {
    if (daemon_) daemon_->lcores()[0]->request_stop();
    if (lcore_.joinable()) lcore_.join();
    daemon_.reset();
  }
  void SetUp() override {
    ASSERT_TRUE(daemon_);
    epoll_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
    agent_.emplace(*daemon_, epoll_.get());
  }
  void TearDown() override { agent_.reset(); }

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

  size_t ids() const { return agent_->view(Asker{}).size(); }
  static inline std::unique_ptr<Daemon> daemon_;
  static inline std::thread lcore_;
  UniqueFd epoll_;
  std::optional<CmAgent> agent_;
  std::optional<CmProgram> program_;
};

TEST(CmNicClock, PassesFasterAndSaysWhenItIsThatTime) {
  CmNic nic;
  nic.endpoint = std::make_unique<cm::Endpoint>(1, 1, 16);
  nic.timescale = 1000;
  nic.began_ns -= 1'000'000'000;
  EXPECT_EQ(nic.due_ns(), UINT64_MAX) << "nothing is due";
  const TimeNs before = monotonic_now_ns();
  const TimeNs now = nic.now_ns();
  EXPECT_GE(now, nic.began_ns + (before - nic.began_ns) * 1000);
  EXPECT_LE(now, nic.began_ns + (monotonic_now_ns() - nic.began_ns) * 1000);
  ASSERT_NE(nic.endpoint->connect({Ipv4Address{1}, Ipv4Address{2}}, cm::Req{}, now), 0u);
  EXPECT_EQ(nic.due_ns(), nic.began_ns + (nic.endpoint->next_deadline_ns() - nic.began_ns) / 1000);
  EXPECT_LE(nic.due_ns(), monotonic_now_ns() + cm::Endpoint::kGiveUpNs / 1000);
}

TEST_F(CmAgentTest, ARequestOfAHostThatCantBeNamedIsRefused) {
  open_file();
  listen(1);
  ASSERT_EQ(ids(), 1u) << "the listener";
  // The entry of its number is another host's by now, or nobody's.
  request_from(Ipv4Address{0xf0001234});
  EXPECT_EQ(ids(), 1u);
  EXPECT_FALSE(program_->take_token());
  EXPECT_EQ(agent_->ended_connections(), 1u) << "it answers repeated messages, with the REJ";
  // It has not taken the only place of the listener's.
  const auto host = daemon_->addresses().acquire(parse_gid("fd00::9").value());
  ASSERT_TRUE(host);
  request_from(*host);
  EXPECT_EQ(ids(), 2u);
  EXPECT_TRUE(program_->take_token());
}

// What librdmacm needs to know: the datagram in the old file says of an event that is not there.
TEST_F(CmAgentTest, AMigratedIdsEventLeavesADatagramBehind) {
  open_file();
  const auto created = run(RDMA_USER_CM_CMD_CREATE_ID,
                           rdma_ucm_create_id{.uid = 7, .ps = RDMA_PS_TCP, .qp_type = 2});
  rdma_ucm_create_id_resp id{};
  ASSERT_GE(created.size(), sizeof id);
  memcpy(&id, created.data(), sizeof id);
  rdma_ucm_resolve_ip resolve{};
  resolve.id = id.id;
  resolve.timeout_ms = 1000;
  resolve.dst_addr.sin6_family = AF_INET6;
  const Gid peer = parse_gid("fd00::2").value();
  memcpy(&resolve.dst_addr.sin6_addr, peer.data(), peer.size());
  run(RDMA_USER_CM_CMD_RESOLVE_IP, resolve);
  CmProgram other(*agent_, epoll_.get());
  ASSERT_TRUE(other.open());
  const rdma_ucm_migrate_id migrate{.response = 0, .id = id.id, .fd = 0};
  ASSERT_TRUE(other.give({RDMA_USER_CM_CMD_MIGRATE_ID, 0, program_->name()},
                         std::as_bytes(std::span(&migrate, 1))));
  serve();
  const auto answer = other.answer();
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->result.error, 0);
  EXPECT_EQ(answer->result.stale, kCmOtherTokenStale);
  EXPECT_TRUE(program_->take_token());
  EXPECT_TRUE(other.take_token());
}

// The names of files and ids are no secrets, and small numbers: what another user's program names
// is not there.
TEST_F(CmAgentTest, AnIdStaysWithTheFilesOfItsUser) {
  if (geteuid() != 0) GTEST_SKIP() << "only root has another user's programs";
  program_.emplace(*agent_, epoll_.get(), kOne);
  ASSERT_TRUE(program_->open());
  const auto created = run(RDMA_USER_CM_CMD_CREATE_ID,
                           rdma_ucm_create_id{.uid = 7, .ps = RDMA_PS_TCP, .qp_type = 2});
  rdma_ucm_create_id_resp id{};
  ASSERT_GE(created.size(), sizeof id);
  memcpy(&id, created.data(), sizeof id);
  const rdma_ucm_migrate_id migrate{.response = 0, .id = id.id, .fd = 0};
  // Root is another user as well: a file says whose share its ids take.
  for (const uid_t user : {kOther, uid_t{0}, kOne}) {
    CmProgram other(*agent_, epoll_.get(), user);
    ASSERT_TRUE(other.open());
    ASSERT_TRUE(other.give({RDMA_USER_CM_CMD_MIGRATE_ID, 0, program_->name()},
                           std::as_bytes(std::span(&migrate, 1))));
    serve();
    const auto answer = other.answer();
    ASSERT_TRUE(answer);
    EXPECT_EQ(answer->result.error, user == kOne ? 0 : ENOENT) << "of user " << user;
  }
}

// Two users' programs, without the sockets that their commands come by.
class CmShares {
 public:
  explicit CmShares(Daemon& daemon) : daemon_(daemon) {
    CmNic& nic = nics_.emplace_back();
    nic.instance = &daemon_.nics()[0];
    nic.endpoint = std::make_unique<cm::Endpoint>(1, 1, kMaxConnections);
    one.uid = kOne;
    other.uid = kOther;
    for (CmFile* file : {&one, &other}) file->visible_devices = ~uint64_t{0};
  }
  // A new id of the user's with a port, any or that one; null: there is none for it.
  CmId* bound(CmFile& file, uint16_t port = 0) {
    CmId* const id = ids_.add(file);
    if (id == nullptr) return nullptr;
    id->port_space = RDMA_PS_TCP;
    if (addresses_.bind(*id, Ipv4Address{}, port) == 0) return id;
    ids_.destroy(*id);
    return nullptr;
  }
  // A connection of a new id, which is left behind at once. Returns the errno value.
  int connects_and_leaves(CmFile& file) {
    CmId* const id = ids_.add(file);
    if (id == nullptr) return EMFILE;
    id->nic = &nics_[0];
    id->destination = Ipv4Address{0x0a000001};
    rdma_ucm_connect command{};
    command.id = id->handle;
    command.conn_param.valid = 1;
    const int error = connections_.connect(file, command).error;
    ids_.destroy(*id);
    nics_[0].endpoint->take_outgoing();
    connections_.settle(nics_[0]);
    return error;
  }

  cm::Endpoint& endpoint() { return *nics_[0].endpoint; }
  void pass(uint64_t time_ns) { endpoint().advance(nics_[0].now_ns() + time_ns); }
  void destroy(CmId& id) { ids_.destroy(id); }

  CmFile one, other;

 private:
  Daemon& daemon_;
  std::vector<CmNic> nics_;
  CmAddresses addresses_{daemon_, nics_};
  CmIds ids_{addresses_};
  CmConnections connections_{daemon_, ids_, addresses_};
};

TEST_F(CmAgentTest, AUserHasHalfOfThePortsThatAreFreeForAnybody) {
  CmShares shares(*daemon_);
  constexpr uint32_t kPorts = 28232;
  CmId* last = nullptr;
  uint32_t count = 0;
  for (CmId* id = shares.bound(shares.one); id != nullptr && count <= kPorts; ++count) {
    last = id;
    id = shares.bound(shares.one);
  }
  EXPECT_EQ(count, kPorts / 2);
  EXPECT_NE(shares.bound(shares.one, kPort), nullptr) << "what programs agree upon is apart";
  EXPECT_NE(shares.bound(shares.other), nullptr);
  ASSERT_NE(last, nullptr);
  shares.destroy(*last);
  EXPECT_NE(shares.bound(shares.one), nullptr) << "in the place of one that was given back";
  EXPECT_EQ(shares.bound(shares.one), nullptr);
}

TEST_F(CmAgentTest, AUserHasHalfOfTheConnectionsThoseIncludedThatHaveEnded) {
  CmShares shares(*daemon_);
  uint32_t count = 0;
  while (count <= kMaxConnections && shares.connects_and_leaves(shares.one) == 0) ++count;
  EXPECT_EQ(count, kMaxConnections / 2);
  EXPECT_EQ(shares.endpoint().connections(), kMaxConnections / 2);
  EXPECT_EQ(shares.connects_and_leaves(shares.one), ENOMEM);
  EXPECT_EQ(shares.connects_and_leaves(shares.other), 0);
  shares.pass(2 * cm::Endpoint::kTimeWaitNs);
  EXPECT_EQ(shares.connects_and_leaves(shares.one), ENOMEM) << "nobody has looked";
  EXPECT_EQ(shares.connects_and_leaves(shares.one), 0) << "nothing is left of them";
}

// As rdma_resolve_addrinfo of newer librdmacms does.
TEST_F(CmAgentTest, AProgramTellsItselfAnEvent) {
  open_file();
  const auto created = run(RDMA_USER_CM_CMD_CREATE_ID,
                           rdma_ucm_create_id{.uid = 7, .ps = RDMA_PS_TCP, .qp_type = 2});
  rdma_ucm_create_id_resp id{};
  ASSERT_GE(created.size(), sizeof id);
  memcpy(&id, created.data(), sizeof id);
  constexpr uint32_t kWriteEvent = 24, kUserEvent = 18, kEstablished = 9;
  struct {
    uint32_t id, reserved, event, status;
    uint64_t argument;
  } command{id.id, 0, kUserEvent, 5, 0x123456789abcdef0};
  run(kWriteEvent, command);
  EXPECT_TRUE(program_->take_token());
  const auto told = run(RDMA_USER_CM_CMD_GET_EVENT, rdma_ucm_get_event{});
  rdma_ucm_event_resp event{};
  ASSERT_GE(told.size(), sizeof event);
  memcpy(&event, told.data(), sizeof event);
  EXPECT_EQ(event.uid, 7u);
  EXPECT_EQ(event.event, kUserEvent);
  EXPECT_EQ(event.status, 5u);
  EXPECT_EQ(memcmp(&event.param, &command.argument, sizeof command.argument), 0);
  command.event = kEstablished;
  ASSERT_TRUE(program_->give({.command = kWriteEvent, .reserved = 0, .other_file = 0},
                             std::as_bytes(std::span(&command, 1))));
  serve();
  const auto refused = program_->answer();
  EXPECT_TRUE(refused && refused->result.error == EINVAL) << "no event of the kernel's";
}

TEST_F(CmAgentTest, LoopbackAddressesAreToldAsTheyWereNamed) {
  open_file();
  const auto created = run(RDMA_USER_CM_CMD_CREATE_ID,
                           rdma_ucm_create_id{.uid = 7, .ps = RDMA_PS_TCP, .qp_type = 2});
  rdma_ucm_create_id_resp id{};
  ASSERT_GE(created.size(), sizeof id);
  memcpy(&id, created.data(), sizeof id);
  rdma_ucm_bind_ip bind{};
  bind.id = id.id;
  bind.addr.sin6_family = AF_INET6;
  bind.addr.sin6_addr = IN6ADDR_LOOPBACK_INIT;
  run(RDMA_USER_CM_CMD_BIND_IP, bind);
  const auto queried =
      run(RDMA_USER_CM_CMD_QUERY_ROUTE, rdma_ucm_query{.response = 0, .id = id.id});
  rdma_ucm_query_route_resp route{};
  ASSERT_GE(queried.size(), sizeof route);
  memcpy(&route, queried.data(), sizeof route);
  EXPECT_EQ(memcmp(&route.src_addr.sin6_addr, &bind.addr.sin6_addr, sizeof(in6_addr)), 0);
  EXPECT_NE(route.node_guid, 0u) << "and it is of the first NIC";
}

}  // namespace
}  // namespace hostnic
