// SPDX-License-Identifier: BSD-3-Clause
// The rings between driver and NIC: 64-byte elements through shared memory.
#include "protocol/hostif/ring.h"

#include <pthread.h>
#include <rte_pause.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "bench/micro/report.h"
#include "protocol/hostif/descriptors.h"

namespace hostnic::bench {
namespace {

constexpr uint32_t kMaxBurst = 32;
using Burst = std::array<RingElement, kMaxBurst>;

// One ring in a memfd of its own, with both ends mapped as the two processes would.
class Ring {
 public:
  Ring() : fd_(memfd_create("hostnic-bench-ring", MFD_CLOEXEC)) {
    if (fd_ < 0 || ftruncate(fd_, kBytes) != 0) throw std::runtime_error("no memory for a ring");
    for (std::byte*& side : sides_) {
      void* at = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd_, 0);
      if (at == MAP_FAILED) throw std::runtime_error("no memory for a ring");
      side = static_cast<std::byte*>(at);
    }
    producer.init(sides_[0], kSendRingSize, sizeof(RingElement), indices_.get());
    consumer.init(sides_[1], kSendRingSize, sizeof(RingElement), indices_.get());
  }
  ~Ring() {
    for (std::byte* side : sides_) munmap(side, kBytes);
    close(fd_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;

 private:
  static constexpr uint64_t kBytes = uint64_t{kSendRingSize} * sizeof(RingElement);

  int fd_;
  std::array<std::byte*, 2> sides_{};
  std::unique_ptr<RingIndices> indices_ = std::make_unique<RingIndices>();

 public:
  RingEnd producer, consumer;
};

// Takes `count` elements. Gives the CPU away after a while: the other side may have none. False:
// told to stop, or the ring is broken.
bool take(RingEnd& ring, Burst& burst, uint32_t count, const std::atomic<bool>& stop) {
  constexpr uint32_t kSpins = 1000;
  uint32_t idle = 0;
  for (uint32_t got = 0; got < count;) {
    const int n = ring.dequeue_burst(burst.data() + got, count - got);
    if (n < 0 || stop.load(std::memory_order_relaxed)) return false;
    got += static_cast<uint32_t>(n);
    if (n != 0) continue;
    if (++idle < kSpins) {
      rte_pause();
    } else {
      std::this_thread::yield();
    }
  }
  return true;
}

// Puts the calling thread on one CPU for its life: two threads that the scheduler has on the same
// one would measure the scheduler.
class Pinned {
 public:
  explicit Pinned(int cpu) {
    pthread_getaffinity_np(pthread_self(), sizeof(before_), &before_);
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(cpu, &one);
    pthread_setaffinity_np(pthread_self(), sizeof(one), &one);
  }
  ~Pinned() { pthread_setaffinity_np(pthread_self(), sizeof(before_), &before_); }
  Pinned(const Pinned&) = delete;
  Pinned& operator=(const Pinned&) = delete;

 private:
  cpu_set_t before_;
};

// The first two CPUs that we may use; the same one twice when there is no other.
std::pair<int, int> two_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  pthread_getaffinity_np(pthread_self(), sizeof(set), &set);
  int first = -1;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
    if (!CPU_ISSET(cpu, &set)) continue;
    if (first >= 0) return {first, cpu};
    first = cpu;
  }
  return {first, first};
}

// `range` elements to another thread and back again. What counts is the median: the mean is that of
// the few trips during which one of the threads did not run.
void ring_round_trip(benchmark::State& state) {
  using Clock = std::chrono::steady_clock;
  const auto count = static_cast<uint32_t>(state.range(0));
  Ring there, back;
  std::atomic<bool> stop{false};
  const auto [our_cpu, its_cpu] = two_cpus();
  std::thread echo([&, cpu = its_cpu] {
    const Pinned pinned(cpu);
    Burst burst;
    while (take(there.consumer, burst, count, stop))
      back.producer.enqueue_bulk(burst.data(), count);
  });
  const Pinned pinned(our_cpu);
  Burst burst{};
  std::vector<double> trips_s;
  trips_s.reserve(state.max_iterations);
  for (auto _ : state) {
    const auto mark = static_cast<std::byte>(trips_s.size());
    const auto start = Clock::now();
    burst[count - 1].bytes[63] = mark;
    there.producer.enqueue_bulk(burst.data(), count);
    if (!take(back.consumer, burst, count, stop) || burst[count - 1].bytes[63] != mark) {
      state.SkipWithError("something else came back");
      break;
    }
    trips_s.push_back(std::chrono::duration<double>(Clock::now() - start).count());
  }
  stop = true;
  echo.join();
  if (trips_s.empty()) return;
  const auto middle = trips_s.begin() + static_cast<ptrdiff_t>(trips_s.size() / 2);
  std::nth_element(trips_s.begin(), middle, trips_s.end());
  const double trip_bytes = 2.0 * count * sizeof(RingElement);
  state.SetLabel(our_cpu == its_cpu ? "median, one CPU" : "median");
  state.counters["per_op"] = *middle;
  state.counters["bytes_per_second"] = trip_bytes / *middle;
}
BENCHMARK(ring_round_trip)->Arg(1)->Arg(8)->Arg(32)->UseRealTime();

// Both ends in one thread: what enqueue and dequeue cost without a cache line changing its CPU.
void ring_one_thread(benchmark::State& state) {
  const auto count = static_cast<uint32_t>(state.range(0));
  Ring ring;
  Burst in{}, out;
  for (auto _ : measured(state)) {
    ring.producer.enqueue_bulk(in.data(), count);
    if (ring.consumer.dequeue_burst(out.data(), count) != static_cast<int>(count)) {
      state.SkipWithError("not everything came out again");
      return;
    }
    benchmark::DoNotOptimize(out);
  }
  const uint64_t elements = state.iterations() * count;
  report(state, elements, elements * sizeof(RingElement));
}
HOSTNIC_BENCHMARK(ring_one_thread)->Arg(1)->Arg(8)->Arg(32);

}  // namespace
}  // namespace hostnic::bench
