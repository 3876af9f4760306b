// SPDX-License-Identifier: BSD-3-Clause
// The registered memory of this side with what it must contain, and the other side's as seen from
// here.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "tests/apps/verify/content.h"
#include "tests/apps/verify/device.h"
#include "tests/apps/verify/memory.h"
#include "tests/apps/verify/plan.h"

namespace hostnic::verify {

struct Region {
  Use use = Use::kSource;
  uint32_t qp = 0;
  std::span<std::byte> bytes;
  uint32_t lkey = 0, rkey = 0;
  ContentMap model{0, 0};

  std::byte* at(uint64_t offset) const { return bytes.data() + offset; }
  // Throws Failure if a byte of the range is not what the model says; `why` opens the message.
  void check(uint64_t offset, uint64_t length, const std::string& why) const;
};

// The other side's region: its address, and what it must contain. Sent as it is.
struct RemoteAddress {
  uint64_t va = 0, length = 0;
  uint32_t rkey = 0, unused = 0;
};

class Regions {
 public:
  // Allocates, fills and registers everything of side `side`.
  Regions(const Options& options, const Device& device, uint32_t side, StackArena& stack);

  // Stack that the constructor will take.
  static size_t stack_bytes(const Options& options);

  Region& of(uint32_t qp, Use use) { return regions_[qp * kUses + static_cast<size_t>(use)]; }
  std::span<uint64_t> counters() const { return counters_; }
  // Value of each counter word before the first atomic.
  static uint64_t first_value(uint64_t seed, uint32_t side, uint32_t word);

  // What the peer needs: per QP arena and source, then the counters.
  std::vector<RemoteAddress> addresses() const;

  // Every byte of every region and of all guards. Throws Failure.
  void check_all(const std::string& why) const;
  void check_guards(const std::string& why) const;
  uint64_t total_bytes() const { return total_bytes_; }

 private:
  struct Block {
    std::unique_ptr<Memory> memory;
    Owned<ibv_mr> mr;
  };
  Block& add_block(size_t length, int access, bool aligned);
  void add_separate(uint32_t side);
  void add_in_one(uint32_t side);
  void add_region(uint32_t side, uint32_t qp, Use use, std::span<std::byte> bytes,
                  const ibv_mr& mr);
  void set_counters(uint32_t side, std::span<std::byte> bytes, const ibv_mr& mr);

  const Options& options_;
  const Device& device_;
  StackArena& stack_;
  std::vector<Block> blocks_;
  std::vector<Region> regions_;
  std::span<uint64_t> counters_;
  uint32_t counters_rkey_ = 0;
  uint64_t total_bytes_ = 0;
};

}  // namespace hostnic::verify
