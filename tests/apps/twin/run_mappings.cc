// SPDX-License-Identifier: BSD-3-Clause
// Mappings that come, go, move and change.
#include <fcntl.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>

#include "tests/apps/twin/executor.h"

namespace hostnic::twin {
namespace {

constexpr size_t kHugePages = 512;
constexpr size_t kMostObjects = 24;

std::string scratch_directory() {
  const char* given = getenv("TMPDIR");
  return given == nullptr ? "/tmp" : given;
}

// Whether all of [start, end) is one area of the kernel's. Of several a bare mremap moves those
// that nobody watches, before it says EFAULT (Linux 6.17).
bool is_one_area(uint64_t start, uint64_t end) {
  std::ifstream maps("/proc/self/maps");
  for (std::string line; std::getline(maps, line);) {
    uint64_t first = 0, last = 0;
    if (std::sscanf(line.c_str(), "%lx-%lx", &first, &last) == 2 && first <= start && start < last)
      return end <= last;
  }
  return false;
}

int temporary_file(const std::string& directory) {
  std::string path = directory + "/hostnic-twin-XXXXXX";
  const int fd = mkostemp(path.data(), O_CLOEXEC);
  if (fd >= 0) unlink(path.c_str());
  return fd;
}

}  // namespace

ObjectRef Executor::new_object(unsigned kind, size_t pages) {
  auto object = std::make_shared<Object>();
  object->pages = pages;
  object->fixed_size = kind == kAnonymous || kind == kDisk;
  object->sealable = kind == kMemfd;
  if (kind == kMemfd) object->fd = memfd_create("twin", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (kind == kShm) object->fd = temporary_file("/dev/shm");
  if (kind == kDisk) object->fd = temporary_file(scratch_directory());
  if (kind != kAnonymous &&
      (object->fd < 0 || ftruncate(object->fd, static_cast<off_t>(pages * kPage)) != 0))
    fail(fmt::format("a file of {} pages: {}", pages, strerror(errno)));
  objects_.push_back(object);
  std::erase_if(objects_, [](const auto& each) { return each.expired(); });
  return object;
}

void Executor::fill_pages(const Range& range, uint64_t seed) {
  for (size_t i = 0; i < range.pages(); ++i) {
    const uint64_t number = range.first() + i;
    fill_page(as_bytes(number * kPage), seed, i);
    Page& page = model.pages.at(number);
    model.make_own(page, number);
    page.frame()->set_page(seed, i);
  }
}

void Executor::map(bool over) {
  // A few pages in a third of the cases, whatever the profile.
  size_t pages =
      1 + (random(1) >> 8) %
              (random(1) % 3 == 0 ? std::min<size_t>(8, profile_.most_pages) : profile_.most_pages);
  // As much as is registered in another way than less, from the beginning on.
  const bool much = !over && profile_.arena_pages >= kMuchPages && model.pages.empty();
  if (much) pages = std::max(pages, kLateBytes / kPage + random(5) % 512);
  uint64_t first = 0;
  bool kept = false;
  // What a peer writes to at this moment may be taken away as well, but not by a bare call: a byte
  // that comes by the mem fd may land in what takes the place (docs/memory.md).
  const bool busy_too = random(4) % 2 == 0 && !operation_.raw;
  if (over) {
    const auto range =
        pick_pages([&](const Page& page) { return !page.huge && (busy_too || !is_busy(page)); },
                   profile_.most_pages);
    if (!range || !in_arena(*range)) return skip();
    first = range->first();
    pages = range->pages();
    kept = model.pages.at(first).keep;
  } else if (model.pages.size() + pages > profile_.arena_pages) {
    return skip();
  }
  const uint64_t how = random(3) % (much ? 60 : 100);
  bool huge = false;
  const bool many = pages >= kHugePages;
  Page page;
  int flags = MAP_FIXED, fd = -1;
  off_t offset = 0;
  ObjectRef object;
  unsigned created = kAnonymous;
  const char* what = "private";
  if (how < 45) {
    flags |=
        MAP_PRIVATE | MAP_ANONYMOUS | (how < 3 ? MAP_NORESERVE : 0) | (how == 4 ? MAP_POPULATE : 0);
  } else if (how < 55 || objects_.size() > kMostObjects) {
    what = "shared";
    flags |= MAP_SHARED | MAP_ANONYMOUS;
    object = new_object(kAnonymous, pages);
  } else if (how < 75) {
    created = how < 70 ? kMemfd : kShm;
    what = how < 70 ? "memfd" : "shm";
    flags |= MAP_SHARED;
    object = new_object(created, pages + random(4) % 4);
  } else if (how < 83) {
    what = "again";
    object = pick_object([](const Object& each) {
      return each.fd >= 0 && !each.immutable && (each.seals & F_SEAL_FUTURE_WRITE) == 0;
    });
    if (object == nullptr) return skip();
    const uint64_t start = random(4) % object->pages;
    offset = static_cast<off_t>(start * kPage);
    if (pages > object->pages - start) {
      pages = object->pages - start;
      if (over) return skip();
    }
    flags |= MAP_SHARED;
  } else if (how < 95) {
    created = how < 90 ? kDisk : kMemfd;
    what = how < 90 ? "private file" : "private memfd";
    flags |= MAP_PRIVATE;
    object = new_object(created, pages);
    object->immutable = true;
    object->sealable = false;
  } else if (how < 97 && !kept) {
    what = "shared file";
    flags |= MAP_SHARED;
    object = new_object(kDisk, pages);
  } else if (over || kept) {
    flags |= MAP_PRIVATE | MAP_ANONYMOUS;
  } else {
    what = "huge";
    huge = true;
    pages = kHugePages;
    flags |= MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB;
  }
  if (object != nullptr && object->immutable) {
    // The file's bytes are there before it is mapped.
    const std::vector<uint8_t> bytes = content(pages * kPage, random(5) | 1);
    for (size_t done = 0; done < bytes.size();) {
      const ssize_t put =
          pwrite(object->fd, bytes.data() + done, bytes.size() - done, static_cast<off_t>(done));
      if (put <= 0) fail(fmt::format("pwrite: {}", strerror(errno)));
      done += static_cast<size_t>(put);
    }
    for (size_t i = 0; i < pages; ++i) object->frame(i)->set_page(random(5) | 1, i);
  }
  const size_t align = huge || (many && random(2) % 2 == 0) ? kHugePages : 1;
  if (!over) first = find_gap(pages, random(2), align);
  if (first == 0) return skip();
  const Range range{first * kPage, pages * kPage};
  say(" {} {:#x} ({:+}) {} pages", what, range.address, shown(first), pages);
  if (object != nullptr && object->fd >= 0) fd = object->fd;
  const uint64_t at = timed([&] {
    return call_mmap(operation_.raw, range.address, range.length, PROT_READ | PROT_WRITE, flags, fd,
                     offset);
  });
  if (huge && at == kFailed) return say(": {}", strerror(errno));
  expect(at == range.address, 0, "mmap");
  page.mapping = new_mapping();
  page.huge = huge;
  page.object = object;
  page.shared = (flags & MAP_SHARED) != 0;
  page.locked = lock_future_;
  page.keep = kept;
  for (size_t i = 0; i < pages; ++i) {
    page.object_page = static_cast<uint64_t>(offset) / kPage + i;
    model.put(first + i, page);
  }
  if (what == std::string_view("again")) return check_range(range.address, range.length);
  if (random(5) % 8 == 0) return;  // nobody has touched it yet
  if (object != nullptr && object->immutable && random(5) % 3 != 0) return;
  fill_pages(range, random(5) | 1);
}

void Executor::unmap() {
  const bool busy_too = random(4) % 2 == 0;
  const auto range = pick_pages([&](const Page& page) {
    return is_plain(page) && !page.keep && (busy_too || !is_busy(page));
  });
  if (!range) return skip();
  say(" {:#x} ({:+}) {} pages", range->address, shown(range->first()), range->pages());
  const int result =
      timed([&] { return call_munmap(operation_.raw, range->address, range->length); });
  expect(result == 0, 0, "munmap");
  model.remove(range->first(), range->pages());
}

void Executor::move(bool over) {
  const auto range = pick_pages([this](const Page& page) { return may_move(page); });
  if (!range || is_split(range->first())) return skip();
  const bool bare = settings_.bare_may_fail && operation_.raw;
  if (bare && !is_one_area(range->address, range->end())) return skip();
  uint64_t to = 0;
  bool kept = false;
  if (over) {
    // Onto something that is not a part of it.
    const std::vector<Run> runs =
        model.runs([](const Page& page) { return is_plain(page) && !is_busy(page); });
    if (runs.empty()) return skip();
    const Run& run = runs[random(4) % runs.size()];
    to = run.first + random(5) % run.pages;
    if (to < range->first() + range->pages() && range->first() < to + range->pages()) return skip();
    for (uint64_t number = to; number < to + range->pages(); ++number) {
      const Page* there = model.find(number);
      if (there == nullptr) continue;
      if (!is_plain(*there) || is_busy(*there)) return skip();
      kept |= there->keep;
    }
    // What stays mapped and writable stays so as a whole.
    if (kept) {
      for (uint64_t number = to; number < to + range->pages(); ++number) {
        const Page* there = model.find(number);
        const Page& from = model.pages.at(number - to + range->first());
        if (there == nullptr || !there->keep || !from.can_write() || is_on_disk(from))
          return skip();
      }
    }
  } else {
    to = find_gap(range->pages(), random(4));
  }
  if (to == 0 || !in_arena({to * kPage, range->length})) return skip();
  say(" {:#x} ({:+}) {} pages to {:#x} ({:+})", range->address, shown(range->first()),
      range->pages(), to * kPage, shown(to));
  const uint64_t at = timed([&] {
    return call_mremap(operation_.raw, range->address, range->length, range->length,
                       MREMAP_MAYMOVE | MREMAP_FIXED, to * kPage);
  });
  expect(at == to * kPage, 0, "mremap");
  model.remove(to, range->pages());
  const uint32_t mapping = new_mapping();
  for (size_t i = 0; i < range->pages(); ++i) {
    Page page = model.pages.at(range->first() + i);
    model.remove(range->first() + i, 1);
    page.mapping = mapping;
    page.keep = kept;
    model.put(to + i, page);
  }
  check_range(at, range->length);
}

void Executor::move_dont_unmap() {
  const auto range = pick_pages(
      [this](const Page& page) { return may_move(page) && !page.locked && !is_busy(page); });
  if (!range || is_split(range->first()) || lock_future_) return skip();
  const bool bare = settings_.bare_may_fail && operation_.raw;
  if (bare && !is_one_area(range->address, range->end())) return skip();
  const uint64_t to = find_gap(range->pages(), random(4));
  if (to == 0 || model.pages.size() + range->pages() > profile_.arena_pages) return skip();
  say(" {:#x} ({:+}) {} pages to {:#x} ({:+})", range->address, shown(range->first()),
      range->pages(), to * kPage, shown(to));
  const uint64_t at = timed([&] {
    return call_mremap(operation_.raw, range->address, range->length, range->length,
                       MREMAP_MAYMOVE | MREMAP_FIXED | MREMAP_DONTUNMAP, to * kPage);
  });
  // Of files since Linux 5.13.
  if (at == kFailed && errno == EINVAL && model.pages.at(range->first()).object != nullptr)
    return say(": EINVAL");
  expect(at == to * kPage, 0, "mremap(MREMAP_DONTUNMAP)");
  if (settings_.bare_may_fail && operation_.raw)
    mark_split(*range);  // it is empty memory of its own
  const uint32_t mapping = new_mapping();
  for (size_t i = 0; i < range->pages(); ++i) {
    Page old = model.pages.at(range->first() + i), page = old;
    page.mapping = mapping;
    page.keep = false;
    model.remove(range->first() + i, 1);
    model.put(to + i, page);
    old.own = old.discarded = nullptr;
    old.slot = 0;
    model.put(range->first() + i, old);
  }
  check_range(at, range->length);
  check_range(range->address, range->length);
}

void Executor::grow(bool in_place) {
  const auto run = pick_run([this](const Page& page) {
    return may_move(page) && !page.locked && page.object == nullptr;
  });
  if (!run || is_split(run->first()) || lock_future_) return skip();
  const bool bare = settings_.bare_may_fail && operation_.raw;
  if (bare && !is_one_area(run->address, run->end())) return skip();
  const size_t more = 1 + random(1) % (run->pages() + 4);
  const size_t pages = run->pages() + more;
  if (model.pages.size() + more > profile_.arena_pages) return skip();
  const bool free = model.is_free(run->first() + run->pages(), more);
  if (in_place && !in_arena({run->address, pages * kPage})) return skip();
  say(" {:#x} ({:+}) {} to {} pages", run->address, shown(run->first()), run->pages(), pages);
  const uint64_t at = timed([&] {
    return call_mremap(operation_.raw, run->address, run->length, pages * kPage,
                       in_place ? 0 : MREMAP_MAYMOVE, 0);
  });
  // A page that keeps memory in the mirror from growing stays when that has left.
  if (settings_.bare_may_fail && operation_.raw && in_place && at == kFailed && errno == ENOMEM)
    return say(": ENOMEM");
  if (in_place) {
    expect(at == run->address, free ? 0 : ENOMEM, "mremap in place");
    if (at == kFailed) return;
  } else {
    expect(at != kFailed, 0, "mremap");
    if (at == run->address && !free) fail("mremap has grown over another mapping");
  }
  say(", now {:#x}", at);
  Page page = model.pages.at(run->first());
  const uint32_t mapping = at == run->address ? page.mapping : new_mapping();
  if (at != run->address) {
    for (size_t i = 0; i < run->pages(); ++i) {
      Page old = model.pages.at(run->first() + i);
      model.remove(run->first() + i, 1);
      old.mapping = mapping;
      model.put(at / kPage + i, old);
    }
  }
  // What has grown in place is in the mirror, and does not leave it with the rest.
  if (settings_.bare_may_fail && operation_.raw && at == run->address) model.split[mapping] = true;
  // Registered memory that it has grown up to is watched, and an area of its own by that.
  const auto behind = model.pages.find(at / kPage + pages);
  if (behind != model.pages.end() && behind->second.mapping == mapping) model.split[mapping] = true;
  page.mapping = mapping;
  page.slot = 0;
  page.own = page.discarded = nullptr;
  for (size_t i = run->pages(); i < pages; ++i) model.put(at / kPage + i, page);
  check_range(at, pages * kPage);
}

void Executor::shrink() {
  const auto run = pick_run([this](const Page& page) { return may_move(page) && !is_busy(page); });
  if (!run || run->pages() < 2 || is_split(run->first())) return skip();
  if (settings_.bare_may_fail && operation_.raw && !is_one_area(run->address, run->end()))
    return skip();
  const size_t pages = 1 + random(1) % (run->pages() - 1);
  say(" {:#x} ({:+}) {} to {} pages", run->address, shown(run->first()), run->pages(), pages);
  const uint64_t at = timed([&] {
    return call_mremap(operation_.raw, run->address, run->length, pages * kPage,
                       random(3) % 2 == 0 ? 0 : MREMAP_MAYMOVE, 0);
  });
  expect(at == run->address, 0, "mremap to less");
  model.remove(run->first() + pages, run->pages() - pages);
  check_range(at, pages * kPage);
}

void Executor::protect() {
  const bool back = random(3) % 5 < 3;
  const auto range = pick_pages([&](const Page& page) {
    return !page.huge && !page.keep && (!back || !page.can_write() || page.beyond_end());
  });
  if (!range) return skip();
  const int prot = back ? PROT_READ | PROT_WRITE : random(3) % 2 == 0 ? PROT_READ : PROT_NONE;
  say(" {:#x} ({:+}) {} pages prot {}", range->address, shown(range->first()), range->pages(),
      prot);
  const int result =
      timed([&] { return call_mprotect(operation_.raw, range->address, range->length, prot); });
  expect(result == 0, 0, "mprotect");
  mark_split(*range);
  for (size_t i = 0; i < range->pages(); ++i) {
    Page& page = model.pages.at(range->first() + i);
    page.prot = prot;
  }
  if (prot != PROT_NONE) check_range(range->address, range->length);
}

}  // namespace hostnic::twin
