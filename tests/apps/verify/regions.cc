// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/verify/regions.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "tests/apps/verify/rng.h"

namespace hostnic::verify {
namespace {

constexpr int kPeerReads = IBV_ACCESS_REMOTE_READ;
constexpr int kPeerAll = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr int kCounterAccess =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_REMOTE_READ;

// As little as each use needs, so that a NIC that asks for more is found out.
int access_for(Use use) {
  switch (use) {
    case Use::kSource:
      return kPeerReads;
    case Use::kFresh:
      return 0;
    case Use::kArena:
      return kPeerAll;
    case Use::kReceive:
    case Use::kLanding:
      return IBV_ACCESS_LOCAL_WRITE;
  }
  return 0;
}

uint64_t counters_bytes(const Workload& workload) { return counter_words(workload.qps) * 8; }

std::string hex(std::span<const std::byte> bytes) {
  std::string text;
  for (std::byte b : bytes) text += fmt::format(" {:02x}", static_cast<unsigned>(b));
  return text;
}

}  // namespace

void Region::check(uint64_t offset, uint64_t length, const std::string& why) const {
  const auto difference = model.check(bytes, offset, length);
  if (!difference) return;
  std::array<std::byte, 8> expected;
  generate(difference->expected, expected);
  const size_t shown = std::min<size_t>(expected.size(), bytes.size() - difference->offset);
  throw Failure{
      fmt::format("{}: wrong byte in {} of qp {} at offset {} (address {}): expected{}, found{}",
                  why, to_string(use), qp, difference->offset, fmt::ptr(at(difference->offset)),
                  hex({expected.data(), shown}), hex(bytes.subspan(difference->offset, shown)))};
}

size_t Regions::stack_bytes(const Options& options) {
  if (std::ranges::find(options.memory, MemoryKind::kStackUnaligned) == options.memory.end())
    return 0;
  const Workload& w = options.workload;
  if (w.mr_bytes != 0) return stack_bytes_for(w.mr_bytes) + 4096;
  size_t bytes = stack_bytes_for(counters_bytes(w)) + 4096;
  for (unsigned use = 0; use < kUses; ++use)
    bytes += w.qps * stack_bytes_for(region_bytes(w, static_cast<Use>(use)));
  return bytes;
}

Regions::Regions(const Options& options, const Device& device, uint32_t side, StackArena& stack)
    : options_(options), device_(device), stack_(stack) {
  if (options.workload.mr_bytes == 0)
    add_separate(side);
  else
    add_in_one(side);
}

Regions::Block& Regions::add_block(size_t length, int access, bool aligned) {
  const MemoryKind kind = options_.memory[blocks_.size() % options_.memory.size()];
  Block block;
  block.memory = allocate(kind, length, aligned, stack_);
  block.mr = device_.register_memory(block.memory->bytes(), access);
  total_bytes_ += length;
  return blocks_.emplace_back(std::move(block));
}

void Regions::add_separate(uint32_t side) {
  const Workload& w = options_.workload;
  for (uint32_t qp = 0; qp < w.qps; ++qp) {
    for (unsigned u = 0; u < kUses; ++u) {
      const Use use = static_cast<Use>(u);
      Block& block = add_block(region_bytes(w, use), access_for(use), false);
      add_region(side, qp, use, block.memory->bytes(), *block.mr);
    }
  }
  Block& block = add_block(counters_bytes(w), kCounterAccess, true);
  set_counters(side, block.memory->bytes(), *block.mr);
}

void Regions::add_in_one(uint32_t side) {
  const Workload& w = options_.workload;
  Block& block = add_block(w.mr_bytes, kPeerAll | IBV_ACCESS_REMOTE_ATOMIC, true);
  std::span<std::byte> rest = block.memory->bytes();
  for (uint32_t qp = 0; qp < w.qps; ++qp) {
    for (unsigned u = 0; u < kUses; ++u) {
      const size_t length = region_bytes(w, static_cast<Use>(u));
      add_region(side, qp, static_cast<Use>(u), rest.first(length), *block.mr);
      rest = rest.subspan(length);
    }
  }
  if (rest.size() < counters_bytes(w)) throw Failure{"--mr-bytes leaves no room for the counters"};
  set_counters(side, rest.first(counters_bytes(w)), *block.mr);
}

void Regions::add_region(uint32_t side, uint32_t qp, Use use, std::span<std::byte> bytes,
                         const ibv_mr& mr) {
  const uint64_t stream = region_stream(options_.workload.seed, side, qp, use);
  generate({stream, 0, 0}, bytes);
  regions_.push_back({use, qp, bytes, mr.lkey, mr.rkey, ContentMap(stream, bytes.size())});
}

uint64_t Regions::first_value(uint64_t seed, uint32_t side, uint32_t word) {
  // Shared words only ever rise and must not wrap: their history is put in order by value.
  const uint64_t value = mix64(mix64(seed) + 2 * word + side);
  return word < kSharedCounters ? value >> 16 : value;
}

void Regions::set_counters(uint32_t side, std::span<std::byte> bytes, const ibv_mr& mr) {
  counters_ = {reinterpret_cast<uint64_t*>(bytes.data()), bytes.size() / 8};
  counters_rkey_ = mr.rkey;
  for (uint32_t i = 0; i < counters_.size(); ++i)
    counters_[i] = first_value(options_.workload.seed, side, i);
}

std::vector<RemoteAddress> Regions::addresses() const {
  std::vector<RemoteAddress> all;
  for (const Region& r : regions_)
    if (r.use == Use::kArena || r.use == Use::kSource)
      all.push_back({reinterpret_cast<uint64_t>(r.bytes.data()), r.bytes.size(), r.rkey, 0});
  all.push_back(
      {reinterpret_cast<uint64_t>(counters_.data()), counters_.size_bytes(), counters_rkey_, 0});
  return all;
}

void Regions::check_guards(const std::string& why) const {
  const auto bad = [](std::byte b) { return b != kGuardValue; };
  for (const Block& block : blocks_) {
    const bool before = std::ranges::any_of(block.memory->guard_before(), bad);
    if (before || std::ranges::any_of(block.memory->guard_after(), bad))
      throw Failure{fmt::format("{}: bytes {} the MR at {} ({} bytes) were overwritten", why,
                                before ? "before" : "after", fmt::ptr(block.memory->bytes().data()),
                                block.memory->bytes().size())};
  }
}

void Regions::check_all(const std::string& why) const {
  for (const Region& r : regions_) r.check(0, r.bytes.size(), why);
  check_guards(why);
}

}  // namespace hostnic::verify
