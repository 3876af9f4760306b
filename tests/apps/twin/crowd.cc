// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/twin/crowd.h"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstring>
#include <thread>

namespace hostnic::twin {
namespace {

constexpr uint64_t kArenas = 0x2000'0000'0000, kArenaStride = 0x1'0000'0000;
constexpr size_t kEvery = 4;
constexpr size_t kZonePages = 256, kLargeZonePages = 6144;
constexpr size_t kMostRegions = 6;
constexpr size_t kStormPages = 64;
constexpr size_t kLeastSteps = 100;
constexpr double kHangS = 5;

// The main thread's part: it registers, and looks at its own pages.
class Registrar {
 public:
  Registrar(const Settings& settings, Ends* ends, Peer* peer)
      : settings_(settings), ends_(ends), peer_(peer), rng_(settings.seed ^ 0x7265676973) {}

  void add(uint64_t first, size_t pages) {
    zones_.push_back({first, pages});
    for (uint64_t number = first + kEvery - 1; number < first + pages; number += kEvery) {
      mine_.push_back(number);
      frames_[number] = std::make_unique<Frame>();
      write_page(number, rng_.next() | 1);
    }
  }

  void step() {
    const uint64_t what = rng_.below(100);
    if (what < 25)
      add_region();
    else if (what < 40)
      remove_region();
    else if (what < 75)
      message(what % 2 == 0);
    else
      write_page(mine_[rng_.below(mine_.size())], rng_.next() | 1);
  }

  void finish() {
    while (!regions_.empty()) remove_region();
    for (const uint64_t number : mine_) look(number);
  }

 private:
  struct Zone {
    uint64_t first;
    size_t pages;
  };

  [[noreturn]] void fail(const std::string& why) {
    const std::string text =
        fmt::format("DIFFERENT seed {} the registering thread, step {}: {}\n     again: {}\n",
                    settings_.seed, steps_, why, settings_.again);
    if (write(STDERR_FILENO, text.data(), text.size()) < 0) _exit(3);
    _exit(1);
  }

  void write_page(uint64_t number, uint64_t seed) {
    fill_page(as_bytes(number * kPage), seed, 0);
    frames_[number]->set_page(seed, 0);
  }

  void look(uint64_t number) {
    uint8_t expected[kPage];
    frames_[number]->get(expected, 0, kPage);
    const uint8_t* got = as_bytes(number * kPage);
    size_t wrong = 0, first = 0;
    for (size_t i = kPage; i-- > 0;)
      if (got[i] != expected[i]) ++wrong, first = i;
    if (wrong != 0)
      fail(fmt::format(
          "{} bytes of its page {:#x} differ, from {:#x} on: expected {:02x}, got {:02x}", wrong,
          number * kPage, first, expected[first], got[first]));
  }

  void add_region() {
    if (ends_ == nullptr || regions_.size() >= kMostRegions) return;
    const Zone& zone = zones_[rng_.below(zones_.size())];
    const uint64_t pages = rng_.percent(30) ? zone.pages : rng_.between(1, zone.pages);
    uint64_t at = (zone.first + rng_.below(zone.pages - pages + 1)) * kPage, length = pages * kPage;
    if (rng_.percent(30)) {
      at += rng_.between(1, 2000);
      length -= rng_.between(2000, 4000);
    }
    ++steps_;
    const double start = now_s();
    ibv_mr* mr = ibv_reg_mr(ends_->pd, as_pointer(at), length, kAllAccess);
    if (mr == nullptr && settings_.may_refuse && errno == EOPNOTSUPP) return;
    if (mr == nullptr)
      fail(fmt::format("ibv_reg_mr of {:#x}+{:#x}: {}", at, length, strerror(errno)));
    if (now_s() - start > kHangS) fail("ibv_reg_mr takes longer than 5 s");
    regions_.push_back(mr);
  }

  void remove_region() {
    if (regions_.empty()) return;
    const size_t which = rng_.below(regions_.size());
    ++steps_;
    const double start = now_s();
    const int result = ibv_dereg_mr(regions_[which]);
    if (now_s() - start > kHangS) fail("ibv_dereg_mr takes longer than 5 s");
    if (result != 0) fail(fmt::format("ibv_dereg_mr: {}", strerror(result)));
    regions_.erase(regions_.begin() + static_cast<ptrdiff_t>(which));
  }

  void message(bool is_write) {
    if (regions_.empty()) return;
    const ibv_mr* mr = regions_[rng_.below(regions_.size())];
    const uint64_t begin = as_address(mr->addr), end = begin + mr->length;
    std::vector<uint64_t> inside;
    for (const uint64_t number : mine_)
      if (number * kPage >= begin && (number + 1) * kPage <= end) inside.push_back(number);
    if (inside.empty()) return;
    const uint64_t number = inside[rng_.below(inside.size())];
    Command command;
    command.order = is_write ? Order::kWrite : Order::kRead;
    command.length = rng_.between(1, kPage);
    const uint64_t offset = rng_.below(kPage - command.length + 1);
    command.address = number * kPage + offset;
    command.rkey = mr->rkey;
    command.seed = rng_.next() | 1;
    ++steps_;
    const double start = now_s();
    const Reply reply = peer_->ask(command);
    if (now_s() - start > kHangS) fail("a peer's message takes longer than 5 s");
    if (reply.status != 0)
      fail(fmt::format("the peer's {} of {:#x}+{:#x}: {}", is_write ? "WRITE" : "READ",
                       command.address, command.length,
                       reply.status < 0
                           ? "no completion"
                           : ibv_wc_status_str(static_cast<ibv_wc_status>(reply.status))));
    std::vector<uint8_t> bytes(command.length);
    if (is_write) {
      fill(bytes.data(), bytes.size(), command.seed);
      frames_[number]->set(offset, bytes.data(), bytes.size());
      look(number);
    } else {
      frames_[number]->get(bytes.data(), offset, bytes.size());
      size_t wrong = 0, first = 0;
      for (size_t i = bytes.size(); i-- > 0;)
        if (bytes[i] != peer_->bytes(true)[i]) ++wrong, first = i;
      if (wrong != 0)
        fail(fmt::format(
            "the peer's READ of {:#x}+{:#x}: {} bytes differ, from {:#x} on: expected "
            "{:02x}, got {:02x}; the program sees {:02x}",
            command.address, command.length, wrong, command.address + first, bytes[first],
            peer_->bytes(true)[first], *as_bytes(command.address + first)));
    }
  }

  const Settings& settings_;
  Ends* ends_;
  Peer* peer_;
  Rng rng_;
  size_t steps_ = 0;
  std::vector<Zone> zones_;
  std::vector<uint64_t> mine_;
  std::map<uint64_t, std::unique_ptr<Frame>> frames_;
  std::vector<ibv_mr*> regions_;
};

[[noreturn]] void fail_storm(const Settings& settings, const std::string& why) {
  const std::string text =
      fmt::format("DIFFERENT seed {} the thread that maps and unmaps: {}\n     again: {}\n",
                  settings.seed, why, settings.again);
  if (write(STDERR_FILENO, text.data(), text.size()) < 0) _exit(3);
  _exit(1);
}

// Does nothing but to put other pages in the place of its own of a zone, for as long as there are
// other threads at work. Behind the zone are pages from which it takes some.
void run_storm(const Settings& settings, uint64_t zone, const std::atomic<unsigned>& left) {
  Rng rng(settings.seed ^ 0x73746f726d);
  uint8_t pattern[kPage], zeros[kPage] = {};
  const uint64_t how_often = rng.below(4);
  while (left.load() != 0) {
    const uint64_t number = rng.below(kStormPages) / kEvery * kEvery + rng.below(kEvery - 1);
    const uint64_t at = zone + number * kPage, beside = at + kStormPages * kPage;
    const bool raw = settings.choice.raw && rng.percent(30);
    fill_page(pattern, rng.next() | 1, 0);
    std::memcpy(as_pointer(at), pattern, kPage);
    const uint64_t what = how_often == 3 ? rng.below(3) : how_often;
    const uint8_t* wanted = zeros;
    const char* name = "madvise(MADV_DONTNEED)";
    bool good = true;
    if (what == 0) {
      good = call_madvise(raw, at, kPage, MADV_DONTNEED) == 0;
    } else if (what == 1) {
      name = "mmap(MAP_FIXED)";
      good = call_mmap(raw, at, kPage, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == at;
    } else {
      name = "mremap(MREMAP_FIXED)";
      wanted = pattern;
      fill_page(pattern, rng.next() | 1, 0);
      std::memcpy(as_pointer(beside), pattern, kPage);
      good = call_mremap(raw, beside, kPage, kPage, MREMAP_MAYMOVE | MREMAP_FIXED, at) == at &&
             call_mmap(raw, beside, kPage, PROT_READ | PROT_WRITE,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) == beside;
    }
    if (!good) fail_storm(settings, fmt::format("{} of {:#x}: {}", name, at, strerror(errno)));
    if (std::memcmp(as_pointer(at), wanted, kPage) != 0)
      fail_storm(settings,
                 fmt::format("{:#x} has other bytes after {}{}", at, raw ? "a bare " : "", name));
  }
}

}  // namespace

void run_crowd(const Settings& settings, unsigned threads, size_t operations, Ends* ends,
               Peer* peer, Longest& longest) {
  Settings of_threads = settings;
  of_threads.choice.for_thread = true;
  Registrar registrar(settings, ends, peer);
  std::vector<Profile> profiles(threads);
  std::vector<std::unique_ptr<Executor>> executors;
  Rng rng(settings.seed ^ 0x63726f7764);
  const size_t zone = rng.percent(15) ? kLargeZonePages : kZonePages;
  for (unsigned i = 0; i < threads; ++i) {
    profiles[i] = profile(settings.seed * 1000 + i, of_threads.choice);
    profiles[i].signals = false;
    profiles[i].arena_pages = std::max(profiles[i].arena_pages, 2 * zone);
    const uint64_t arena = kArenas + (i + 1) * kArenaStride;
    executors.push_back(
        std::make_unique<Executor>(of_threads, profiles[i], arena, nullptr, nullptr, i + 1));
    Executor& executor = *executors.back();
    if (call_mmap(false, arena, zone * kPage, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != arena)
      executor.fail(fmt::format("mmap: {}", strerror(errno)));
    Page page;
    page.mapping = executor.model.next_mapping++;
    const uint64_t seed = rng.next() | 1;
    for (size_t j = 0; j < zone; ++j) {
      executor.model.put(arena / kPage + j, page);
      fill_page(as_bytes(arena + j * kPage), seed, j);
      executor.model.pages.at(arena / kPage + j).own->set_page(seed, j);
    }
    executor.keep(arena / kPage, zone, kEvery);
    registrar.add(arena / kPage, zone);
  }
  const bool has_storm = rng.percent(50);
  const uint64_t storm = kArenas + (threads + 1) * kArenaStride;
  if (has_storm) {
    if (call_mmap(false, storm, 2 * kStormPages * kPage, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0) != storm)
      fail_storm(settings, "mmap");
    registrar.add(storm / kPage, kStormPages);
  }
  std::atomic<unsigned> left{threads};
  std::vector<std::thread> all;
  for (unsigned i = 0; i < threads; ++i) {
    all.emplace_back([&, i] {
      for (size_t index = 0; index < operations; ++index)
        executors[i]->run(
            operation(settings.seed * 1000 + i, index, profiles[i], of_threads.choice), index);
      // Children end with the thread that forked them.
      Operation last;
      last.kind = Kind::kReap;
      executors[i]->run(last, operations);
      --left;
    });
  }
  if (has_storm) all.emplace_back([&] { run_storm(settings, storm, left); });
  for (size_t steps = 0; left.load() != 0 || steps < kLeastSteps; ++steps) {
    registrar.step();
  }
  for (std::thread& each : all) each.join();
  registrar.finish();
  for (const auto& each : executors) {
    each->finish();
    for (size_t i = 0; i < kKinds; ++i) longest[i] = std::max(longest[i], each->longest[i]);
  }
}

}  // namespace hostnic::twin
