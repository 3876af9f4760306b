// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/runtime/service_thread.h"

#include <signal.h>

#include <new>

#include "verbs-shim/base/clock.h"
#include "verbs-shim/base/explanation.h"
#include "verbs-shim/base/log.h"
#include "verbs-shim/memory/memory_registrar.h"

namespace hostnic::runtime {
namespace {

using memory::MemoryRegistrar;

// The sudden death of hostnicd is noticed within this time; later where a process has hundreds of
// devices open, whose threads would wake thousands of times a second.
constexpr uint64_t kLookAtSocketNs = 100'000'000;
constexpr uint32_t kThreadsPerLook = 64;
std::atomic<uint32_t> running_threads{0};

uint64_t look_interval_ns() {
  return kLookAtSocketNs * (1 + running_threads.load(std::memory_order_relaxed) / kThreadsPerLook);
}

// How often is looked who waits for long, where people want to know.
constexpr uint64_t kLookAtWaitsNs = 500'000'000;

// The thread stands back for that long when others have the driver's lock.
constexpr uint32_t kLockBusyNs = 50'000;

}  // namespace

int ServiceThread::start() {
  // All signals are blocked in our thread, because they are the program's business.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  const int error = pthread_create(
      &thread_, nullptr,
      [](void* at) -> void* {
        auto* self = static_cast<ServiceThread*>(at);
        MemoryRegistrar::process().own_thread_starts();
        self->known_.store(true, std::memory_order_release);
        self->known_.notify_one();
        self->run();
        MemoryRegistrar::process().own_thread_ends();
        return nullptr;
      },
      this);
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  if (error == 0) {
    running_threads.fetch_add(1, std::memory_order_relaxed);
    runs_ = true;
    pthread_setname_np(thread_, "hostnic-service");
    known_.wait(false, std::memory_order_acquire);
  }
  return error;
}

ServiceThread::~ServiceThread() {
  if (!runs_) return;
  stop_.store(true, std::memory_order_release);
  wake_service(served_.header);
  pthread_join(thread_, nullptr);
  running_threads.fetch_sub(1, std::memory_order_relaxed);
}

void ServiceThread::wake_for_timer() {
  wakes_ns_.store(0, std::memory_order_relaxed);
  wake_service(served_.header);
}

// Sleeps on the segment's futex word until the NIC reports something that nobody polls for, or a
// timer is due.
void ServiceThread::run() {
  SegmentHeader& header = served_.header;
  port_changes_ = header.port_changes.load(std::memory_order_acquire);
  // The program saw the device as it was a moment before.
  if (port_is_up(port_changes_) != (served_.device.link_up != 0)) --port_changes_;
  address_changes_ = header.address_changes.load(std::memory_order_acquire);
  while (!stop_.load(std::memory_order_acquire)) {
    const uint32_t seen = service_wakes(header);
    sleep(seen);
    const TimeNs now_ns = monotonic_ns();
    if (hostnicd_is_gone(now_ns)) {
      log_warn("hostnicd is gone or dropped this client: %s is dead", served_.device.name);
      // `alive` changes first: whoever reads the event finds every call refused.
      served_.alive.store(false, std::memory_order_release);
      served_.driver.device_fatal();
      return;
    }
    tell_address_changes();
    tell_port_changes();
    explain(now_ns);
    // Whoever has the lock posts or makes progress, perhaps preempted by us: spinning here would
    // keep that thread from its core. While the program polls it does this thread's work anyway; to
    // do it here as well would mean to be preempted with the lock taken, on machines with fewer
    // cores than busy threads.
    const bool rung = service_wakes(header) != seen;
    if (program_polls(header, now_ns)) {
      if (rung) served_.cores.migrate_preempted_poller(now_ns);
    } else if ((rung || served_.driver.turn_due(now_ns)) && !served_.driver.try_progress(now_ns)) {
      pause_for(kLockBusyNs);
    }
  }
}

void ServiceThread::sleep(uint32_t seen) {
  SegmentHeader& header = served_.header;
  const TimeNs now_ns = monotonic_ns();
  const bool polls = program_polls(header, now_ns);
  const TimeNs deadline_ns =
      served_.driver.turn_wanted() ? now_ns : served_.driver.next_deadline_ns();
  const TimeNs tick_ns = now_ns + (polls ? kPolledTickNs : kTickNs);
  const TimeNs look_ns = now_ns + (owes_lines_ ? kOwingTickNs : look_interval_ns());
  const TimeNs wake_ns = std::min(std::max(deadline_ns, tick_ns), look_ns);
  wakes_ns_.store(wake_ns, std::memory_order_relaxed);
  announce_service_sleep(header);
  if ((!served_.driver.reports_waiting() || program_polls(header, now_ns)) &&
      !stop_.load(std::memory_order_acquire))
    sleep_until_woken(header, seen, wake_ns - now_ns);
  end_service_sleep(header);
}

bool ServiceThread::hostnicd_is_gone(TimeNs now_ns) {
  const bool fatal = served_.header.device_fatal.load(std::memory_order_acquire) != 0;
  if (now_ns < look_at_socket_ns_ && !fatal) return false;
  look_at_socket_ns_ = now_ns + look_interval_ns();
  return fatal || served_.control.closed();
}

// Whoever has the lock is asked for it again a little later.
void ServiceThread::look_at_waits(TimeNs now_ns) {
  if (now_ns < look_at_waits_ns_ || !explanations_wanted()) return;
  if (served_.driver.try_look_at_waits(now_ns)) look_at_waits_ns_ = now_ns + kLookAtWaitsNs;
}

// Without memory nothing is said: the program's own allocations fail, and it may cope with that.
void ServiceThread::explain(TimeNs now_ns) try {
  look_at_waits(now_ns);
  owes_lines_ = served_.settle_lines();
} catch (const std::bad_alloc&) {
}

void ServiceThread::tell_address_changes() {
  const uint32_t changes = served_.header.address_changes.load(std::memory_order_acquire);
  // Whoever reads the event finds the new table.
  if (changes == address_changes_ || !served_.refresh_gids()) return;
  address_changes_ = changes;
  log_info("%s: addresses of its interface have gone or come", served_.device.name);
  served_.driver.gid_changed();
}

void ServiceThread::tell_port_changes() {
  const uint32_t changes = served_.header.port_changes.load(std::memory_order_acquire);
  uint32_t told = changes - port_changes_to_tell(port_changes_, changes);
  port_changes_ = changes;
  while (told != changes) {
    const bool up = port_is_up(++told);
    log_info("%s: port %s", served_.device.name, up ? "active" : "down");
    served_.driver.port_changed(up);
  }
}

}  // namespace hostnic::runtime
