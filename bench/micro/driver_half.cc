// SPDX-License-Identifier: BSD-3-Clause
// The driver half, on a client segment whose other end the benchmark plays: from post_send to
// descriptors in the send ring, and from a meta report to completions that were polled.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>
#include <mutex>
#include <stdexcept>
#include <vector>

#include "bench/micro/report.h"
#include "dataplane/nic/client/client_channel.h"
#include "verbs-shim/driver/driver.h"

namespace hostnic::bench {
namespace {

constexpr uint32_t kFirstQpn = 0x10000;  // of status 0
// At most, of the segment's memory.
constexpr uint64_t kQpArenaBytes = 16 * 1024;
constexpr uint32_t kPathMtuBytes = 4096;
constexpr uint32_t kPeerWindow = 1024;
// Requests of one list. Their packets fit the window from the start.
constexpr uint32_t kListRequests = 32, kListPackets = 64;
static_assert(kListPackets <= kInitialWindow);

void require(bool good, const char* what) {
  if (!good) throw std::runtime_error(what);
}

// The NIC's end of the segment: grants every command, takes descriptors, and acknowledges.
class PlayedNic final : public driver::NicLink {
 public:
  explicit PlayedNic(uint32_t qps) {
    auto made = ClientChannel::create({.client_id = 1,
                                       .max_qps = qps,
                                       .arena_bytes = (1 << 20) + uint64_t{qps} * kQpArenaBytes,
                                       .program = "bench",
                                       .pid = 0});
    require(made.has_value(), "client segment");
    channel_ = std::move(*made);
  }
  ClientChannel& channel() { return *channel_; }
  void kick() override { serve_commands(); }
  void wait_for_response() override { serve_commands(); }
  void pause(uint32_t) override {}

  // Takes what is in the send ring. How many descriptors that were; `packets` of theirs.
  uint32_t take(uint32_t& packets) {
    std::array<RingElement, 1 + kMaxExtraElements> elements;
    uint32_t taken = 0;
    packets = 0;
    while (channel_->sends.dequeue_burst(elements.data(), 1) == 1) {
      SendDescriptor d;
      std::memcpy(&d, elements.data(), sizeof(d));
      if (d.extra_elements != 0)
        channel_->sends.dequeue_burst(elements.data() + 1, d.extra_elements);
      packets += (d.length_bytes + kPathMtuBytes - 1) / kPathMtuBytes;
      ++taken;
    }
    return taken;
  }
  // Everything of a QP before `base` was sent, and has arrived.
  void acknowledge(uint32_t status_index, Psn base) {
    QpStatus& status = channel_->qp_status(status_index);
    status.transmitted_psn.store(base.value(), std::memory_order_release);
    status.sequence.fetch_add(1);
    status.una_psn = status.sack_end_psn = base.value();
    status.highest_acceptable_psn = (base + (kPeerWindow - 1)).value();
    ++status.ack_count;
    status.sequence.fetch_add(1);
    if (status.dirty.exchange(1) != 0) return;
    const MetaReport report{status_index, kFirstQpn + status_index, {}};
    require(channel_->metas.enqueue_bulk(&report, 1), "the meta ring is full");
  }

 private:
  void serve_commands() {
    Command command;
    while (channel_->commands.dequeue_burst(&command, 1) == 1) {
      CommandResponse response{};
      response.correlation = command.correlation;
      if (command.kind == CommandKind::kCreateQp)
        response.qpn = kFirstQpn + command.create_qp.status_index;
      require(channel_->responses.enqueue_bulk(&response, 1), "the response ring is full");
    }
  }

  std::unique_ptr<ClientChannel> channel_;
};

// Connected queue pairs.
class DriverHalf {
 public:
  explicit DriverHalf(uint32_t qps) : nic_(qps), bases_(qps) {
    require(driver_.error() == 0, "the driver refuses its segment");
    for (uint32_t i = 0; i < qps; ++i) qps_.push_back(connect());
  }
  ~DriverHalf() {
    for (driver::Qp* qp : qps_) driver_.destroy_qp(qp);
  }
  DriverHalf(const DriverHalf&) = delete;
  DriverHalf& operator=(const DriverHalf&) = delete;

  // `count` signalled requests, numbered on, of a queue pair each in turn. Whether all were taken.
  bool post(driver::SendRequest& request, uint32_t count) {
    int error = 0;
    for (uint32_t i = 0; i < count; ++i) {
      request.wr_id = posted_++;
      error |= driver_.post_send(qps_[next_qp_], request, now_ns_);
      if (++next_qp_ == qps_.size()) next_qp_ = 0;
    }
    return error == 0;
  }
  // The NIC sends what was handed over, and hears that it arrived. Whether that were `count`
  // descriptors.
  bool arrive(uint32_t count) {
    uint32_t packets = 0;
    const uint32_t taken = nic_.take(packets);
    const uint32_t senders = std::min<uint32_t>(count, static_cast<uint32_t>(qps_.size()));
    for (uint32_t i = 0; i < senders; ++i) {
      bases_[next_heard_] += packets / senders;
      nic_.acknowledge(next_heard_, bases_[next_heard_]);
      if (++next_heard_ == qps_.size()) next_heard_ = 0;
    }
    now_ns_ += 10'000;
    return taken == count;
  }
  // Handles the reports and polls. Whether `count` completions came, the right ones.
  bool complete(uint32_t count) {
    {
      std::lock_guard lock(driver_.mutex());
      driver_.progress(now_ns_);
    }
    if (cq_->poll(completions_.data(), kListRequests) != static_cast<int>(count)) return false;
    bool good = true;
    for (uint32_t i = 0; i < count; ++i) {
      const driver::Completion& completion = completions_[i];
      good = good && completion.wr_id == completed_++ &&
             completion.status == driver::WcStatus::kSuccess;
    }
    return good;
  }

 private:
  driver::Qp* connect() {
    driver::QpInit init;
    init.send_cq = init.recv_cq = cq_.get();
    init.caps = {.max_send_wr = 2 * kListRequests,
                 .max_recv_wr = 1,
                 .max_send_sge = 1,
                 .max_recv_sge = 1,
                 .max_inline_bytes = kMaxInlineBytes};
    auto made = driver_.create_qp(init);
    require(made.has_value(), "a queue pair");
    driver::Qp* const qp = *made;
    driver::QpAttr attr;
    attr.path_mtu_bytes = kPathMtuBytes;
    attr.dest_qpn = 0x10003;
    attr.dest_ip = Ipv4Address{0x0a000002};
    attr.timeout = 14;
    attr.retry_cnt = 7;
    const auto move = [&](QpState state, uint32_t mask) {
      attr.state = state;
      require(driver_.modify_qp(qp, attr, mask | driver::kQpState) == 0, "a state");
    };
    using namespace driver;
    move(QpState::kInit, kQpPkeyIndex | kQpPort | kQpAccessFlags);
    move(QpState::kRtr,
         kQpAv | kQpPathMtu | kQpDestQpn | kQpRqPsn | kQpMaxDestRdAtomic | kQpMinRnrTimer);
    move(QpState::kRts, kQpTimeout | kQpRetryCnt | kQpRnrRetry | kQpSqPsn | kQpMaxQpRdAtomic);
    return qp;
  }

  PlayedNic nic_;
  driver::Driver driver_{nic_, nic_.channel().memory(), {}};
  std::unique_ptr<driver::Cq> cq_ = driver_.create_cq(2 * kListRequests, nullptr, nullptr);
  std::vector<driver::Qp*> qps_;
  std::vector<Psn> bases_;
  size_t next_qp_ = 0;
  uint32_t next_heard_ = 0;
  std::array<driver::Completion, kListRequests> completions_;
  uint64_t posted_ = 0, completed_ = 0;
  TimeNs now_ns_ = 1'000'000'000;
};

enum class Half : uint8_t { kPost, kComplete };

void run(benchmark::State& state, Half half, bool inline_data, uint32_t qps = 1) {
  const auto bytes = static_cast<uint32_t>(state.range(0));
  const uint32_t packets = (bytes + kPathMtuBytes - 1) / kPathMtuBytes;
  const uint32_t count = std::min(kListRequests, kListPackets / packets);
  std::vector<std::byte> memory(bytes);
  const Sge sge{reinterpret_cast<uint64_t>(memory.data()), bytes, 1};
  driver::SendRequest request;
  request.op = SendOp::kWrite;
  request.signalled = true;
  request.inline_data = inline_data;
  request.sges = {&sge, 1};
  request.remote_va = 0x7000'0000'0000;
  request.rkey = 0xabc123;
  DriverHalf driver(qps);
  const auto part = [&](Half which, auto work) {
    if (which != half) return work();
    const Part timed(state);
    return work();
  };
  for (auto _ : measured_parts(state)) {
    if (!part(Half::kPost, [&] { return driver.post(request, count); }) || !driver.arrive(count)) {
      state.SkipWithError("not every request became a descriptor");
      return;
    }
    if (!part(Half::kComplete, [&] { return driver.complete(count); })) {
      state.SkipWithError("other requests were completed");
      return;
    }
  }
  report(state, state.iterations() * count);
}

void post_send(benchmark::State& state) { run(state, Half::kPost, false); }
HOSTNIC_BENCHMARK(post_send)->Arg(64)->Arg(65536)->UseManualTime();
// Each of another queue pair than the one before.
void post_send_qps(benchmark::State& state) {
  run(state, Half::kPost, false, static_cast<uint32_t>(state.range(1)));
}
HOSTNIC_BENCHMARK(post_send_qps)->Args({64, 64})->Args({64, 1024})->UseManualTime();
void report_to_completion_qps(benchmark::State& state) {
  run(state, Half::kComplete, false, static_cast<uint32_t>(state.range(1)));
}
HOSTNIC_BENCHMARK(report_to_completion_qps)->Args({64, 64})->Args({64, 1024})->UseManualTime();
void post_send_inline(benchmark::State& state) { run(state, Half::kPost, true); }
HOSTNIC_BENCHMARK(post_send_inline)->Arg(64)->UseManualTime();
void report_to_completion(benchmark::State& state) { run(state, Half::kComplete, false); }
HOSTNIC_BENCHMARK(report_to_completion)->Arg(64)->Arg(65536)->UseManualTime();

}  // namespace
}  // namespace hostnic::bench
