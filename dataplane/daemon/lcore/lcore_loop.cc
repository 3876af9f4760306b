// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/lcore/lcore_loop.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <rte_pause.h>
#include <sched.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/prctl.h>

#include <algorithm>
#include <utility>

#include "dataplane/daemon/lcore/clock.h"
#include "protocol/hostif/shared_fence.h"

namespace hostnic {
namespace {

// A sleeping lcore looks once more, after this time, for work that was handed over in the moment in
// which it fell asleep. Its membarrier does not reach a processor that idled in the memory of the
// program when that asked to be reached, and has served no other process since (seen with Linux
// 6.18): then neither side may have seen the other's word.
constexpr uint64_t kLookAgainNs = 1'000'000;

constexpr size_t kPageBytes = 4096;
static_assert(sizeof(DoorbellPage) <= kPageBytes);
std::string errno_line(const char* what) { return fmt::format("{}: {}", what, strerror(errno)); }

// Makes the page, a sealed memfd: clients map it for reading, and no descriptor of it grants more.
Expected<UniqueFd, std::string> make_doorbell_page(DoorbellPage** page) {
  UniqueFd fd(memfd_create("hostnic-doorbell", MFD_CLOEXEC | MFD_ALLOW_SEALING));
  if (!fd || ftruncate(fd.get(), kPageBytes) != 0)
    return Unexpected(errno_line("doorbell page: memfd_create"));
  void* base = mmap(nullptr, kPageBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
  if (base == MAP_FAILED) return Unexpected(errno_line("doorbell page: mmap"));
  *page = static_cast<DoorbellPage*>(base);
  if (fcntl(fd.get(), F_ADD_SEALS,
            F_SEAL_FUTURE_WRITE | F_SEAL_GROW | F_SEAL_SHRINK | F_SEAL_SEAL) != 0)
    return Unexpected(errno_line("doorbell page: F_ADD_SEALS"));
  return fd;
}

}  // namespace

Expected<std::unique_ptr<LcoreLoop>, std::string> LcoreLoop::create(const LcoreIdle& idle) {
  std::unique_ptr<LcoreLoop> loop(new LcoreLoop(idle));
  auto doorbell = make_doorbell_page(&loop->page_);
  if (!doorbell) return Unexpected(doorbell.error());
  loop->doorbell_fd_ = std::move(*doorbell);
  loop->strategy_.emplace(idle, *loop->page_);
  loop->page_->shares_fences.store(fence_processes() ? 1 : 0, std::memory_order_release);
  loop->event_fd_ = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  loop->epoll_fd_ = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  if (!loop->event_fd_ || !loop->epoll_fd_) return Unexpected(errno_line("eventfd, epoll_create1"));
  if (const int error = loop->watch(loop->event_fd_.get()))
    return Unexpected(fmt::format("epoll_ctl: {}", strerror(error)));
  return loop;
}

LcoreLoop::~LcoreLoop() {
  if (page_ != nullptr) munmap(page_, kPageBytes);
}

void LcoreLoop::add(Pollable* nic) {
  nics_.push_back(nic);
  if (nic->needs_tick()) page_->serves_ethernet.store(1, std::memory_order_relaxed);
}

int LcoreLoop::watch(int event_fd) {
  epoll_event event{};
  event.events = EPOLLIN | EPOLLET;
  return epoll_ctl(epoll_fd_.get(), EPOLL_CTL_ADD, event_fd, &event) == 0 ? 0 : errno;
}

void LcoreLoop::unwatch(int event_fd) {
  epoll_ctl(epoll_fd_.get(), EPOLL_CTL_DEL, event_fd, nullptr);
}

int LcoreLoop::watch_arrivals(int socket) {
  arrival_sockets_.push_back(socket);
  return hears_arrivals_ ? watch(socket) : 0;
}

void LcoreLoop::unwatch_arrivals(int socket) {
  std::erase(arrival_sockets_, socket);
  unwatch(socket);
}

// Turns the announcements of arrivals on or off; returns false if the kernel has no memory for
// that.
bool LcoreLoop::hear_arrivals(bool on) {
  if (hears_arrivals_ == on) return true;
  for (const int socket : arrival_sockets_) {
    if (!on) {
      unwatch(socket);
    } else if (const int error = watch(socket); error != 0 && error != EEXIST) {
      return false;
    }
  }
  hears_arrivals_ = on;
  return true;
}

void LcoreLoop::ring() {
  if (doorbell_wanted(*page_)) eventfd_write(event_fd_.get(), 1);
}

void LcoreLoop::request_stop() {
  stop_.store(true, std::memory_order_release);
  ring();
}

void LcoreLoop::set_handling(bool on) {
  handling_.store(on, std::memory_order_relaxed);
  ring();
}

void LcoreLoop::run_on(const std::function<void()>& function) {
  // The task is shared, because the lcore still wakes the waiter when that may have seen `done` and
  // returned.
  auto task = std::make_shared<Task>();
  task->function = function;
  post(task);
  task->done.wait(0, std::memory_order_acquire);
}

void LcoreLoop::post(std::function<void()> function) {
  auto task = std::make_shared<Task>();
  task->function = std::move(function);
  post(std::move(task));
}

void LcoreLoop::post(std::shared_ptr<Task> task) {
  {
    std::lock_guard lock(tasks_mutex_);
    tasks_.push_back(std::move(task));
    tasks_waiting_.store(true, std::memory_order_release);
  }
  ring();
}

void LcoreLoop::run_tasks() {
  std::vector<std::shared_ptr<Task>> tasks;
  {
    std::lock_guard lock(tasks_mutex_);
    tasks.swap(tasks_);
    tasks_waiting_.store(false, std::memory_order_relaxed);
  }
  for (const auto& task : tasks) {
    task->function();
    task->done.store(1, std::memory_order_release);
    task->done.notify_one();
  }
}

uint32_t LcoreLoop::turn(TimeNs now_ns) {
  if (!handling()) return 0;
  uint32_t work = 0;
  for (Pollable* nic : nics_) work += nic->poll(now_ns);
  return work;
}

void LcoreLoop::run() {
  // The timer slack is set because the kernel may otherwise round our sleeps up by 50 us.
  prctl(PR_SET_TIMERSLACK, 1000UL);
  while (!stop_.load(std::memory_order_acquire)) {
    if (tasks_waiting_.load(std::memory_order_acquire)) {
      const TimeNs begin_ns = monotonic_now_ns();
      end_turn(begin_ns);
      turn_began_ns_ = begin_ns;
      run_tasks();
    }
    const TimeNs now_ns = monotonic_now_ns();
    end_turn(now_ns);
    turn_began_ns_ = now_ns;
    turns_.store(turns_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    const bool worked = turn(now_ns) != 0;
    strategy_->turned(now_ns, worked);
    if (strategy_->found_awake()) hear_arrivals(false);
    if (worked) {
      tick_ns_ = idle_.min_tick_ns;
    } else {
      idle_turn(now_ns);
    }
  }
  run_tasks();
}

// Notes how long the turn took, or the tasks, that went on until now.
void LcoreLoop::end_turn(TimeNs now_ns) {
  if (turn_began_ns_ != 0) longest_turn_.note(turn_began_ns_, now_ns);
  turn_began_ns_ = 0;
}

// Whether the program that goes on now would do so on this processor. Others are as likely to hand
// over work at once, which then finds the lcore awake.
bool LcoreLoop::in_the_way() {
  const int cpu = sched_getcpu();
  bool delivered = false;
  for (Pollable* nic : nics_) delivered |= nic->delivered_to(static_cast<uint32_t>(cpu));
  return delivered;
}

void LcoreLoop::idle_turn(TimeNs now_ns) {
  switch (strategy_->next(now_ns, handling(), [this] { return in_the_way(); })) {
    case IdleStrategy::Step::kGoOn:
      rte_pause();
      break;
    case IdleStrategy::Step::kYield:
      end_turn(monotonic_now_ns());
      strategy_->yield(now_ns);
      break;
    case IdleStrategy::Step::kSleep:
      end_turn(monotonic_now_ns());
      sleep(now_ns);
      break;
  }
}

bool LcoreLoop::something_waits(TimeNs now_ns) {
  if (stop_.load(std::memory_order_acquire) || tasks_waiting_.load(std::memory_order_acquire))
    return true;
  if (!handling()) return false;
  for (Pollable* nic : nics_)
    if (nic->work_waiting()) return true;
  return turn(now_ns) != 0;
}

uint64_t LcoreLoop::sleep_bound_ns(TimeNs now_ns) {
  if (!handling()) return UINT64_MAX;
  uint64_t bound_ns = UINT64_MAX;
  bool tick = false;
  for (const Pollable* nic : nics_) {
    const TimeNs deadline_ns = nic->next_deadline_ns();
    if (deadline_ns != UINT64_MAX)
      bound_ns = std::min(bound_ns, deadline_ns > now_ns ? deadline_ns - now_ns : 0);
    tick = tick || nic->needs_tick();
  }
  if (!tick) return bound_ns;
  bound_ns = std::min(bound_ns, tick_ns_);
  tick_ns_ = std::min(tick_ns_ * 2, idle_.max_tick_ns);
  return bound_ns;
}

// Waits for events. Returns how many there are; 0: the time is over.
int LcoreLoop::wait_for_events(uint64_t bound_ns) const {
  const timespec timeout{static_cast<time_t>(bound_ns / 1'000'000'000),
                         static_cast<long>(bound_ns % 1'000'000'000)};
  epoll_event events[16];
  return epoll_pwait2(epoll_fd_.get(), events, 16, bound_ns == UINT64_MAX ? nullptr : &timeout,
                      nullptr);
}

void LcoreLoop::sleep(TimeNs now_ns) {
  page_->lcore_sleeping.store(1, std::memory_order_relaxed);
  fence_processes();
  const TimeNs fenced_ns = monotonic_now_ns();
  strategy_->fence_took(fenced_ns - now_ns);
  turn_began_ns_ = fenced_ns;
  if (!hear_arrivals(true) || something_waits(now_ns)) {
    strategy_->start_again(now_ns);
  } else if (const uint64_t bound_ns = sleep_bound_ns(now_ns); bound_ns != 0) {
    turn_began_ns_ = 0;
    sleeps_.store(sleeps_.load(std::memory_order_relaxed) + 1, std::memory_order_relaxed);
    int events_seen = wait_for_events(std::min(bound_ns, kLookAgainNs));
    if (events_seen == 0 && bound_ns > kLookAgainNs && !something_waits(now_ns))
      events_seen = wait_for_events(bound_ns == UINT64_MAX ? UINT64_MAX : bound_ns - kLookAgainNs);
    strategy_->slept(now_ns, monotonic_now_ns(), events_seen > 0);
  }
  page_->lcore_sleeping.store(0, std::memory_order_relaxed);
}

}  // namespace hostnic
