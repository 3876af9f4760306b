// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/twin/executor.h"

#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>

namespace hostnic::twin {
namespace {

constexpr size_t kLinesShown = 30;
constexpr double kHangS = 5;

std::string hex(const uint8_t* bytes, size_t length) {
  std::string result;
  for (size_t i = 0; i < length; ++i) result += fmt::format("{:02x}", bytes[i]);
  return result;
}

}  // namespace

Executor::Executor(const Settings& settings, const Profile& profile, uint64_t arena, Ends* ends,
                   Peer* peer, unsigned thread)
    : settings_(settings),
      profile_(profile),
      arena_(arena / kPage),
      arena_pages_(profile.arena_pages * 2),
      ends_(ends),
      peer_(peer),
      thread_(thread) {
  check_all_ = profile.arena_pages <= 512 && mix(settings.seed + 77) % 2 == 0;
  rlimit limit{};
  getrlimit(RLIMIT_MEMLOCK, &limit);
  can_lock_all_ = limit.rlim_cur == RLIM_INFINITY || geteuid() == 0;
}

Executor::~Executor() = default;

void Executor::run(const Operation& operation, size_t index) {
  operation_ = operation;
  model.by_libc = !operation.raw;
  index_ = index;
  line_ = fmt::format("{:4} {}{}", index, name(operation.kind), operation.raw ? " (raw)" : "");
  switch (operation.kind) {
    case Kind::kMap:
      map(false);
      break;
    case Kind::kMapOver:
      map(true);
      break;
    case Kind::kUnmap:
      unmap();
      break;
    case Kind::kMove:
      move(false);
      break;
    case Kind::kMoveOver:
      move(true);
      break;
    case Kind::kMoveDontUnmap:
      move_dont_unmap();
      break;
    case Kind::kGrow:
      grow(false);
      break;
    case Kind::kGrowInPlace:
      grow(true);
      break;
    case Kind::kShrink:
      shrink();
      break;
    case Kind::kProtect:
      protect();
      break;
    case Kind::kDontNeed:
      dont_need();
      break;
    case Kind::kMakeGuards:
      make_guards();
      break;
    case Kind::kFreePages:
      advise(MADV_FREE);
      break;
    case Kind::kRemove:
      remove_pages();
      break;
    case Kind::kCold:
      advise(MADV_COLD);
      break;
    case Kind::kPageOut:
      advise(MADV_PAGEOUT);
      break;
    case Kind::kHugePage:
      huge_page();
      break;
    case Kind::kDontFork:
      dont_fork();
      break;
    case Kind::kWipeOnFork:
      wipe_on_fork();
      break;
    case Kind::kLock:
      lock();
      break;
    case Kind::kUnlock:
      unlock();
      break;
    case Kind::kLockAll:
      lock_all();
      break;
    case Kind::kUnlockAll:
      unlock_all();
      break;
    case Kind::kAllocate:
      allocate();
      break;
    case Kind::kReallocate:
      reallocate();
      break;
    case Kind::kFree:
      free_block();
      break;
    case Kind::kTrim:
      trim();
      break;
    case Kind::kBreak:
      move_break();
      break;
    case Kind::kFork:
      fork_child(false, false);
      break;
    case Kind::kForkLate:
      fork_child(true, false);
      break;
    case Kind::kReap:
      reap();
      break;
    case Kind::kClone:
      fork_child(random(5) % 2 == 0, true);
      break;
    case Kind::kForkStopped:
      fork_stopped();
      break;
    case Kind::kVfork:
      start_program(true);
      break;
    case Kind::kSpawn:
      start_program(false);
      break;
    case Kind::kSeal:
      seal();
      break;
    case Kind::kPunch:
      punch();
      break;
    case Kind::kTruncate:
      truncate();
      break;
    case Kind::kFileWrite:
      file_write();
      break;
    case Kind::kStore:
      store();
      break;
    case Kind::kCheck:
      check();
      break;
    case Kind::kReadInto:
      read_into();
      break;
    case Kind::kWriteFrom:
      write_from();
      break;
    case Kind::kReadInvalid:
      read_invalid();
      break;
    case Kind::kDirect:
      direct();
      break;
    case Kind::kRing:
      ring();
      break;
    case Kind::kPeerVm:
      peer_vm();
      break;
    case Kind::kSplice:
      splice_pages();
      break;
    case Kind::kUserFault:
      user_fault();
      break;
    case Kind::kGuard:
      guard();
      break;
    case Kind::kSignals:
      signals();
      break;
    case Kind::kRegister:
      register_memory();
      break;
    case Kind::kReregister:
      reregister();
      break;
    case Kind::kDeregister:
      deregister();
      break;
    case Kind::kPeerWrite:
      peer_write();
      break;
    case Kind::kPeerRead:
      peer_read();
      break;
    case Kind::kPeerAtomic:
      peer_atomic();
      break;
    case Kind::kPeerSend:
      peer_send(false);
      break;
    case Kind::kPeerDatagram:
      peer_send(true);
      break;
    case Kind::kSend:
      send_out();
      break;
    case Kind::kWriteOut:
      write_out();
      break;
    case Kind::kReadIn:
      read_in();
      break;
    case Kind::kStream:
      stream();
      break;
    case Kind::kStreamEnd:
      end_stream();
      break;
    case Kind::kShareAtomics:
      share_atomics();
      break;
    case Kind::kAttach:
      attach();
      break;
    case Kind::kDetach:
      detach();
      break;
    case Kind::kKinds:
      break;
  }
  check_signals();
  if (check_all_) check_everything();
  if (settings_.verbose) {
    fmt::print(stderr, "[{}] {}\n", thread_, line_);
    fflush(stderr);
  }
  lines_.push_back(std::move(line_));
  line_.clear();
  if (lines_.size() > kLinesShown) lines_.pop_front();
}

void Executor::finish() {
  operation_ = {};
  line_ = "     the end";
  end_stream();
  reap();
  while (!regions_.empty()) {
    operation_.kind = Kind::kDeregister;
    deregister();
  }
  if (results_mr_ != nullptr && ibv_dereg_mr(results_mr_) != 0) fail("ibv_dereg_mr");
  check_signals();
  // Protected pages are looked at as well.
  for (auto& [number, page] : model.pages) {
    if (page.can_read() || page.beyond_end()) continue;
    if (mprotect(as_pointer(number * kPage), kPage, PROT_READ) != 0)
      fail(fmt::format("mprotect of {:#x}: {}", number * kPage, strerror(errno)));
    page.prot |= PROT_READ;
  }
  check_everything();
}

void Executor::fail(const std::string& why) {
  std::string text;
  for (const std::string& each : lines_) text += "     | " + each + "\n";
  text += "     | " + line_ + "\n";
  text += fmt::format("DIFFERENT seed {} thread {} operation {} ({}): {}\n     again: {}\n",
                      settings_.seed, thread_, index_, name(operation_.kind), why, settings_.again);
  fflush(stderr);
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) _exit(3);
  _exit(1);
}

void Executor::note_time(double seconds) {
  double& most = longest[static_cast<size_t>(operation_.kind)];
  most = std::max(most, seconds);
  if (seconds > kHangS) fail(fmt::format("the call took {:.1f} s", seconds));
}

void Executor::expect(bool succeeded, int expected_error, const char* what) {
  const int error = errno;
  if (succeeded && expected_error == 0) return;
  if (!succeeded && expected_error == error) return;
  fail(fmt::format("{}: {}, expected {}", what, succeeded ? "succeeded" : strerrorname_np(error),
                   expected_error == 0 ? "success" : strerrorname_np(expected_error)));
}

// Whether a bare call has failed as it may.
bool Executor::bare_call_failed(bool failed, int error) {
  if (!failed || !settings_.bare_may_fail || !operation_.raw || errno != error) return false;
  say(": {}", strerrorname_np(error));
  return true;
}

bool Executor::may_move(const Page& page) const {
  return is_plain(page) && !page.keep &&
         !(settings_.bare_may_fail && operation_.raw && (page.dont_fork || page.wipe_on_fork));
}

// ---- what to do it to

bool Executor::is_busy(const Page& page) {
  if (page.own != nullptr) return page.own->busy || page.own->unknown;
  if (!page.shared) return false;
  const FrameRef frame = page.object->frame(page.object_page);
  return frame->busy || frame->unknown;
}

bool Executor::is_streamed(const Page& page) {
  return page.own != nullptr ? page.own->busy
                             : page.shared && page.object->frame(page.object_page)->busy;
}

bool Executor::in_arena(const Range& range) const {
  return range.first() >= arena_ && range.first() + range.pages() <= arena_ + arena_pages_;
}

std::optional<Executor::Range> Executor::pick_run(const Filter& wanted) {
  const std::vector<Run> runs = model.runs(wanted);
  if (runs.empty()) return std::nullopt;
  const Run& run = runs[random(0) % runs.size()];
  return Range{run.address(), run.pages * kPage};
}

std::optional<Executor::Range> Executor::pick_pages(const Filter& wanted, size_t most) {
  const std::optional<Range> run = pick_run(wanted);
  if (!run) return std::nullopt;
  size_t pages = run->pages();
  uint64_t first = 0;
  if (random(1) % 3 != 0) {
    // A part of it; in a third of them a few pages.
    pages = 1 + (random(1) >> 8) % (random(1) % 3 == 1 ? std::min<size_t>(pages, 4) : pages);
    first = random(2) % (run->pages() - pages + 1);
  }
  pages = std::min(pages, most);
  return Range{run->address + first * kPage, pages * kPage};
}

std::optional<Executor::Place> Executor::pick_place(const Filter& wanted, size_t most_bytes) {
  if (random(3) % 4 == 0) {
    if (const BlockRef block = pick_block()) {
      Place place;
      place.block = block;
      place.length = 1 + random(1) % std::min(block->bytes, most_bytes);
      place.offset = random(2) % (block->bytes - place.length + 1);
      place.address = as_address(block->at) + place.offset;
      return place;
    }
  }
  const std::optional<Range> run = pick_run(wanted);
  if (!run) return std::nullopt;
  Place place;
  place.length = run->length;
  const uint64_t how = random(1) % 8;
  if (how != 0)
    place.length =
        1 + (random(1) >> 8) % (how < 4 ? std::min<size_t>(9000, run->length) : run->length);
  place.length = std::min(place.length, most_bytes);
  place.address = run->address + random(2) % (run->length - place.length + 1);
  // Often just a page, or to a page's end.
  if (how == 7 && place.length >= kPage) {
    place.address &= ~(kPage - 1);
    place.length &= ~(kPage - 1);
  }
  return place;
}

uint64_t Executor::find_gap(size_t count, uint64_t random, size_t align) const {
  const uint64_t begin = arena_ + zone_pages_, room = arena_pages_ - zone_pages_;
  if (count > room) return 0;
  const uint64_t last = begin + room - count;
  uint64_t first = (begin + random % (room - count + 1)) / align * align;
  for (int turn = 0; turn < 2; ++turn, first = (begin + align - 1) / align * align) {
    while (first <= last) {
      const auto next = model.pages.lower_bound(first);
      if (next == model.pages.end() || next->first >= first + count) {
        if (first >= begin) return first;
        break;
      }
      // Behind what is in the way.
      uint64_t end = next->first;
      for (auto at = next; at != model.pages.end() && at->first == end; ++at) ++end;
      first = (end + align - 1) / align * align;
    }
  }
  return 0;
}

void Executor::mark_split(const Range& range) {
  const uint32_t mapping = model.pages.at(range.first()).mapping;
  // A part beyond a hole counts as well: the range may grow until it meets that.
  const bool in_part = std::ranges::any_of(model.pages, [&](const auto& each) {
    return each.second.mapping == mapping &&
           (each.first < range.first() || each.first >= range.first() + range.pages());
  });
  if (in_part) model.split[mapping] = true;
}

void Executor::keep(uint64_t first, size_t count, size_t every) {
  zone_pages_ = count;
  for (uint64_t number = first; number < first + count; ++number) {
    if ((number - first) % every == every - 1) {
      model.remove(number, 1);  // another's
      continue;
    }
    model.pages.at(number).keep = true;
  }
}

// ---- comparing

std::vector<uint8_t> Executor::content(size_t length, uint64_t seed) const {
  std::vector<uint8_t> bytes(length);
  fill(bytes.data(), length, seed);
  return bytes;
}

void Executor::differs(uint64_t address, const uint8_t* got, const uint8_t* expected,
                       size_t length) {
  size_t first = 0, count = 0;
  while (first < length && got[first] == expected[first]) ++first;
  for (size_t i = 0; i < length; ++i) count += got[i] != expected[i];
  const size_t part = std::min<size_t>(16, length - first);
  const bool zeros = std::all_of(got + first, got + first + part, [](uint8_t b) { return b == 0; });
  fail(fmt::format(
      "{} bytes differ of {} at {:#x} (page {:+}), from {:#x} on: expected {}, got {}{}", count,
      length, address, shown(address / kPage), address + first, hex(expected + first, part),
      hex(got + first, part), zeros ? " (zeros)" : ""));
}

void Executor::check_page(uint64_t number, const Page& page) {
  if (!page.can_read() || is_busy(page)) return;
  const FrameRef frame = page.frame();
  if (frame->unknown) return;
  uint8_t expected[kPage];
  frame->get(expected, 0, kPage);
  const uint8_t* got = as_bytes(number * kPage);
  if (std::memcmp(got, expected, kPage) != 0) differs(number * kPage, got, expected, kPage);
}

void Executor::check_range(uint64_t address, size_t length) {
  for (uint64_t number = address / kPage; number <= (address + length - 1) / kPage; ++number)
    if (const Page* page = model.find(number)) check_page(number, *page);
}

void Executor::check_block(const Block& block) {
  uint8_t expected[kPage];
  for (size_t i = 0; i < block.frames.size(); ++i) {
    const size_t length = std::min(kPage, block.bytes - i * kPage);
    if (block.frames[i]->busy || block.frames[i]->unknown) continue;
    block.frames[i]->get(expected, 0, length);
    const uint8_t* got = block.at + i * kPage;
    if (std::memcmp(got, expected, length) != 0) differs(as_address(got), got, expected, length);
  }
}

void Executor::check_place(const Place& place) {
  if (place.block != nullptr)
    check_block(*place.block);
  else
    check_range(place.address, place.length);
}

void Executor::check_everything() {
  for (const auto& [number, page] : model.pages) check_page(number, page);
  for (const BlockRef& block : model.blocks) check_block(*block);
}

void Executor::wrote(const Place& place, const uint8_t* bytes) {
  if (place.block != nullptr)
    Model::write(*place.block, place.offset, bytes, place.length);
  else
    model.write(place.address, bytes, place.length);
}

std::vector<uint8_t> Executor::expected(const Place& place) {
  std::vector<uint8_t> bytes(place.length);
  if (place.block == nullptr) {
    model.read(place.address, bytes.data(), place.length);
    return bytes;
  }
  size_t done = 0;
  for (const Segment& each : Model::segments(*place.block, place.offset, place.length)) {
    each.frame->get(bytes.data() + done, each.offset, each.length);
    done += each.length;
  }
  return bytes;
}

// ---- bytes by the program itself

void Executor::store() {
  const auto place =
      pick_place([](const Page& page) { return page.can_write() && !is_streamed(page); }, 1 << 20);
  if (!place) return skip();
  say(" {:#x}+{:#x}", place->address, place->length);
  const std::vector<uint8_t> bytes = content(place->length, random(4) | 1);
  timed([&] {
    std::memcpy(as_pointer(place->address), bytes.data(), bytes.size());
    return 0;
  });
  wrote(*place, bytes.data());
  check_place(*place);
}

void Executor::check() {
  const auto place = pick_place([](const Page& page) { return page.can_read(); }, 1 << 22);
  if (!place) return skip();
  say(" {:#x}+{:#x}", place->address, place->length);
  check_place(*place);
}

}  // namespace hostnic::twin
