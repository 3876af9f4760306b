// SPDX-License-Identifier: BSD-3-Clause
// What a program posts just before it ends a queue pair: it has been handed to the NIC, so it
// arrives.
#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

enum class End { kErr, kReset, kDestroy };
constexpr int kRounds = 20;

class LastSends : public Conformance,
                  public testing::WithParamInterface<std::tuple<ibv_qp_type, End>> {
 protected:
  void send(ibv_qp_type type, ibv_sge sge) {
    ibv_send_wr wr = request(1, IBV_WR_SEND, &sge, *far_host);
    if (type == IBV_QPT_UD) {
      ibv_ah_attr path{};
      path.is_global = 1;
      path.grh.dgid = far_host->gid();
      path.grh.hop_limit = 64;
      path.port_num = 1;
      handle_ = ibv_create_ah(near_host->pd, &path);
      ASSERT_NE(handle_, nullptr);
      wr.wr.ud = {handle_, far->qp->qp_num, kQkey};
    }
    ASSERT_EQ(near->post(wr), 0);
  }
  void end(End how) {
    switch (how) {
      case End::kErr:
        ASSERT_EQ(near->to(IBV_QPS_ERR), 0);
        break;
      case End::kReset:
        ASSERT_EQ(near->to(IBV_QPS_RESET), 0);
        break;
      case End::kDestroy:
        ASSERT_EQ(ibv_destroy_qp(near->qp), 0);
        near->qp = nullptr;
        break;
    }
  }
  ibv_ah* handle_ = nullptr;
};

TEST_P(LastSends, Arrive) {
  const auto [type, how] = GetParam();
  for (int round = 1; round <= kRounds; ++round) {
    ConnectOptions options;
    options.type = type;
    connect(options);
    const uint32_t bytes = round % 2 == 0 ? 8 : 1024;
    std::ranges::fill(near_host->bytes().first(bytes), std::byte(round));
    ASSERT_EQ(far->post_receive(7, 4096), 0);
    send(type, near_host->sge(bytes));
    end(how);
    const ibv_wc received = far->expect(7);
    const size_t header = type == IBV_QPT_UD ? kGrhBytes : 0;
    ASSERT_EQ(received.byte_len, bytes + header) << "round " << round;
    ASSERT_EQ(far_host->bytes()[header + bytes - 1], std::byte(round));
    if (how == End::kErr) {
      const ibv_wc sent = near->next();
      EXPECT_EQ(sent.wr_id, 1u);
      EXPECT_TRUE(sent.status == IBV_WC_SUCCESS || sent.status == IBV_WC_WR_FLUSH_ERR);
    }
    near.reset();
    if (handle_ != nullptr) ibv_destroy_ah(std::exchange(handle_, nullptr));
    far.reset();
  }
}

// Processes that compute and nothing else, more than there are processors.
class BusyProcesses {
 public:
  BusyProcesses() {
    constexpr int kProcesses = 4;
    for (int i = 0; i < kProcesses; ++i) {
      const pid_t child = fork();
      if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        for (;;) asm volatile("");
      }
      if (child > 0) children_.push_back(child);
    }
  }
  ~BusyProcesses() {
    for (const pid_t child : children_) kill(child, SIGKILL);
    for (const pid_t child : children_) waitpid(child, nullptr, 0);
  }
  BusyProcesses(const BusyProcesses&) = delete;
  BusyProcesses& operator=(const BusyProcesses&) = delete;

 private:
  std::vector<pid_t> children_;
};

// A private page of a file, such as programs have their initialised variables in, registered at a
// host: hostnicd reaches it through the mem fd, and by a thread that has to get a processor.
class FilePage {
 public:
  static constexpr size_t kBytes = 4096;
  explicit FilePage(const Host& host) {
    char path[] = "last-sends-XXXXXX";
    const int file = mkstemp(path);
    if (file < 0) return;
    unlink(path);
    if (ftruncate(file, kBytes) == 0) {
      void* const at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE, file, 0);
      if (at != MAP_FAILED) bytes = static_cast<std::byte*>(at);
    }
    close(file);
    if (bytes != nullptr) mr = ibv_reg_mr(host.pd, bytes, kBytes, kAllAccess);
  }
  ~FilePage() {
    if (mr != nullptr) ibv_dereg_mr(mr);
    if (bytes != nullptr) munmap(bytes, kBytes);
  }
  FilePage(const FilePage&) = delete;
  FilePage& operator=(const FilePage&) = delete;
  ibv_sge sge(uint32_t length) const {
    return {reinterpret_cast<uintptr_t>(bytes), length, mr->lkey};
  }

  std::byte* bytes = nullptr;
  ibv_mr* mr = nullptr;
};

TEST_P(LastSends, ArriveFromFilesBesideBusyProcesses) {
  const auto [type, how] = GetParam();
  if (how == End::kReset) return;  // as ERR is
  FilePage from(*near_host), into(*far_host);
  ASSERT_NE(from.mr, nullptr);
  ASSERT_NE(into.mr, nullptr);
  const BusyProcesses busy;
  for (int round = 1; round <= kRounds; ++round) {
    ConnectOptions options;
    options.type = type;
    connect(options);
    const uint32_t bytes = 1024;
    std::fill_n(from.bytes, bytes, std::byte(round));
    ibv_sge sge = into.sge(FilePage::kBytes);
    ibv_recv_wr receive{.wr_id = 7, .next = nullptr, .sg_list = &sge, .num_sge = 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_recv(far->qp, &receive, &bad), 0);
    send(type, from.sge(bytes));
    end(how);
    const ibv_wc received = far->expect(7);
    const size_t header = type == IBV_QPT_UD ? kGrhBytes : 0;
    ASSERT_EQ(received.byte_len, bytes + header) << "round " << round;
    ASSERT_EQ(into.bytes[header + bytes - 1], std::byte(round));
    near.reset();
    if (handle_ != nullptr) ibv_destroy_ah(std::exchange(handle_, nullptr));
    far.reset();
  }
}

std::string name_of_case(const testing::TestParamInfo<LastSends::ParamType>& info) {
  const auto [type, how] = info.param;
  const char* const service = type == IBV_QPT_RC ? "RC" : type == IBV_QPT_UC ? "UC" : "UD";
  return std::string(service) + (how == End::kErr     ? "Err"
                                 : how == End::kReset ? "Reset"
                                                      : "Destroy");
}

INSTANTIATE_TEST_SUITE_P(Services, LastSends,
                         testing::Combine(testing::Values(IBV_QPT_RC, IBV_QPT_UC, IBV_QPT_UD),
                                          testing::Values(End::kErr, End::kReset, End::kDestroy)),
                         name_of_case);

}  // namespace
}  // namespace hostnic::conformance
