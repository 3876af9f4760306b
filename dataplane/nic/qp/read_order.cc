// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/qp/read_order.h"

#include <algorithm>
#include <cstring>

#include "dataplane/nic/memory/random_source.h"
#include "protocol/faults.h"

namespace hostnic {
namespace {

constexpr size_t kLanes = 4, kLaneBytes = 16, kBlockBytes = kLanes * kLaneBytes;

uint64_t load(const std::byte* from) {
  uint64_t word;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

// Both halves of a product, in which every bit of both factors counts.
uint64_t mix(uint64_t a, uint64_t b) {
  const unsigned __int128 product = static_cast<unsigned __int128>(a) * b;
  return static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
}

}  // namespace

uint64_t digest_of(std::span<const std::byte> bytes, const DigestSecret& secret) {
  // Lanes that don't wait for each other keep a multiplier busy.
  std::array<uint64_t, kLanes> lanes;
  for (size_t i = 0; i < kLanes; ++i) lanes[i] = secret[i];
  const auto add_block = [&](const std::byte* block) {
    for (size_t i = 0; i < kLanes; ++i) {
      const std::byte* const lane = block + i * kLaneBytes;
      lanes[i] = mix(load(lane) ^ lanes[i], load(lane + 8) ^ secret[kLanes + i]) + lanes[i];
    }
  };
  const std::byte* at = bytes.data();
  size_t left = bytes.size();
  for (; left >= kBlockBytes; left -= kBlockBytes, at += kBlockBytes) add_block(at);
  if (left != 0) {
    std::array<std::byte, kBlockBytes> last{};
    std::memcpy(last.data(), at, left);
    add_block(last.data());
  }
  uint64_t digest = bytes.size() ^ secret[0];
  for (size_t i = 0; i < kLanes; ++i) digest = mix(digest ^ lanes[i], secret[kLanes + i]) + digest;
  return digest == 0 ? 1 : digest;
}

DigestTables::DigestTables(uint32_t window, uint64_t seed)
    : window_(window), entries_(size_t{kTables} * window), owners_(kTables) {
  RandomSource random(seed);
  for (uint64_t& word : secret_) word = uint64_t{random.next()} << 32 | random.next() | 1;
}

void DigestTables::give(ReadOrder& order) {
  if (order.has_digests()) return;
  ReadOrder*& owner = owners_[next_];
  if (owner != nullptr) take(*owner);
  owner = &order;
  order.table_ = entries_.data() + size_t{next_} * window_;
  order.mask_ = window_ - 1;
  order.unrepeated_ = 0;
  std::fill_n(order.table_, window_, 0);
  next_ = (next_ + 1) % kTables;
  ++used_;
}

void DigestTables::take(ReadOrder& order) {
  if (!order.has_digests()) return;
  owners_[static_cast<size_t>(order.table_ - entries_.data()) / window_] = nullptr;
  order.table_ = nullptr;
  --used_;
}

void DigestTables::begin_epoch(ReadOrder& order) {
  order.any_ = false;
  if (order.has_digests() && !broken(Fault::digests_outlive_epoch))
    std::fill_n(order.table_, window_, 0);
}

}  // namespace hostnic
