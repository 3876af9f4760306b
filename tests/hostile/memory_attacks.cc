// SPDX-License-Identifier: BSD-3-Clause
// Attacks by memory that takes whoever touches it long.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "tests/hostile/attacks.h"
#include "tests/hostile/fuse_file.h"
#include "tests/hostile/raw_client.h"

namespace hostnic::hostile {
namespace {

constexpr uint64_t kPageBytes = 4096;

SendDescriptor write_of(uint32_t qpn, uint32_t psn, const RegisterMrReply& source, uint64_t from,
                        const RegisterMrReply& target, uint64_t to, uint32_t length_bytes) {
  SendDescriptor d{};
  d.op = SendOp::kWrite;
  d.flags = kSendAckRequest;
  d.qpn = qpn;
  d.psn = psn;
  d.length_bytes = d.message_bytes = length_bytes;
  d.va = to;
  d.key = target.rkey;
  d.sge_count = 1;
  d.sge0 = {from, length_bytes, source.lkey};
  return d;
}

void wait(const Target& target) {
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::seconds(target.seconds));
}

}  // namespace

// Regions of one byte each: every packet would cost thousands of system calls.
void many_pieces(const Target& target) {
  target.become();
  RawClient client(target.socket, target.device);
  need(client.error() == 0, client.message());
  const uint32_t qpn = client.create_qp(0);
  need(qpn != 0 && client.connect(qpn, qpn), "connecting a queue pair with itself");
  auto* memory = static_cast<std::byte*>(mmap(nullptr, 2 * kPageBytes, PROT_READ | PROT_WRITE,
                                              MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
  const auto va = reinterpret_cast<uint64_t>(memory);
  std::vector<MemoryRegion> regions;
  for (uint64_t i = 0; i < kMaxRegionsPerMr; ++i)
    regions.push_back({va + i, 1, RegionKind::kMemFd, 0, 0});
  const RegisterMrReply region = client.register_memory(va, regions.size(), regions);
  fmt::print("{} regions of a byte: {}\n", regions.size(),
             region.lkey != 0 ? "registered" : client.message());
  if (region.lkey == 0) return wait(target);
  std::fflush(stdout);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(target.seconds);
  for (uint32_t psn = 0; std::chrono::steady_clock::now() < end && !client.dropped(); ++psn)
    client.post(write_of(qpn, psn, region, va, region, va, kMaxRegionsPerMr));
}

// A region in a file whose pages never come.
void memory_that_never_comes(const Target& target) {
  auto file = FuseFile::create(target.directory);
  if (file == nullptr) {
    fmt::print("skipped: no FUSE here\n");
    return;
  }
  target.become();
  RawClient client(target.socket, target.device);
  need(client.error() == 0, client.message());
  const uint32_t qpn = client.create_qp(0);
  need(qpn != 0 && client.connect(qpn, qpn), "connecting a queue pair with itself");
  void* memory = mmap(nullptr, FuseFile::kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, file->fd(), 0);
  need(memory != MAP_FAILED, "mapping the file");
  const RegisterMrReply region = client.register_memory(memory, FuseFile::kBytes);
  fmt::print("memory that never comes: {}\n", region.lkey != 0 ? "registered" : client.message());
  const auto va = reinterpret_cast<uint64_t>(memory);
  if (region.lkey != 0)
    for (uint32_t psn = 0; psn < 16; ++psn)
      client.post(write_of(qpn, psn, region, va + psn * kPageBytes, region,
                           va + (psn + 64) * kPageBytes, kPageBytes));
  for (int i = 0; i < 50 && region.lkey != 0 && file->waiting() == 0; ++i)
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  fmt::print("{} reads wait\n", file->waiting());
  wait(target);
  file.reset();
  _exit(0);
}

// Descriptors whose close waits for us, sent along with requests of all kinds.
void files_that_never_close(const Target& target) {
  auto file = FuseFile::create(target.directory);
  if (file == nullptr) {
    fmt::print("skipped: no FUSE here\n");
    return;
  }
  target.become();
  const int fd = file->fd();
  const UniqueFd command = connect_to(target.socket), open = connect_to(target.socket),
                 nonsense = connect_to(target.socket);
  send_request(command.get(), ControlKind::kText, std::as_bytes(std::span("show nic", 8)),
               {&fd, 1});
  send_request(nonsense.get(), static_cast<ControlKind>(77), {}, {&fd, 1});
  OpenRequest request{};
  request.device_index = target.device;
  send_request(open.get(), ControlKind::kOpen, std::as_bytes(std::span(&request, 1)), {&fd, 1});
  // As the file of a region, by a client that is otherwise in order.
  std::thread registers([&] {
    RawClient client(target.socket, target.device);
    if (client.error() != 0) return;
    const MemoryRegion region{kPageBytes, kPageBytes, RegionKind::kFile, 0, 0};
    client.register_memory(kPageBytes, kPageBytes, {&region, 1}, {&fd, 1});
  });
  registers.detach();
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  fmt::print("{} requests wait\n", file->waiting());
  wait(target);
  file.reset();
  _exit(0);
}

}  // namespace hostnic::hostile
