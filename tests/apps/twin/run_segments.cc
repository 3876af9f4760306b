// SPDX-License-Identifier: BSD-3-Clause
// System V segments: attached where nothing is, or over what is there, and detached. By the C
// library only: the kernel tells nobody of mappings that these calls take away.
#include <sys/ipc.h>
#include <sys/shm.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tests/apps/twin/executor.h"

namespace hostnic::twin {
namespace {

constexpr size_t kMostSegmentPages = 64;

}  // namespace

void Executor::attach() {
  const bool over = random(0) % 2 == 0, busy_too = random(4) % 2 == 0;
  size_t pages = 1 + (random(1) >> 8) % std::min<size_t>(profile_.most_pages, kMostSegmentPages);
  uint64_t first = 0;
  if (over) {
    const auto range = pick_pages(
        [&](const Page& page) {
          return is_plain(page) && !page.keep && (busy_too || !is_busy(page));
        },
        kMostSegmentPages);
    if (!range || !in_arena(*range)) return skip();
    first = range->first();
    pages = range->pages();
  } else if (model.pages.size() + pages <= profile_.arena_pages) {
    first = find_gap(pages, random(2));
  }
  if (first == 0) return skip();
  const int id = shmget(IPC_PRIVATE, pages * kPage, IPC_CREAT | 0600);
  if (id < 0) return skip();
  const Range range{first * kPage, pages * kPage};
  say("{} {:#x} ({:+}) {} pages", over ? " over" : "", range.address, shown(first), pages);
  const uint64_t at =
      timed([&] { return as_address(shmat(id, as_pointer(range.address), over ? SHM_REMAP : 0)); });
  const int error = errno;
  shmctl(id, IPC_RMID, nullptr);
  errno = error;
  expect(at == range.address, 0, "shmat");
  Page page;
  page.mapping = new_mapping();
  page.object = new_object(kAnonymous, pages);
  page.object->segment = true;
  page.shared = true;
  page.locked = lock_future_;
  for (size_t i = 0; i < pages; ++i) {
    page.object_page = i;
    model.put(first + i, page);
  }
  if (random(5) % 8 != 0) fill_pages(range, random(5) | 1);
}

// Only where all of it is as it was attached: what goes away of others is the kernel's business.
void Executor::detach() {
  const bool busy_too = random(4) % 2 == 0;
  std::vector<Range> whole;
  for (const auto& [number, first] : model.pages) {
    if (first.object == nullptr || !first.object->segment || first.object_page != 0) continue;
    bool fits = true;
    for (uint64_t i = 0; i < first.object->pages && fits; ++i) {
      const Page* page = model.find(number + i);
      fits = page != nullptr && page->object == first.object && page->object_page == i &&
             page->mapping == first.mapping && !page->keep && (busy_too || !is_busy(*page));
    }
    if (fits) whole.push_back({number * kPage, first.object->pages * kPage});
  }
  if (whole.empty()) return skip();
  const Range range = whole[random(0) % whole.size()];
  say(" {:#x} ({:+}) {} pages", range.address, shown(range.first()), range.pages());
  const int result = timed([&] { return shmdt(as_pointer(range.address)); });
  expect(result == 0, 0, "shmdt");
  model.remove(range.first(), range.pages());
}

}  // namespace hostnic::twin
