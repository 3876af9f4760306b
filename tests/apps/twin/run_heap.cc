// SPDX-License-Identifier: BSD-3-Clause
// Blocks of the C library's heap, registered or not.
#include <malloc.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>

#include "tests/apps/twin/executor.h"

namespace hostnic::twin {
namespace {

constexpr size_t kMostBlocks = 24;
constexpr size_t kMostBreakPages = 16;

}  // namespace

BlockRef Executor::pick_block(bool busy_too) {
  if (model.blocks.empty()) return nullptr;
  BlockRef block = model.blocks[random(0) % model.blocks.size()];
  if (!busy_too)
    for (const FrameRef& each : block->frames)
      if (each->busy) return nullptr;
  return block;
}

void Executor::add_fixed(uint8_t* at, size_t bytes) {
  auto block = std::make_shared<Block>();
  block->at = at;
  block->bytes = bytes;
  block->fixed = true;
  for (size_t done = 0; done < bytes; done += kPage)
    block->frames.push_back(std::make_shared<Frame>());
  model.add(block);
  const std::vector<uint8_t> filled = content(bytes, settings_.seed | 1);
  std::memcpy(at, filled.data(), bytes);
  Model::write(*block, 0, filled.data(), bytes);
}

void Executor::allocate() {
  if (model.blocks.size() >= kMostBlocks) return skip();
  const uint64_t size = random(0) % 10;
  size_t bytes = 0;
  if (size < 3)
    bytes = 1 + random(1) % 200;
  else if (size < 6)
    bytes = 1 + random(1) % (64 << 10);
  else if (size < 9 || profile_.arena_pages < 20'000)
    bytes = (128 << 10) + random(1) % (2 << 20);
  else
    bytes = (16 << 20) + random(1) % (8 << 20);
  auto block = std::make_shared<Block>();
  block->bytes = bytes;
  block->at = static_cast<uint8_t*>(timed([&] { return malloc(bytes); }));
  expect(block->at != nullptr, 0, "malloc");
  say(" {} bytes at {:#x}", bytes, as_address(block->at));
  for (size_t done = 0; done < bytes; done += kPage)
    block->frames.push_back(std::make_shared<Frame>());
  model.add(block);
  const std::vector<uint8_t> filled = content(bytes, random(4) | 1);
  std::memcpy(block->at, filled.data(), bytes);
  Model::write(*block, 0, filled.data(), bytes);
}

// What lies beyond `keep_bytes` of the block is the heap's again. Reachable: it was a mapping of
// its own, and the pages that a key leads to are nobody's now.
void Executor::block_gone(const Block& block, size_t keep_bytes, bool reachable) {
  for (const auto& region : regions_) {
    for (Segment& each : region->segments) {
      if (each.mapping != 0 || std::ranges::find(block.frames, each.frame) == block.frames.end())
        continue;
      const uint64_t place = each.address - as_address(block.at);
      if (keep_bytes != 0 && place + each.length <= keep_bytes) continue;
      if (!reachable || keep_bytes != 0) each.dead = true;
    }
  }
}

void Executor::reallocate() {
  const BlockRef block = pick_block();
  if (block == nullptr || block->fixed) return skip();
  const uint64_t how = random(1) % 6;
  size_t bytes = block->bytes;
  if (how < 3)
    bytes += 1 + random(2) % (2 * bytes);
  else if (how == 3)
    bytes = 1 + random(2) % bytes;
  else if (how == 4)
    bytes += random(2) % 100;
  else
    bytes = (128 << 10) + random(2) % (1 << 20);
  bytes = std::min<size_t>(bytes, 48 << 20);
  const size_t kept = std::min(bytes, block->bytes);
  const bool was_mapped = block->is_mapped();
  const uint64_t before = as_address(block->at);
  auto* at = static_cast<uint8_t*>(timed([&] { return realloc(block->at, bytes); }));
  expect(at != nullptr, 0, "realloc");
  const std::vector<FrameRef> old = block->frames;
  Block now{at, bytes, {}};
  const bool same_pages = as_address(at) == before || (was_mapped && now.is_mapped());
  say(" {} to {} bytes, {:#x} to {:#x}{}", block->bytes, bytes, before, as_address(at),
      same_pages ? "" : " (copied)");
  std::vector<uint8_t> content_before(kept);
  Place whole_old{before, kept, block, 0};
  content_before = expected(whole_old);
  block_gone(*block, same_pages ? kept : 0, was_mapped && !same_pages);
  model.drop(block);
  auto after = std::make_shared<Block>(now);
  for (size_t i = 0; i * kPage < bytes; ++i)
    after->frames.push_back(same_pages && i < old.size() ? old[i] : std::make_shared<Frame>());
  if (!same_pages) Model::write(*after, 0, content_before.data(), kept);
  model.add(after);
  // The old part is right before the new one is written.
  if (std::memcmp(at, content_before.data(), kept) != 0)
    differs(as_address(at), at, content_before.data(), kept);
  if (bytes > kept) {
    const std::vector<uint8_t> more = content(bytes - kept, random(4) | 1);
    std::memcpy(at + kept, more.data(), more.size());
    Model::write(*after, kept, more.data(), more.size());
  }
  check_block(*after);
}

void Executor::free_block() {
  const BlockRef block = pick_block();
  if (block == nullptr || block->fixed) return skip();
  const bool was_mapped = block->is_mapped();
  say(" {} bytes at {:#x}{}", block->bytes, as_address(block->at), was_mapped ? " (mapped)" : "");
  block_gone(*block, 0, was_mapped);
  model.drop(block);
  if (was_mapped)
    for (const FrameRef& each : block->frames) each->kept = each->attached == 0;
  timed([&] {
    free(block->at);
    return 0;
  });
}

void Executor::trim() {
  timed([&] { return malloc_trim(random(0) % 2 == 0 ? 0 : 1 << 16); });
}

void Executor::move_break() {
  const uint64_t now = as_address(sbrk(0));
  const std::vector<Run> runs = model.runs([](const Page& page) { return page.heap; });
  if (random(0) % 3 == 0) {
    if (runs.empty() || runs.back().end() != now) return skip();
    size_t pages = 1 + random(1) % runs.back().pages;
    for (size_t i = 0; i < pages; ++i)
      if (is_busy(model.pages.at(now / kPage - 1 - i))) pages = i;
    if (pages == 0) return skip();
    say(" {} pages less", pages);
    const void* old = timed([&] { return sbrk(-static_cast<intptr_t>(pages * kPage)); });
    expect(old != as_pointer(kFailed), 0, "sbrk");
    model.remove(now / kPage - pages, pages);
    return;
  }
  if (runs.size() >= 4) return skip();
  const uint64_t start = (now + kPage - 1) & ~(kPage - 1);
  const size_t pages = 1 + random(1) % kMostBreakPages;
  const void* old = timed([&] { return sbrk(static_cast<intptr_t>(start - now + pages * kPage)); });
  expect(old == as_pointer(now), 0, "sbrk");
  say(" {} pages at {:#x}", pages, start);
  Page page;
  page.mapping = new_mapping();
  page.heap = true;
  page.locked = lock_future_;
  for (size_t i = 0; i < pages; ++i) model.put(start / kPage + i, page);
  if (random(2) % 4 != 0) fill_pages({start, pages * kPage}, random(5) | 1);
}

}  // namespace hostnic::twin
