// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/gpu/memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <shared_mutex>
#include <string_view>
#include <utility>

#include "protocol/hostif/unique_fd.h"

namespace hostnic::gpu {
namespace {

// A GPU's pages: what GPUs map at least, and peers pin.
constexpr size_t kPageBytes = 64 << 10;
constexpr size_t kHostPageBytes = 4096;
// Descriptors of allocations lie above those that programs hand to select().
constexpr int kFirstDescriptor = 1024;

struct Allocation {
  Block block;
  size_t mapped_bytes = 0;    // 0: nothing is mapped by this library
  std::byte* view = nullptr;  // where the processor reaches the bytes
  UniqueFd fd;                // of device memory
  pid_t process = 0;          // a child may free its own mappings only
};

struct Table {
  std::shared_mutex mutex;
  std::map<uintptr_t, Allocation> allocations;
  std::array<size_t, GpuOptions::kMaxGpus> used_bytes{};
  uint64_t last_id = 0;
};

// It is never destroyed: programs free memory in their own destructors.
Table& table() {
  static Table& instance = *new Table;
  return instance;
}

Allocation* find_locked(uintptr_t address) {
  auto& allocations = table().allocations;
  auto found = allocations.upper_bound(address);
  if (found == allocations.begin()) return nullptr;
  Allocation& allocation = (--found)->second;
  return address - allocation.block.address < allocation.block.bytes ? &allocation : nullptr;
}

// Where the processor reaches a range; null: the range is partly of device memory.
std::byte* reach(uintptr_t address, size_t bytes) {
  const Allocation* const allocation = find_locked(address);
  if (allocation == nullptr || allocation->view == nullptr)
    return reinterpret_cast<std::byte*>(address);
  const size_t offset = address - allocation->block.address;
  return bytes <= allocation->block.bytes - offset ? allocation->view + offset : nullptr;
}

// A descriptor for each allocation: as many as the program may have.
UniqueFd open_file(const char* name) {
  UniqueFd low(memfd_create(name, MFD_CLOEXEC));
  if (!low) return low;
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0 && limit.rlim_cur < limit.rlim_max) {
    limit.rlim_cur = limit.rlim_max;
    setrlimit(RLIMIT_NOFILE, &limit);
  }
  UniqueFd high(fcntl(low.get(), F_DUPFD_CLOEXEC, kFirstDescriptor));
  return high ? std::move(high) : std::move(low);
}

Result map_device(Allocation& allocation) {
  const GpuOptions& wanted = options();
  // These names are what the library for verbs knows device memory by (memory/file_view.h).
  allocation.fd = open_file(wanted.peers ? "hostnic-gpu" : "hostnic-gpu-nopeer");
  const int fd = allocation.fd.get();
  const size_t bytes = allocation.mapped_bytes;
  if (fd < 0) return Result::kOperatingSystem;
  // All of its pages are there from the beginning, as a GPU's.
  if (ftruncate(fd, static_cast<off_t>(bytes)) != 0 ||
      fallocate(fd, 0, 0, static_cast<off_t>(bytes)) != 0)
    return Result::kOutOfMemory;
  void* view = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (view == MAP_FAILED) return Result::kOutOfMemory;
  allocation.view = static_cast<std::byte*>(view);
  // The pointer begins a page of the GPU's.
  void* room = mmap(nullptr, bytes + kPageBytes, PROT_NONE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (room == MAP_FAILED) return Result::kOutOfMemory;
  const auto start = reinterpret_cast<uintptr_t>(room);
  const uintptr_t aligned = (start + kPageBytes - 1) & ~(kPageBytes - 1);
  if (aligned != start) munmap(room, aligned - start);
  if (aligned != start + kPageBytes)
    munmap(reinterpret_cast<void*>(aligned + bytes), start + kPageBytes - aligned);
  allocation.block.address = aligned;
  const int protection = wanted.loads ? PROT_READ | PROT_WRITE : PROT_NONE;
  if (mmap(reinterpret_cast<void*>(aligned), bytes, protection, MAP_SHARED | MAP_FIXED, fd, 0) ==
      MAP_FAILED)
    return Result::kOutOfMemory;
  return Result::kSuccess;
}

Result map_host(Allocation& allocation) {
  void* at = mmap(nullptr, allocation.mapped_bytes, PROT_READ | PROT_WRITE,
                  MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return Result::kOutOfMemory;
  allocation.block.address = reinterpret_cast<uintptr_t>(at);
  allocation.view = static_cast<std::byte*>(at);
  return Result::kSuccess;
}

// Peers find nothing in the file from here on, whatever descriptors and mappings others have.
void unmap(Allocation& allocation) {
  if (allocation.fd && allocation.process == getpid())
    static_cast<void>(ftruncate(allocation.fd.get(), 0));
  const bool is_device = allocation.block.kind == Kind::kDevice;
  if (is_device && allocation.view != nullptr) munmap(allocation.view, allocation.mapped_bytes);
  if (allocation.block.address != 0 && allocation.mapped_bytes != 0)
    munmap(reinterpret_cast<void*>(allocation.block.address), allocation.mapped_bytes);
}

bool is_on_device(Kind kind) { return kind == Kind::kDevice || kind == Kind::kManaged; }

Result add(Kind kind, int device, size_t bytes, void** out) {
  Table& all = table();
  const std::unique_lock lock(all.mutex);
  Allocation allocation;
  allocation.block = {0, bytes, kind, device, ++all.last_id};
  allocation.process = getpid();
  allocation.mapped_bytes = (bytes + kPageBytes - 1) & ~(kPageBytes - 1);
  size_t& used_bytes = all.used_bytes[static_cast<size_t>(device)];
  if (allocation.mapped_bytes < bytes) return Result::kOutOfMemory;
  if (is_on_device(kind) && allocation.mapped_bytes > options().memory_bytes - used_bytes)
    return Result::kOutOfMemory;
  const Result mapped = kind == Kind::kDevice ? map_device(allocation) : map_host(allocation);
  if (mapped != Result::kSuccess) {
    unmap(allocation);
    return mapped;
  }
  if (is_on_device(kind)) used_bytes += allocation.mapped_bytes;
  *out = reinterpret_cast<void*>(allocation.block.address);
  all.allocations.emplace(allocation.block.address, std::move(allocation));
  return Result::kSuccess;
}

template <typename Matches>
Result take_away(void* address, Matches matches) {
  if (address == nullptr) return Result::kSuccess;
  Table& all = table();
  const std::unique_lock lock(all.mutex);
  const auto found = all.allocations.find(reinterpret_cast<uintptr_t>(address));
  if (found == all.allocations.end() || !matches(found->second.block.kind))
    return Result::kInvalidValue;
  Allocation& allocation = found->second;
  if (is_on_device(allocation.block.kind))
    all.used_bytes[static_cast<size_t>(allocation.block.device)] -= allocation.mapped_bytes;
  unmap(allocation);
  all.allocations.erase(found);
  return Result::kSuccess;
}

}  // namespace

const GpuOptions& options() {
  static const GpuOptions kOptions = [] {
    const char* const text = std::getenv("HOSTNIC_GPU");
    const auto parsed = parse_gpu_options(text == nullptr ? "" : text);
    if (!parsed) fprintf(stderr, "hostnic-gpu: HOSTNIC_GPU: %s\n", parsed.error().c_str());
    return parsed ? *parsed : GpuOptions{};
  }();
  return kOptions;
}

void say_what_this_is() {
  static std::once_flag said;
  std::call_once(said, [] {
    const char* const log = std::getenv("HOSTNIC_LOG");
    if (log != nullptr && std::string_view(log) == "off") return;
    fprintf(stderr,
            "hostnic-gpu[%d] memory only: a stand-in for %u GPU(s), no GPU, no speed of one\n",
            static_cast<int>(getpid()), options().count);
  });
}

Result allocate(Kind kind, int device, size_t bytes, void** out) {
  if (out == nullptr || bytes == 0 || kind == Kind::kRegistered) return Result::kInvalidValue;
  if (device < 0 || static_cast<uint32_t>(device) >= options().count) return Result::kInvalidDevice;
  try {
    return add(kind, device, bytes, out);
  } catch (const std::bad_alloc&) {
    return Result::kOutOfMemory;
  }
}

Result release(Kind kind, void* address) {
  return take_away(address, [kind](Kind has) { return has == kind; });
}

Result release_device(void* address) { return take_away(address, is_on_device); }

Result register_host(void* address, size_t bytes) try {
  const auto start = reinterpret_cast<uintptr_t>(address);
  if (address == nullptr || bytes == 0 || start + bytes < start) return Result::kInvalidValue;
  Table& all = table();
  const std::unique_lock lock(all.mutex);
  const auto next = all.allocations.lower_bound(start);
  if (find_locked(start) != nullptr ||
      (next != all.allocations.end() && next->first < start + bytes))
    return Result::kAlreadyRegistered;
  Allocation allocation;
  allocation.block = {start, bytes, Kind::kRegistered, 0, ++all.last_id};
  all.allocations.emplace(start, std::move(allocation));
  return Result::kSuccess;
} catch (const std::bad_alloc&) {
  return Result::kOutOfMemory;
}

Result unregister_host(void* address) {
  if (address == nullptr) return Result::kInvalidValue;
  return release(Kind::kRegistered, address) == Result::kSuccess ? Result::kSuccess
                                                                 : Result::kNotRegistered;
}

std::optional<Block> find(const void* address) {
  const std::shared_lock lock(table().mutex);
  const Allocation* const found = find_locked(reinterpret_cast<uintptr_t>(address));
  if (found == nullptr) return std::nullopt;
  return found->block;
}

Result set_sync_memops(const void* address, bool on) {
  const std::unique_lock lock(table().mutex);
  Allocation* const found = find_locked(reinterpret_cast<uintptr_t>(address));
  if (found == nullptr || found->block.kind != Kind::kDevice) return Result::kInvalidValue;
  found->block.sync_memops = on;  // all copies are over when they return
  return Result::kSuccess;
}

Result copy(void* to, const void* from, size_t bytes) {
  if (bytes == 0) return Result::kSuccess;
  const std::shared_lock lock(table().mutex);
  std::byte* const target = reach(reinterpret_cast<uintptr_t>(to), bytes);
  const std::byte* const source = reach(reinterpret_cast<uintptr_t>(from), bytes);
  if (target == nullptr || source == nullptr) return Result::kInvalidValue;
  std::memmove(target, source, bytes);
  return Result::kSuccess;
}

Result copy_rows(const Pitched& to, const Pitched& from, size_t row_bytes, size_t rows) {
  if (row_bytes > to.pitch_bytes || row_bytes > from.pitch_bytes) return Result::kInvalidValue;
  auto* const target = static_cast<std::byte*>(const_cast<void*>(to.at));
  const auto* const source = static_cast<const std::byte*>(from.at);
  for (size_t row = 0; row < rows; ++row) {
    const Result copied =
        gpu::copy(target + row * to.pitch_bytes, source + row * from.pitch_bytes, row_bytes);
    if (copied != Result::kSuccess) return copied;
  }
  return Result::kSuccess;
}

Result fill(void* to, uint32_t value, size_t word_bytes, size_t count) {
  size_t bytes = 0;
  if (__builtin_mul_overflow(word_bytes, count, &bytes)) return Result::kInvalidValue;
  if (bytes == 0) return Result::kSuccess;
  const std::shared_lock lock(table().mutex);
  std::byte* const target = reach(reinterpret_cast<uintptr_t>(to), bytes);
  if (target == nullptr) return Result::kInvalidValue;
  if (word_bytes == 1) {
    std::memset(target, static_cast<int>(value & 0xff), bytes);
    return Result::kSuccess;
  }
  for (size_t at = 0; at < bytes; at += word_bytes) std::memcpy(target + at, &value, word_bytes);
  return Result::kSuccess;
}

Result export_file(const void* address, size_t bytes, int* fd, uint64_t* offset) {
  if (fd == nullptr || offset == nullptr || bytes == 0) return Result::kInvalidValue;
  const std::shared_lock lock(table().mutex);
  const auto start = reinterpret_cast<uintptr_t>(address);
  const Allocation* const found = find_locked(start);
  if (found == nullptr || found->block.kind != Kind::kDevice) return Result::kInvalidValue;
  *offset = start - found->block.address;
  if (bytes > found->mapped_bytes - *offset) return Result::kInvalidValue;
  // An open file of its own, since its position is its own as well.
  char path[40];
  snprintf(path, sizeof(path), "/proc/self/fd/%d", found->fd.get());
  *fd = open(path, O_RDWR | O_CLOEXEC);
  return *fd >= 0 ? Result::kSuccess : Result::kOperatingSystem;
}

Result export_range(const void* address, size_t bytes, int* fd) {
  if (reinterpret_cast<uintptr_t>(address) % kHostPageBytes != 0 || bytes % kHostPageBytes != 0)
    return Result::kInvalidValue;
  uint64_t offset = 0;
  const Result exported = export_file(address, bytes, fd, &offset);
  if (exported == Result::kSuccess) lseek(*fd, static_cast<off_t>(offset), SEEK_SET);
  return exported;
}

void memory_info(int device, size_t* free_bytes, size_t* total_bytes) {
  const std::shared_lock lock(table().mutex);
  const size_t total = options().memory_bytes;
  if (total_bytes != nullptr) *total_bytes = total;
  if (free_bytes != nullptr) *free_bytes = total - table().used_bytes[static_cast<size_t>(device)];
}

}  // namespace hostnic::gpu
