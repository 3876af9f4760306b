// SPDX-License-Identifier: BSD-3-Clause
// What the error checks share: a connected pair of QPs for each case, and the steps of a case.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tests/apps/verify/channel.h"
#include "tests/apps/verify/device.h"
#include "tests/apps/verify/memory.h"
#include "tests/apps/verify/watchdog.h"

namespace hostnic::verify {

// A case runs on both sides at once. Side 0 acts, side 1 answers; between the steps both wait for
// each other. Fresh QPs, connected as `how` says (or left in RESET), for each case.
struct ErrorBench;
struct ErrorCase {
  std::string name;
  ConnectAttributes how{};
  bool connected = true;
  std::function<void(ErrorBench&)> prepare;  // side 1, before
  std::function<void(ErrorBench&)> act;      // side 0
  std::function<void(ErrorBench&)> check;    // side 1, after
};

// Keys and address of the peer's buffer.
struct PeerBuffer {
  uint64_t va = 0;
  uint32_t rkey = 0;             // everything allowed
  uint32_t local_only_rkey = 0;  // nothing remote allowed
  uint64_t length = 0;
};

struct ErrorBench {
  const Device& device;
  const ErrorCase& which;
  ibv_qp_cap caps{16, 16, 2, 2, 0};
  std::unique_ptr<Memory> memory;
  Owned<ibv_mr> mr, local_only;
  Owned<ibv_cq> cq;
  Owned<ibv_qp> qp;
  Owned<ibv_mw> mw;  // for cases that need one
  PeerBuffer peer;

  std::byte* buffer() const { return memory->bytes().data(); }
  ibv_sge sge(uint32_t length, uint64_t offset = 0) const;
  // A signalled request to the peer's buffer from `sge`.
  ibv_send_wr request(uint64_t wr_id, ibv_wr_opcode opcode, ibv_sge* sge) const;

  // Throw Failure if the call fails.
  void post(ibv_send_wr wr);
  void post_receive(uint64_t wr_id, ibv_sge* sge);
  // Waits for the next completion, whatever it is. `awaited` is for the failure's text.
  ibv_wc next_completion(const std::string& awaited);
  // Waits for the next completion, which must have this wr_id and status; returns it.
  ibv_wc expect(uint64_t wr_id, ibv_wc_status status);
  // Nothing comes for 50 ms.
  void expect_nothing();
  // The QP gets there within a second.
  void expect_state(ibv_qp_state state);
  // An asynchronous event of this QP arrives within 2 seconds.
  void expect_async(ibv_event_type type);
};

// Throws Failure "what: expected .., found ..".
void expect_equal(const std::string& what, int64_t expected, int64_t found);

std::vector<ErrorCase> protection_cases();
std::vector<ErrorCase> retry_cases();
std::vector<ErrorCase> queue_cases();
std::vector<ErrorCase> state_cases();
std::vector<ErrorCase> window_cases();

struct ErrorTotals {
  unsigned passed = 0, failed = 0;
};
// Runs all cases, printing one line for each that fails on this side.
ErrorTotals run_error_cases(const Device& device, Channel& channel, uint32_t side,
                            Watchdog& watchdog);

}  // namespace hostnic::verify
