// SPDX-License-Identifier: BSD-3-Clause
// Hosts on a switch, and endless streams of WRITEs between them, for tests that measure rates.
#pragma once

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "dataplane/simulation/stream.h"
#include "dataplane/simulation/world.h"

namespace hostnic::sim {

struct Flow {
  uint32_t from, to;
};

class Network {
 public:
  static constexpr uint32_t kMessageBytes = 64 * 1024;

  explicit Network(const WorldSettings& settings) : world_(settings) {}
  Network(Transport transport, uint32_t hosts, const std::string& network_switch)
      : Network(with(transport, hosts, network_switch)) {}

  static WorldSettings with(Transport transport, uint32_t hosts,
                            const std::string& network_switch) {
    WorldSettings settings;
    settings.transport = transport;
    settings.hosts = hosts;
    settings.network_switch = network_switch;
    settings.trace = false;
    return settings;
  }

  void add(const Flow& flow, uint32_t depth = 16, uint32_t messages = 1 << 20) {
    add(flow, StreamSettings{.message_bytes = kMessageBytes, .depth = depth, .messages = messages});
  }
  void add(const Flow& flow, const StreamSettings& settings) {
    ends_.push_back(world_.make_endpoint(flow.from));
    ends_.push_back(world_.make_endpoint(flow.to));
    world_.connect(*ends_[ends_.size() - 2], *ends_.back());
    streams_.push_back(std::make_unique<Stream>(*ends_[ends_.size() - 2], *ends_.back(), settings));
    world_.add(*streams_.back());
  }
  // What each flow moves in a time, in Gb/s.
  std::vector<double> rates(uint64_t duration_ns) {
    std::vector<size_t> before;
    for (const auto& stream : streams_) before.push_back(stream->timings().size());
    world_.run_for(duration_ns);
    EXPECT_FALSE(world_.failed()) << world_.report();
    std::vector<double> result;
    for (size_t i = 0; i < streams_.size(); ++i) {
      EXPECT_FALSE(streams_[i]->failed()) << i;
      const auto messages = static_cast<double>(streams_[i]->timings().size() - before[i]);
      result.push_back(messages * kMessageBytes * 8 / static_cast<double>(duration_ns));
    }
    return result;
  }
  // Runs until all flows have sent what they were to send; returns how long that took.
  uint64_t run_to_end(uint64_t limit_ns) {
    const TimeNs start = world_.now();
    EXPECT_TRUE(world_.run_until(
        [this] {
          return std::ranges::all_of(streams_, [](const auto& s) { return s->finished(); });
        },
        limit_ns))
        << world_.report();
    for (const auto& stream : streams_) EXPECT_FALSE(stream->failed());
    return world_.now() - start;
  }
  void clear_counters() {
    for (uint32_t i = 0; i < world_.host_count(); ++i) world_.host(i).nic().clear_counters();
  }
  SwitchCounters links_to(uint32_t host) {
    return world_.host(host).nic().switch_counters().value();
  }
  World& world() { return world_; }
  Endpoint& endpoint(size_t index) { return *ends_[index]; }
  const Stream& stream(size_t index) const { return *streams_[index]; }

 private:
  World world_;
  std::vector<std::unique_ptr<Endpoint>> ends_;
  std::vector<std::unique_ptr<Stream>> streams_;
};

inline double sum(const std::vector<double>& rates) {
  return std::accumulate(rates.begin(), rates.end(), 0.0);
}

inline std::string text_of(const impair::LinkCounters& link) {
  std::string text;
  link.for_each(
      [&](const char* name, uint64_t value) { text += fmt::format(" {} {}", name, value); });
  return text;
}

inline std::string text_of(const std::vector<double>& rates) {
  std::string text;
  for (const double rate : rates) text += fmt::format(" {:.2f}", rate);
  return text;
}

// Says what was measured, in the test's report and on the terminal.
inline void tell(const std::string& text) {
  testing::Test::RecordProperty("measured", text);
  std::printf("%s\n", text.c_str());
}

}  // namespace hostnic::sim
