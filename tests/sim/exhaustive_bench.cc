// SPDX-License-Identifier: BSD-3-Clause
#include "tests/sim/exhaustive_bench.h"

#include <algorithm>
#include <cstring>

namespace hostnic::sim {
namespace {

// Far more than any of these patterns needs; what they do need is in docs/testing.md.
constexpr uint64_t kLimitNs = 200 * kMillisecond;

WorldSettings settings_of(bool with_icrc) {
  WorldSettings s;
  s.mtu_bytes = kExhaustiveMtu;
  s.windows = {64};
  s.always_icrc = with_icrc;
  s.pool_scale = 0.1;
  return s;
}

bool is_receiving(SendOp op) {
  return op == SendOp::kSend || op == SendOp::kSendImm || op == SendOp::kWriteImm;
}

}  // namespace

ExhaustiveBench::Connection::Connection(World& world)
    : near(world.make_endpoint(0)),
      far(world.make_endpoint(1)),
      source(kBytes),
      landing(kBytes),
      target(kBytes),
      receives(kPatternPackets * kReceiveBytes),
      source_key(near->host->add_mr(source, 0)),
      landing_key(near->host->add_mr(landing, kAccessLocalWrite)),
      target_key(far->host->add_mr(target)),
      receives_key(far->host->add_mr(receives, kAccessLocalWrite)) {}

ExhaustiveBench::ExhaustiveBench(bool with_icrc) : world_(settings_of(with_icrc)) {
  for (auto& connection : connections_) connection = std::make_unique<Connection>(world_);
}

// A new connection between the same queue pairs. First PSNs lie before, at and behind the wrap.
void ExhaustiveBench::reset(Connection& c) {
  for (Endpoint* end : {c.near.get(), c.far.get()}) {
    world_.reset_to_init(*end);
    end->settings.psn = (0xfffff9 + static_cast<uint32_t>(runs_ % 9)) & 0xffffff;
  }
  world_.connect(*c.near, *c.far);
}

// Bytes of this run, so that those of the one before can't pass for them.
void ExhaustiveBench::fill(Connection& c) {
  const uint64_t salt = runs_ * 0x9e3779b97f4a7c15;
  for (uint32_t i = 0; i < kBytes; i += 8) {
    const uint64_t word = (salt + i) * 0xbf58476d1ce4e5b9;
    std::memcpy(c.source.data() + i, &word, 8);
    const uint64_t old = ~word;
    std::memcpy(c.target.data() + i, &old, 8);
    std::memcpy(c.landing.data() + i, &old, 8);
  }
  std::memset(c.receives.data(), 0xEE, c.receives.size());
  c.landing_after.assign(c.landing.data(), c.landing.data() + kBytes);
  c.target_after.assign(c.target.data(), c.target.data() + kBytes);
  c.receives_after.assign(c.receives.data(), c.receives.data() + c.receives.size());
  c.received.clear();
  c.sent = c.atomics = c.done = c.receives_done = 0;
}

void ExhaustiveBench::expect(Connection& c, const Work& work, uint32_t offset,
                             driver::SendRequest& request) {
  const auto copy = [&](const uint8_t* from, std::vector<uint8_t>& to, size_t at) {
    std::copy(from, from + work.bytes, to.begin() + static_cast<ptrdiff_t>(at));
  };
  request.remote_va = c.target.address(offset);
  request.rkey = c.target_key;
  switch (work.op) {
    case SendOp::kWrite:
    case SendOp::kWriteImm:
      copy(c.source.data() + offset, c.target_after, offset);
      break;
    case SendOp::kSend:
    case SendOp::kSendImm:
      copy(c.source.data() + offset, c.receives_after, c.received.size() * size_t{kReceiveBytes});
      break;
    case SendOp::kRead:
      copy(c.target_after.data() + offset, c.landing_after, offset);
      break;
    default: {
      request.remote_va = c.target.address(kCounterOffset);
      request.compare_add = 1;
      uint64_t value;
      std::memcpy(&value, c.target_after.data() + kCounterOffset, 8);
      std::memcpy(c.landing_after.data() + offset, &value, 8);
      ++value;
      std::memcpy(c.target_after.data() + kCounterOffset, &value, 8);
      ++c.atomics;
    }
  }
  if (is_receiving(work.op)) c.received.push_back({c.received.size(), work.bytes});
}

void ExhaustiveBench::post(Connection& c, const Works& works) {
  for (uint32_t i = 0; i < kPatternPackets; ++i) {
    const Sge sge{c.receives.address(uint64_t{i} * kReceiveBytes), kReceiveBytes, c.receives_key};
    require(c.far->post_recv({.wr_id = i, .sges = {&sge, 1}}) == 0, "post_recv");
  }
  uint32_t offset = kMargin;
  for (const Work& work : works) {
    const bool from_source = work.op < SendOp::kRead;
    const Sge sge{(from_source ? c.source : c.landing).address(offset), work.bytes,
                  from_source ? c.source_key : c.landing_key};
    driver::SendRequest request;
    request.wr_id = c.sent++;
    request.op = work.op;
    request.signalled = true;
    request.imm_data = 77;
    request.sges = {&sge, 1};
    expect(c, work, offset, request);
    require(c.near->post_send(request) == 0, "post_send");
    offset += (work.bytes + kMargin) & ~7u;
  }
}

// Each exactly once, in order. True: all are there.
bool ExhaustiveBench::take(Connection& c) {
  for (const auto& done : c.near->poll(*c.near->send_cq)) {
    if (done.status != driver::WcStatus::kSuccess || done.wr_id != c.done || c.done == c.sent)
      world_.fail(fmt::format("request {} completes with status {}, {} of {} expected", done.wr_id,
                              static_cast<uint32_t>(done.status), c.done, c.sent));
    ++c.done;
  }
  for (const auto& done : c.far->poll(*c.far->recv_cq)) {
    if (c.receives_done == c.received.size() || done.status != driver::WcStatus::kSuccess ||
        done.wr_id != c.receives_done || done.byte_len != c.received[c.receives_done].bytes) {
      world_.fail(fmt::format("receive {} of {} bytes completes with status {}, {} of {} expected",
                              done.wr_id, done.byte_len, static_cast<uint32_t>(done.status),
                              c.receives_done, c.received.size()));
    }
    ++c.receives_done;
  }
  return c.done == c.sent && c.receives_done == c.received.size();
}

void ExhaustiveBench::compare(Connection& c) {
  const auto differs = [this](const char* what, const Memory& memory,
                              const std::vector<uint8_t>& expected) {
    if (std::memcmp(memory.data(), expected.data(), expected.size()) == 0) return;
    const auto at = std::mismatch(expected.begin(), expected.end(), memory.data()).first;
    world_.fail(fmt::format("{} differs at byte {}", what, at - expected.begin()));
  };
  differs("target memory", c.target, c.target_after);
  differs("landing memory", c.landing, c.landing_after);
  differs("receive buffers", c.receives, c.receives_after);
  for (const Memory* memory : {&c.source, &c.landing, &c.target, &c.receives})
    if (!memory->surroundings_intact())
      world_.fail("bytes outside all memory regions have changed");
}

bool ExhaustiveBench::run(const Works& works, const Pattern& pattern) {
  ++runs_;
  world_.trace().clear();
  world_.wire().set_judge(nullptr);
  for (auto& c : connections_) {
    reset(*c);
    fill(*c);
  }
  seen_ = {};
  world_.wire().set_judge([this, &pattern](uint32_t to, const wire::Packet& p) -> Fate {
    if ((to == 0) != pattern.backward) return {};
    for (size_t i = 0; i < connections_.size(); ++i) {
      const Connection& c = *connections_[i];
      if (raw(p.dest_qpn) != (pattern.backward ? c.near : c.far)->qpn()) continue;
      const uint32_t index = seen_[i]++;
      return index < kPatternPackets ? pattern.fates[i][index] : Fate{};
    }
    return {};
  });
  const uint64_t atomics_before = world_.sum(Counter::atomics_executed);
  const TimeNs start = world_.now();
  for (auto& c : connections_) post(*c, works);
  const bool finished = world_.run_until(
      [this] {
        const bool first = take(*connections_[0]);
        return take(*connections_[1]) && first;
      },
      kLimitNs);
  if (!finished) world_.fail(fmt::format("not finished after {} ms", kLimitNs / kMillisecond));
  longest_ns_ = std::max(longest_ns_, world_.now() - start);
  // What comes late must change nothing any more, nor meet the next run.
  world_.run_for(50 * kMicrosecond);
  uint64_t atomics = 0;
  for (auto& c : connections_) {
    take(*c);
    compare(*c);
    atomics += c->atomics;
  }
  if (const uint64_t executed = world_.sum(Counter::atomics_executed) - atomics_before;
      executed != atomics) {
    world_.fail(fmt::format("{} atomics were executed, {} posted", executed, atomics));
  }
  return !world_.failed();
}

}  // namespace hostnic::sim
