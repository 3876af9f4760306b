// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/twin/model.h"

#include <unistd.h>

#include <algorithm>

namespace hostnic::twin {

FrameRef Object::frame(uint64_t page) {
  if (page >= frames.size()) {
    frames.resize(page + 1);
    mapped.resize(page + 1);
  }
  if (frames[page] == nullptr) {
    frames[page] = std::make_shared<Frame>();
    frames[page]->attached = mapped[page];
  }
  return frames[page];
}

void Object::replace(uint64_t page) {
  if (page >= frames.size() || frames[page] == nullptr) return;
  const uint64_t at = frames[page]->at;
  frames[page]->attached = 0;
  frames[page] = nullptr;
  frame(page)->at = at;
}

Object::~Object() {
  if (fd >= 0) close(fd);
}

FrameRef Page::frame() const {
  if (own != nullptr) return own;
  return object->frame(object_page);
}

bool Block::is_mapped() const {
  if (fixed) return false;
  // glibc's mark in the word before the block.
  return (reinterpret_cast<const uint64_t*>(at)[-1] & 2) != 0;
}

std::vector<Segment> Region::part(uint64_t offset, size_t count) const {
  std::vector<Segment> result;
  const uint64_t begin = address + offset, end = begin + count;
  for (const Segment& each : segments) {
    const uint64_t from = std::max(begin, each.address);
    const uint64_t to = std::min(end, each.address + each.length);
    if (from >= to) continue;
    Segment piece = each;
    piece.offset += static_cast<uint32_t>(from - each.address);
    piece.length = static_cast<uint32_t>(to - from);
    piece.address = from;
    result.push_back(piece);
  }
  return result;
}

void Model::attach(Page& page, uint64_t number) {
  if (page.shared) {
    const FrameRef frame = page.object->frame(page.object_page);
    ++page.object->mapped[page.object_page];
    ++frame->attached;
    frame->at = number * kPage;
  } else if (page.own != nullptr) {
    ++page.own->attached;
    page.own->kept = false;
    page.own->at = number * kPage;
  }
}

void Model::detach(Page& page) {
  if (page.shared) {
    --page.object->mapped[page.object_page];
    --page.object->frame(page.object_page)->attached;
  } else if (page.own != nullptr) {
    --page.own->attached;
  }
}

void Model::put(uint64_t number, Page page) {
  if (!page.shared && page.object == nullptr && page.own == nullptr)
    page.own = std::make_shared<Frame>();
  remove(number, 1);
  if (page.slot == 0) page.slot = ++last_slot_;
  slots_[page.slot] = number;
  attach(page, number);
  pages.emplace(number, std::move(page));
}

void Model::remove(uint64_t first, size_t count) {
  auto at = pages.lower_bound(first);
  while (at != pages.end() && at->first < first + count) {
    detach(at->second);
    const Page& page = at->second;
    if (page.discarded != nullptr) page.discarded->heir = page.frame();
    if (page.own != nullptr && !page.shared && !page.huge && !page.lazy)
      page.own->kept = by_libc && page.own->attached == 0;
    slots_.erase(page.slot);
    at = pages.erase(at);
  }
}

void Model::discard(Page& page, uint64_t number) {
  if (page.shared) return;
  detach(page);
  const FrameRef before = page.own;
  page.own = page.object == nullptr ? std::make_shared<Frame>() : nullptr;
  if (before != nullptr) {
    if (page.discarded != nullptr) page.discarded->heir = before;
    before->heir = page.own;
    page.discarded = before;
  }
  attach(page, number);
}

void Model::make_own(Page& page, uint64_t number) {
  if (page.shared || page.own != nullptr) return;
  uint8_t bytes[kPage];
  page.object->frame(page.object_page)->get(bytes, 0, kPage);
  page.own = std::make_shared<Frame>();
  page.own->set(0, bytes, kPage);
  attach(page, number);
}

Page* Model::find(uint64_t number) {
  const auto found = pages.find(number);
  return found == pages.end() ? nullptr : &found->second;
}

uint64_t Model::find_slot(uint64_t slot) const {
  const auto found = slots_.find(slot);
  return found == slots_.end() ? 0 : found->second;
}

std::vector<Run> Model::runs(const std::function<bool(const Page&)>& wanted) const {
  std::vector<Run> result;
  uint32_t mapping = 0;
  for (const auto& [number, page] : pages) {
    if (!wanted(page)) continue;
    if (!result.empty() && result.back().first + result.back().pages == number &&
        mapping == page.mapping) {
      ++result.back().pages;
    } else {
      result.push_back({number, 1});
      mapping = page.mapping;
    }
  }
  return result;
}

size_t Model::extent(uint64_t first, size_t most,
                     const std::function<bool(const Page&)>& wanted) const {
  size_t count = 0;
  for (auto at = pages.find(first); at != pages.end() && count < most; ++at, ++count)
    if (at->first != first + count || !wanted(at->second)) break;
  return count;
}

bool Model::is_free(uint64_t first, size_t count) const {
  const auto at = pages.lower_bound(first);
  return at == pages.end() || at->first >= first + count;
}

void Model::write(uint64_t address, const uint8_t* bytes, size_t length) {
  for (size_t done = 0; done < length;) {
    const uint64_t number = (address + done) / kPage;
    const size_t offset = (address + done) % kPage, piece = std::min(kPage - offset, length - done);
    Page& page = pages.at(number);
    make_own(page, number);
    page.frame()->set(offset, bytes + done, piece);
    done += piece;
  }
}

void Model::read(uint64_t address, uint8_t* to, size_t length) {
  for (size_t done = 0; done < length;) {
    const size_t offset = (address + done) % kPage, piece = std::min(kPage - offset, length - done);
    pages.at((address + done) / kPage).frame()->get(to + done, offset, piece);
    done += piece;
  }
}

std::vector<Segment> Model::segments(uint64_t address, size_t length) {
  std::vector<Segment> result;
  for (size_t done = 0; done < length;) {
    const uint64_t number = (address + done) / kPage;
    const size_t offset = (address + done) % kPage, piece = std::min(kPage - offset, length - done);
    const Page& page = pages.at(number);
    result.push_back({page.frame(), static_cast<uint32_t>(offset), static_cast<uint32_t>(piece),
                      address + done, page.mapping, page.slot, page.shared ? page.object : nullptr,
                      page.object_page, false});
    done += piece;
  }
  return result;
}

std::vector<Segment> Model::segments(const Block& block, size_t offset, size_t length) {
  std::vector<Segment> result;
  const auto base = reinterpret_cast<uint64_t>(block.at);
  for (size_t done = 0; done < length;) {
    const size_t place = offset + done, in = place % kPage,
                 piece = std::min(kPage - in, length - done);
    result.push_back({block.frames[place / kPage], static_cast<uint32_t>(in),
                      static_cast<uint32_t>(piece), base + place, 0, 0, nullptr, 0, false});
    done += piece;
  }
  return result;
}

void Model::add(const BlockRef& block) {
  blocks.push_back(block);
  for (size_t i = 0; i < block->frames.size(); ++i) {
    ++block->frames[i]->attached;
    block->frames[i]->at = reinterpret_cast<uint64_t>(block->at) + i * kPage;
  }
}

void Model::drop(const BlockRef& block) {
  for (const FrameRef& each : block->frames) --each->attached;
  std::erase(blocks, block);
}

void Model::write(Block& block, size_t offset, const uint8_t* bytes, size_t length) {
  for (size_t done = 0; done < length;) {
    const size_t place = offset + done, in = place % kPage,
                 piece = std::min(kPage - in, length - done);
    block.frames[place / kPage]->set(in, bytes + done, piece);
    done += piece;
  }
}

}  // namespace hostnic::twin
