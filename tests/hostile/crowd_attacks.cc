// SPDX-License-Identifier: BSD-3-Clause
// Programs that share a NIC with many others: one that does as it should, and some that would have
// more than their share, or keep the NIC busy for nothing.
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <thread>
#include <vector>

#include "tests/hostile/attacks.h"
#include "tests/hostile/raw_client.h"

namespace hostnic::hostile {
namespace {

using Clock = std::chrono::steady_clock;

// A file in memory, mapped here, that hostnicd maps as well.
struct SharedMemory {
  explicit SharedMemory(uint64_t length_bytes)
      : bytes(length_bytes), fd(memfd_create("hostnic-hostile", MFD_CLOEXEC)) {
    need(fd && ftruncate(fd.get(), static_cast<off_t>(bytes)) == 0, "a file in memory");
    void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd.get(), 0);
    need(at != MAP_FAILED, "mapping a file in memory");
    va = reinterpret_cast<uint64_t>(at);
  }
  RegisterMrReply register_with(RawClient& client) const {
    const MemoryRegion region{va, bytes, RegionKind::kFile, 0, 0};
    const int file = fd.get();
    return client.register_memory(va, bytes, {&region, 1}, {&file, 1});
  }

  const uint64_t bytes;
  UniqueFd fd;
  uint64_t va = 0;
};

// Queue pairs that are connected with themselves, and write into the program's own memory without
// end.
class Writer {
 public:
  Writer(const Target& target, uint32_t qps, uint32_t message_bytes)
      : client_(target.socket, target.device), memory_(kBytes), message_bytes_(message_bytes) {
    need(client_.error() == 0, client_.message());
    region_ = memory_.register_with(client_);
    need(region_.lkey != 0, client_.message());
    for (uint32_t i = 0; i < qps; ++i) {
      const uint32_t qpn = client_.create_qp(i);
      need(qpn != 0 && client_.connect(qpn, qpn), "connecting a queue pair with itself");
      flows_.push_back({.qpn = qpn, .status_index = i});
    }
  }

  // Posts as much as may be in flight. With `looks` it hears of what has arrived; otherwise it
  // posts whatever has room in the ring. Returns whether it posted anything.
  bool post(bool looks) {
    const uint32_t packets = std::max(1u, message_bytes_ / client_.device().mtu_bytes);
    bool posted = false, room = true;
    for (Flow& flow : flows_) {
      if (looks) look_at(flow);
      while (room && (!looks || flow.next - flow.acknowledged + packets <= kInFlight)) {
        const SendDescriptor d = write_at(flow);
        room = client_.map().sends.enqueue_bulk(&d, 1);
        if (!room) break;
        flow.next = (flow.next + packets) & kPsnMask;
        posted = true;
      }
    }
    std::rotate(flows_.begin(), flows_.begin() + 1, flows_.end());
    if (posted) client_.kick();
    return posted;
  }
  void take_reports() {
    std::array<MetaReport, 64> reports;
    while (client_.map().metas.dequeue_burst(reports.data(), reports.size()) > 0) {
    }
  }
  bool dropped() const { return client_.dropped(); }
  // For what uses the control socket; posting does not.
  RawClient& client() { return client_; }

 private:
  static constexpr uint64_t kBytes = 4 << 20;
  // PSNs: half of the window, so that nothing is sent that is not taken.
  static constexpr uint32_t kInFlight = 512;
  static constexpr uint32_t kPsnMask = 0xffffff;

  struct Flow {
    uint32_t qpn = 0, status_index = 0;
    uint32_t next = 0, acknowledged = 0;
  };

  void look_at(Flow& flow) {
    driver::QpStatusSnapshot snapshot;
    driver::QpStatusBits bits;
    if (driver::read_status(client_.map().qp_status(flow.status_index), snapshot, bits))
      flow.acknowledged = flow.next - ((flow.next - snapshot.una_psn) & kPsnMask);
  }
  SendDescriptor write_at(const Flow& flow) const {
    SendDescriptor d{};
    d.op = SendOp::kWrite;
    d.flags = kSendAckRequest;
    d.qpn = flow.qpn;
    d.psn = flow.next;
    d.length_bytes = d.message_bytes = message_bytes_;
    d.va = memory_.va + kBytes / 2;
    d.key = region_.rkey;
    d.sge_count = 1;
    d.sge0 = {memory_.va, message_bytes_, region_.lkey};
    return d;
  }

  RawClient client_;
  SharedMemory memory_;
  const uint32_t message_bytes_;
  RegisterMrReply region_;
  std::vector<Flow> flows_;
};

// A program's registrations of a little memory, five a second, and how long each took. With
// `at_once` their thread is before all others for the processor, so that its time has no waiting
// for that in it.
class Registrations {
 public:
  Registrations(RawClient& client, bool at_once)
      : client_(client), at_once_(at_once), thread_([this] { run(); }) {}
  ~Registrations() {
    over_.store(true);
    thread_.join();
    print("registering", registering_us_);
    print("deregistering", deregistering_us_);
  }

 private:
  void run() {
    const SharedMemory memory(kBytes);
    const sched_param first{.sched_priority = 1};
    need(!at_once_ || sched_setscheduler(0, SCHED_RR, &first) == 0, "SCHED_RR");
    while (!over_.load()) {
      const auto start = Clock::now();
      const RegisterMrReply region = memory.register_with(client_);
      const auto registered = Clock::now();
      need(region.lkey != 0, client_.message());
      need(client_.deregister_memory(region.lkey) == 0, "deregistering");
      registering_us_.push_back(us(registered - start));
      deregistering_us_.push_back(us(Clock::now() - registered));
      std::this_thread::sleep_for(std::chrono::milliseconds(200));
    }
  }
  static int64_t us(Clock::duration time) {
    return std::chrono::duration_cast<std::chrono::microseconds>(time).count();
  }
  static void print(const char* what, const std::vector<int64_t>& times_us) {
    fmt::print("{} took us:", what);
    for (const int64_t each : times_us) fmt::print(" {}", each);
    fmt::print("\n");
  }

  static constexpr uint64_t kBytes = 64 << 10;
  RawClient& client_;
  const bool at_once_;
  std::atomic<bool> over_{false};
  std::vector<int64_t> registering_us_, deregistering_us_;
  std::thread thread_;
};

volatile sig_atomic_t told_to_end = 0;

Clock::time_point begin(const Target& target, const char* what) {
  fmt::print("{}\n", what);
  std::fflush(stdout);
  return Clock::now() + std::chrono::seconds(target.seconds);
}

}  // namespace

// Messages of a length that is another for each program; a region now and then. When it is told to
// end it says how long those took.
void share_with_others(const Target& target) {
  target.become();
  constexpr std::array<uint32_t, 3> kLengths = {4096, 16 << 10, 64 << 10};
  Writer writer(target, 1, kLengths[static_cast<uint32_t>(getpid()) % kLengths.size()]);
  signal(SIGTERM, [](int) { told_to_end = 1; });
  const Registrations registrations(writer.client(), target.registers_at_once);
  for (const auto end = begin(target, "writes");
       Clock::now() < end && told_to_end == 0 && !writer.dropped();) {
    writer.post(/*looks=*/true);
    writer.take_reports();
    std::this_thread::sleep_for(std::chrono::microseconds(500));
  }
  need(!writer.dropped(), "an honest program was dropped");
}

void flood(const Target& target) {
  target.become();
  Writer writer(target, 64, 256 << 10);
  for (const auto end = begin(target, "floods"); Clock::now() < end && !writer.dropped();) {
    writer.post(/*looks=*/true);
    writer.take_reports();
    std::this_thread::yield();
  }
}

void never_look(const Target& target) {
  target.become();
  Writer writer(target, 1, 64 << 10);
  for (const auto end = begin(target, "never looks"); Clock::now() < end && !writer.dropped();)
    if (!writer.post(/*looks=*/false)) std::this_thread::yield();
}

// Work for a queue pair that there is not, in both rings.
void post_garbage(const Target& target) {
  target.become();
  RawClient client(target.socket, target.device);
  need(client.error() == 0, client.message());
  SendDescriptor d{};
  d.op = SendOp::kWrite;
  d.qpn = 0x123456;
  d.length_bytes = d.message_bytes = 4096;
  d.sge_count = 1;
  for (const auto end = begin(target, "posts garbage"); Clock::now() < end && !client.dropped();) {
    bool posted = false;
    while (client.map().sends.enqueue_bulk(&d, 1)) posted = true;
    while (client.map().urgent.enqueue_bulk(&d, 1)) posted = true;
    if (posted)
      client.kick();
    else
      std::this_thread::yield();
  }
}

// A lot of memory, again and again.
void register_for_ever(const Target& target) {
  target.become();
  RawClient client(target.socket, target.device);
  need(client.error() == 0, client.message());
  const SharedMemory memory(target.megabytes << 20);
  uint32_t times = 0;
  for (const auto end = begin(target, "registers"); Clock::now() < end; ++times) {
    const RegisterMrReply region = memory.register_with(client);
    need(region.lkey != 0, client.message());
    need(client.deregister_memory(region.lkey) == 0, "deregistering");
  }
  fmt::print("registered {} MiB {} times\n", target.megabytes, times);
}

}  // namespace hostnic::hostile
