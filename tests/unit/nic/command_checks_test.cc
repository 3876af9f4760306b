// SPDX-License-Identifier: BSD-3-Clause
// Commands of clients, judged without a NIC.
#include "dataplane/nic/command_checks.h"

#include <gtest/gtest.h>

#include <cerrno>

namespace hostnic {
namespace {

constexpr QpState kStates[] = {QpState::kReset, QpState::kInit, QpState::kRtr, QpState::kRts,
                               QpState::kSqd,   QpState::kSqe,  QpState::kErr};

ModifyQpCommand modify_to(QpState state) {
  ModifyQpCommand command{};
  command.state = state;
  command.path_mtu_bytes = 4096;
  return command;
}

CreateQpCommand good_create() {
  CreateQpCommand command{};
  command.recv_entries = 64;
  command.recv_max_sge = 1;
  command.read_destination_entries = 16;
  command.type = QpType::kRc;
  return command;
}

TEST(CommandChecks, StatesThatAreNone) {
  for (const uint32_t state : {7u, 8u, 0xffu, 0x10000000u, 0x80000000u, 0xffffffffu})
    for (const QpState from : kStates)
      EXPECT_EQ(EINVAL, check_command(modify_to(static_cast<QpState>(state)), QpType::kRc, from))
          << state;
}

TEST(CommandChecks, OnlyTheConnectedSend) {
  for (const QpState from : {QpState::kReset, QpState::kInit, QpState::kErr}) {
    EXPECT_EQ(EINVAL, check_command(modify_to(QpState::kRts), QpType::kRc, from));
    EXPECT_EQ(EINVAL, check_command(modify_to(QpState::kSqd), QpType::kRc, from));
  }
  for (const QpState from : {QpState::kRtr, QpState::kRts, QpState::kSqd})
    EXPECT_EQ(0, check_command(modify_to(QpState::kRts), QpType::kRc, from));
  for (const QpState from : {QpState::kRtr, QpState::kRts, QpState::kSqd, QpState::kErr})
    EXPECT_EQ(EINVAL, check_command(modify_to(QpState::kRtr), QpType::kRc, from));
  for (const QpState from : kStates) {
    EXPECT_EQ(0, check_command(modify_to(QpState::kErr), QpType::kRc, from));
    EXPECT_EQ(0, check_command(modify_to(QpState::kReset), QpType::kRc, from));
  }
}

TEST(CommandChecks, WordsOfModify) {
  const auto check = [](auto change) {
    ModifyQpCommand command = modify_to(QpState::kRtr);
    change(command);
    return check_command(command, QpType::kRc, QpState::kInit);
  };
  EXPECT_EQ(0, check([](auto&) {}));
  EXPECT_EQ(EINVAL, check([](auto& c) { c.access = 1u << 31; }));
  EXPECT_EQ(EINVAL, check([](auto& c) { c.max_dest_rd_atomic = 17; }));
  EXPECT_EQ(EINVAL, check([](auto& c) { c.min_rnr_timer = 32; }));
  EXPECT_EQ(EINVAL, check([](auto& c) { c.restart_sends = 2; }));
  EXPECT_EQ(EINVAL, check([](auto& c) { c.peer_silent = 2; }));
  EXPECT_EQ(EINVAL, check([](auto& c) { c.dest_qpn = 1u << 24; }));
  for (const uint16_t mtu : {0, 1, 128, 300, 8192, 65535})
    EXPECT_EQ(EINVAL, check([mtu](auto& c) { c.path_mtu_bytes = mtu; })) << mtu;
  ModifyQpCommand datagrams = modify_to(QpState::kRtr);
  datagrams.path_mtu_bytes = 0;
  EXPECT_EQ(0, check_command(datagrams, QpType::kUd, QpState::kInit));
}

TEST(CommandChecks, WordsOfCreate) {
  const auto check = [](auto change) {
    CreateQpCommand command = good_create();
    change(command);
    return check_command(command, 16);
  };
  EXPECT_EQ(0, check([](auto&) {}));
  EXPECT_EQ(0, check([](auto& c) { c.recv_entries = 0; }));
  EXPECT_EQ(EINVAL, check([](auto& c) { c.status_index = 16; }));
  EXPECT_EQ(EINVAL, check([](auto& c) { c.type = static_cast<QpType>(5); }));
  EXPECT_EQ(EINVAL, check([](auto& c) { c.type = static_cast<QpType>(0x10000002); }));
  EXPECT_EQ(EINVAL, check([](auto& c) { c.recv_entries = 65536; }));
  EXPECT_EQ(EINVAL, check([](auto& c) { c.recv_entries = 63; }));
  EXPECT_EQ(EINVAL, check([](auto& c) { c.recv_max_sge = 17; }));
  EXPECT_EQ(EINVAL, check([](auto& c) { c.read_destination_entries = 0; }));
  EXPECT_EQ(EINVAL, check([](auto& c) { c.read_destination_entries = 512; }));
  EXPECT_EQ(EINVAL, check([](auto& c) {
              c.srq_offset = 64;
              c.recv_entries = 0;
            }));
  EXPECT_EQ(EINVAL, check_command(CreateWindowCommand{1, static_cast<WindowType>(3)}));
  EXPECT_EQ(0, check_command(CreateWindowCommand{1, WindowType::k2}));
}

}  // namespace
}  // namespace hostnic
