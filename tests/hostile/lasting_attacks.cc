// SPDX-License-Identifier: BSD-3-Clause
// Attacks by what costs hostnicd more than the client: an end with very much to give back, changes
// of memory that concern all regions, and wake-ups of very many threads.
#include <fcntl.h>
#include <fmt/format.h>
#include <limits.h>
#include <linux/futex.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <thread>
#include <vector>

#include "protocol/hostif/core_sharing.h"
#include "protocol/hostif/memory_region.h"
#include "tests/hostile/attacks.h"
#include "tests/hostile/raw_client.h"

namespace hostnic::hostile {
namespace {

using Clock = std::chrono::steady_clock;
constexpr uint64_t kPageBytes = 4096;

Clock::time_point begin(const Target& target, const char* what) {
  fmt::print("{}\n", what);
  std::fflush(stdout);
  return Clock::now() + std::chrono::seconds(target.seconds);
}

// Regions of a page each, which the mem fd reaches; how many there were for this client.
uint32_t register_pages(RawClient& client, uint32_t count) {
  void* const at = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  need(at != MAP_FAILED, "a page");
  uint32_t done = 0;
  while (done < count && client.register_memory(at, kPageBytes).lkey != 0) ++done;
  return done;
}

// Sends a change and waits for its answer.
void tell(RawClient& client, const MemoryChange& change) {
  need(client.change_memory(change) == 0, "a change of memory");
}

}  // namespace

// A device that has as much as it may have is killed, and the next one likewise.
void die_with_everything(const Target& target) {
  target.become();
  constexpr uint32_t kQps = 4096, kRegions = 8192;
  const auto end = begin(target, "dies");
  unsigned devices = 0;
  uint32_t qps = 0, regions = 0;
  do {
    int ready[2];
    need(pipe2(ready, O_CLOEXEC) == 0, "a pipe");
    const pid_t child = fork();
    need(child >= 0, "fork");
    if (child == 0) {
      RawClient client(target.socket, target.device);
      uint32_t counts[2] = {};
      if (client.error() == 0) {
        uint32_t qpn = 0;
        while (counts[0] < kQps && counts[0] < client.map().max_qps() &&
               (qpn = client.create_qp(counts[0], QpType::kRc, 0)) != 0 && client.connect(qpn, qpn))
          ++counts[0];
        counts[1] = register_pages(client, kRegions);
      }
      need(write(ready[1], counts, sizeof(counts)) == sizeof(counts), "telling");
      for (;;) pause();
    }
    close(ready[1]);
    uint32_t counts[2] = {};
    need(read(ready[0], counts, sizeof(counts)) == sizeof(counts), "the child");
    close(ready[0]);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    qps = std::max(qps, counts[0]);
    regions = std::max(regions, counts[1]);
    ++devices;
  } while (Clock::now() < end);
  fmt::print("{} devices died, with up to {} queue pairs and {} regions\n", devices, qps, regions);
}

// Memory of very many regions moves to and fro.
void change_memory_for_ever(const Target& target) {
  target.become();
  constexpr uint32_t kRegions = 16'384;
  constexpr uint64_t kFar = uint64_t{1} << 46;
  RawClient client(target.socket, target.device);
  need(client.error() == 0, client.message());
  const uint32_t regions = register_pages(client, kRegions);
  const auto end = begin(target, "moves");
  unsigned changes = 0;
  for (; Clock::now() < end && !client.dropped(); ++changes) {
    const bool back = changes % 2 != 0;
    tell(client, {.va = back ? kFar : 0,
                  .length_bytes = kFar,
                  .kind = MemoryChangeKind::kMoved,
                  .reserved = 0,
                  .moved_to = back ? 0 : kFar});
  }
  fmt::print("moved {} regions {} times\n", regions, changes);
}

// Very many threads sleep where the NIC wakes one.
void sleep_in_crowds(const Target& target) {
  target.become();
  constexpr unsigned kThreads = 8000;
  RawClient client(target.socket, target.device);
  need(client.error() == 0, client.message());
  const uint32_t qpn = client.create_qp(0);
  need(qpn != 0 && client.connect(qpn, qpn), "connecting a queue pair with itself");
  alignas(kPageBytes) static std::byte memory[2 * kPageBytes];
  const RegisterMrReply region = client.register_memory(memory, sizeof(memory));
  need(region.lkey != 0, client.message());
  SegmentHeader& header = client.map().header();
  static std::atomic<bool> over{false};
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN);
  unsigned threads = 0;
  const auto sleeper = [](void* at) -> void* {
    auto& word = *static_cast<std::atomic<uint32_t>*>(at);
    while (!over.load(std::memory_order_relaxed)) {
      syscall(SYS_futex, &word, FUTEX_WAIT, word.load(), nullptr, nullptr, 0);
      // One turn of theirs each is all that they take of the processors.
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    return nullptr;
  };
  pthread_t thread;
  while (threads < kThreads &&
         pthread_create(&thread, &attributes, sleeper, &header.driver_wake) == 0)
    ++threads;
  const auto end = begin(target, "sleeps");
  const uint32_t wakes = header.driver_wake.load();
  for (uint32_t psn = 0; Clock::now() < end && !client.dropped(); ++psn) {
    header.driver_sleeping.store(1);
    SendDescriptor d{};
    d.op = SendOp::kWrite;
    d.flags = kSendAckRequest;
    d.qpn = qpn;
    d.psn = psn & 0xffffff;
    d.length_bytes = d.message_bytes = 64;
    d.va = reinterpret_cast<uint64_t>(memory) + kPageBytes;
    d.key = region.rkey;
    d.sge_count = 1;
    d.sge0 = {reinterpret_cast<uint64_t>(memory), 64, region.lkey};
    client.post(d);
    MetaReport reports[16];
    while (client.map().metas.dequeue_burst(reports, 16) != 0) {
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  fmt::print("{} threads slept, {} wake-ups\n", threads, header.driver_wake.load() - wakes);
}

}  // namespace hostnic::hostile
