// SPDX-License-Identifier: BSD-3-Clause
// Attacks by holes: the client takes pages out of what it shares with hostnicd, again and again,
// while the NIC uses them.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <thread>
#include <utility>
#include <vector>

#include "protocol/hostif/memory_region.h"
#include "tests/hostile/attacks.h"
#include "tests/hostile/raw_client.h"

namespace hostnic::hostile {
namespace {

using Clock = std::chrono::steady_clock;
// The less is punched at a time, the shorter the lcore may have to sleep for it.
constexpr uint64_t kPageBytes = 4096, kBytes = 4 << 20, kHugePageBytes = 2 << 20;
constexpr std::chrono::milliseconds kAgain{50};
constexpr uint32_t kMessageBytes = 64 << 10;

// How long the calling thread has waited for a processor; 0 where the kernel does not say.
uint64_t waited_ns() {
  unsigned long long ran = 0, waited = 0;
  if (FILE* const file = std::fopen("/proc/thread-self/schedstat", "re"); file != nullptr) {
    if (std::fscanf(file, "%llu %llu", &ran, &waited) != 2) waited = 0;
    std::fclose(file);
  }
  return waited;
}

// Takes all pages out of a range, in a loop, until it is destroyed. Huge ones it also takes itself,
// with all others that are free, before anybody who touches the hole can have them.
class Puncher {
 public:
  Puncher(void* at, uint64_t bytes, bool takes) {
    if (takes) take_all();
    thread_ = std::thread([this, at, bytes, takes] {
      while (!over_.load()) {
        const uint64_t before = waited_ns();
        madvise(at, bytes, MADV_REMOVE);
        longest_wait_ns_.store(std::max(longest_wait_ns_.load(), waited_ns() - before));
        if (takes) take_all();
      }
    });
  }
  ~Puncher() {
    end();
    for (void* const at : taken_) munmap(at, kHugePageBytes);
  }
  // Ends the punching. Returns the longest that it waited for a processor in one call, and with it,
  // perhaps, whoever touched the hole.
  uint64_t end() {
    over_.store(true);
    if (thread_.joinable()) thread_.join();
    return longest_wait_ns();
  }
  // The longest that it waited so far: a call that still goes on does not count.
  uint64_t longest_wait_ns() const { return longest_wait_ns_.load(); }
  Puncher(const Puncher&) = delete;
  Puncher& operator=(const Puncher&) = delete;

 private:
  // A mapping reserves its page, which nobody else gets from then on.
  void take_all() {
    for (;;) {
      void* const at = mmap(nullptr, kHugePageBytes, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_HUGETLB, -1, 0);
      if (at == MAP_FAILED) return;
      taken_.push_back(at);
    }
  }

  std::atomic<bool> over_{false};
  std::atomic<uint64_t> longest_wait_ns_{0};
  std::vector<void*> taken_;
  std::thread thread_;
};

enum class Pages : uint8_t { kOrdinary, kHuge };

// A device with a queue pair that writes into its own memory, and what it punches.
class Victim {
 public:
  Victim(const Target& target, Pages pages) : client_(target.socket, target.device) {
    if (client_.error() != 0) return;
    qpn_ = client_.create_qp(0);
    need(qpn_ != 0 && client_.connect(qpn_, qpn_), "connecting a queue pair with itself");
    file_ = UniqueFd(
        memfd_create("hostnic-hostile", MFD_CLOEXEC | (pages == Pages::kHuge ? MFD_HUGETLB : 0)));
    need(file_ && ftruncate(file_.get(), kBytes) == 0, "a file in memory");
    at_ = mmap(nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, file_.get(), 0);
    if (at_ == MAP_FAILED) {
      at_ = nullptr;
      need(pages == Pages::kHuge, "mapping a file in memory");
      return;  // the last device's huge pages are not all free yet
    }
    const MemoryRegion region{va(), kBytes, RegionKind::kFile, 0, 0};
    const int file = file_.get();
    region_ = client_.register_memory(va(), kBytes, {&region, 1}, {&file, 1});
    need(region_.lkey != 0, client_.message());
  }
  ~Victim() {
    if (at_ != nullptr) munmap(at_, kBytes);
  }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;

  // Has the NIC use the memory, until hostnicd drops the device or the time is over. Returns
  // whether it did. The rings may be among what is punched: nothing waits for them.
  bool use_until(Clock::time_point end, SendOp op) {
    while (!client_.ended() && Clock::now() < end) {
      const SendDescriptor d = op == SendOp::kSend ? next_send() : next_write();
      client_.map().sends.enqueue_bulk(&d, 1);
      client_.kick();
    }
    return client_.ended();
  }
  // Has the NIC look at its rings, which we touch no more ourselves.
  bool wake_until(Clock::time_point end) {
    while (!client_.ended() && Clock::now() < end) {
      client_.kick();
      std::this_thread::sleep_for(std::chrono::milliseconds(1));
    }
    return client_.ended();
  }
  bool refused() const { return client_.error() != 0 || at_ == nullptr; }
  uint64_t va() const { return reinterpret_cast<uint64_t>(at_); }
  void* memory() const { return at_; }
  RawClient& client() { return client_; }

 private:
  SendDescriptor next_write() {
    SendDescriptor d{};
    d.op = SendOp::kWrite;
    d.flags = kSendAckRequest;
    d.qpn = qpn_;
    d.psn = psn_ & 0xffffff;
    psn_ += kMessageBytes / client_.device().mtu_bytes;
    d.length_bytes = d.message_bytes = kMessageBytes;
    d.va = va() + kBytes / 2 + psn_ * kPageBytes % (kBytes / 4);
    d.key = region_.rkey;
    d.sge_count = 1;
    d.sge0 = {va(), kMessageBytes, region_.lkey};
    return d;
  }
  // A message for a receive that is said to be posted, in a queue that is in the arena.
  SendDescriptor next_send() {
    SendDescriptor d{};
    d.op = SendOp::kSend;
    d.flags = kSendAckRequest;
    d.qpn = qpn_;
    d.psn = psn_++ & 0xffffff;
    d.length_bytes = d.message_bytes = 64;
    d.key = receive_++;
    // More than the queue has would be none.
    client_.map().qp_status(0).recv_posted.store(std::min(receive_, 64u),
                                                 std::memory_order_release);
    d.sge_count = 1;
    d.sge0 = {va(), 64, region_.lkey};
    return d;
  }

  RawClient client_;
  UniqueFd file_;
  void* at_ = nullptr;
  uint32_t qpn_ = 0, psn_ = 0, receive_ = 0;
  RegisterMrReply region_{};
};

// Opens devices and has them dropped, one after the other; `punched` says what of one is punched.
// The registered memory's pages are `pages`.
template <class Punched>
void punch(const Target& target, SendOp op, Pages pages, Punched punched) {
  target.become();
  fmt::print("punches\n");
  std::fflush(stdout);
  const auto end = Clock::now() + std::chrono::seconds(target.seconds);
  unsigned devices = 0, dropped = 0, huge = 0;
  uint64_t waited = 0;
  while (Clock::now() < end) {
    Victim victim(target, pages);
    if (victim.refused()) {
      std::this_thread::sleep_for(kAgain);
      continue;
    }
    ++devices;
    const auto [at, bytes] = punched(victim);
    const bool is_huge = victim.client().rings_in_huge_pages();
    huge += is_huge ? 1 : 0;
    const bool takes = is_huge || pages == Pages::kHuge;
    Puncher puncher(at, bytes, takes);
    std::this_thread::sleep_for(kAgain);
    dropped += (takes && at != victim.memory() ? victim.wake_until(end) : victim.use_until(end, op))
                   ? 1
                   : 0;
    waited = std::max(waited, puncher.end());
  }
  fmt::print("dropped {} of {} devices, {} with rings in huge pages; waited {} us in a call\n",
             dropped, devices, huge, waited / 1000);
}

}  // namespace

void punch_registered_memory(const Target& target) {
  punch(target, SendOp::kWrite, Pages::kOrdinary,
        [](Victim& victim) { return std::pair(victim.memory(), kBytes); });
}

// Each device's program ends while the lcore may sleep for its punch.
void punch_and_end(const Target& target) {
  constexpr std::chrono::milliseconds kLife{30};
  constexpr int kEnded = 0, kHasToWait = 1, kFailed = 2;
  target.become();
  fmt::print("punches\n");
  std::fflush(stdout);
  unsigned ended = 0, had_to_wait = 0;
  auto* const waited = static_cast<std::atomic<uint64_t>*>(
      mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
  need(waited != MAP_FAILED, "a page to share with children");
  for (const auto end = Clock::now() + std::chrono::seconds(target.seconds); Clock::now() < end;) {
    const pid_t child = fork();
    need(child >= 0, "a child");
    if (child == 0) {
      Victim victim(target, Pages::kOrdinary);
      if (victim.refused())
        _exit(victim.client().message().find("took memory away") != std::string::npos ? kHasToWait
                                                                                      : kFailed);
      const Puncher puncher(victim.memory(), kBytes, false);
      victim.use_until(Clock::now() + kLife, SendOp::kWrite);
      waited->store(std::max(waited->load(), puncher.longest_wait_ns()));
      _exit(kEnded);
    }
    int status = 0;
    need(waitpid(child, &status, 0) == child && WIFEXITED(status), "a child that ends");
    ended += WEXITSTATUS(status) == kEnded ? 1 : 0;
    had_to_wait += WEXITSTATUS(status) == kHasToWait ? 1 : 0;
    if (WEXITSTATUS(status) != kEnded) std::this_thread::sleep_for(kAgain);
  }
  fmt::print("{} programs ended, {} had to wait for a device; waited {} us in a call\n", ended,
             had_to_wait, waited->load() / 1000);
}

void punch_huge_registered_memory(const Target& target) {
  punch(target, SendOp::kWrite, Pages::kHuge,
        [](Victim& victim) { return std::pair(victim.memory(), kBytes); });
}

// The rings and QP statuses; the pages of the header are the first. Where they are huge ones, all
// that are free are taken meanwhile.
void punch_segment(const Target& target) {
  punch(target, SendOp::kWrite, Pages::kOrdinary, [](Victim& victim) {
    driver::SegmentMap& map = victim.client().map();
    return std::pair(static_cast<void*>(&map.header()), map.header().segment_bytes);
  });
}

void punch_arena(const Target& target) {
  punch(target, SendOp::kSend, Pages::kOrdinary, [](Victim& victim) {
    driver::SegmentMap& map = victim.client().map();
    return std::pair(static_cast<void*>(map.at(map.header().arena_offset)), uint64_t{16} << 20);
  });
}

// Slices that are said to be filled, and have no page: each access would make one.
void declare_filled(const Target& target) {
  target.become();
  constexpr uint64_t kVa = uint64_t{1} << 45, kSlices = 256;
  fmt::print("declares\n");
  std::fflush(stdout);
  const auto end = Clock::now() + std::chrono::seconds(target.seconds);
  unsigned devices = 0, dropped = 0;
  uint64_t pages = 0;
  while (Clock::now() < end) {
    RawClient client(target.socket, target.device);
    if (client.error() != 0) {
      std::this_thread::sleep_for(kAgain);
      continue;
    }
    ++devices;
    const uint32_t qpn = client.create_qp(0);
    need(qpn != 0 && client.connect(qpn, qpn), "connecting a queue pair with itself");
    const UniqueFd states(memfd_create("fill-map", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    std::byte filled[kPageBytes];
    std::memset(filled, static_cast<int>(SliceState::kFilled), sizeof(filled));
    need(write(states.get(), filled, sizeof(filled)) == sizeof(filled) &&
             fcntl(states.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0,
         "a fill map");
    const MemoryRegion region{kVa, kSlices * kSliceBytes, RegionKind::kMirrorLate, 0, 0};
    const int file = states.get();
    const RegisterMrReply late =
        client.register_memory(kVa, region.length_bytes, {&region, 1}, {&file, 1});
    need(late.lkey != 0, client.message());
    uint32_t psn = 0;
    while (!client.dropped() && Clock::now() < end) {
      SendDescriptor d{};
      d.op = SendOp::kWrite;
      d.flags = kSendAckRequest;
      d.qpn = qpn;
      d.psn = psn++ & 0xffffff;
      d.length_bytes = d.message_bytes = kPageBytes;
      d.va = kVa + psn * kPageBytes % region.length_bytes;
      d.key = late.rkey;
      d.sge_count = 1;
      d.sge0 = {kVa, kPageBytes, late.lkey};
      client.post(d);
    }
    dropped += client.dropped() ? 1 : 0;
    struct stat mirror {};
    if (fstat(client.mirror_fd(), &mirror) == 0)
      pages += static_cast<uint64_t>(mirror.st_blocks) * 512 / kPageBytes;
  }
  fmt::print("dropped {} of {} devices, {} pages were made\n", dropped, devices, pages);
}

}  // namespace hostnic::hostile
