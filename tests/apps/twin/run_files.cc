// SPDX-License-Identifier: BSD-3-Clause
// Files that are mapped: seals, holes, other lengths, and bytes by way of the descriptor.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/apps/twin/executor.h"

namespace hostnic::twin {

ObjectRef Executor::pick_object(const std::function<bool(const Object&)>& wanted) {
  std::vector<ObjectRef> found;
  for (const auto& each : objects_)
    if (ObjectRef object = each.lock(); object != nullptr && wanted(*object))
      found.push_back(std::move(object));
  return found.empty() ? nullptr : found[random(0) % found.size()];
}

bool Executor::object_busy(const Object& object) const {
  return std::ranges::any_of(object.frames,
                             [](const FrameRef& each) { return each != nullptr && each->busy; });
}

void Executor::seal() {
  const ObjectRef object = pick_object(
      [](const Object& each) { return each.sealable && (each.seals & F_SEAL_SEAL) == 0; });
  if (object == nullptr) return skip();
  constexpr unsigned kSeals[] = {F_SEAL_SHRINK,
                                 F_SEAL_GROW,
                                 F_SEAL_SHRINK | F_SEAL_GROW,
                                 F_SEAL_FUTURE_WRITE,
                                 F_SEAL_FUTURE_WRITE | F_SEAL_SHRINK,
                                 F_SEAL_SHRINK | F_SEAL_SEAL};
  const unsigned seals = kSeals[random(1) % std::size(kSeals)];
  say(" {:#x}", seals);
  const int result = timed([&] { return fcntl(object->fd, F_ADD_SEALS, seals); });
  expect(result == 0, 0, "fcntl(F_ADD_SEALS)");
  object->seals |= seals;
}

void Executor::punch() {
  const ObjectRef object = pick_object(
      [](const Object& each) { return each.fd >= 0 && !each.immutable && !each.fixed_size; });
  if (object == nullptr || object_busy(*object)) return skip();
  const uint64_t first = random(1) % object->pages;
  const size_t pages = 1 + random(2) % (object->pages - first);
  say(" {} pages from {} of {}", pages, first, object->pages);
  const int result = timed([&] {
    return fallocate(object->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
                     static_cast<off_t>(first * kPage), static_cast<off_t>(pages * kPage));
  });
  const bool sealed = (object->seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0;
  expect(result == 0, sealed ? EPERM : 0, "fallocate(FALLOC_FL_PUNCH_HOLE)");
  if (sealed) return;
  for (uint64_t page = first; page < first + pages; ++page) object->replace(page);
}

void Executor::truncate() {
  const ObjectRef object = pick_object(
      [](const Object& each) { return each.fd >= 0 && !each.immutable && !each.fixed_size; });
  if (object == nullptr || object_busy(*object)) return skip();
  const bool more = random(1) % 2 == 0;
  const uint64_t pages = more ? object->pages + 1 + random(2) % 8 : 1 + random(2) % object->pages;
  if (pages == object->pages) return skip();
  for (const auto& [number, page] : model.pages)
    if (page.keep && page.object == object) return skip();
  say(" {} to {} pages", object->pages, pages);
  const int result =
      timed([&] { return ftruncate(object->fd, static_cast<off_t>(pages * kPage)); });
  const bool sealed = (object->seals & (more ? F_SEAL_GROW : F_SEAL_SHRINK)) != 0;
  expect(result == 0, sealed ? EPERM : 0, "ftruncate");
  if (sealed) return;
  for (uint64_t page = pages; page < object->pages; ++page) object->replace(page);
  object->pages = pages;
  // What is registered and cut off costs the key, once a NIC finds it so (docs/memory.md).
  for (const auto& region : regions_)
    for (const Segment& each : region->segments)
      region->cut_off |= each.object == object && each.object_page >= pages;
}

void Executor::file_write() {
  const ObjectRef object = pick_object([](const Object& each) {
    return each.fd >= 0 && !each.immutable && (each.seals & F_SEAL_FUTURE_WRITE) == 0;
  });
  if (object == nullptr || object_busy(*object)) return skip();
  const uint64_t size = object->pages * kPage;
  const size_t length = 1 + random(1) % std::min<uint64_t>(size, 60'000);
  const uint64_t offset = random(2) % (size - length + 1);
  say(" {:#x}+{:#x}", offset, length);
  const std::vector<uint8_t> bytes = content(length, random(4) | 1);
  const ssize_t put =
      timed([&] { return pwrite(object->fd, bytes.data(), length, static_cast<off_t>(offset)); });
  expect(put == static_cast<ssize_t>(length), 0, "pwrite");
  for (size_t done = 0; done < length;) {
    const uint64_t place = offset + done;
    const size_t in = place % kPage, piece = std::min(kPage - in, length - done);
    object->frame(place / kPage)->set(in, bytes.data() + done, piece);
    done += piece;
  }
  // By the descriptor as well: what a peer wrote is the file's.
  std::vector<uint8_t> again(length);
  if (pread(object->fd, again.data(), length, static_cast<off_t>(offset)) != put || again != bytes)
    fail("pread got something else than pwrite put");
}

}  // namespace hostnic::twin
