// SPDX-License-Identifier: BSD-3-Clause
// What a dead peer costs: those that talk to it learn of it when `timeout` and `retry_cnt` say, and
// nobody else notices.
#include <gtest/gtest.h>

#include <algorithm>

#include "tests/sim/options.h"
#include "tests/sim/pair.h"
#include "tests/sim/traffic.h"

namespace hostnic::sim {
namespace {

// A queue pair with work for a host that dies.
class Victim final : public World::Program {
 public:
  Victim(World& world, uint32_t host, uint32_t dead_host, const QpSettings& qp, SendOp op)
      : world_(world),
        near_(world.make_endpoint(host, qp)),
        far_(world.make_endpoint(dead_host, qp)),
        local_(kBytes),
        remote_(kBytes),
        op_(op),
        lkey_(near_->host->add_mr(local_)),
        rkey_(far_->host->add_mr(remote_)) {
    world.connect(*near_, *far_);
    world.add(*this);
  }

  bool turn(TimeNs now_ns) override {
    bool did = false;
    for (const auto& c : near_->poll(*near_->send_cq)) {
      did = true;
      if (c.wr_id != done_) world_.fail(fmt::format("completion of {}, not {}", c.wr_id, done_));
      ++done_;
      take(c, now_ns);
    }
    if (now_ns < next_post_ns_ || failed_) return did;
    next_post_ns_ = now_ns + 20 * kMicrosecond;
    if (posted_ - done_ < 8) post();
    return true;
  }
  TimeNs next_ns() const override { return failed_ ? UINT64_MAX : next_post_ns_; }
  bool all_flushed() const { return failed_ && done_ == posted_; }
  // When the first request ended in RETRY_EXC_ERR, and when the last one before it succeeded.
  TimeNs failed_ns() const { return failed_ns_; }
  TimeNs progress_ns() const { return progress_ns_; }

 private:
  static constexpr uint32_t kBytes = 64 * 1024;

  void take(const driver::Completion& c, TimeNs now_ns) {
    if (c.status == WcStatus::kSuccess && !failed_) {
      progress_ns_ = now_ns;
      return;
    }
    const WcStatus expected = failed_ ? WcStatus::kWrFlushErr : WcStatus::kRetryExcErr;
    if (c.status != expected)
      world_.fail(fmt::format("status {} instead of {}", static_cast<uint32_t>(c.status),
                              static_cast<uint32_t>(expected)));
    if (!failed_) failed_ns_ = now_ns;
    failed_ = true;
  }

  void post() {
    const Sge sge{local_.address(), op_ == SendOp::kFetchAdd ? 8u : 20'000u, lkey_};
    driver::SendRequest request;
    request.wr_id = posted_++;
    request.op = op_;
    request.signalled = true;
    request.sges = {&sge, 1};
    request.remote_va = remote_.address();
    request.rkey = rkey_;
    if (near_->post_send(request) != 0) world_.fail("post_send");
  }

  World& world_;
  std::unique_ptr<Endpoint> near_, far_;
  Memory local_, remote_;
  SendOp op_;
  uint32_t lkey_, rkey_;
  uint64_t posted_ = 0, done_ = 0;
  TimeNs next_post_ns_ = 0, failed_ns_ = 0, progress_ns_ = 0;
  bool failed_ = false;
};

constexpr uint32_t kDead = 2;

// Shorter than a probe: nobody waited for a timer.
constexpr uint64_t kUnnoticedNs = 400 * kMicrosecond;

// Hosts 0 and 1 talk to each other and to host 2, which dies.
void run(uint64_t seed) {
  Random random(seed);
  WorldSettings settings;
  settings.hosts = 3;
  settings.mtu_bytes = 1024;
  settings.windows = {256};
  World world(settings);
  std::vector<std::unique_ptr<Endpoint>> ends;
  std::vector<std::unique_ptr<Traffic>> flows;
  TrafficSettings traffic;
  traffic.requests = 60;
  traffic.pause_us = 20'000;  // beyond the end of the others' connections
  traffic.max_bytes = 16 * 1024;
  traffic.signalled_percent = 100;
  for (const uint32_t host : {0u, 1u}) ends.push_back(world.make_endpoint(host));
  world.connect(*ends[0], *ends[1]);
  for (const size_t side : {size_t{0}, size_t{1}}) {
    flows.push_back(
        std::make_unique<Traffic>(world, *ends[side], *ends[1 - side], traffic, random.next()));
    world.add(*flows.back());
  }
  QpSettings qp;
  qp.timeout = static_cast<uint8_t>(random.between(10, 13));
  qp.retry_cnt = static_cast<uint8_t>(random.between(1, 7));
  std::vector<std::unique_ptr<Victim>> victims;
  for (const SendOp op : {SendOp::kWrite, SendOp::kRead, SendOp::kFetchAdd})
    for (const uint32_t host : {0u, 1u})
      victims.push_back(std::make_unique<Victim>(world, host, kDead, qp, op));
  world.run_for(random.between(0, 300) * kMicrosecond);
  const TimeNs died_ns = world.now();
  world.cut(kDead, true);
  const auto finished = [&] {
    return std::all_of(flows.begin(), flows.end(), [](const auto& f) { return f->finished(); }) &&
           std::all_of(victims.begin(), victims.end(),
                       [](const auto& v) { return v->all_flushed(); });
  };
  if (!world.run_until(finished, 20 * kSecond)) world.fail("not finished");
  for (const auto& flow : flows) {
    if (!world.failed()) flow->check_memory();
    if (flow->longest_ns() > kUnnoticedNs)
      world.fail(fmt::format("a request of the others took {} us", flow->longest_ns() / 1000));
  }
  // Rule 26 with its floor of 64 ms; at most one probe or timeout more.
  const uint64_t promised_ns =
      std::max<uint64_t>(64 * kMillisecond, (uint64_t{qp.retry_cnt} + 1) * 4 * 4096 << qp.timeout);
  for (const auto& victim : victims) {
    if (world.failed()) break;
    const uint64_t took_ns = victim->failed_ns() - std::max(victim->progress_ns(), died_ns);
    if (took_ns + kMillisecond < promised_ns || took_ns > 2 * promised_ns)
      world.fail(fmt::format("failed after {} us, promised are {} us", took_ns / 1000,
                             promised_ns / 1000));
  }
  if (world.failed())
    ADD_FAILURE() << "seed " << seed << ": " << world.report() << "repeat: " << options().program
                  << " --gtest_filter=Liveness.* --first-seed " << seed << " --seeds 1";
}

TEST(Liveness, ABlackHoleEndsInRetryExceededAndOthersDontNotice) {
  const uint32_t seeds = std::min(options().seeds, 20u);
  for (uint32_t i = 0; i < seeds && !HasFailure(); ++i) run(options().first_seed + i);
}

}  // namespace
}  // namespace hostnic::sim
