#include "dataplane/nic/client_channel.h"

#include <fcntl.h>
#include <linux/futex.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>
#include <cstring>

namespace hostnic {
namespace {

constexpr uint64_t kPageBytes = 4096;
constexpr uint64_t page_align(uint64_t bytes) {
  return (bytes + kPageBytes - 1) & ~(kPageBytes - 1);
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

Expected<std::unique_ptr<ClientChannel>, std::string> ClientChannel::create(
    const Settings& settings) {
  std::unique_ptr<ClientChannel> channel(new ClientChannel);
  channel->settings_ = settings;
  SegmentHeader layout{};
  uint64_t offset = page_align(sizeof(SegmentHeader));
  for (uint32_t ring = 0; ring < kRingCount; ++ring) {
    layout.ring_offset[ring] = offset;
    offset += page_align(uint64_t{ring_entries(RingId(ring))} * ring_element_bytes(RingId(ring)));
  }
  layout.cells_offset = offset;
  offset += page_align(uint64_t{settings.max_qps} * sizeof(QpCell));
  layout.arena_offset = offset;
  layout.arena_bytes = page_align(settings.arena_bytes);
  const uint64_t total = offset + layout.arena_bytes;

  const auto failed = [](const char* what) {
    return Unexpected(std::string("client segment: ") + what + ": " + strerror(errno));
  };
  // Sealed against resizing: the client can't make our accesses fault.
  channel->segment_fd_ = memfd_create("hostnic-segment", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (channel->segment_fd_ < 0) return failed("memfd_create");
  if (ftruncate(channel->segment_fd_, static_cast<off_t>(total)) != 0) return failed("ftruncate");
  if (fcntl(channel->segment_fd_, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0)
    return failed("seal");
  void* base = mmap(nullptr, total, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE,
                    channel->segment_fd_, 0);
  if (base == MAP_FAILED) return failed("mmap");
  channel->base_ = static_cast<std::byte*>(base);
  channel->segment_bytes_ = total;
  channel->arena_offset_ = layout.arena_offset;
  channel->arena_bytes_ = layout.arena_bytes;
  channel->cells_ = reinterpret_cast<QpCell*>(channel->base_ + layout.cells_offset);

  SegmentHeader& header = channel->header();
  header.abi_version = kHostAbiVersion;
  header.max_qps = settings.max_qps;
  header.segment_bytes = total;
  std::copy(std::begin(layout.ring_offset), std::end(layout.ring_offset), header.ring_offset);
  header.cells_offset = layout.cells_offset;
  header.arena_offset = layout.arena_offset;
  header.arena_bytes = layout.arena_bytes;
  header.magic = kSegmentMagic;
  RingEnd* const ends[kRingCount] = {&channel->commands, &channel->responses, &channel->sends,
                                     &channel->urgent, &channel->metas};
  for (uint32_t ring = 0; ring < kRingCount; ++ring) {
    errno =
        ends[ring]->map(channel->segment_fd_, layout.ring_offset[ring], ring_entries(RingId(ring)),
                        ring_element_bytes(RingId(ring)), &header.rings[ring]);
    if (errno != 0) return failed("map ring");
  }
  return channel;
}

ClientChannel::~ClientChannel() {
  if (base_ != nullptr) munmap(base_, segment_bytes_);
  if (segment_fd_ >= 0) close(segment_fd_);
}

std::byte* ClientChannel::arena_at(uint64_t offset, uint64_t bytes) {
  if (offset % 16 != 0 || offset < arena_offset_) return nullptr;
  const uint64_t inside = offset - arena_offset_;
  if (inside > arena_bytes_ || bytes > arena_bytes_ - inside) return nullptr;
  return base_ + offset;
}

void ClientChannel::wake_driver() {
  // Awake as soon as it gets a core: until then nobody need wake it again. Before the word, which
  // who falls asleep once more looks at again.
  header().driver_sleeping.store(0, std::memory_order_relaxed);
  auto& word = header().driver_wake;
  word.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void ClientChannel::wake_poller() {
  auto& word = header().poller_naps;
  if (word.load(std::memory_order_relaxed) == 0) return;
  word.store(0, std::memory_order_release);
  syscall(SYS_futex, &word, FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace hostnic
