// SPDX-License-Identifier: BSD-3-Clause
// What a poll says that found nothing at first and gave its processor away.
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <functional>
#include <thread>
#include <utility>

#include "tests/conformance/bench.h"

namespace {

// What happens while this thread has given its processor away, once.
thread_local std::function<void()> meanwhile;

}  // namespace

// The library's polls call this one.
extern "C" int sched_yield() noexcept {
  if (const auto happens = std::exchange(meanwhile, nullptr)) happens();
  return static_cast<int>(syscall(SYS_sched_yield));
}

namespace hostnic::conformance {
namespace {

using Polls = Conformance;

// As on an adapter, whose polls take no time: a program that polls and finds nothing may hear next
// that its peer has gone, and destroy the queue pair with what had come before.
TEST_F(Polls, HaveWhatCameWhileTheyGaveTheProcessorAway) {
  connect();
  ASSERT_EQ(far->post_receive(7, 64), 0);
  bool came = false;
  int found = 0;
  ibv_wc completion{};
  // A new thread: others may have learnt by now to nap instead.
  std::thread([&] {
    meanwhile = [&] {
      ibv_sge sge = near_host->sge(8);
      ASSERT_EQ(near->post(request(1, IBV_WR_SEND, &sge, *far_host)), 0);
      near->expect(1);
      came = true;
    };
    while (!came && found == 0) found = ibv_poll_cq(far->cq, 1, &completion);
  }).join();
  EXPECT_TRUE(came) << "no poll gave the processor away";
  ASSERT_EQ(found, 1) << "the poll did not look again";
  EXPECT_EQ(completion.wr_id, 7u);
}

}  // namespace
}  // namespace hostnic::conformance
