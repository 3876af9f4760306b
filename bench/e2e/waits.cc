// SPDX-License-Identifier: BSD-3-Clause
// hostnic-waits MIB ROUNDS: how long a program waits in each verb, and in each of the C library's
// calls that the library takes over, while so much private memory is registered. A line for each:
// its name, how many there were, the median and the longest in microseconds; "longest_us" is the
// longest of all. A fork, whose price is known to be a copy, comes last and doesn't count.
#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/e2e/fabric.h"

namespace hostnic::bench {
namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kPage = 4096, kMiB = 1 << 20;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;
constexpr int kProtection = PROT_READ | PROT_WRITE;
constexpr int kPrivate = MAP_PRIVATE | MAP_ANONYMOUS;

class Waits {
 public:
  // Runs `call`, which may not fail: it returns what is true then.
  template <typename Call>
  auto time(const char* name, Call call) {
    const auto start = Clock::now();
    auto result = call();
    const double us = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
    if (!result) die(fmt::format("{}: {}", name, strerror(errno)));
    auto row = std::find_if(rows_.begin(), rows_.end(),
                            [name](const auto& each) { return each.first == name; });
    if (row == rows_.end()) row = rows_.insert(rows_.end(), {name, {}});
    row->second.push_back(us);
    return result;
  }
  template <typename Call>
  void zero(const char* name, Call call) {
    time(name, [&] { return call() == 0; });
  }
  // Prints the lines, and the longest of all.
  void print() {
    double longest = 0;
    for (auto& [name, us] : rows_) {
      std::sort(us.begin(), us.end());
      longest = std::max(longest, us.back());
      fmt::print("{:<44} {:>5} {:>12.1f} {:>12.1f}\n", name, us.size(), us[us.size() / 2],
                 us.back());
    }
    rows_.clear();
    if (!std::exchange(said_longest_, true)) fmt::print("longest_us {:.1f}\n", longest);
  }

 private:
  std::vector<std::pair<std::string, std::vector<double>>> rows_;
  bool said_longest_ = false;
};

std::byte* map(size_t bytes) {
  void* at = mmap(nullptr, bytes, kProtection, kPrivate, -1, 0);
  if (at == MAP_FAILED) die("mmap failed");
  std::memset(at, 1, bytes);
  return static_cast<std::byte*>(at);
}

void queues(Waits& waits, ibv_context* context, ibv_pd* pd) {
  auto* channel =
      waits.time("ibv_create_comp_channel", [&] { return ibv_create_comp_channel(context); });
  auto* cq =
      waits.time("ibv_create_cq", [&] { return ibv_create_cq(context, 256, nullptr, channel, 0); });
  waits.zero("ibv_resize_cq", [&] { return ibv_resize_cq(cq, 512); });
  ibv_srq_init_attr shared{};
  shared.attr.max_wr = 64;
  shared.attr.max_sge = 1;
  auto* srq = waits.time("ibv_create_srq", [&] { return ibv_create_srq(pd, &shared); });
  ibv_qp_init_attr wanted{};
  wanted.qp_type = IBV_QPT_RC;
  wanted.send_cq = wanted.recv_cq = cq;
  wanted.cap = {64, 64, 1, 1, 0};
  auto* qp = waits.time("ibv_create_qp", [&] { return ibv_create_qp(pd, &wanted); });
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_INIT;
  attributes.port_num = 1;
  waits.zero("ibv_modify_qp", [&] {
    return ibv_modify_qp(qp, &attributes,
                         IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
  });
  waits.zero("ibv_query_qp", [&] { return ibv_query_qp(qp, &attributes, IBV_QP_STATE, &wanted); });
  waits.zero("ibv_destroy_qp", [&] { return ibv_destroy_qp(qp); });
  waits.zero("ibv_destroy_srq", [&] { return ibv_destroy_srq(srq); });
  waits.zero("ibv_destroy_cq", [&] { return ibv_destroy_cq(cq); });
  waits.zero("ibv_destroy_comp_channel", [&] { return ibv_destroy_comp_channel(channel); });
}

void devices(Waits& waits) {
  int count = 0;
  ibv_device** list =
      waits.time("ibv_get_device_list", [&] { return ibv_get_device_list(&count); });
  ibv_context* context = waits.time("ibv_open_device", [&] { return ibv_open_device(list[0]); });
  waits.time("ibv_free_device_list", [&] {
    ibv_free_device_list(list);
    return true;
  });
  ibv_device_attr device{};
  ibv_port_attr port{};
  ibv_gid gid{};
  waits.zero("ibv_query_device", [&] { return ibv_query_device(context, &device); });
  waits.zero("ibv_query_port", [&] { return ibv_query_port(context, 1, &port); });
  waits.zero("ibv_query_gid", [&] { return ibv_query_gid(context, 1, 0, &gid); });
  ibv_pd* pd = waits.time("ibv_alloc_pd", [&] { return ibv_alloc_pd(context); });
  queues(waits, context, pd);
  waits.zero("ibv_dealloc_pd", [&] { return ibv_dealloc_pd(pd); });
  waits.zero("ibv_close_device", [&] { return ibv_close_device(context); });
}

struct Names {
  const char *registers, *registers_again, *deregisters;
};

void registrations(Waits& waits, ibv_pd* pd, size_t bytes, const Names& names) {
  std::byte* const at = map(bytes);
  ibv_mr* region = waits.time(names.registers, [&] { return ibv_reg_mr(pd, at, bytes, kAccess); });
  waits.zero(names.registers_again, [&] {
    return ibv_rereg_mr(region, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0,
                        IBV_ACCESS_LOCAL_WRITE);
  });
  waits.zero(names.deregisters, [&] { return ibv_dereg_mr(region); });
  munmap(at, bytes);
}

// Calls about memory that nobody has registered.
void other_memory(Waits& waits) {
  constexpr size_t kBytes = 64 * kPage;
  std::byte* at = map(kBytes);
  const auto same = [](void* got, void* wanted) { return got == wanted; };
  waits.time("mmap over memory",
             [&] { return same(mmap(at, kPage, kProtection, kPrivate | MAP_FIXED, -1, 0), at); });
  waits.zero("madvise", [&] { return madvise(at, kBytes, MADV_DONTNEED); });
  waits.time("mremap", [&] {
    at = static_cast<std::byte*>(mremap(at, kBytes, 16 * kBytes, MREMAP_MAYMOVE));
    return at != MAP_FAILED;
  });
  waits.zero("munmap", [&] { return munmap(at, 16 * kBytes); });
  void* block = malloc(kMiB);
  waits.time("realloc", [&] { return (block = realloc(block, 4 * kMiB)) != nullptr; });
  waits.time("free", [&] {
    free(block);
    return true;
  });
}

// Calls about a little of what is registered.
void registered_memory(Waits& waits, ibv_pd* pd, std::byte* at, size_t bytes) {
  waits.zero("madvise, a registered page", [&] { return madvise(at, kPage, MADV_DONTNEED); });
  waits.zero("madvise, 16 MiB registered",
             [&] { return madvise(at, std::min(bytes, 16 * kMiB), MADV_DONTNEED); });
  std::byte* one = map(kMiB);
  ibv_mr* region = ibv_reg_mr(pd, one, kMiB, kAccess);
  if (region == nullptr) die("ibv_reg_mr failed");
  waits.time("mremap, 1 MiB registered", [&] {
    one = static_cast<std::byte*>(mremap(one, kMiB, 2 * kMiB, MREMAP_MAYMOVE));
    return one != MAP_FAILED;
  });
  waits.time("mmap over a registered page",
             [&] { return mmap(one, kPage, kProtection, kPrivate | MAP_FIXED, -1, 0) == one; });
  waits.zero("munmap, 1 MiB registered", [&] { return munmap(one, 2 * kMiB); });
  if (ibv_dereg_mr(region) != 0) die("ibv_dereg_mr failed");
  void* block = malloc(kMiB);
  std::memset(block, 1, kMiB);
  region = ibv_reg_mr(pd, block, kMiB, kAccess);
  if (region == nullptr) die("ibv_reg_mr failed");
  waits.time("realloc, 1 MiB registered",
             [&] { return (block = realloc(block, 4 * kMiB)) != nullptr; });
  waits.time("free, 1 MiB registered", [&] {
    free(block);
    return true;
  });
  if (ibv_dereg_mr(region) != 0) die("ibv_dereg_mr failed");
}

void files(Waits& waits) {
  struct stat status {};
  char path[256];
  const int fd = waits.time("open", [] { return open("/dev/null", O_RDWR | O_CLOEXEC); });
  const int copy = waits.time("dup", [&] { return dup(fd); });
  waits.time("write", [&] { return write(fd, path, 1) == 1; });
  waits.zero("close", [&] { return close(copy); });
  close(fd);
  waits.zero("stat", [&] { return stat("/sys/class", &status); });
  waits.time("readlink", [&] { return readlink("/proc/self/exe", path, sizeof(path)) > 0; });
  waits.zero("access", [] { return access("/sys/class", R_OK); });
  waits.time("dlsym", [] { return dlsym(RTLD_DEFAULT, "munmap"); });
}

// Messages from this memory to itself, over a connection of the device with itself.
void messages(Waits& waits, End& sender, const ibv_mr& region, size_t bytes) {
  ibv_sge source{reinterpret_cast<uint64_t>(region.addr), 64, region.lkey};
  ibv_send_wr request{}, *bad = nullptr;
  request.sg_list = &source;
  request.num_sge = 1;
  request.opcode = IBV_WR_RDMA_WRITE;
  request.send_flags = IBV_SEND_SIGNALED;
  request.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(region.addr) + bytes - kPage;
  request.wr.rdma.rkey = region.rkey;
  waits.zero("ibv_post_send", [&] { return ibv_post_send(sender.qp(0), &request, &bad); });
  for (size_t taken = 0; taken == 0;)
    waits.time("ibv_poll_cq", [&] {
      taken = poll(sender.send_cq(), 1);
      return true;
    });
}

// Registered memory of so many bytes that nothing of comes late any more.
class Much {
 public:
  Much(ibv_pd* pd, std::byte* at, size_t bytes) {
    region_.reset(ibv_reg_mr(pd, at, bytes, kAccess));
    if (!region_) die("ibv_reg_mr failed");
    std::this_thread::sleep_for(std::chrono::milliseconds(100 + 4 * bytes / kMiB));
  }
  void end(Waits& waits, const char* name) {
    waits.zero(name, [&] { return ibv_dereg_mr(region_.release()); });
  }

 private:
  Owned<ibv_mr> region_;
};

// Calls about as much memory at once as is registered. The names are those of the rows.
struct AllNames {
  const char *protect, *lock, *unlock, *lock_everything, *unlock_everything, *discard, *move,
      *unmap, *map_over, *shrink_heap;
};

// How long the kernel takes is what the same calls take of memory that nobody has registered.
void all_memory(Waits& waits, ibv_pd* pd, size_t bytes, const AllNames& names) {
  std::byte* at = map(bytes);
  std::optional<Much> much;
  const auto add = [&] {
    if (pd != nullptr) much.emplace(pd, at, bytes);
  };
  const auto remove = [&] {
    if (much) much->end(waits, "ibv_dereg_mr, of what is gone");
  };
  add();
  waits.zero(names.protect, [&] { return mprotect(at, bytes, PROT_READ); });
  mprotect(at, bytes, kProtection);
  waits.zero(names.lock, [&] { return mlock(at, bytes); });
  waits.zero(names.unlock, [&] { return munlock(at, bytes); });
  waits.zero(names.lock_everything, [] { return mlockall(MCL_CURRENT); });
  waits.zero(names.unlock_everything, [] { return munlockall(); });
  waits.zero(names.discard, [&] { return madvise(at, bytes, MADV_DONTNEED); });
  std::memset(at, 1, bytes);
  for (const size_t length : {bytes, 2 * bytes})
    waits.time(names.move, [&] {
      at = static_cast<std::byte*>(mremap(at, length, 2 * length, MREMAP_MAYMOVE));
      return at != MAP_FAILED;
    });
  waits.zero(names.unmap, [&] { return munmap(at, 4 * bytes); });
  remove();
  at = map(bytes);
  add();
  waits.time(names.map_over,
             [&] { return mmap(at, bytes, kProtection, kPrivate | MAP_FIXED, -1, 0) == at; });
  remove();
  munmap(at, bytes);
  at = static_cast<std::byte*>(sbrk(static_cast<intptr_t>(bytes)));
  if (at == MAP_FAILED) die("sbrk failed");
  std::memset(at, 1, bytes);
  add();
  waits.time(names.shrink_heap, [&] { return sbrk(-static_cast<intptr_t>(bytes)) != MAP_FAILED; });
  remove();
}

// The names of the rows of moves.
struct MoveNames {
  const char *leave_mapped, *bare, *locked, *grow_block, *deregister;
};

// Moves of all that is registered in other ways than by a plain mremap.
void all_moves(Waits& waits, ibv_pd* pd, size_t bytes, const MoveNames& names) {
  constexpr int kLeaves = 4;  // MREMAP_DONTUNMAP
  constexpr int kMoves = MREMAP_MAYMOVE | MREMAP_FIXED;
  const auto move = [&](const char* name, auto mapped, auto call) {
    std::byte* const at = mapped();
    std::optional<Much> much;
    if (pd != nullptr) much.emplace(pd, at, bytes);
    if (name == names.locked && mlock(at, bytes) != 0) die("mlock failed");
    waits.time(name, [&] { return call(at); });
    if (much) much->end(waits, names.deregister);
  };
  const auto private_memory = [&] { return map(bytes); };
  std::byte* to = nullptr;
  const auto has_moved = [&](void* result) {
    to = static_cast<std::byte*>(result);
    return result != MAP_FAILED;
  };
  move(names.leave_mapped, private_memory, [&](std::byte* at) {
    return has_moved(mremap(at, bytes, bytes, MREMAP_MAYMOVE | kLeaves, nullptr));
  });
  munmap(to, bytes);
  move(names.bare, private_memory, [&](std::byte* at) {
    return has_moved(reinterpret_cast<void*>(
        syscall(SYS_mremap, at, bytes, 2 * bytes, MREMAP_MAYMOVE, nullptr)));
  });
  munmap(to, 2 * bytes);
  void* const room = mmap(nullptr, bytes, PROT_NONE, kPrivate | MAP_NORESERVE, -1, 0);
  move(names.locked, private_memory,
       [&](std::byte* at) { return has_moved(mremap(at, bytes, bytes, kMoves, room)); });
  munmap(to, bytes);
  void* block = malloc(bytes);
  std::memset(block, 1, bytes);
  move(
      names.grow_block, [&] { return static_cast<std::byte*>(block); },
      [&](std::byte* at) { return (block = realloc(at, 2 * bytes)) != nullptr; });
  free(block);
}

int run(size_t mebibytes, size_t rounds) {
  const size_t bytes = mebibytes * kMiB;
  Waits waits;
  End end(0, Depths{});
  Owned<ibv_context> context(nullptr);
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  context.reset(list != nullptr && count > 0 ? ibv_open_device(list[0]) : nullptr);
  ibv_free_device_list(list);
  if (!context) die("no RDMA device");
  Owned<ibv_pd> pd(ibv_alloc_pd(context.get()));
  if (!pd) die("ibv_alloc_pd failed");
  std::byte* at = map(bytes);
  Owned<ibv_mr> region, own;
  waits.time("ibv_reg_mr, all", [&] {
    region.reset(ibv_reg_mr(pd.get(), at, bytes, kAccess));
    return region != nullptr;
  });
  own = end.try_register(at, bytes);
  if (!own) die("ibv_reg_mr failed");
  end.add_queue_pair();
  end.connect(0, end);
  const Names page{"ibv_reg_mr, a page", "ibv_rereg_mr, a page", "ibv_dereg_mr, a page"};
  const Names mebibyte{"ibv_reg_mr, 1 MiB", "ibv_rereg_mr, 1 MiB", "ibv_dereg_mr, 1 MiB"};
  const Names more{"ibv_reg_mr, 64 MiB", "ibv_rereg_mr, 64 MiB", "ibv_dereg_mr, 64 MiB"};
  for (size_t i = 0; i < rounds; ++i) {
    devices(waits);
    registrations(waits, pd.get(), kPage, page);
    registrations(waits, pd.get(), kMiB, mebibyte);
    if (i % 8 == 0) registrations(waits, pd.get(), 64 * kMiB, more);
    other_memory(waits);
    registered_memory(waits, pd.get(), at, bytes);
    files(waits);
    messages(waits, end, *own, bytes);
  }
  own.reset();
  waits.zero("ibv_dereg_mr, all", [&] { return ibv_dereg_mr(region.release()); });
  waits.time("ibv_reg_mr, all, once more", [&] {
    region.reset(ibv_reg_mr(pd.get(), at, bytes, kAccess));
    return region != nullptr;
  });
  waits.zero("ibv_dereg_mr, all, once more", [&] { return ibv_dereg_mr(region.release()); });
  munmap(at, bytes);
  all_memory(
      waits, pd.get(), bytes,
      {"mprotect, all", "mlock, all", "munlock, all", "mlockall", "munlockall",
       "madvise(DONTNEED), all", "mremap, all", "munmap, all", "mmap over all", "sbrk, all"});
  all_moves(waits, pd.get(), bytes,
            {"mremap(DONTUNMAP), all", "mremap by a bare call, all", "mremap, locked, all",
             "realloc, all", "ibv_dereg_mr, of what has moved"});
  waits.print();
  fmt::print("the kernel's own, of memory that is not registered:\n");
  all_memory(waits, nullptr, bytes,
             {"mprotect", "mlock", "munlock", "mlockall", "munlockall", "madvise(DONTNEED)",
              "mremap", "munmap", "mmap over", "sbrk"});
  all_moves(
      waits, nullptr, bytes,
      {"mremap(DONTUNMAP)", "mremap by a bare call", "mremap, locked", "realloc, of so much", ""});
  waits.print();
  at = map(bytes);
  const Much much(pd.get(), at, bytes);
  fmt::print("a copy:\n");
  waits.time("fork", [] {
    const pid_t child = fork();
    if (child == 0) _exit(0);
    return child > 0 && waitpid(child, nullptr, 0) == child;
  });
  waits.print();
  return 0;
}

size_t number(const char* text, size_t most) {
  size_t value = 0;
  const char* end = text + std::strlen(text);
  if (std::from_chars(text, end, value).ptr != end || value == 0 || value > most)
    die(fmt::format("\"{}\" is no number from 1 to {}", text, most));
  return value;
}

}  // namespace
}  // namespace hostnic::bench

int main(int argc, char** argv) {
  using namespace hostnic::bench;
  if (argc == 3) return run(number(argv[1], 1 << 14), number(argv[2], 1 << 20));
  fmt::print(stderr, "usage: hostnic-waits MIB ROUNDS\n");
  return 2;
}
