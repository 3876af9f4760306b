// SPDX-License-Identifier: BSD-3-Clause
// Packets for tests of the impairment stage: numbered, and each must leave the stage exactly once.
#pragma once

#include <gtest/gtest.h>

#include <array>
#include <functional>
#include <map>
#include <memory>
#include <string_view>
#include <vector>

#include "protocol/impair/spec.h"
#include "protocol/impair/stage.h"

namespace hostnic::impair {

struct TestPacket {
  int number = 0;
  bool is_copy = false;
  bool corrupted = false;
  bool marked = false;
  bool detached = false;
};

class TestPacketOps final : public PacketOps {
 public:
  TestPacket* make(int number) {
    packets_.push_back(std::make_unique<TestPacket>(TestPacket{.number = number}));
    inside_[packets_.back().get()] = true;
    return packets_.back().get();
  }
  void* clone(void* packet) override {
    if (clones_left == 0) return nullptr;
    --clones_left;
    TestPacket* copy =
        make(packet == nullptr ? current_number() : static_cast<TestPacket*>(packet)->number);
    copy->is_copy = true;
    return copy;
  }
  void* detach(void* packet) override {
    if (refuse_detach) {
      if (packet != nullptr) release(packet);
      return nullptr;
    }
    if (packet == nullptr) packet = make(current_number());
    static_cast<TestPacket*>(packet)->detached = true;
    return packet;
  }
  void corrupt(void* packet, uint32_t byte_selector, uint8_t xor_mask) override {
    EXPECT_NE(xor_mask, 0);
    EXPECT_TRUE(static_cast<TestPacket*>(packet)->detached);
    static_cast<TestPacket*>(packet)->corrupted = true;
    corruptions.emplace_back(byte_selector, xor_mask);
  }
  bool mark(void* packet) override {
    EXPECT_TRUE(static_cast<TestPacket*>(packet)->detached);
    return static_cast<TestPacket*>(packet)->marked = !refuse_mark;
  }
  void release(void* packet) override {
    leave(packet);
    released.push_back(static_cast<TestPacket*>(packet)->number);
  }
  // A packet came out of the stage; twice is an error.
  TestPacket* leave(void* packet) {
    EXPECT_TRUE(inside_.at(packet)) << "packet left the stage twice";
    inside_[packet] = false;
    return static_cast<TestPacket*>(packet);
  }
  size_t made() const { return packets_.size(); }
  size_t inside() const {
    size_t count = 0;
    for (const auto& [packet, is_inside] : inside_) count += is_inside;
    return count;
  }

  std::function<int()> current_number;  // of the packet that has no buffer
  size_t clones_left = ~size_t{0};
  bool refuse_detach = false, refuse_mark = false;
  std::vector<int> released;
  std::vector<std::pair<uint32_t, uint8_t>> corruptions;

 private:
  std::vector<std::unique_ptr<TestPacket>> packets_;
  std::map<void*, bool> inside_;
};

inline Spec spec_of(std::string_view text) {
  auto spec = parse_spec(text);
  if (spec) return *spec;
  ADD_FAILURE() << text << ": " << spec.error().message();
  return {};
}

// Packet `psn` of one QP's WRITE.
inline PacketInfo data_packet(uint32_t psn) {
  PacketInfo info;
  info.peer = Ipv4Address{0x0a000002};
  info.qpn = Qpn{0x10011};
  info.psn = Psn(psn);
  info.kind = PacketKind::kWrite;
  info.bytes = 1000;
  return info;
}

// A stage with its packets: pushes numbered packets, collects the numbers that come out.
class Network {
 public:
  explicit Network(std::string_view spec, uint64_t seed = 1,
                   size_t capacity = ImpairmentStage::kDefaultCapacity)
      : stage(spec_of(spec), seed, ops, capacity) {}

  void push(const PacketInfo& info, TimeNs now) { stage.push(ops.make(next_number++), info, now); }
  // What comes out at once when a packet comes in: by pass() and pop(), or by push() and pop().
  std::vector<int> arrive(const PacketInfo& info, bool may_pass) {
    std::vector<int> out;
    if (!may_pass) {
      push(info, clock_ns);
    } else if (TestPacket* packet = ops.make(next_number++);
               stage.pass(packet, clock_ns, [&] { return info; })) {
      EXPECT_FALSE(packet->detached || packet->corrupted || packet->marked);
      out.push_back(ops.leave(packet)->number);
      ++passed;
    }
    pop_into(out, clock_ns);
    return out;
  }
  // Data packets with PSN = number, `gap_ns` apart, each popped as it becomes due.
  std::vector<int> stream(int count, TimeNs gap_ns = 0) {
    std::vector<int> out;
    for (int i = 0; i < count; ++i) {
      push(data_packet(static_cast<uint32_t>(next_number)), clock_ns);
      pop_into(out, clock_ns);
      clock_ns += gap_ns;
    }
    return out;
  }
  void pop_into(std::vector<int>& out, TimeNs now) {
    std::array<void*, 3> burst;  // smaller than most results, so that continuing is tested too
    while (const size_t count = stage.pop(burst, now)) {
      for (size_t i = 0; i < count; ++i) {
        last_out = *ops.leave(burst[i]);
        out.push_back(last_out.number);
      }
    }
  }
  std::vector<int> pop(TimeNs now) {
    std::vector<int> out;
    pop_into(out, now);
    return out;
  }
  // Whether one packet pushed and popped at once gets through.
  bool passes(const PacketInfo& info, TimeNs now = 0) {
    push(info, now);
    return !pop(now).empty();
  }

  TestPacketOps ops;
  ImpairmentStage stage;
  int next_number = 0;
  int passed = 0;
  TimeNs clock_ns = 0;
  TestPacket last_out;
};

}  // namespace hostnic::impair
