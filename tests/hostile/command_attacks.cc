// SPDX-License-Identifier: BSD-3-Clause
// Attacks by commands in the ring and on the control socket.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <vector>

#include "tests/hostile/attacks.h"
#include "tests/hostile/raw_client.h"

namespace hostnic::hostile {
namespace {

ModifyQpCommand good_modify(const RawClient& client, uint32_t qpn, QpState state) {
  ModifyQpCommand command{};
  command.qpn = qpn;
  command.state = state;
  command.dest_qpn = qpn;
  command.dest_ip = client.device().ip;
  command.path_mtu_bytes = static_cast<uint16_t>(client.device().mtu_bytes);
  command.hop_limit = 64;
  return command;
}

// Whether hostnicd took the command for good.
bool accepted(const std::optional<CommandResponse>& response) {
  return response && response->error == 0;
}

}  // namespace

// `show qp` names each queue pair's state.
void impossible_state(const Target& target) {
  target.become();
  RawClient client(target.socket, target.device);
  need(client.error() == 0, client.message());
  const uint32_t qpn = client.create_qp(0);
  need(qpn != 0, "making a queue pair");
  unsigned taken = 0;
  for (const uint32_t state : {0x10000000u, 7u, 0xffffffffu, 0x80000000u})
    taken += accepted(client.modify(good_modify(client, qpn, static_cast<QpState>(state))));
  ask(target.socket, "show qp");
  fmt::print("{} impossible states were accepted\n", taken);
}

void impossible_commands(const Target& target) {
  target.become();
  RawClient client(target.socket, target.device);
  need(client.error() == 0, client.message());
  const uint32_t qpn = client.create_qp(0);
  need(qpn != 0, "making a queue pair");
  std::vector<Command> commands;
  const auto modify = [&](auto change) {
    Command command{};
    command.kind = CommandKind::kModifyQp;
    command.modify_qp = good_modify(client, qpn, QpState::kInit);
    change(command.modify_qp);
    commands.push_back(command);
  };
  modify([](ModifyQpCommand& m) { m.access = 0x80000000; });
  modify([](ModifyQpCommand& m) { m.max_dest_rd_atomic = 255; });
  modify([](ModifyQpCommand& m) { m.min_rnr_timer = 200; });
  modify([](ModifyQpCommand& m) { m.restart_sends = 9; });
  modify([](ModifyQpCommand& m) { m.peer_silent = 9; });
  modify([](ModifyQpCommand& m) { m.dest_qpn = 0x1000010; });
  modify([](ModifyQpCommand& m) { m.qpn = 0xffffffff; });
  for (const uint32_t mtu : {0u, 1u, 255u, 300u, 8192u, 65535u})
    modify([mtu](ModifyQpCommand& m) {
      m.state = QpState::kRtr;
      m.path_mtu_bytes = static_cast<uint16_t>(mtu);
    });
  const auto create = [&](auto change) {
    Command command{};
    command.kind = CommandKind::kCreateQp;
    const uint64_t arena = client.map().header().arena_offset;
    command.create_qp = {1, 1, arena, arena, arena, 0, 16, 1, 16, QpType::kRc, 1};
    change(command.create_qp);
    commands.push_back(command);
  };
  create([](CreateQpCommand& c) { c.type = static_cast<QpType>(0x10000000); });
  create([](CreateQpCommand& c) { c.status_index = 0xffffffff; });
  create([](CreateQpCommand& c) { c.recv_entries = 3; });
  create([](CreateQpCommand& c) { c.recv_entries = 0x80000000; });
  create([](CreateQpCommand& c) { c.recv_max_sge = 0xffff; });
  create([](CreateQpCommand& c) { c.read_destination_entries = 0; });
  create([](CreateQpCommand& c) { c.recv_queue_offset = UINT64_MAX - 15; });
  create([](CreateQpCommand& c) { c.recv_completion_offset = 0; });
  create([](CreateQpCommand& c) { c.srq_offset = 16; });
  Command window{};
  window.kind = CommandKind::kCreateWindow;
  window.create_window = {1, static_cast<WindowType>(0x10000000)};
  commands.push_back(window);
  window.kind = CommandKind::kBindWindow;
  window.bind_window = {qpn, UINT32_MAX, UINT32_MAX, UINT32_MAX, UINT64_MAX, UINT64_MAX};
  commands.push_back(window);
  Command group{};
  group.kind = CommandKind::kAttachGroup;
  group.group = {qpn, 0x7f000001};
  commands.push_back(group);
  const auto taken = std::ranges::count_if(
      commands, [&](const Command& command) { return accepted(client.execute(command)); });
  ask(target.socket, "show qp");
  fmt::print("{} of {} impossible commands were accepted\n", taken, commands.size());
}

// A queue pair that goes to RTS without RTR has no peer and no MTU to cut messages by.
void never_connected(const Target& target) {
  target.become();
  RawClient client(target.socket, target.device);
  need(client.error() == 0, client.message());
  const uint32_t qpn = client.create_qp(0);
  need(qpn != 0, "making a queue pair");
  const bool taken = accepted(client.modify(good_modify(client, qpn, QpState::kRts)));
  for (const SendOp op : {SendOp::kSend, SendOp::kWrite, SendOp::kRead}) {
    SendDescriptor d{};
    d.op = op;
    d.qpn = qpn;
    d.length_bytes = d.message_bytes = 256;
    d.flags = kSendAckRequest;
    d.sge_count = 1;
    client.post(d);
  }
  ask(target.socket, "show qp");
  fmt::print("a queue pair that was never connected was {}\n", taken ? "accepted" : "refused");
}

// Somebody who asks without end, with as many queue pairs to describe as he gets.
void ask_for_ever(const Target& target) {
  target.become();
  RawClient client(target.socket, target.device);
  need(client.error() == 0, client.message());
  uint32_t count = 0;
  while (count < client.map().max_qps() && client.create_qp(count, QpType::kRc, 0) != 0) ++count;
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(target.seconds);
  fmt::print("asks for {} queue pairs\n", count);
  std::fflush(stdout);
  unsigned asked = 0;
  while (std::chrono::steady_clock::now() < end) {
    ask(target.socket, "show qp");
    ++asked;
  }
  fmt::print("asked {} times for {} queue pairs\n", asked, count);
}

void commands_of_others(const Target& target) {
  target.become();
  for (const char* command :
       {"stop", "set impair all rx drop 100%", "clear counters", "start", "quit"}) {
    const Answer answer = ask(target.socket, command);
    fmt::print("{}: {}{}", command, answer.error == 0 ? "done" : "refused: ", answer.text);
    fmt::print("\n");
  }
  for (const char* command : {"show nic", "show counters", "show client", "show qp", "show cm"}) {
    const Answer answer = ask(target.socket, command);
    fmt::print("{}:\n{}", command, answer.text);
  }
}

}  // namespace hostnic::hostile
