// SPDX-License-Identifier: BSD-3-Clause
// Registrations: of what is there, of what is not, again, as something else, and their end.
#include <cerrno>
#include <cstring>

#include "tests/apps/twin/executor.h"

namespace hostnic::twin {
namespace {

constexpr size_t kMostRegions = 24;
constexpr size_t kSomeSlicesPages = 1024;  // memory comes late in slices of 512

constexpr int kAccesses[] = {kAllAccess,
                             kAllAccess,
                             kAllAccess,
                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE,
                             IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_READ,
                             IBV_ACCESS_LOCAL_WRITE,
                             IBV_ACCESS_REMOTE_READ};

std::string access_name(int access) { return fmt::format("access {:#x}", access); }

}  // namespace

// What to register: a part of a block, or pages that follow each other, of whatever mappings. Not
// valid: with pages that aren't there, or can't be written.
bool Executor::choose_range(uint64_t& address, size_t& length, int access, bool& valid,
                            std::vector<Segment>& segments) {
  valid = true;
  if (random(3) % 4 == 0) {
    const BlockRef block = pick_block(true);
    if (block == nullptr) return false;
    length = random(1) % 2 == 0 ? block->bytes : 1 + (random(1) >> 8) % block->bytes;
    const size_t offset = random(2) % (block->bytes - length + 1);
    address = as_address(block->at) + offset;
    segments = Model::segments(*block, offset, length);
    return true;
  }
  const bool write = (access & IBV_ACCESS_LOCAL_WRITE) != 0;
  const auto good = [&](const Page& page) {
    return (write ? page.can_write() : page.can_read()) && !is_on_disk(page);
  };
  auto run = pick_run([&](const Page& page) { return good(page); });
  if (!run) return false;
  // Where there is much memory much of it is registered at once.
  const bool much = profile_.arena_pages >= kMuchPages && random(4) % 5 < 2;
  if (much)
    for (const Run& each : model.runs(good))
      if (each.pages > run->pages()) run = Range{each.address(), each.pages * kPage};
  // A tenth of them goes on where there is nothing.
  const uint64_t how = much ? 1 : random(1) % 10;
  uint64_t first = run->first();
  if (how % 2 == 0) first += random(2) % run->pages();
  size_t pages = model.extent(
      first, how < 4 ? profile_.most_pages * 2 : run->first() + run->pages() - first, good);
  // Behind other memory is what the C library has there.
  if (how == 9 && in_arena({first * kPage, (pages + 1) * kPage})) {
    const Page* next = model.find(first + pages);
    if (next == nullptr || (!good(*next) && !next->beyond_end() && !is_on_disk(*next) && write)) {
      ++pages;
      valid = false;
    }
  } else if (how > 5) {
    pages = 1 + (random(1) >> 8) % std::min<size_t>(pages, 6);
  }
  address = first * kPage;
  length = pages * kPage;
  if (random(4) % 3 == 0 && length > 200) {
    const size_t lead =
        random(4) % 2 == 0 ? 0 : 1 + (random(4) >> 8) % std::min<size_t>(length / 3, 5000);
    const size_t trail = random(4) % 5 == 0 || !valid
                             ? 0
                             : 1 + (random(4) >> 24) % std::min<size_t>(length / 3, 5000);
    address += lead;
    length -= lead + trail;
  }
  if (!valid) return true;
  for (uint64_t number = address / kPage; number <= (address + length - 1) / kPage; ++number)
    model.make_own(model.pages.at(number), number);
  segments = model.segments(address, length);
  return true;
}

void Executor::register_memory() {
  if (ends_ == nullptr || regions_.size() >= kMostRegions) return skip();
  auto region = std::make_unique<Region>();
  region->access = kAccesses[random(5) % std::size(kAccesses)];
  bool valid = true;
  if (!choose_range(region->address, region->length, region->access, valid, region->segments))
    return skip();
  say(" {:#x}+{:#x} ({:+}) {}{}", region->address, region->length, shown(region->address / kPage),
      access_name(region->access), valid ? "" : ", not all there");
  region->mr = timed([&] {
    return ibv_reg_mr(ends_->pd, as_pointer(region->address), region->length, region->access);
  });
  if (region->mr == nullptr && settings_.may_refuse && errno == EOPNOTSUPP) return say(": refused");
  expect(region->mr != nullptr, valid ? 0 : EFAULT, "ibv_reg_mr");
  if (!valid) return;
  // What comes late is discarded before it has come.
  if (region->length >= kLateBytes && random(0) % 3 == 0) {
    const uint64_t first =
        region->address / kPage + 1 + (random(1) >> 16) % (kLateBytes / kPage - 2);
    const size_t pages = model.extent(first, 1 + random(2) % kSomeSlicesPages, may_be_guard);
    const Range range{first * kPage, pages * kPage};
    if (pages != 0) random(2) % 2 == 0 && can_make_guards() ? guard(range) : discard(range);
  }
  check_range(region->address, region->length);
  regions_.push_back(std::move(region));
}

void Executor::reregister() {
  if (regions_.empty()) return skip();
  Region& region = *regions_[random(5) % regions_.size()];
  if (stream_)
    for (const Segment& each : region.segments)
      if (each.frame->busy) return skip();
  const int access = kAccesses[(random(5) >> 8) % std::size(kAccesses)];
  uint64_t address = region.address;
  size_t length = region.length;
  std::vector<Segment> segments;
  bool valid = true;
  if (!choose_range(address, length, access, valid, segments) || !valid) return skip();
  say(" {:#x}+{:#x} as {:#x}+{:#x} {}", region.address, region.length, address, length,
      access_name(access));
  const int result = timed([&] {
    return ibv_rereg_mr(region.mr, IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_ACCESS,
                        ends_->pd, as_pointer(address), length, access);
  });
  if (result != 0 && settings_.may_refuse) {
    say(": {}", result);
    if (result == IBV_REREG_MR_ERR_INPUT) return;
    for (Segment& each : region.segments) each.dead = true;
    return;
  }
  if (result != 0) fail(fmt::format("ibv_rereg_mr: {}, {}", result, strerrorname_np(errno)));
  region.address = address;
  region.length = length;
  region.access = access;
  region.segments = std::move(segments);
  region.cut_off = false;
  check_range(address, length);
}

void Executor::deregister() {
  if (regions_.empty()) return skip();
  const size_t which = random(0) % regions_.size();
  Region& region = *regions_[which];
  say(" {:#x}+{:#x}", region.address, region.length);
  const int result = timed([&] { return ibv_dereg_mr(region.mr); });
  if (result != 0) fail(fmt::format("ibv_dereg_mr: {}", strerrorname_np(result)));
  if (stream_ && stream_->region == &region) stream_deregistered();
  const std::unique_ptr<Region> gone = std::move(regions_[which]);
  regions_.erase(regions_.begin() + static_cast<ptrdiff_t>(which));
  check_range(gone->address, gone->length);
}

bool Executor::register_file_page() {
  const uint64_t first = find_gap(1, random(2));
  if (first == 0 || regions_.size() >= kMostRegions) return false;
  Page page;
  page.object = new_object(kMemfd, 1);
  if (call_mmap(operation_.raw, first * kPage, kPage, PROT_READ | PROT_WRITE,
                MAP_SHARED | MAP_FIXED, page.object->fd, 0) != first * kPage)
    fail(fmt::format("mmap: {}", strerror(errno)));
  page.mapping = new_mapping();
  page.shared = true;
  page.locked = lock_future_;
  model.put(first, page);
  auto region = std::make_unique<Region>();
  region->access = kAllAccess;
  region->address = first * kPage;
  region->length = kPage;
  region->segments = model.segments(region->address, kPage);
  region->mr = ibv_reg_mr(ends_->pd, as_pointer(region->address), region->length, region->access);
  if (region->mr == nullptr && settings_.may_refuse && errno == EOPNOTSUPP) return false;
  expect(region->mr != nullptr, 0, "ibv_reg_mr");
  regions_.push_back(std::move(region));
  return true;
}

}  // namespace hostnic::twin
