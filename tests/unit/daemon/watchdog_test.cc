// SPDX-License-Identifier: BSD-3-Clause
// Signs of life: an lcore that stands ends them, whatever the control thread does.
#include "dataplane/daemon/start/watchdog.h"

#include <gtest/gtest.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <thread>

#include "tests/unit/daemon/notify_socket.h"

namespace hostnic {
namespace {

constexpr uint64_t kLimitNs = 20'000'000;

class WatchdogTest : public testing::Test {
 protected:
  void SetUp() override {
    for (int i = 0; i < 2; ++i) {
      auto loop = LcoreLoop::create({});
      ASSERT_TRUE(loop) << loop.error();
      lcores_.push_back(std::move(*loop));
    }
    for (const auto& lcore : lcores_) threads_.emplace_back([&lcore] { lcore->run(); });
  }
  void TearDown() override {
    for (const auto& lcore : lcores_) lcore->request_stop();
    for (std::thread& thread : threads_) thread.join();
  }
  // Looks as the control thread does, until so many signs have come; returns false after 20 s.
  bool hears(Watchdog& watchdog, int signs) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (signs > 0 && std::chrono::steady_clock::now() < end) {
      poll(nullptr, 0, watchdog.wait_ms());
      watchdog.look();
      while (signs > 0 && manager_.heard() == "WATCHDOG=1") --signs;
    }
    return signs == 0;
  }

  NotifySocket manager_{"@hostnic-watchdog-" + std::to_string(getpid())};
  std::vector<std::unique_ptr<LcoreLoop>> lcores_;
  std::vector<std::thread> threads_;
};

TEST_F(WatchdogTest, LcoresThatSleepOrAreStoppedAreAlive) {
  lcores_[0]->set_handling(false);
  Watchdog watchdog(lcores_, kLimitNs);
  EXPECT_TRUE(hears(watchdog, 5));
}

TEST_F(WatchdogTest, OneLcoreThatStandsEndsTheSigns) {
  Watchdog watchdog(lcores_, kLimitNs);
  EXPECT_TRUE(hears(watchdog, 2));
  std::atomic<uint32_t> stands{1};
  lcores_[1]->post([&stands] { stands.wait(1); });
  // Both may have answered before; then there is one more sign.
  int signs = 0;
  for (int i = 0; i < 20; ++i) {
    poll(nullptr, 0, watchdog.wait_ms());
    watchdog.look();
    while (!manager_.heard().empty()) ++signs;
  }
  EXPECT_LE(signs, 1);
  stands.store(0);
  stands.notify_all();
  EXPECT_TRUE(hears(watchdog, 2)) << "it goes on, and so do the signs";
}

TEST_F(WatchdogTest, NobodyIsToldWhereNobodyWaits) {
  Watchdog watchdog(lcores_, 0);
  EXPECT_EQ(watchdog.wait_ms(), -1);
  watchdog.look();
  EXPECT_EQ(manager_.heard(), "");
}

}  // namespace
}  // namespace hostnic
