// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/faults/late_queues.h"

#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/timerfd.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "protocol/hostif/unique_fd.h"
#include "verbs-shim/faults/completions.h"
#include "verbs-shim/faults/injector.h"
#include "verbs-shim/faults/quiet_thread.h"

namespace hostnic::faults {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;
// What a rule holds behind a queue that delivers nothing goes on after this time.
constexpr uint64_t kBehindNs = kSecondNs / 10;

}  // namespace

struct Held {
  HeldCompletion completion;
  Judgement judgement;
  uint64_t due_ns = 0;            // not before
  uint64_t behind_until_ns = 0;   // and, where the judgement has it wait for others, not before
  uint64_t delivered_before = 0;  // they have delivered more than this, or this time
};

struct LateChannel;

struct LateQueue {
  ibv_cq* cq = nullptr;
  uint32_t ordinal = 0;
  std::deque<Held> held;
  uint64_t delivered = 0;
  LateChannel* channel = nullptr;
  bool armed = false;        // at the device
  bool owes_event = false;   // for the first of what is held
  bool has_event = false;    // which the device has made, and we keep
  bool stale_event = false;  // the device may make one for what we have made one for
  unsigned made_events = 0;  // that are not acknowledged
};

// An event that a program has not taken yet.
struct ReadyEvent {
  LateQueue* queue;
  bool made;  // by us, not by the device
};

struct LateChannel {
  ibv_comp_channel* channel = nullptr;
  int own_fd = -1;             // the device's
  bool is_read_by_fd = false;  // the device's library reads what the channel's descriptor is
  UniqueFd told;               // the program's: counts the events that are ready
  std::deque<ReadyEvent> ready;
  int error = 0;  // of the device: there will be no more
};

namespace {

QueueCalls next;

// The thread that takes devices' events and delivers what is due: its descriptors, which it watches
// for as long as the process lives.
int pump_epoll_fd = -1, timer_fd = -1;
std::atomic<bool> pump_runs{false};

// Held for a moment only, though the device is called meanwhile. Never destroyed: programs poll
// while they end. A forked child has another one, because the thread that had it may be no more.
std::atomic<std::mutex*> the_mutex{nullptr};
std::mutex& mutex() { return *the_mutex.load(std::memory_order_acquire); }
void renew_mutex() {
  the_mutex.store(new std::mutex, std::memory_order_release);
  pump_runs.store(false, std::memory_order_relaxed);
}
[[gnu::constructor]] void prepare() {
  renew_mutex();
  pthread_atfork(nullptr, nullptr, renew_mutex);
}

std::vector<std::unique_ptr<LateQueue>>& queues() {
  static auto* const made = new std::vector<std::unique_ptr<LateQueue>>;
  return *made;
}
std::vector<std::unique_ptr<LateChannel>>& channels() {
  static auto* const made = new std::vector<std::unique_ptr<LateChannel>>;
  return *made;
}
uint32_t created_queues = 0;

LateQueue* find_queue(const ibv_cq* cq) {
  for (const auto& queue : queues())
    if (queue->cq == cq) return queue.get();
  return nullptr;
}
LateChannel* find_channel(const ibv_comp_channel* channel) {
  for (const auto& each : channels())
    if (each->channel == channel) return each.get();
  return nullptr;
}

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * kSecondNs + static_cast<uint64_t>(now.tv_nsec);
}

// How many completions have been delivered by what a rule waits for.
uint64_t delivered_by(const FaultRule& fault) {
  uint64_t delivered = 0;
  for (const auto& queue : queues())
    if (fault.behind_cq != 0 ? queue->ordinal == fault.behind_cq
                             : queue->cq->context->device->name == fault.behind_device)
      delivered += queue->delivered;
  return delivered;
}

// When a completion may be delivered if nothing happens meanwhile.
uint64_t due_ns_of(const Held& held) {
  const FaultRule* const behind = held.judgement.behind;
  if (behind == nullptr || delivered_by(*behind) > held.delivered_before) return held.due_ns;
  return std::max(held.due_ns, held.behind_until_ns);
}
bool holds_first(const LateQueue& queue, uint64_t now) {
  return !queue.held.empty() && due_ns_of(queue.held.front()) > now;
}

// Wakes the thread that delivers events when the first one that is owed is due.
void set_timer() {
  if (timer_fd < 0) return;
  const uint64_t now = now_ns();
  uint64_t due_ns = UINT64_MAX;
  for (const auto& queue : queues())
    if (queue->owes_event)
      due_ns = std::min(due_ns, queue->held.empty() ? 0 : due_ns_of(queue->held.front()));
  itimerspec time{};
  if (due_ns != UINT64_MAX) {
    const uint64_t in_ns = due_ns <= now ? 1 : due_ns - now;
    time.it_value = {static_cast<time_t>(in_ns / kSecondNs), static_cast<long>(in_ns % kSecondNs)};
  }
  timerfd_settime(timer_fd, 0, &time, nullptr);
}

void owe_event(LateQueue& queue) {
  if (queue.channel == nullptr) return;
  queue.owes_event = true;
  set_timer();
}

// What was delivered may be what others wait for.
void wake_others() {
  if (std::ranges::any_of(queues(), [](const auto& queue) { return queue->owes_event; }))
    set_timer();
}

Completion seen(const HeldCompletion& of) {
  return {of.wc.status, of.wc.vendor_err, of.wc.opcode, of.wc.qp_num, of.wc.byte_len};
}

// Owes an event for what is held of an armed queue: the device's for it may be on its way, or may
// have been before it was armed.
void owe_event_if_armed(LateQueue& queue) {
  if (queue.armed && !queue.owes_event && holds_first(queue, now_ns())) owe_event(queue);
}

// Takes all that the device has. Returns -1 where it fails and nothing is there.
int take_from_device(LateQueue& queue) {
  constexpr int kAtATime = 16;
  HeldCompletion taken[kAtATime];
  // A queue of the device is as full as if nobody polled where more is held than it has room for.
  const size_t most = static_cast<size_t>(std::max(queue.cq->cqe, kAtATime));
  while (queue.held.size() < most) {
    const int count = next.take(queue.cq, taken, kAtATime);
    if (count <= 0) return queue.held.empty() ? count : 0;
    for (int i = 0; i < count; ++i) {
      Held held;
      held.completion = taken[i];
      held.judgement = judge(queue.cq->context, seen(taken[i]), queue.ordinal);
      // The events of a channel that was there before rules hold anything can't wait.
      if (queue.cq->channel != nullptr && queue.channel == nullptr)
        held.judgement = {.taken = held.judgement.taken};
      const uint64_t now = now_ns();
      held.due_ns = now + held.judgement.delay_ns;
      if (const FaultRule* behind = held.judgement.behind) {
        held.behind_until_ns = now + (behind->delay_ns != 0 ? behind->delay_ns : kBehindNs);
        held.delivered_before = delivered_by(*behind);
      }
      queue.held.push_back(held);
    }
    if (count < kAtATime) break;
  }
  owe_event_if_armed(queue);
  return 0;
}

void deliver(LateQueue& queue, HeldCompletion& to) {
  Held& held = queue.held.front();
  Completion completion = seen(held.completion);
  if (spoil_as_judged(queue.cq->context, completion, held.judgement, next.to_error)) {
    held.completion.wc.status = completion.status;
    held.completion.wc.vendor_err = completion.vendor_err;
  }
  to = held.completion;
  queue.held.pop_front();
  ++queue.delivered;
}

void tell(LateChannel& channel, const ReadyEvent& event) {
  channel.ready.push_back(event);
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = write(channel.told.get(), &one, sizeof(one));
}

// Has programs be told of what is due by now.
void tell_due_events() {
  const uint64_t now = now_ns();
  for (const auto& queue : queues()) {
    if (!queue->owes_event || holds_first(*queue, now)) continue;
    queue->owes_event = false;
    const bool made = !std::exchange(queue->has_event, false);
    if (made) queue->stale_event = std::exchange(queue->armed, false);
    tell(*queue->channel, {queue.get(), made});
  }
}

// Takes an event of the device for a queue: the program is told now, later, or not at all.
void take_event_of(LateQueue& queue) {
  if (std::exchange(queue.stale_event, false)) return next.acknowledge(queue.cq, 1);
  queue.armed = false;
  if (!queue.owes_event) take_from_device(queue);
  queue.has_event = true;
  queue.owes_event = true;
}

bool add_to_epoll(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

// Takes all events that the device has.
void take_own_events(LateChannel& channel) {
  ibv_comp_channel own = *channel.channel;
  own.fd = channel.own_fd;
  ibv_cq* cq = nullptr;
  void* cq_context = nullptr;
  while (next.take_event(channel.is_read_by_fd ? &own : channel.channel, &cq, &cq_context) == 0)
    if (LateQueue* queue = find_queue(cq))
      take_event_of(*queue);
    else
      next.acknowledge(cq, 1);  // it is being destroyed
  if (errno == EAGAIN || errno == EINTR) return;
  channel.error = errno;
  epoll_ctl(pump_epoll_fd, EPOLL_CTL_DEL, channel.own_fd, nullptr);
  const uint64_t one = 1;
  [[maybe_unused]] const auto written = write(channel.told.get(), &one, sizeof(one));
}

void* run_pump(void*) {
  while (true) {
    epoll_event ready[16];
    const int count = epoll_wait(pump_epoll_fd, ready, 16, -1);
    const std::lock_guard lock(mutex());
    for (int i = 0; i < count; ++i) {
      uint64_t times = 0;
      if (ready[i].data.fd == timer_fd && read(timer_fd, &times, sizeof(times)) < 0) continue;
      for (const auto& channel : channels())
        if (channel->own_fd == ready[i].data.fd) take_own_events(*channel);
    }
    tell_due_events();
    set_timer();
  }
  return nullptr;
}

// Starts the thread if this process has none. False: it can't be.
bool start_pump() {
  if (pump_runs.load(std::memory_order_relaxed)) return true;
  pump_epoll_fd = epoll_create1(EPOLL_CLOEXEC);
  timer_fd = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK);
  if (pump_epoll_fd < 0 || timer_fd < 0 || !add_to_epoll(pump_epoll_fd, timer_fd)) return false;
  pthread_t thread{};
  const bool runs = start_quiet_thread(thread, run_pump, nullptr);
  if (runs) pthread_detach(thread);
  pump_runs.store(runs, std::memory_order_relaxed);
  return runs;
}

}  // namespace

bool is_eventfd(int fd) {
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  char target[64];
  const ssize_t length = readlink(link.c_str(), target, sizeof(target));
  return length > 0 &&
         std::string_view(target, static_cast<size_t>(length)) == "anon_inode:[eventfd]";
}

void set_queue_calls(const QueueCalls& calls) { next = calls; }

bool holds_completions() { return has_late_completions(); }

ibv_cq* find_cq(uint32_t ordinal) {
  const std::lock_guard lock(mutex());
  for (const auto& queue : queues())
    if (queue->ordinal == ordinal) return queue->cq;
  return nullptr;
}

void begin_cq(ibv_cq* cq) {
  auto queue = std::make_unique<LateQueue>();
  const std::lock_guard lock(mutex());
  queue->cq = cq;
  queue->ordinal = ++created_queues;
  queue->channel = cq->channel != nullptr ? find_channel(cq->channel) : nullptr;
  queues().push_back(std::move(queue));
}

LateQueue* end_cq(ibv_cq* cq) {
  const std::lock_guard lock(mutex());
  const auto found =
      std::ranges::find_if(queues(), [&](const auto& queue) { return queue->cq == cq; });
  if (found == queues().end()) return nullptr;
  // The device waits for the acknowledgement of what the program may never see.
  unsigned never_seen = std::exchange((*found)->has_event, false) ? 1 : 0;
  if (LateChannel* channel = (*found)->channel)
    std::erase_if(channel->ready, [&](const ReadyEvent& event) {
      if (event.queue != found->get()) return false;
      uint64_t one = 0;
      const int flags = fcntl(channel->told.get(), F_GETFL);
      fcntl(channel->told.get(), F_SETFL, flags | O_NONBLOCK);
      [[maybe_unused]] const auto taken = read(channel->told.get(), &one, sizeof(one));
      fcntl(channel->told.get(), F_SETFL, flags);
      never_seen += event.made ? 0 : 1;
      return true;
    });
  if (never_seen != 0) next.acknowledge(cq, never_seen);
  LateQueue* const queue = found->release();
  queues().erase(found);
  return queue;
}

void cq_ended(LateQueue* queue, bool stays) {
  std::unique_ptr<LateQueue> ended(queue);
  if (!stays) return;
  const std::lock_guard lock(mutex());
  queues().push_back(std::move(ended));
}

uint32_t cq_ordinal(const ibv_cq* cq) {
  const std::lock_guard lock(mutex());
  const LateQueue* const queue = find_queue(cq);
  return queue != nullptr ? queue->ordinal : 0;
}

int take_completions(ibv_cq* cq, HeldCompletion* completions, int most) {
  const std::lock_guard lock(mutex());
  LateQueue* const queue = find_queue(cq);
  if (queue == nullptr) return next.take(cq, completions, most);
  const int taken = take_from_device(*queue);
  int count = 0;
  while (count < most && !queue->held.empty() && !holds_first(*queue, now_ns()))
    deliver(*queue, completions[count++]);
  owe_event_if_armed(*queue);
  if (count > 0) wake_others();
  return count == 0 && taken < 0 ? -1 : count;
}

int arm_cq(ibv_cq* cq, int solicited_only) {
  const std::lock_guard lock(mutex());
  LateQueue* const queue = find_queue(cq);
  if (queue == nullptr) return next.arm(cq, solicited_only);
  queue->stale_event = false;
  if (holds_completions()) take_from_device(*queue);
  // No event tells of what can be polled already. What is behind it is owed one when that is
  // polled.
  if (queue->channel == nullptr || !holds_first(*queue, now_ns())) {
    const int result = next.arm(cq, solicited_only);
    if (result != 0) return result;
    queue->armed = true;
    if (holds_completions()) take_from_device(*queue);
  } else if (!queue->owes_event) {
    owe_event(*queue);
  }
  return 0;
}

void drop_completions(const ibv_context* context, uint32_t qpn) {
  const std::lock_guard lock(mutex());
  for (const auto& queue : queues())
    if (queue->cq->context == context)
      std::erase_if(queue->held,
                    [&](const Held& held) { return held.completion.wc.qp_num == qpn; });
}

void begin_channel(ibv_comp_channel* channel) {
  if (!holds_completions()) return;
  auto late = std::make_unique<LateChannel>();
  late->told = UniqueFd(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  const std::lock_guard lock(mutex());
  if (!late->told || !start_pump()) return;
  late->channel = channel;
  late->own_fd = channel->fd;
  late->is_read_by_fd = !is_eventfd(channel->fd);
  fcntl(channel->fd, F_SETFL, fcntl(channel->fd, F_GETFL) | O_NONBLOCK);
  if (!add_to_epoll(pump_epoll_fd, channel->fd)) return;
  channel->fd = late->told.get();
  channels().push_back(std::move(late));
}

void end_channel(ibv_comp_channel* channel) {
  const std::lock_guard lock(mutex());
  LateChannel* const late = find_channel(channel);
  if (late == nullptr) return;
  epoll_ctl(pump_epoll_fd, EPOLL_CTL_DEL, late->own_fd, nullptr);
  channel->fd = late->own_fd;
  std::erase_if(channels(), [&](const auto& each) { return each.get() == late; });
}

int take_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  int told = -1;
  {
    const std::lock_guard lock(mutex());
    if (const LateChannel* late = find_channel(channel)) told = late->told.get();
  }
  if (told < 0) return next.take_event(channel, cq, cq_context);
  while (true) {
    uint64_t one = 0;
    if (read(told, &one, sizeof(one)) < 0) return -1;
    const std::lock_guard lock(mutex());
    LateChannel* const late = find_channel(channel);
    if (late == nullptr) break;
    if (!late->ready.empty()) {
      const ReadyEvent event = late->ready.front();
      late->ready.pop_front();
      if (event.made) ++event.queue->made_events;
      *cq = event.queue->cq;
      *cq_context = event.queue->cq->cq_context;
      return 0;
    }
    if (late->error == 0) continue;  // its queue was destroyed meanwhile
    one = 1;
    [[maybe_unused]] const auto written = write(told, &one, sizeof(one));  // for the next one
    errno = late->error;
    return -1;
  }
  errno = EBADF;
  return -1;
}

unsigned acknowledged_events(ibv_cq* cq, unsigned count) {
  const std::lock_guard lock(mutex());
  LateQueue* const queue = find_queue(cq);
  if (queue == nullptr) return count;
  const unsigned made = std::min(queue->made_events, count);
  queue->made_events -= made;
  return count - made;
}

}  // namespace hostnic::faults
