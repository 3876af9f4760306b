// SPDX-License-Identifier: BSD-3-Clause
// Both halves of memory registration in one process: what the shim registers, a ClientMemory maps
// as hostnicd would.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "dataplane/memory/client_memory.h"
#include "dataplane/memory/mem_fd.h"
#include "dataplane/memory/mirror.h"
#include "verbs-shim/memory/memory_registrar.h"

namespace hostnic::memory_testing {

inline constexpr size_t kPage = 4096;
inline constexpr size_t kMiB = 1 << 20;

// Pages are copied before a registration returns, but in late_registration_test.cc.
inline const int copies_at_once = setenv("HOSTNIC_MIGRATE", "now", 1);

inline size_t area_count() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<size_t>(std::count(std::istreambuf_iterator<char>(maps), {}, '\n'));
}

// An mmap that is unmapped at the end. Read-only pages keep it apart from other areas, so that the
// number of areas is easy to predict. (Not guard pages: what lies above one may be taken for a
// stack.)
class Buffer {
 public:
  explicit Buffer(size_t length, int flags = MAP_PRIVATE | MAP_ANONYMOUS, int fd = -1)
      : length_(length) {
    whole_ =
        static_cast<std::byte*>(mmap(place(length + 2 * kPage), length + 2 * kPage, PROT_READ,
                                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0));
    EXPECT_NE(static_cast<void*>(whole_), MAP_FAILED) << std::strerror(errno);
    void* at = mmap(whole_ + kPage, length, PROT_READ | PROT_WRITE, flags | MAP_FIXED, fd, 0);
    EXPECT_NE(at, MAP_FAILED) << std::strerror(errno);
  }
  ~Buffer() { munmap(whole_, length_ + 2 * kPage); }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;
  std::byte* data() const { return whole_ + kPage; }
  uint64_t va() const { return reinterpret_cast<uint64_t>(data()); }
  size_t size() const { return length_; }
  void fill(unsigned seed) {
    for (size_t i = 0; i < length_; i++) data()[i] = pattern(seed, i);
  }
  static std::byte pattern(unsigned seed, size_t i) {
    return static_cast<std::byte>((i * 2654435761u >> 13) + seed);
  }

 private:
  // Where the kernel puts nothing by itself: a test may give parts of its buffer away, and what
  // came to their place would be unmapped with the rest.
  static void* place(size_t length) {
    static std::atomic<uint64_t> next{0x7000'0000'0000};
    return reinterpret_cast<void*>(next.fetch_add(length + 16 * kPage));
  }

  std::byte* whole_;
  size_t length_;
};

// One client as hostnicd sees it.
class Nic {
 public:
  explicit Nic(int mirror) : memory_(mirror, &gone_) {}

  struct Mr {
    uint64_t va = 0, length = 0;
    std::vector<MappedPiece> pieces;
    std::vector<MemoryRegion> regions;
    uint64_t number = 0;
  };

  // Registers on both sides. Failures end up in `error`.
  bool add(uint64_t va, uint64_t length, Mr& mr, bool need_write = true,
           memory::Paging paging = memory::Paging::kAsMapped) {
    auto registration = memory::MemoryRegistrar::process().add(va, length, need_write, paging);
    if (!registration) {
      error = registration.error().message;
      error_number = registration.error().error;
      return false;
    }
    EXPECT_TRUE(covers_exactly(registration->regions, va, length));
    std::vector<int> fds;
    for (const auto& fd : registration->fds) fds.push_back(fd.get());
    auto pieces = memory_.map(registration->regions, fds, need_write);
    if (!pieces) {
      error = pieces.error();
      memory::MemoryRegistrar::process().remove(va, length, registration->number);
      return false;
    }
    mr = {va, length, *pieces, registration->regions, registration->number};
    return true;
  }
  bool add_on_demand(uint64_t va, uint64_t length, Mr& mr, bool need_write = true) {
    return add(va, length, mr, need_write, memory::Paging::kOnDemand);
  }
  void remove(const Mr& mr) {
    memory_.unmap(mr.pieces);
    memory::MemoryRegistrar::process().remove(mr.va, mr.length, mr.number);
  }

  // As an lcore would.
  bool write(const Mr& mr, uint64_t offset, std::vector<std::byte> bytes) {
    return transfer(mr, offset, bytes, true);
  }
  std::vector<std::byte> read(const Mr& mr, uint64_t offset, size_t length) {
    std::vector<std::byte> bytes(length);
    EXPECT_TRUE(transfer(mr, offset, bytes, false));
    return bytes;
  }
  ClientMemory& memory() { return memory_; }
  std::atomic<bool>& gone() { return gone_; }

  std::string error;
  int error_number = 0;

 private:
  bool transfer(const Mr& mr, uint64_t offset, std::vector<std::byte>& bytes, bool write) {
    uint64_t at = mr.va + offset, done = 0;
    for (const MappedPiece& piece : mr.pieces) {
      if (at < piece.va || at >= piece.va + piece.length_bytes || done == bytes.size()) continue;
      const size_t part =
          std::min<uint64_t>(bytes.size() - done, piece.va + piece.length_bytes - at);
      const std::span<std::byte> local(bytes.data() + done, part);
      const int fd = memory::MemoryRegistrar::process().mem_fd();
      if (piece.host != nullptr && write)
        std::memcpy(piece.host + (at - piece.va), local.data(), part);
      else if (piece.host != nullptr)
        std::memcpy(local.data(), piece.host + (at - piece.va), part);
      else if (MemFdResult::kOk !=
               (write ? write_client(fd, at, local) : read_client(fd, at, local)))
        return false;
      at += part;
      done += part;
    }
    return done == bytes.size();
  }

  std::atomic<bool> gone_{false};
  ClientMemory memory_;
};

class MemoryTest : public ::testing::Test {
 protected:
  MemoryTest() : nic(shared_mirror()) { wait_for_others(); }
  // Threads of the test before may still be ending: beside others memory stays where it is.
  static void wait_for_others() {
    for (int tries = 0; tries < 300 && !others().empty(); tries++)
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  // The names of threads that are neither the main one nor the library's.
  static std::string others() {
    std::string names;
    for (const auto& task : std::filesystem::directory_iterator("/proc/self/task")) {
      std::string name;
      std::getline(std::ifstream(task.path() / "comm"), name);
      if (!name.starts_with("hostnic") && task.path().filename() != std::to_string(getpid()))
        names += " " + name;
    }
    return names;
  }
  static memory::MemoryRegistrar& registrar() { return memory::MemoryRegistrar::process(); }
  // One mirror per process, as in a real client.
  static int shared_mirror() {
    if (registrar().mirror_fd() < 0) {
      auto mirror = create_mirror();
      EXPECT_TRUE(mirror.has_value()) << mirror.error();
      EXPECT_TRUE(check_mirror(*mirror).has_value());
      auto ready = registrar().init(*mirror);
      EXPECT_TRUE(ready.has_value()) << ready.error().message;
      close(*mirror);
    }
    return registrar().mirror_fd();
  }
  // For failures: why memory may have stayed in place.
  static std::string how_it_is() { return registrar().status() + "; other threads:" + others(); }
  static bool migrates() { return registrar().status().starts_with("private memory migrates"); }
  static bool stops_system_calls() {
    return registrar().status().find("user mode only") == std::string::npos;
  }

  // Both directions, at the ends and in the middle.
  void expect_right_bytes(const Nic::Mr& mr) {
    auto* memory = reinterpret_cast<std::byte*>(mr.va);
    for (const uint64_t offset :
         {uint64_t{0}, mr.length / 3, mr.length - std::min<uint64_t>(mr.length, 5000)}) {
      const size_t length = std::min<uint64_t>(5000, mr.length - offset);
      std::vector<std::byte> bytes(length);
      for (size_t i = 0; i < length; i++) bytes[i] = Buffer::pattern(offset + 7, i);
      ASSERT_TRUE(nic.write(mr, offset, bytes));
      EXPECT_EQ(0, std::memcmp(memory + offset, bytes.data(), length)) << "NIC to program";
      for (size_t i = 0; i < length; i++) memory[offset + i] = Buffer::pattern(offset + 99, i);
      const auto got = nic.read(mr, offset, length);
      EXPECT_EQ(0, std::memcmp(memory + offset, got.data(), length)) << "program to NIC";
    }
  }
  static bool all_of_kind(const Nic::Mr& mr, RegionKind kind) {
    return std::all_of(mr.regions.begin(), mr.regions.end(),
                       [kind](const MemoryRegion& region) { return region.kind == kind; });
  }

  Nic nic;
};

// After so long a child hangs. A machine whose other work has precedence may leave it a hundredth
// of a processor.
inline constexpr unsigned kHangsSeconds = 300;

// Runs `body` in a forked child, which must not fail any expectation.
template <typename Body>
void in_child(Body body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    alarm(kHangsSeconds);
    body();
    std::fflush(nullptr);
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = -1;
  ASSERT_EQ(child, waitpid(child, &status, 0));
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "wait status " << status;
}

// As much as stays in the mirror when it is deregistered, and comes late when it is registered.
inline constexpr size_t kLarge = 64 * kMiB;

inline uint64_t mirror_file_bytes(int mirror) {
  struct stat file {};
  EXPECT_EQ(0, fstat(mirror, &file));
  return static_cast<uint64_t>(file.st_blocks) * 512;
}

// Waits for something that another thread brings about, a hundred seconds at most.
template <class Condition>
bool comes_true(Condition condition) {
  for (int tries = 0; tries < 100000; tries++) {
    if (condition()) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

}  // namespace hostnic::memory_testing
