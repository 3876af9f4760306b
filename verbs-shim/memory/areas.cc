// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/memory/areas.h"

#include <fcntl.h>
#include <sys/ioctl.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <utility>

#include "protocol/hostif/unique_fd.h"
#include "verbs-shim/memory/own_proc.h"

namespace hostnic::memory {
namespace {

// [registrar's lock] It is no mapping for the moment, which could lie where the program just made
// room.
TextRoom registrars_room;

// Calls `use(line, length)` for the lines of a file in /proc until it returns false. It does
// without stdio, which allocates.
template <typename Use>
bool for_each_line_of(int fd, Use use, TextRoom& room) {
  char* const text = room.text;
  off_t offset = 0;
  size_t filled = 0;
  int error = 0;
  bool more = true;
  while (more) {
    const ssize_t got = pread(fd, text + filled, TextRoom::kBytes - filled, offset);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) error = errno;
    if (got <= 0) break;
    offset += got;
    filled += static_cast<size_t>(got);
    size_t begin = 0;
    while (more) {
      const void* newline = std::memchr(text + begin, '\n', filled - begin);
      if (newline == nullptr) break;
      const size_t end = static_cast<const char*>(newline) - text;
      more = use(text + begin, end - begin);
      begin = end + 1;
    }
    if (begin == 0 && filled == TextRoom::kBytes)
      begin = filled;  // no such line exists; do not loop
    std::memmove(text, text + begin, filled - begin);
    filled -= begin;
  }
  errno = error;
  return error == 0;
}

// for_each_line_of() for /proc/self/NAME.
template <typename Use>
bool for_each_line(const char* name, Use use, TextRoom& room = registrars_room) {
  const int fd = open_own_proc(name, O_RDONLY);
  if (fd < 0) return false;
  const bool read = for_each_line_of(fd, use, room);
  close_own_proc(fd);
  return read;
}

// for_each_line() for the list of mappings. The kept descriptor is the last resort: where two
// threads read by one, and mappings change meanwhile, the kernel may go on in the middle of another
// line.
template <typename Use>
bool for_each_mapping(Use use, TextRoom& room = registrars_room) {
  const int opened = open_own_proc("maps", O_RDONLY);
  const int fd = opened >= 0 ? opened : own_maps();
  const bool read = fd >= 0 && for_each_line_of(fd, use, room);
  close_own_proc(opened);
  return read;
}

// The list of mappings, to be asked by PROCMAP_QUERY.
class Maps {
 public:
  Maps() : kept_(own_maps()), opened_(kept_ < 0 ? open_own_proc("maps", O_RDONLY) : -1) {}
  ~Maps() {
    if (opened_ >= 0) close_own_proc(opened_);
  }
  Maps(const Maps&) = delete;
  Maps& operator=(const Maps&) = delete;

  int fd() const { return kept_ >= 0 ? kept_ : opened_; }

 private:
  const int kept_, opened_;
};

struct Cursor {
  const char* at;
  const char* end;

  template <typename T>
  bool number(T& value, int base, char terminator) {
    const auto [next, failed] = std::from_chars(at, end, value, base);
    if (failed != std::errc{} || next == end || *next != terminator) return false;
    at = next + 1;
    return true;
  }
};

bool starts_with(const char* line, size_t length, const char* text) {
  const size_t wanted = std::strlen(text);
  return length >= wanted && std::memcmp(line, text, wanted) == 0;
}

// The structures of PROCMAP_QUERY as in linux/fs.h since 6.11.
struct ProcmapQuery {
  uint64_t size, query_flags, query_addr;
  uint64_t vma_start, vma_end, vma_flags, vma_page_size, vma_offset, inode;
  uint32_t dev_major, dev_minor, vma_name_size, build_id_size;
  uint64_t vma_name_addr, build_id_addr;
};
static_assert(sizeof(ProcmapQuery) == 104);
constexpr unsigned long kProcmapQuery = _IOWR('f', 17, ProcmapQuery);
constexpr uint64_t kReadable = 1, kWritable = 2, kExecutable = 4, kShared = 8;
constexpr uint64_t kAccessFlags = kReadable | kWritable | kExecutable;
constexpr uint64_t kCoveringOrNext = 16;

Area area_of(const ProcmapQuery& answer, const char* name) {
  Area area;
  area.start = answer.vma_start;
  area.end = answer.vma_end;
  area.prot = ((answer.vma_flags & kReadable) != 0 ? PROT_READ : 0) |
              ((answer.vma_flags & kWritable) != 0 ? PROT_WRITE : 0) |
              ((answer.vma_flags & kExecutable) != 0 ? PROT_EXEC : 0);
  area.shared = (answer.vma_flags & kShared) != 0;
  area.offset = answer.vma_offset;
  area.device_major = answer.dev_major;
  area.device_minor = answer.dev_minor;
  area.inode = answer.inode;
  if (answer.vma_name_size != 0 && answer.vma_name_size <= sizeof(area.path))
    std::memcpy(area.path, name, answer.vma_name_size);
  return area;
}

// What the kernel tells while a mapping is being replaced (mremap) has a gap in that place since
// Linux 6.17, which reads the list beside a change: for as long as the thread that makes the change
// gets no processor. So a gap is one that is seen twice, with an end of all changes in between.
constexpr int kMostLooks = 8;

// Waits until changes of mappings that have begun are done: mincore() takes the lock that they are
// made with, whatever is at that address.
void await_changes() {
  const int error = errno;
  unsigned char resident = 0;
  syscall(SYS_mincore, 0, kPageBytes, &resident);
  errno = error;
}

// A number that tells gaps from other ones; 0: there are none.
uint64_t gaps_between(uint64_t start, uint64_t end, const RawVector<Area>& areas) {
  constexpr uint64_t kFactor = 0x9e3779b97f4a7c15;
  uint64_t gaps = 0, at = start;
  const auto add = [&gaps](uint64_t from, uint64_t to) {
    if (from < to) gaps = ((gaps + from) * kFactor + to) * kFactor | 1;
  };
  for (const Area& area : areas) {
    add(at, area.start);
    at = std::max(at, area.end);
  }
  add(at, end);
  return gaps;
}

}  // namespace

bool parse_area(const char* line, size_t length, Area& area) {
  area = {};
  Cursor cursor{line, line + length};
  if (!cursor.number(area.start, 16, '-') || !cursor.number(area.end, 16, ' ')) return false;
  if (cursor.end - cursor.at < 5) return false;
  const char* flags = cursor.at;
  area.prot = (flags[0] == 'r' ? PROT_READ : 0) | (flags[1] == 'w' ? PROT_WRITE : 0) |
              (flags[2] == 'x' ? PROT_EXEC : 0);
  area.shared = flags[3] == 's';
  cursor.at += 5;
  if (!cursor.number(area.offset, 16, ' ') || !cursor.number(area.device_major, 16, ':') ||
      !cursor.number(area.device_minor, 16, ' '))
    return false;
  const auto [next, failed] = std::from_chars(cursor.at, cursor.end, area.inode);
  if (failed != std::errc{}) return false;
  const char* path = next;
  while (path != cursor.end && *path == ' ') path++;
  const size_t path_length = cursor.end - path;
  if (path_length < sizeof(area.path)) std::memcpy(area.path, path, path_length);
  return true;
}

namespace {

// Areas may have grown together while they were read: what is known already is cut off.
void keep_in_order(const RawVector<Area>& areas, Area& area) {
  if (areas.empty() || area.start >= areas.back().end) return;
  const uint64_t start = std::min(areas.back().end, area.end);
  area.offset += area.inode != 0 ? start - area.start : 0;
  area.start = start;
}

}  // namespace

bool read_areas(uint64_t start, uint64_t end, RawVector<Area>& areas) {
  uint64_t gaps = 0, before = 0;
  for (int looks = 0; looks < kMostLooks; looks++) {
    if (looks != 0) await_changes();
    if (!query_areas(start, end, areas) && !parse_areas(start, end, areas)) return false;
    before = std::exchange(gaps, gaps_between(start, end, areas));
    if (gaps == 0 || gaps == before) break;
  }
  return true;
}

bool query_areas(uint64_t start, uint64_t end, RawVector<Area>& areas) {
  areas.clear();
  const Maps maps;
  if (maps.fd() < 0) return false;
  const auto query = [&](uint64_t at, uint64_t flags, ProcmapQuery& answer) {
    answer = {};
    answer.size = sizeof(answer);
    answer.query_flags = flags;
    answer.query_addr = at;
    answer.vma_name_size = TextRoom::kBytes;
    answer.vma_name_addr = address(registrars_room.text);
    return ioctl(maps.fd(), kProcmapQuery, &answer) == 0;
  };
  ProcmapQuery answer;
  for (uint64_t at = start; at < end; at = answer.vma_end) {
    if (!query(at, kCoveringOrNext, answer)) return errno == ENOENT;  // no area follows
    if (answer.vma_start >= end) return true;
    Area area = area_of(answer, registrars_room.text);
    keep_in_order(areas, area);
    ProcmapQuery previous;
    area.above_guard =
        query(area.start - 1, 0, previous) && (previous.vma_flags & kAccessFlags) == 0;
    areas.push_back(area);
  }
  return true;
}

bool parse_areas(uint64_t start, uint64_t end, RawVector<Area>& areas) {
  areas.clear();
  uint64_t previous_end = 0;
  bool previous_closed = false;
  Area area;
  return for_each_mapping([&](const char* line, size_t length) {
    if (!parse_area(line, length, area)) return true;
    if (area.end > start && area.start < end) {
      area.above_guard = previous_closed && previous_end == area.start;
      keep_in_order(areas, area);
      if (area.start < area.end) areas.push_back(area);
    }
    previous_end = area.end;
    previous_closed = area.prot == PROT_NONE;
    return area.end < end;
  });
}

namespace {

bool look_for_next_area(uint64_t at, Area& area, TextRoom& room) {
  {
    const Maps maps;
    ProcmapQuery answer{};
    answer.size = sizeof(answer);
    answer.query_flags = kCoveringOrNext;
    answer.query_addr = at;
    const bool found = maps.fd() >= 0 && ioctl(maps.fd(), kProcmapQuery, &answer) == 0;
    if (found) area = area_of(answer, "");
    if (found || errno == ENOENT) return found;
  }
  bool found = false;
  for_each_mapping(
      [&](const char* line, size_t length) {
        found = parse_area(line, length, area) && area.end > at;
        return !found;
      },
      room);
  return found;
}

}  // namespace

bool next_area(uint64_t at, Area& area, TextRoom& room) {
  uint64_t start = 0, before = 0;
  for (int looks = 0; looks < kMostLooks; looks++) {
    if (looks != 0) await_changes();
    const bool found = look_for_next_area(at, area, room);
    if (found && area.start <= at) return true;
    before = std::exchange(start, found ? area.start : UINT64_MAX);
    if (start == before) return found;
  }
  return start != UINT64_MAX;
}

void visit_areas(TextRoom& room, bool (*use)(void*, const Area&), void* argument) {
  for_each_mapping(
      [&](const char* line, size_t length) {
        Area area;
        return !parse_area(line, length, area) || use(argument, area);
      },
      room);
}

uint64_t first_locked(uint64_t start, uint64_t end, TextRoom& room) {
  if (process_memory(room).locked_kb == 0) return end;
  Area area;
  uint64_t first = end;
  for_each_line(
      "smaps",
      [&](const char* line, size_t length) {
        if (Area header; parse_area(line, length, header)) area = header;
        if (area.end > start && starts_with(line, length, "VmFlags:") &&
            memmem(line, length, " lo", 3) != nullptr)
          first = std::min(first, std::max(start, area.start));
        return first == end && area.start < end;
      },
      room);
  return first;
}

bool find_shifted(uint64_t at, const FileRange& range, Area& found, bool& known) {
  const auto shows = [&](const Area& area) {
    return area.shared && area.end > at && area.offset != area.start &&
           area.same_file_as(range.device_major, range.device_minor, range.inode) &&
           area.offset < range.end && area.offset + (area.end - area.start) > range.start;
  };
  bool any = false;
  known = for_each_mapping([&](const char* line, size_t length) {
    Area area;
    if (!parse_area(line, length, area) || !shows(area)) return true;
    any = true;
    found = area;
    return false;
  });
  return any;
}

size_t count_areas() {
  size_t count = 0;
  for_each_mapping([&](const char*, size_t) {
    count++;
    return true;
  });
  return count;
}

bool has_aio_context() {
  bool found = false;
  const bool read = for_each_mapping([&](const char* line, size_t length) {
    found = memmem(line, length, "/[aio]", std::strlen("/[aio]")) != nullptr;
    return !found;
  });
  return found || !read;
}

bool mark_locked(RawVector<Area>& areas) {
  uint64_t start = 0;
  return for_each_line("smaps", [&](const char* line, size_t length) {
    Area header;
    if (parse_area(line, length, header)) start = header.start;
    if (starts_with(line, length, "VmFlags:") && memmem(line, length, " lo", 3) != nullptr)
      for (Area& area : areas)
        if (area.start == start) area.locked = true;
    return true;
  });
}

ProcessMemory process_memory() { return process_memory(registrars_room); }

ProcessMemory process_memory(TextRoom& room) {
  ProcessMemory memory;
  for_each_line(
      "status",
      [&](const char* line, size_t length) {
        uint64_t* value = starts_with(line, length, "VmLck:")   ? &memory.locked_kb
                          : starts_with(line, length, "VmPin:") ? &memory.pinned_kb
                                                                : nullptr;
        if (value == nullptr) return true;
        const char* at = line + std::strlen("VmLck:");
        while (at != line + length && (*at == ' ' || *at == '\t')) at++;
        std::from_chars(at, line + length, *value);
        return true;
      },
      room);
  return memory;
}

size_t max_map_count() {
  size_t value = 65530;
  const UniqueFd file(open("/proc/sys/vm/max_map_count", O_RDONLY | O_CLOEXEC));
  if (file.get() >= 0)
    for_each_line_of(
        file.get(),
        [&](const char* line, size_t length) {
          std::from_chars(line, line + length, value);
          return false;
        },
        registrars_room);
  return value;
}

}  // namespace hostnic::memory
