// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/runtime/context.h"

#include <errno.h>
#include <linux/futex.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <thread>

#include "protocol/hostif/shared_fence.h"
#include "verbs-shim/base/cancellation.h"
#include "verbs-shim/base/clock.h"
#include "verbs-shim/base/log.h"
#include "verbs-shim/memory/memory_registrar.h"
#include "verbs-shim/runtime/control_client.h"
#include "verbs-shim/runtime/core_sharing.h"
#include "verbs-shim/runtime/registered_ranges.h"

namespace hostnic::runtime {

using driver::Completion;
using driver::Cq;
using driver::Driver;
using driver::DriverSettings;
using driver::NicLink;
using driver::Qp;
using driver::RecvRequest;
using driver::SendRequest;
using driver::Srq;

namespace {

using memory::MemoryRegistrar;

// The sudden death of hostnicd is noticed within this time; later where a process has hundreds of
// contexts, whose threads would wake thousands of times a second.
constexpr uint64_t kLookAtSocketNs = 100'000'000;
constexpr uint32_t kContextsPerLook = 64;
std::atomic<uint32_t> open_contexts{0};

uint64_t look_interval_ns() {
  return kLookAtSocketNs * (1 + open_contexts.load(std::memory_order_relaxed) / kContextsPerLook);
}
// The service thread's tick while timers run (rule 34, wake-ups). A program that polls runs the
// timers itself, and each tick takes the lcore or the program off its core for 15 us.
constexpr uint64_t kTickNs = 1'000'000, kPolledTickNs = 4'000'000;
constexpr uint32_t kLockBusyNs = 50'000;  // the service thread yields that long when others have
                                          // the lock
constexpr uint32_t kFullPollsBeforeTurn = 8;
constexpr uint32_t kYieldsBeforeSleep = 64;

template <class T>
std::span<const std::byte> bytes_of(const T& value) {
  return std::as_bytes(std::span(&value, 1));
}

bool name_selected(const char* name, const char* selection) {
  if (selection == nullptr || *selection == '\0') return true;
  const size_t length = strlen(name);
  for (const char* at = selection; *at != '\0';) {
    const size_t item = strcspn(at, ",");
    if (item == length && strncmp(at, name, length) == 0) return true;
    at += item + (at[item] == ',' ? 1 : 0);
  }
  return false;
}

}  // namespace

Expected<std::vector<DeviceInfo>, ContextError> list_devices() {
  auto client = ControlClient::connect();
  if (!client) return Unexpected(client.error());
  auto answer = client->call(ControlKind::kListDevices, {}, {});
  if (!answer) return Unexpected(answer.error());
  std::vector<DeviceInfo> devices;
  const char* selection = getenv("HOSTNIC_DEVICE");
  for (uint32_t i = 0; i < answer->count && (i + 1) * sizeof(DeviceInfo) <= answer->payload.size();
       ++i) {
    DeviceInfo device = answer->as<DeviceInfo>(i);
    device.name[sizeof(device.name) - 1] = '\0';
    if (name_selected(device.name, selection)) devices.push_back(device);
  }
  return devices;
}

std::string counters_text(std::string_view device) {
  auto client = ControlClient::connect();
  if (!client) return {};
  const std::string command = "show counters " + std::string(device) + " all";
  auto answer = client->call(ControlKind::kText, std::as_bytes(std::span(command)), {});
  if (!answer) return {};
  return {reinterpret_cast<const char*>(answer->payload.data()), answer->payload.size()};
}

struct Context::Parts {
  explicit Parts(ControlClient control_client) : control(std::move(control_client)) {}

  std::mutex control_mutex;
  ControlClient control;
  UniqueFd arena_fd, doorbell_fd;
  SegmentMemory segment;
  const DoorbellPage* doorbell = nullptr;
  bool lcore_fences = false;  // the lcore fences our threads before it sleeps
  SegmentHeader* header = nullptr;
  RegisteredRanges registered;
  pthread_t thread{};
  bool thread_runs = false;
  std::atomic<bool> thread_known{false};  // the registrar knows the thread as one of ours
  std::atomic<bool> stop{false};
  YieldingPoller yielding;
  std::atomic<uint64_t> service_wakes_ns{0};  // when the service thread looks next at the latest

  void detach() {
    if (user != nullptr) MemoryRegistrar::process().detach(*user);
    user.reset();
  }

  // The user of regions as which the registrar knows this device.
  struct User final : memory::RegionUser {
    explicit User(Parts& parts) : p(parts) {}
    MemoryGate& memory_gate() override { return p.header->memory_gate; }
    void memory_gate_opened() override {
      std::atomic_thread_fence(std::memory_order_seq_cst);
      if (p.doorbell->lcore_sleeping.load(std::memory_order_relaxed) != 0)
        eventfd_write(p.doorbell_fd.get(), 1);
    }
    // A dead hostnicd reaches no memory any more. No NIC uses the mem fd until all devices have
    // been told, and each answer takes hostnicd a turn of some busy core: only those that reach the
    // memory are told.
    void revoke_memory(uint64_t start, uint64_t length_bytes) override {
      if (!p.registered.overlaps(start, length_bytes)) return;
      const RevokeMemoryRequest request{start, length_bytes};
      std::lock_guard lock(p.control_mutex);
      const int error = p.control.tell(ControlKind::kRevokeMemory, bytes_of(request));
      if (error != 0 && error != EIO)
        log_warn("hostnicd refused to hear of unmapped memory: %s", strerror(error));
    }
    Parts& p;
  };
  std::unique_ptr<User> user;

  ~Parts() {
    if (doorbell != nullptr) munmap(const_cast<DoorbellPage*>(doorbell), sizeof(DoorbellPage));
  }
};

Context::Context() = default;

namespace {

// The devices of a process share one mirror, which hostnicd makes for the first of them: opens take
// turns, so that there is a first one. A forked child begins with a gate of its own, because the
// thread that holds the inherited one may not exist there.
struct OpeningGate {
  const pid_t pid = getpid();
  std::mutex mutex;
};

OpeningGate& opening_gate() {
  static constinit std::atomic<OpeningGate*> current{nullptr};
  OpeningGate* found = current.load(std::memory_order_acquire);
  if (found != nullptr && found->pid == getpid()) return *found;
  auto* fresh = new OpeningGate;
  if (current.compare_exchange_strong(found, fresh)) return *fresh;  // the parent's stays for ever
  delete fresh;
  return *found;
}

}  // namespace

Expected<std::unique_ptr<Context>, ContextError> Context::open(uint32_t device_index) {
  const std::lock_guard taking_turns(opening_gate().mutex);
  MemoryRegistrar& registrar = MemoryRegistrar::process();
  registrar.open_own_memory();
  if (registrar.mem_fd() < 0)
    return failure(EACCES, "/proc/self/mem can't be opened: is /proc mounted?");
  auto control = ControlClient::connect();
  if (!control) return Unexpected(control.error());
  const UniqueFd pid_fd(static_cast<int>(syscall(SYS_pidfd_open, getpid(), 0)));

  OpenRequest request{};
  request.device_index = device_index;
  request.pid = static_cast<uint32_t>(getpid());
  request.has_mirror = registrar.mirror_fd() >= 0 ? 1 : 0;
  snprintf(request.program, sizeof(request.program), "%s", program_invocation_short_name);
  // If there is no pidfd hostnicd opens one of its own.
  std::vector<int> fds = {registrar.mem_fd()};
  if (pid_fd) fds.push_back(pid_fd.get());
  if (request.has_mirror != 0) fds.push_back(registrar.mirror_fd());
  auto answer = control->call(ControlKind::kOpen, bytes_of(request), fds);
  if (!answer) return Unexpected(answer.error());
  if (answer->fds.size() < 5) return failure(EPROTO, "hostnicd's answer lacks descriptors");
  const auto reply = answer->as<OpenReply>();

  std::unique_ptr<Context> context(new Context);
  context->parts_ = std::make_unique<Parts>(std::move(*control));
  context->device_ = reply.device;
  if (reply.has_userfaultfd != 0 && answer->fds.size() > 5)
    registrar.set_lent_userfaultfd(answer->fds[5].get());
  if (auto ready = registrar.init(answer->fds[2].get()); !ready) {
    return failure(ready.error().error, ready.error().message);
  }
  if (auto mapped = context->map_segment(std::move(answer->fds), reply); !mapped)
    return Unexpected(mapped.error());
  context->parts_->user = std::make_unique<Parts::User>(*context->parts_);
  registrar.attach(*context->parts_->user);
  if (const int error = context->start_service(); error != 0) {
    return failure(error, std::string("service thread: ") + strerror(error));
  }
  context->alive_.store(true, std::memory_order_release);
  log_debug("%s opened; memory: %s", context->device_.name, registrar.status().c_str());
  return context;
}

Expected<void, ContextError> Context::map_segment(std::vector<UniqueFd> fds,
                                                  const OpenReply& reply) {
  Parts& p = *parts_;
  p.arena_fd = std::move(fds[1]);
  p.doorbell_fd = std::move(fds[3]);
  if (const int error =
          p.segment.map(fds[0].get(), reply.segment_bytes, p.arena_fd.get(), reply.arena_bytes);
      error != 0)
    return failure(error, std::string("mapping the segment: ") + strerror(error));
  void* doorbell = mmap(nullptr, sizeof(DoorbellPage), PROT_READ, MAP_SHARED, fds[4].get(), 0);
  if (doorbell == MAP_FAILED)
    return failure(errno, std::string("mapping the doorbell: ") + strerror(errno));
  p.doorbell = static_cast<const DoorbellPage*>(doorbell);
  p.lcore_fences =
      takes_shared_fences() && p.doorbell->shares_fences.load(std::memory_order_acquire) != 0;
  p.header = reinterpret_cast<SegmentHeader*>(p.segment.base());
  DriverSettings settings;
  settings.max_qps = device_.max_qps;
  settings.mtu_bytes = device_.mtu_bytes;
  settings.window = device_.window;
  settings.policy = wire::Policy{static_cast<uint8_t>(device_.policy)};
  settings.relaxed_ordering = device_.relaxed_ordering != 0;
  settings.congestion_allowance_ns = uint64_t{device_.congestion_allowance_us} * 1000;
  NicLink& link = *this;
  driver_ = std::make_unique<Driver>(link, p.segment, settings);
  if (driver_->error() != 0) {
    return failure(driver_->error(), std::string("hostnicd's segment does not fit this library: ") +
                                         strerror(driver_->error()));
  }
  return {};
}

int Context::start_service() {
  Parts& p = *parts_;
  // All signals are blocked in our thread, because they are the program's business.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(
      &p.thread, nullptr,
      [](void* at) -> void* {
        auto* context = static_cast<Context*>(at);
        MemoryRegistrar::process().own_thread_starts();
        context->parts_->thread_known.store(true, std::memory_order_release);
        context->parts_->thread_known.notify_one();
        context->service_loop();
        MemoryRegistrar::process().own_thread_ends();
        return nullptr;
      },
      this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) {
    open_contexts.fetch_add(1, std::memory_order_relaxed);
    p.thread_runs = true;
    pthread_setname_np(p.thread, "hostnic-service");
    p.thread_known.wait(false, std::memory_order_acquire);
  }
  return error;
}

Context::~Context() {
  if (parts_ == nullptr) return;
  parts_->detach();
  if (parts_->thread_runs) {
    parts_->stop.store(true, std::memory_order_release);
    wake_service();
    pthread_join(parts_->thread, nullptr);
    open_contexts.fetch_sub(1, std::memory_order_relaxed);
  }
  driver_.reset();
}

void Context::wake_service() {
  auto& word = parts_->header->driver_wake;
  word.fetch_add(1, std::memory_order_release);
  syscall(SYS_futex, &word, FUTEX_WAKE, 1, nullptr, nullptr, 0);
}

void Context::kick() {
  std::atomic<uint32_t>& program_cpu = parts_->header->program_cpu;
  const auto cpu = static_cast<uint32_t>(sched_getcpu() + 1);
  if (program_cpu.load(std::memory_order_relaxed) != cpu)
    program_cpu.store(cpu, std::memory_order_relaxed);
  if (parts_->lcore_fences) {
    std::atomic_signal_fence(std::memory_order_seq_cst);
  } else {
    std::atomic_thread_fence(std::memory_order_seq_cst);
  }
  if (parts_->doorbell->lcore_sleeping.load(std::memory_order_relaxed) != 0) {
    const CancellationOff cancellation_off;
    eventfd_write(parts_->doorbell_fd.get(), 1);
  }
}

void Context::wait_for_response() {
  static thread_local uint32_t waits = 0;
  if (++waits % kYieldsBeforeSleep != 0) {
    sched_yield();
    return;
  }
  pause_for(20'000);
}

// Whether the program polls, and so does the service thread's work anyway. To do it here as well
// would mean to be preempted with the lock taken, on machines with fewer cores than busy threads.
bool Context::program_polls(TimeNs now_ns) const {
  const SegmentHeader& header = *parts_->header;
  return header.armed_cqs.load(std::memory_order_acquire) == 0 &&
         now_ns < header.polling_until_ns.load(std::memory_order_relaxed);
}

bool Context::port_up() const {
  if (!alive()) return device_.link_up != 0;
  return parts_->header->port_down.load(std::memory_order_acquire) == 0;
}

void Context::tell_port_changes(bool& was_up) {
  const bool up = parts_->header->port_down.load(std::memory_order_acquire) == 0;
  if (up == was_up) return;
  was_up = up;
  log_info("%s: port %s", device_.name, up ? "active" : "down");
  driver_->port_changed(up);
}

// Sleeps on the segment's futex word until the NIC reports something that nobody polls for, or a
// timer is due.
void Context::service_loop() {
  Parts& p = *parts_;
  TimeNs look_at_socket_ns = 0;
  bool port_was_up = device_.link_up != 0;
  while (!p.stop.load(std::memory_order_acquire)) {
    const uint32_t seen = p.header->driver_wake.load(std::memory_order_acquire);
    TimeNs now = monotonic_ns();
    const TimeNs deadline = driver_->turn_wanted() ? now : driver_->next_deadline_ns();
    const TimeNs tick = now + (program_polls(now) ? kPolledTickNs : kTickNs);
    const TimeNs wake = std::min(std::max(deadline, tick), now + look_interval_ns());
    p.service_wakes_ns.store(wake, std::memory_order_relaxed);
    p.header->driver_sleeping.store(1, std::memory_order_relaxed);
    // The order is: set the flag, full fence, look again, sleep (rule 34, wake-ups).
    std::atomic_thread_fence(std::memory_order_seq_cst);
    if ((!driver_->reports_waiting() || program_polls(now)) &&
        !p.stop.load(std::memory_order_acquire)) {
      const timespec timeout{static_cast<time_t>((wake - now) / 1'000'000'000),
                             static_cast<long>((wake - now) % 1'000'000'000)};
      syscall(SYS_futex, &p.header->driver_wake, FUTEX_WAIT, seen, &timeout, nullptr, 0);
    }
    p.header->driver_sleeping.store(0, std::memory_order_relaxed);
    now = monotonic_ns();
    if (now >= look_at_socket_ns || p.header->device_fatal.load(std::memory_order_acquire) != 0) {
      look_at_socket_ns = now + look_interval_ns();
      if (p.control.closed() || p.header->device_fatal.load(std::memory_order_acquire) != 0) {
        log_warn("hostnicd is gone or dropped this client: %s is dead", device_.name);
        // alive_ changes first: whoever reads the event finds every call refused.
        alive_.store(false, std::memory_order_release);
        driver_->device_fatal();
        return;
      }
    }
    tell_port_changes(port_was_up);
    // Whoever has the lock posts or makes progress, perhaps preempted by us: spinning here would
    // keep that thread from its core.
    const bool rung = p.header->driver_wake.load(std::memory_order_relaxed) != seen;
    if (program_polls(now)) {
      if (rung) migrate_preempted_poller(p.yielding, now);
    } else if ((rung || driver_->turn_due(now)) && !driver_->try_progress(now)) {
      pause_for(kLockBusyNs);
    }
  }
}

Expected<MemoryRegistration, ContextError> Context::register_memory(
    uint32_t pd, uint64_t va, uint64_t length_bytes, uint64_t iova, uint32_t access,
    const MemoryRegistration* replaced) {
  if (!alive()) return failure(EIO, "the device is dead");
  constexpr uint32_t kRemoteWriting = kAccessRemoteWrite | kAccessRemoteAtomic;
  if ((access & kRemoteWriting) != 0 && (access & kAccessLocalWrite) == 0) {
    return failure(EINVAL, "REMOTE_WRITE and REMOTE_ATOMIC need LOCAL_WRITE");
  }
  MemoryRegistrar& registrar = MemoryRegistrar::process();
  const memory::Paging paging =
      (access & kAccessOnDemand) != 0 ? memory::Paging::kOnDemand : memory::Paging::kAsMapped;
  const bool need_write = (access & (kAccessLocalWrite | kRemoteWriting)) != 0;
  Expected<memory::Registration, memory::Error> added{memory::Registration{}};
  if (length_bytes != 0) added = registrar.add(va, length_bytes, need_write, paging);
  if (!added) return failure(added.error().error, added.error().message);
  RegisteredRanges& registered = parts_->registered;
  if (length_bytes != 0) registered.add(va, length_bytes);
  auto answer =
      send_registration(*added, {.va = va,
                                 .length_bytes = length_bytes,
                                 .iova = iova,
                                 .access = access,
                                 .pd = pd,
                                 .region_count = static_cast<uint32_t>(added->regions.size()),
                                 .replaced_key = replaced == nullptr ? 0 : replaced->lkey});
  if (!answer) {
    if (length_bytes != 0) registered.remove(va, length_bytes);
    registrar.remove(va, length_bytes);
    return Unexpected(answer.error());
  }
  if (replaced != nullptr) {
    if (replaced->length_bytes != 0) registered.remove(replaced->va, replaced->length_bytes);
    registrar.remove(replaced->va, replaced->length_bytes);
  }
  registrar.after_registration(va, length_bytes);
  return MemoryRegistration{answer->lkey, answer->rkey, va, length_bytes};
}

Expected<RegisterMrReply, ContextError> Context::send_registration(
    const memory::Registration& registration, const RegisterMrRequest& request) {
  if (registration.regions.size() > kMaxRegionsPerMr) {
    return failure(ENOMEM, "the memory region consists of too many pieces; register it in parts");
  }
  std::vector<std::byte> payload(sizeof(request) +
                                 registration.regions.size() * sizeof(MemoryRegion));
  std::memcpy(payload.data(), &request, sizeof(request));
  std::memcpy(payload.data() + sizeof(request), registration.regions.data(),
              registration.regions.size() * sizeof(MemoryRegion));
  std::vector<int> fds;
  for (const UniqueFd& fd : registration.fds) fds.push_back(fd.get());
  std::lock_guard lock(parts_->control_mutex);
  auto answer = parts_->control.call(ControlKind::kRegisterMr, payload, fds);
  if (!answer) return Unexpected(answer.error());
  return answer->as<RegisterMrReply>();
}

int Context::deregister_memory(const MemoryRegistration& registration) {
  if (alive()) {
    const DeregisterMrRequest request{registration.lkey};
    std::lock_guard lock(parts_->control_mutex);
    auto answer = parts_->control.call(ControlKind::kDeregisterMr, bytes_of(request), {});
    // EBUSY means that windows are bound to the region, or packets refer to it: it remains. A dead
    // hostnicd refers to nothing, nor does one that has no such region.
    if (!answer && answer.error().error == EBUSY) return EBUSY;
    if (registration.length_bytes != 0)
      parts_->registered.remove(registration.va, registration.length_bytes);
  }
  MemoryRegistrar::process().remove(registration.va, registration.length_bytes);
  return 0;
}

int Context::prefetch(uint64_t va, uint64_t length_bytes, bool for_writing) {
  return memory::prefetch(va, length_bytes, for_writing);
}

// The NIC or the driver gets some time before a queue is made too small: an adapter has long
// written the completions of what was sent before the call; here neither may have had a core yet.
int Context::resize_cq(Cq& cq, uint32_t entries) {
  constexpr uint32_t kTries = 100;
  constexpr uint32_t kPauseNs = 100'000;
  for (uint32_t i = 0; i < kTries && alive() && cq.held() <= entries; ++i) {
    const uint64_t expected = uint64_t{cq.held()} + driver_->outstanding_sends(cq);
    if (entries >= cq.entries() || expected <= entries) break;
    pause_for(kPauseNs);
    driver_->try_progress(monotonic_ns());
  }
  return cq.resize(entries);
}

int Context::poll_cq(Cq& cq, Completion* out, int max) {
  static thread_local uint32_t empty_polls = 0, rounds = 0;
  static thread_local uint32_t full_polls = 0;
  int taken = cq.poll(out, max);
  // A program that finds a completion at each poll is polling too, and its send queues want to go
  // on while it works through the completions.
  const bool looks = taken == 0 || ++full_polls % kFullPollsBeforeTurn == 0;
  if (!alive()) return taken;
  SegmentHeader& header = *parts_->header;
  TimeNs now = 0;
  if (looks) {
    now = monotonic_ns();
    header.polling_until_ns.store(now + kPollingNs, std::memory_order_relaxed);
    if (driver_->turn_due(now)) {
      driver_->try_progress(now);
      if (taken == 0) taken = cq.poll(out, max);
    }
  }
  if (taken != 0) {
    empty_polls = rounds = 0;
  } else if (++empty_polls >= polls_before_sharing()) {
    empty_polls = 0;
    if (!share_core(header, *parts_->doorbell, parts_->yielding, now, ++rounds)) {
      announce_nap(header);
      if (!driver_->reports_waiting()) nap(header);
    }
  }
  return taken;
}

int Context::post_send(Qp& qp, const SendRequest& request) {
  if (!alive()) return EIO;
  const TimeNs now = recent_ns();
  // A program that posts is likely to poll, though perhaps not before the NIC, which the post
  // wakes, has been where the program was: else the NIC would wake the service thread, which then
  // is in the way of both.
  auto& polling_until_ns = parts_->header->polling_until_ns;
  const bool polled_lately =
      now + kPollingNs / 2 <= polling_until_ns.load(std::memory_order_relaxed);
  if (!polled_lately) polling_until_ns.store(now + kPollingNs, std::memory_order_relaxed);
  const int error = driver_->post_send(&qp, request, now);
  // A program that posts to thousands of queue pairs before it polls does what pollers do.
  if (!polled_lately && driver_->turn_due(now)) driver_->try_progress(now);
  // A service thread in deep sleep must learn of the new timer; one that ticks will.
  if (std::max(driver_->next_deadline_ns(), now + kPolledTickNs) <
      parts_->service_wakes_ns.load(std::memory_order_relaxed)) {
    parts_->service_wakes_ns.store(0, std::memory_order_relaxed);
    wake_service();
  }
  return error;
}

int Context::post_recv(Qp& qp, const RecvRequest& request) {
  if (!alive()) return EIO;
  return driver_->post_recv(&qp, request);
}

int Context::post_srq_recv(Srq& srq, const RecvRequest& request) {
  if (!alive()) return EIO;
  return driver_->post_srq_recv(&srq, request);
}

void Context::abandon_after_fork() {
  alive_.store(false, std::memory_order_release);
  if (parts_ == nullptr) return;
  parts_->thread_runs = false;
  parts_->user.reset();  // the registrar has forgotten it
  parts_->control.close();
  // The segment is not mapped here (MADV_DONTFORK), and the addresses may get other owners.
  parts_->segment.abandon();
}

}  // namespace hostnic::runtime
