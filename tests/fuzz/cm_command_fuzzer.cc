// SPDX-License-Identifier: BSD-3-Clause
// rdma_cm in hostnicd, against programs that write anything into the device and hosts that send any
// management datagram: each command is answered, and nothing of a closed file is left. An input is
// a list of commands of two programs; most name ids and addresses that exist.
#include <netinet/in.h>
#include <rdma/rdma_user_cm.h>
#include <sys/epoll.h>

#include <array>
#include <optional>
#include <thread>
#include <vector>

#include "dataplane/daemon/lcore/clock.h"
#include "dataplane/daemon/rdma_cm/cm_agent.h"
#include "dataplane/daemon/start/options.h"
#include "dataplane/nic/packet/external_payload.h"
#include "dataplane/nic/packet/packet.h"
#include "dataplane/simulation/small_eal.h"
#include "tests/fuzz/input.h"
#include "tests/support/cm_program.h"

namespace hostnic::fuzz {
namespace {

constexpr size_t kAbsent = SIZE_MAX;

// Where a command has what must be right for it to get anywhere.
struct Layout {
  size_t bytes;
  size_t id = kAbsent;
  size_t address = kAbsent, other_address = kAbsent;
  size_t address_size = kAbsent, other_size = kAbsent;  // 16 bits
};

template <class T>
constexpr Layout with_id() {
  return {.bytes = sizeof(T), .id = offsetof(T, id)};
}

// By number.
const std::array<Layout, RDMA_USER_CM_CMD_JOIN_MCAST + 1> kLayouts{{
    {.bytes = sizeof(rdma_ucm_create_id)},
    with_id<rdma_ucm_destroy_id>(),
    {.bytes = sizeof(rdma_ucm_bind_ip),
     .id = offsetof(rdma_ucm_bind_ip, id),
     .address = offsetof(rdma_ucm_bind_ip, addr)},
    {.bytes = sizeof(rdma_ucm_resolve_ip),
     .id = offsetof(rdma_ucm_resolve_ip, id),
     .address = offsetof(rdma_ucm_resolve_ip, dst_addr),
     .other_address = offsetof(rdma_ucm_resolve_ip, src_addr)},
    with_id<rdma_ucm_resolve_route>(),
    with_id<rdma_ucm_query>(),
    with_id<rdma_ucm_connect>(),
    with_id<rdma_ucm_listen>(),
    with_id<rdma_ucm_accept>(),
    with_id<rdma_ucm_reject>(),
    with_id<rdma_ucm_disconnect>(),
    with_id<rdma_ucm_init_qp_attr>(),
    {.bytes = sizeof(rdma_ucm_get_event)},
    {.bytes = 64},
    with_id<rdma_ucm_set_option>(),
    with_id<rdma_ucm_notify>(),
    {.bytes = sizeof(rdma_ucm_join_ip_mcast),
     .id = offsetof(rdma_ucm_join_ip_mcast, id),
     .address = offsetof(rdma_ucm_join_ip_mcast, addr)},
    with_id<rdma_ucm_destroy_id>(),
    with_id<rdma_ucm_migrate_id>(),
    with_id<rdma_ucm_query>(),
    {.bytes = sizeof(rdma_ucm_bind),
     .id = offsetof(rdma_ucm_bind, id),
     .address = offsetof(rdma_ucm_bind, addr),
     .address_size = offsetof(rdma_ucm_bind, addr_size)},
    {.bytes = sizeof(rdma_ucm_resolve_addr),
     .id = offsetof(rdma_ucm_resolve_addr, id),
     .address = offsetof(rdma_ucm_resolve_addr, dst_addr),
     .other_address = offsetof(rdma_ucm_resolve_addr, src_addr),
     .address_size = offsetof(rdma_ucm_resolve_addr, dst_size),
     .other_size = offsetof(rdma_ucm_resolve_addr, src_size)},
    {.bytes = sizeof(rdma_ucm_join_mcast),
     .id = offsetof(rdma_ucm_join_mcast, id),
     .address = offsetof(rdma_ucm_join_mcast, addr),
     .address_size = offsetof(rdma_ucm_join_mcast, addr_size)},
}};

// hostnicd without its sockets: two NICs on the wire, and the lcore that serves them.
struct Hostnicd {
  Hostnicd() : eal("cm-command-fuzzer") {
    require(static_cast<bool>(eal) && register_mbuf_flags());
    auto plan = plan_from_arguments({"--nic", "ip=fd00::1/64", "--nic", "ip=10.9.0.2/24"});
    require(plan.has_value());
    auto made = Daemon::create(*plan);
    require(made.has_value());
    daemon = std::move(*made);
    lcore = std::thread([this] { daemon->lcores()[0]->run(); });
  }
  SmallEal eal;
  std::unique_ptr<Daemon> daemon;
  std::thread lcore;
};

class Run {
 public:
  Run(Daemon& daemon, Input input)
      : daemon_(daemon), input_(input), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
    agent_.emplace(daemon, epoll_.get());
    for (auto& program : programs_) open(program);
  }

  void run() {
    for (int steps = 0; !input_.empty() && steps < 100; ++steps) step();
    for (auto& program : programs_) program.reset();
    serve();
    require(agent_->view(Asker{}).empty());
  }

 private:
  void open(std::optional<CmProgram>& program) {
    program.emplace(*agent_, epoll_.get());
    require(program->open());
  }

  void serve() {
    epoll_event event{};
    for (int i = 0; i < 64 && epoll_wait(epoll_.get(), &event, 1, 0) == 1; ++i) {
      agent_->handle(event.data.fd);
      agent_->advance();
    }
  }

  void step() {
    const uint32_t kind = input_.below(RDMA_USER_CM_CMD_JOIN_MCAST + 4);
    auto& program = programs_[input_.below(2)];
    if (kind < kLayouts.size()) return give(*program, kind, sensible(kLayouts[kind]));
    if (kind == kLayouts.size()) return send_datagram();
    if (kind == kLayouts.size() + 1) {
      std::vector<std::byte> any(input_.number() % kMaxCmBytes);
      for (size_t i = 0; i < any.size() && !input_.empty(); ++i) any[i] = input_.take<std::byte>();
      return give(*program, input_.number(), any);
    }
    program.reset();
    serve();
    open(program);
  }

  // A command of the right length whose ids and addresses mostly exist.
  std::vector<std::byte> sensible(const Layout& layout) {
    std::vector<std::byte> command(layout.bytes);
    const uint32_t said = std::min<uint32_t>(input_.number(), layout.bytes);
    for (uint32_t i = 0; i < said; ++i) command[i] = input_.take<std::byte>();
    if (layout.id != kAbsent && !ids_.empty()) {
      const uint32_t id = ids_[input_.below(static_cast<uint32_t>(ids_.size()))];
      memcpy(&command[layout.id], &id, sizeof id);
    }
    for (const auto& [address, size] : {std::pair(layout.address, layout.address_size),
                                        std::pair(layout.other_address, layout.other_size)})
      if (address != kAbsent) put_address(command, address, size);
    return command;
  }

  void put_address(std::vector<std::byte>& command, size_t at, size_t size_at) {
    const uint32_t which = input_.below(8);
    if (which == 7) return;  // as it is
    const auto port = static_cast<uint16_t>(which == 6 ? 0 : 7000 + input_.below(4));
    uint16_t size = 0;
    if (which % 2 == 0) {
      sockaddr_in6 v6{};
      v6.sin6_family = AF_INET6;
      v6.sin6_port = htons(port);
      constexpr std::array<const char*, 4> kNames{"fd00::1", "::", "ff0e::7", "fd00::99"};
      const Gid address = parse_gid(kNames[which / 2]).value();
      memcpy(&v6.sin6_addr, address.data(), address.size());
      memcpy(&command[at], &v6, size = sizeof v6);
    } else {
      sockaddr_in v4{};
      v4.sin_family = AF_INET;
      v4.sin_port = htons(port);
      constexpr std::array<uint32_t, 3> kAddresses{0x0a090002, 0, 0xe0000007};
      v4.sin_addr.s_addr = htonl(kAddresses[which / 2]);
      memcpy(&command[at], &v4, size = sizeof v4);
    }
    if (size_at != kAbsent) memcpy(&command[size_at], &size, sizeof size);
  }

  void give(CmProgram& program, uint32_t number, std::span<const std::byte> command) {
    const uint64_t other = programs_[input_.below(2)]->name();
    require(program.give({.command = number, .reserved = 0, .other_file = other}, command));
    serve();
    const auto answer = program.answer();
    require(answer && answer->result.error >= 0);
    program.take_token();
    if (answer->result.error != 0) return;
    if (number == RDMA_USER_CM_CMD_CREATE_ID) keep_id(answer->response, 0);
    if (number == RDMA_USER_CM_CMD_GET_EVENT)
      keep_id(answer->response, offsetof(rdma_ucm_event_resp, id));
  }

  void keep_id(std::span<const std::byte> response, size_t offset) {
    uint32_t id = 0;
    require(response.size() >= offset + sizeof id);
    memcpy(&id, &response[offset], sizeof id);
    ids_.push_back(id);
  }

  // From another host, or from this one to itself.
  void send_datagram() {
    cm::MadBytes bytes{};
    const uint32_t said = input_.number();
    for (uint32_t i = 0; i < said && i < bytes.size(); ++i) bytes[i] = input_.take<std::byte>();
    if (input_.below(4) != 0) {  // class and version of communication management, a method it has
      bytes[0] = std::byte{1};
      bytes[1] = std::byte{7};
      bytes[2] = std::byte{2};
      bytes[3] = std::byte{3};
    }
    const uint32_t to = input_.below(2);
    NicInstance& nic = daemon_.nics()[to];
    const Ipv4Address own = nic.plan.settings.ip;
    const Ipv4Address from = input_.below(2) == 0 ? own : Ipv4Address{0x0a090000 + input_.below(8)};
    nic.lcore->run_on([&] { nic.nic->send_management(from, own, 0, bytes); });
    serve();
  }

  Daemon& daemon_;
  Input input_;
  UniqueFd epoll_;
  std::optional<CmAgent> agent_;
  std::array<std::optional<CmProgram>, 2> programs_;
  std::vector<uint32_t> ids_;
};

}  // namespace
}  // namespace hostnic::fuzz

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hostnic::fuzz;
  // Never ended: threads that still run are no leak, and libFuzzer ends by _exit().
  static auto* const hostnicd = new Hostnicd;
  Run(*hostnicd->daemon, Input(data, size)).run();
  return 0;
}
