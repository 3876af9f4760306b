// SPDX-License-Identifier: BSD-3-Clause
// Attacks by what lies alone: hostnicd needs a page table of 4 KiB for each 2 MiB of addresses in
// which there is something, and its control group pays for it.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <list>
#include <string>
#include <thread>
#include <vector>

#include "tests/hostile/attacks.h"
#include "tests/hostile/raw_client.h"

namespace hostnic::hostile {
namespace {

constexpr uint64_t kPageBytes = 4096, kSpanBytes = 2 << 20;
// As many as took hostnicd's life with 256 MiB.
constexpr uint64_t kPages = 63'488;
constexpr unsigned kDevices = 4;

void wait(const Target& target) {
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::seconds(target.seconds));
}

// Makes single pages of a sparse file, one for each 2 MiB from `offset` on.
void make_pages(int fd, uint64_t offset, uint64_t count) {
  for (uint64_t i = 0; i < count; ++i)
    need(pwrite(fd, "x", 1, static_cast<off_t>(offset + i * kSpanBytes)) == 1, "a page");
}

// Registers such pages of a file of ours, as many in one region as a region has pieces; returns
// whether it was granted.
bool register_pages(RawClient& client, uint64_t count) {
  const UniqueFd file(memfd_create("hostnic-hostile", MFD_CLOEXEC));
  need(file && ftruncate(file.get(), static_cast<off_t>(count * kSpanBytes)) == 0, "a file");
  make_pages(file.get(), 0, count);
  constexpr uint64_t kVa = uint64_t{1} << 45;
  std::vector<MemoryRegion> pieces;
  for (uint64_t i = 0; i < count; ++i)
    pieces.push_back({kVa + i * kPageBytes, kPageBytes, RegionKind::kFile, 0, i * kSpanBytes});
  const int fd = file.get();
  return client.register_memory(kVa, count * kPageBytes, pieces, {&fd, 1}).lkey != 0;
}

// Registers such pages of the mirror, each a region of its own.
uint64_t register_mirror_pages(RawClient& client, uint64_t count) {
  constexpr uint64_t kVa = uint64_t{1} << 44;
  make_pages(client.mirror_fd(), kVa, count);
  for (uint64_t i = 0; i < count; ++i) {
    const MemoryRegion page{kVa + i * kSpanBytes, kPageBytes, RegionKind::kMirror, 0, 0};
    if (client.register_memory(page.va, kPageBytes, {&page, 1}).lkey == 0) return i;
  }
  return count;
}

// Makes a queue pair whose queues lie alone, with 64 MiB from each to the next. Returns 0 or an
// errno value.
int create_scattered_qp(RawClient& client, uint32_t index) {
  constexpr uint64_t kApart = 64 << 20;
  const SegmentHeader& header = client.map().header();
  const uint64_t at = header.arena_offset + uint64_t{3} * index * kApart;
  need(at + 3 * kApart <= header.arena_offset + header.arena_bytes, "a larger arena");
  Command command{};
  command.kind = CommandKind::kCreateQp;
  command.create_qp = {.status_index = index,
                       .pd = 1,
                       .recv_queue_offset = at,
                       .recv_completion_offset = at + kApart,
                       .read_destination_offset = at + 2 * kApart,
                       .srq_offset = 0,
                       .recv_entries = 64,
                       .recv_max_sge = 1,
                       .read_destination_entries = 16,
                       .type = QpType::kRc,
                       .recv_pd = 1};
  client.map().make_status_pages(index);
  const auto response = client.execute(command);
  return response ? response->error : EPIPE;
}

}  // namespace

// Memory of which each page lies alone, by several devices and in both kinds of files.
void scatter_pages(const Target& target) {
  target.become();
  constexpr uint64_t kMirrorPages = 1024;
  uint64_t pages = 0;
  std::list<RawClient> clients;
  std::string refused = "nothing";
  for (unsigned device = 0; device < kDevices; ++device) {
    RawClient& client = clients.emplace_back(target.socket, target.device);
    need(client.error() == 0, client.message());
    uint64_t of_device = register_mirror_pages(client, kMirrorPages);
    pages += of_device;
    while (of_device < kPages / kDevices && register_pages(client, kMaxRegionsPerMr)) {
      of_device += kMaxRegionsPerMr;
      pages += kMaxRegionsPerMr;
    }
    if (client.error() != 0) refused = client.message();
  }
  fmt::print("registered {} pages, each alone in 2 MiB; refused: {}\n", pages, refused);
  wait(target);
}

// Queues that lie alone in the arena.
void scatter_queues(const Target& target) {
  target.become();
  constexpr uint32_t kMostOfDevice = 800;
  uint32_t count = 0;
  std::list<RawClient> clients;
  int error = 0;
  for (unsigned device = 0; device < 4 * kDevices && error == 0; ++device) {
    RawClient& client = clients.emplace_back(target.socket, target.device);
    need(client.error() == 0, client.message());
    for (uint32_t i = 0; i < kMostOfDevice && error == 0; ++i) {
      error = create_scattered_qp(client, i);
      if (error == 0) ++count;
    }
  }
  fmt::print("made {} queue pairs with scattered queues: {}\n", count, std::strerror(error));
  wait(target);
}

}  // namespace hostnic::hostile
