// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/verify/memory.h"

#include <alloca.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/shm.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <exception>

#include "tests/apps/verify/channel.h"

namespace hostnic::verify {
namespace {

constexpr size_t kHugePageBytes = 2u << 20;
std::atomic<bool> g_transparent_huge{false};

[[noreturn]] void fail(const char* what, size_t length) {
  throw Failure{fmt::format("{} of {} bytes: {}", what, length, strerror(errno))};
}

class MallocMemory : public Memory {
 public:
  explicit MallocMemory(size_t length) : block_(std::malloc(length + 2 * kGuardBytes)) {
    if (block_ == nullptr) fail("malloc", length);
    bytes_ = {static_cast<std::byte*>(block_) + kGuardBytes, length};
  }
  ~MallocMemory() override { std::free(block_); }

 private:
  void* block_;
};

class StackMemory : public Memory {
 public:
  StackMemory(StackArena& stack, size_t length, bool aligned) {
    const size_t needed = stack_bytes_for(length);
    if (stack.free.size() < needed) throw Failure{"the stack arena was sized too small"};
    const auto address = reinterpret_cast<uintptr_t>(stack.free.data() + kGuardBytes);
    const size_t shift = (64 - address % 64) % 64 + (aligned ? 0 : 13);
    bytes_ = stack.free.subspan(kGuardBytes + shift % 64, length);
    stack.free = stack.free.subspan(needed);
  }
};

// mmap of any kind: private, or of a file that several processes may share.
class MappedMemory : public Memory {
 public:
  MappedMemory(size_t length, size_t mapped, int flags, int fd, const char* what)
      : mapped_(mapped), fd_(fd) {
    base_ = mmap(nullptr, mapped, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (base_ == MAP_FAILED) {
      const int error = errno;
      if (fd >= 0) close(fd);
      errno = error;
      fail(what, length);
    }
    bytes_ = {static_cast<std::byte*>(base_) + kGuardBytes, length};
  }
  ~MappedMemory() override {
    munmap(base_, mapped_);
    if (fd_ >= 0) close(fd_);
  }
  void* base() const { return base_; }

 private:
  void* base_;
  size_t mapped_;
  int fd_;  // stays open, as most programs have it: it leads to the file behind the mapping
};

class SysvMemory : public Memory {
 public:
  explicit SysvMemory(size_t length) {
    const int id = shmget(IPC_PRIVATE, length + 2 * kGuardBytes, IPC_CREAT | 0600);
    if (id < 0) fail("shmget", length);
    base_ = shmat(id, nullptr, 0);
    const int error = errno;
    shmctl(id, IPC_RMID, nullptr);  // lives on until the last detach
    errno = error;
    if (base_ == reinterpret_cast<void*>(-1)) fail("shmat", length);
    bytes_ = {static_cast<std::byte*>(base_) + kGuardBytes, length};
  }
  ~SysvMemory() override { shmdt(base_); }

 private:
  void* base_;
};

// The file is filled with pages now: a full /dev/shm must be an error here, not a SIGBUS later.
std::unique_ptr<Memory> map_file(int fd, size_t length, const char* what) {
  if (fd < 0) fail(what, length);
  const size_t mapped = length + 2 * kGuardBytes;
  if (const int error = posix_fallocate(fd, 0, static_cast<off_t>(mapped)); error != 0) {
    close(fd);
    errno = error;
    fail(what, length);
  }
  return std::make_unique<MappedMemory>(length, mapped, MAP_SHARED, fd, what);
}

std::unique_ptr<Memory> map_shm(size_t length) {
  static std::atomic<unsigned> count{0};
  const std::string name = fmt::format("/hostnic-verify-{}-{}", getpid(), count++);
  const int fd = shm_open(name.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (fd >= 0) shm_unlink(name.c_str());
  return map_file(fd, length, "shm_open");
}

std::unique_ptr<Memory> map_huge(size_t length) {
  const size_t mapped =
      (length + 2 * kGuardBytes + kHugePageBytes - 1) / kHugePageBytes * kHugePageBytes;
  constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS;
  if (!g_transparent_huge) {
    try {
      return std::make_unique<MappedMemory>(length, mapped, kPrivate | MAP_HUGETLB, -1, "mmap");
    } catch (const Failure&) {
      g_transparent_huge = true;  // none reserved
    }
  }
  auto memory =
      std::make_unique<MappedMemory>(length, mapped + kHugePageBytes, kPrivate, -1, "mmap");
  madvise(memory->base(), mapped + kHugePageBytes, MADV_HUGEPAGE);
  return memory;
}

std::unique_ptr<Memory> map_block(MemoryKind kind, size_t length, bool aligned, StackArena& stack) {
  switch (kind) {
    case MemoryKind::kMalloc:
      return std::make_unique<MallocMemory>(length);
    case MemoryKind::kMmap:
      return std::make_unique<MappedMemory>(length, length + 2 * kGuardBytes,
                                            MAP_PRIVATE | MAP_ANONYMOUS, -1, "mmap");
    case MemoryKind::kShm:
      return map_shm(length);
    case MemoryKind::kMemfd:
      return map_file(memfd_create("hostnic-verify", MFD_CLOEXEC), length, "memfd_create");
    case MemoryKind::kSysv:
      return std::make_unique<SysvMemory>(length);
    case MemoryKind::kStackUnaligned:
      return std::make_unique<StackMemory>(stack, length, aligned);
    case MemoryKind::kHuge:
      return map_huge(length);
  }
  return nullptr;
}

struct StackRun {
  size_t bytes;
  const std::function<void(StackArena&)>* body;
  std::exception_ptr thrown;
};

void* stack_thread(void* argument) {
  auto* run = static_cast<StackRun*>(argument);
  StackArena arena;
  if (run->bytes > 0) arena.free = {static_cast<std::byte*>(alloca(run->bytes)), run->bytes};
  try {
    (*run->body)(arena);
  } catch (...) {
    run->thrown = std::current_exception();
  }
  return nullptr;
}

}  // namespace

bool used_transparent_huge_pages() { return g_transparent_huge; }

std::unique_ptr<Memory> allocate(MemoryKind kind, size_t length, bool aligned, StackArena& stack) {
  std::unique_ptr<Memory> memory = map_block(kind, length, aligned, stack);
  std::ranges::fill(memory->guard_before(), kGuardValue);
  std::ranges::fill(memory->guard_after(), kGuardValue);
  return memory;
}

void run_with_stack(size_t bytes, const std::function<void(StackArena&)>& body) {
  // Without another thread, since a program with one thread is what memory migrates in.
  if (bytes == 0) {
    StackArena none;
    body(none);
    return;
  }
  StackRun run{bytes, &body, nullptr};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, (bytes + (8u << 20)) / 4096 * 4096);
  pthread_t thread;
  const int error = pthread_create(&thread, &attributes, stack_thread, &run);
  pthread_attr_destroy(&attributes);
  if (error != 0)
    throw Failure{fmt::format("a thread with {} bytes of stack: {}", bytes, strerror(error))};
  pthread_join(thread, nullptr);
  if (run.thrown) std::rethrow_exception(run.thrown);
}

}  // namespace hostnic::verify
