// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/client/client_channel.h"

#include <fcntl.h>
#include <linux/memfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "dataplane/memory/hole_guard.h"
#include "dataplane/memory/sigbus.h"

namespace hostnic {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t align_up(uint64_t bytes, uint64_t to) { return (bytes + to - 1) & ~(to - 1); }

// The file is sealed against resizing. The client can still punch holes into it.
int seal(int fd, uint64_t bytes) {
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0) return errno;
  return fcntl(fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) == 0 ? 0 : errno;
}

// Places the parts of the segment one behind the other. Returns the bytes before the arena.
uint64_t lay_out(uint32_t max_qps, SegmentHeader& layout) {
  uint64_t offset = align_up(sizeof(SegmentHeader), kPageBytes);
  for (uint32_t ring = 0; ring < kRingCount; ++ring) {
    layout.ring_offset[ring] = offset;
    offset += align_up(uint64_t{ring_entries(RingId(ring))} * ring_element_bytes(RingId(ring)),
                       kPageBytes);
  }
  layout.statuses_offset = offset;
  layout.object_board_offset = align_up(offset + uint64_t{max_qps} * sizeof(QpStatus), kPageBytes);
  return align_up(layout.object_board_offset + sizeof(ObjectBoard), kPageBytes);
}

}  // namespace

const char* to_string(DropReason reason) {
  switch (reason) {
    case DropReason::kNone:
      return "nothing";
    case DropReason::kRingPosition:
      return "impossible ring position";
    case DropReason::kBadDescriptor:
      return "impossible send descriptor";
    case DropReason::kBadCommand:
      return "unknown command";
    case DropReason::kMemoryGone:
      return "its memory is gone";
  }
  return "unknown reason";
}

uint64_t ClientChannel::huge_bytes_for(uint32_t max_qps) {
  SegmentHeader layout{};
  return align_up(lay_out(max_qps, layout), kHugePageBytes);
}

// Returns 0 or an errno value; ENOMEM and ENOSPC say that too few huge pages are free.
int ClientChannel::make_segment_file(uint64_t bytes, bool huge) {
  constexpr unsigned kHuge = MFD_HUGETLB | MFD_HUGE_2MB;
  segment_fd_ = UniqueFd(
      memfd_create("hostnic-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING | (huge ? kHuge : 0)));
  if (!segment_fd_) return errno;
  if (const int error = seal(segment_fd_.get(), bytes); error != 0) return error;
  // Pages that are missing, or that a control group doesn't grant, must fail here: later whoever
  // touched one first would die.
  if (huge && fallocate(segment_fd_.get(), 0, 0, static_cast<off_t>(bytes)) != 0) return errno;
  return 0;
}

int ClientChannel::make_files(uint64_t segment_bytes, uint64_t arena_bytes) {
  arena_fd_ = UniqueFd(memfd_create("hostnic-arena", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!arena_fd_) return errno;
  if (const int error = seal(arena_fd_.get(), arena_bytes); error != 0) return error;
  if (settings_.pages != SegmentPages::kOrdinary) {
    const uint64_t huge_bytes = align_up(segment_bytes, kHugePageBytes);
    int error = make_segment_file(huge_bytes, /*huge=*/true);
    if (error == 0)
      error = memory_.map(segment_fd_.get(), huge_bytes, arena_fd_.get(), arena_bytes);
    in_huge_pages_ = error == 0;
    if (in_huge_pages_ || settings_.pages == SegmentPages::kHuge) return error;
    memory_.unmap();
  }
  const int error = make_segment_file(segment_bytes, /*huge=*/false);
  if (error != 0) return error;
  return memory_.map(segment_fd_.get(), segment_bytes, arena_fd_.get(), arena_bytes);
}

Expected<std::unique_ptr<ClientChannel>, std::string> ClientChannel::create(
    const Settings& settings) {
  std::unique_ptr<ClientChannel> channel(new ClientChannel);
  channel->settings_ = settings;
  SegmentHeader layout{};
  const uint64_t arena_bytes =
      settings.arena_bytes != 0 ? settings.arena_bytes : arena_bytes_for(settings.max_qps);
  if (const int error =
          channel->make_files(lay_out(settings.max_qps, layout), align_up(arena_bytes, kPageBytes));
      error != 0) {
    return Unexpected(std::string("client segment: ") + strerror(error));
  }
  SegmentMemory& memory = channel->memory_;
  SegmentHeader& header = channel->header();
  header.abi_version = kHostAbiVersion;
  header.max_qps = settings.max_qps;
  header.segment_bytes = memory.segment_bytes();
  std::copy(std::begin(layout.ring_offset), std::end(layout.ring_offset), header.ring_offset);
  header.statuses_offset = layout.statuses_offset;
  header.object_board_offset = layout.object_board_offset;
  header.arena_offset = memory.segment_bytes();
  header.arena_bytes = memory.arena_bytes();
  header.driver_makes_pages = settings.is_strangers && can_guard_holes() ? 1 : 0;
  header.magic = kSegmentMagic;
  // From here on the client may take pages away; those of the header are there, the others are the
  // client's to make.
  if (!channel->guard(memory.base(), memory.segment_bytes(),
                      channel->in_huge_pages_ ? kHugePageBytes : kPageBytes) ||
      !channel->guard(memory.base() + memory.segment_bytes(),
                      memory.near_end() - memory.segment_bytes(), kPageBytes))
    return Unexpected(std::string("client segment: hostnicd maps too much client memory already"));
  channel->near_tables_ =
      PageTables(memory.base() + memory.segment_bytes(), memory.near_end() - memory.segment_bytes(),
                 settings.page_tables);
  channel->statuses_ = reinterpret_cast<QpStatus*>(memory.base() + layout.statuses_offset);
  channel->board_ = reinterpret_cast<ObjectBoard*>(memory.base() + layout.object_board_offset);
  RingEnd* const ends[kRingCount] = {&channel->commands, &channel->responses, &channel->sends,
                                     &channel->urgent,   &channel->metas,     &channel->events};
  for (uint32_t ring = 0; ring < kRingCount; ++ring) {
    ends[ring]->init(memory.base() + layout.ring_offset[ring], ring_entries(RingId(ring)),
                     ring_element_bytes(RingId(ring)), &header.rings[ring]);
  }
  return channel;
}

// Declares memory to be the client's. The lcore may call this, when it maps all of the arena.
bool ClientChannel::guard(std::byte* start, uint64_t length_bytes, uint64_t page_bytes) {
  if (settings_.is_strangers && can_guard_holes() && !guard_holes(start, length_bytes))
    return false;
  return add_sigbus_range(start, length_bytes, page_bytes, &memory_taken);
}

ClientChannel::~ClientChannel() {
  if (memory_.base() == nullptr) return;
  remove_sigbus_range(memory_.base());
  remove_sigbus_range(memory_.base() + memory_.segment_bytes());
  if (far_guarded_) remove_sigbus_range(memory_.far_arena());
}

std::byte* ClientChannel::arena_at(uint64_t offset, uint64_t bytes) {
  arena_error_ = EINVAL;
  if (offset % 16 != 0 || offset < memory_.segment_bytes()) return nullptr;
  const uint64_t inside = offset - memory_.segment_bytes();
  if (inside > memory_.arena_bytes() || bytes > memory_.arena_bytes() - inside) return nullptr;
  arena_error_ = ENOMEM;
  std::byte* const at = memory_.at(offset, bytes);
  if (!far_guarded_ && memory_.far_arena() != nullptr) {
    far_guarded_ = guard(memory_.far_arena(), memory_.arena_bytes(), kPageBytes);
    far_tables_ = PageTables(memory_.far_arena(), memory_.arena_bytes(), settings_.page_tables);
  }
  // Nothing is used of what is mapped and not guarded.
  if (at == nullptr || (!far_guarded_ && memory_.far_arena() != nullptr)) return nullptr;
  PageTables& tables = offset + bytes <= memory_.near_end() ? near_tables_ : far_tables_;
  if (tables.use(at, std::max<uint64_t>(bytes, 1))) return at;
  table_limit_met.store(true, std::memory_order_relaxed);
  return nullptr;
}

}  // namespace hostnic
