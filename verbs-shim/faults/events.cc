// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/faults/events.h"

#include <fcntl.h>
#include <poll.h>
#include <pthread.h>
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
#include <optional>
#include <vector>

#include "protocol/hostif/unique_fd.h"
#include "verbs-shim/faults/injector.h"
#include "verbs-shim/faults/late_queues.h"
#include "verbs-shim/faults/queue_pairs.h"
#include "verbs-shim/faults/quiet_thread.h"

namespace hostnic::faults {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

struct TimedEvent {
  const FaultRule* fault;
  UniqueFd timer;
  bool ends = false;  // what comes next is the end of PORT_ERR
};

// An event that the program has not taken yet.
struct WaitingEvent {
  ibv_async_event event;
  uint64_t due_ns;
  bool is_made;  // by a rule, not by the device
};

struct WatchedDevice {
  ibv_context* context = nullptr;
  int own_fd = -1;             // the device's
  int own_flags = -1;          // of that, as they were
  bool is_read_by_fd = false;  // libibverbs reads what the context's descriptor is
  UniqueFd epoll;
  UniqueFd due;   // a timer: the first of `waiting` is due
  UniqueFd ends;  // an eventfd: the thread is to end
  pthread_t thread{};
  std::deque<WaitingEvent> waiting;  // by their times
  uint64_t last_own_due_ns = 0;      // of the device's
  int error = 0;                     // of the device: there will be no more
  uint32_t calls = 0;                // that need the device's own descriptor, under way
  std::vector<TimedEvent> events;
  bool port_down = false;

  void show_descriptor() const { context->async_fd = calls != 0 ? own_fd : epoll.get(); }
};

EventCalls next;

struct Made {
  ibv_event_type type;
  void* element;
};

// Held for a moment only. Never destroyed: programs close devices while they end. A forked child
// has another one, because the thread that had it may be no more.
std::atomic<std::mutex*> the_mutex{nullptr};
std::mutex& mutex() { return *the_mutex.load(std::memory_order_acquire); }
void renew_mutex() { the_mutex.store(new std::mutex, std::memory_order_release); }
[[gnu::constructor]] void prepare() {
  renew_mutex();
  pthread_atfork(nullptr, nullptr, renew_mutex);
}

std::vector<std::unique_ptr<WatchedDevice>>& devices() {
  static auto* const made = new std::vector<std::unique_ptr<WatchedDevice>>;
  return *made;
}
// Events that were delivered and wait to be acknowledged.
std::vector<Made>& unacknowledged() {
  static auto* const made = new std::vector<Made>;
  return *made;
}

// Elements that are being destroyed.
std::vector<const void*>& ending() {
  static auto* const made = new std::vector<const void*>;
  return *made;
}

uint64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * kSecondNs + static_cast<uint64_t>(now.tv_nsec);
}

WatchedDevice* find_device(const ibv_context* context) {
  for (const auto& device : devices())
    if (device->context == context) return device.get();
  return nullptr;
}

bool set_timer(int timer, uint64_t in_ns) {
  in_ns = std::max<uint64_t>(in_ns, 1);
  itimerspec time{};
  time.it_value = {static_cast<time_t>(in_ns / kSecondNs), static_cast<long>(in_ns % kSecondNs)};
  return timerfd_settime(timer, 0, &time, nullptr) == 0;
}

bool add_to_epoll(int epoll, int fd) {
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = fd;
  return epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) == 0;
}

// The object of this device that an event which a rule makes is about. False: there is none.
bool find_element(const FaultRule& fault, const ibv_context* context, ibv_async_event& event) {
  if (is_of_qp(fault.event)) {
    const KnownQp of =
        fault.qpn ? find_qp(context->device, *fault.qpn) : find_qp(fault.qp_ordinal.value_or(1));
    event.element.qp = of.qp;
    return of.qp != nullptr && of.qp->context == context;
  }
  if (is_of_cq(fault.event)) {
    event.element.cq = find_cq(std::max(fault.cq_ordinal, 1u));
    return event.element.cq != nullptr && event.element.cq->context == context;
  }
  if (is_of_srq(fault.event)) {
    event.element.srq = const_cast<ibv_srq*>(find_srq(std::max(fault.srq_ordinal, 1u)));
    return event.element.srq != nullptr && event.element.srq->context == context;
  }
  if (is_of_port(fault.event)) event.element.port_num = 1;
  return true;
}

// The element that an event is about; null: none that can be destroyed.
const void* element_of(const ibv_async_event& event) {
  const int type = event.event_type;
  const bool of_wq = type == IBV_EVENT_WQ_FATAL;
  return is_of_qp(type) || is_of_cq(type) || is_of_srq(type) || of_wq ? event.element.qp : nullptr;
}

// How late an event of the device is to come.
uint64_t delay_ns_of(const ibv_context* context, const ibv_async_event& event) {
  FaultOccasion occasion;
  occasion.subject = Subject::kEvent;
  occasion.event = event.event_type;
  occasion.device = context->device->name;
  if (is_of_qp(event.event_type)) {
    occasion.qpn = event.element.qp->qp_num;
    occasion.qp_ordinal = find_qp(context->device, occasion.qpn).ordinal;
  } else if (is_of_cq(event.event_type)) {
    occasion.cq_ordinal = cq_ordinal(event.element.cq);
  } else if (is_of_srq(event.event_type)) {
    occasion.srq_ordinal = srq_ordinal(event.element.srq);
  }
  return decide(occasion).delay_ns;
}

// The timer's descriptor is readable from when the first event, or an error, is to be delivered.
void set_due(const WatchedDevice& device) {
  if (!device.waiting.empty()) {
    const uint64_t now = now_ns(), due = device.waiting.front().due_ns;
    set_timer(device.due.get(), due > now ? due - now : 0);
  } else if (device.error != 0) {
    set_timer(device.due.get(), 0);
  } else {
    const itimerspec never{};
    timerfd_settime(device.due.get(), 0, &never, nullptr);
  }
}

void put(WatchedDevice& device, const WaitingEvent& event) {
  const auto place = std::ranges::upper_bound(device.waiting, event.due_ns, {},
                                              [](const WaitingEvent& each) { return each.due_ns; });
  const bool is_first = place == device.waiting.begin();
  device.waiting.insert(place, event);
  if (is_first) set_due(device);
}

// The time of a rule has come: makes its event, if there is something that it could be about.
void make_event(WatchedDevice& device, TimedEvent& timed) {
  ibv_async_event event{};
  event.event_type = static_cast<ibv_event_type>(timed.fault->event);
  if (!find_element(*timed.fault, device.context, event)) return;
  if (timed.ends) {
    event.event_type = IBV_EVENT_PORT_ACTIVE;
    device.port_down = false;
  } else if (event.event_type == IBV_EVENT_PORT_ERR) {
    device.port_down = true;
    if (timed.fault->for_ns != 0) timed.ends = set_timer(timed.timer.get(), timed.fault->for_ns);
  }
  if (event.event_type != IBV_EVENT_PORT_ACTIVE || timed.fault->event == IBV_EVENT_PORT_ACTIVE)
    count_event(*timed.fault);
  put(device, {event, now_ns(), true});
}

// Takes one event of the device's. False: there will be no more.
bool read_event(WatchedDevice& device, bool is_readable) {
  ibv_async_event event{};
  {
    std::optional<OwnAsyncFd> shown;
    if (device.is_read_by_fd) shown.emplace(device.context);
    if (next.take(device.context, &event) != 0) {
      if (is_readable && (errno == EINTR || errno == EAGAIN)) return true;
      const std::lock_guard lock(mutex());
      device.error = errno != 0 ? errno : EIO;
      set_due(device);
      return false;
    }
  }
  const void* const element = element_of(event);
  bool is_forgotten = false;
  {
    const std::lock_guard lock(mutex());
    is_forgotten = element != nullptr && std::ranges::find(ending(), element) != ending().end();
    if (!is_forgotten) {
      device.last_own_due_ns =
          std::max(device.last_own_due_ns, now_ns() + delay_ns_of(device.context, event));
      put(device, {event, device.last_own_due_ns, false});
    }
  }
  if (is_forgotten) next.acknowledge(&event);
  return true;
}

void* run(void* of) {
  auto& device = *static_cast<WatchedDevice*>(of);
  std::vector<pollfd> ready{{device.own_fd, POLLIN, 0}, {device.ends.get(), POLLIN, 0}};
  for (const TimedEvent& timed : device.events) ready.push_back({timed.timer.get(), POLLIN, 0});
  while (true) {
    if (poll(ready.data(), ready.size(), -1) < 0 && errno != EINTR) return nullptr;
    if (ready[1].revents != 0) return nullptr;
    for (TimedEvent& timed : device.events) {
      uint64_t times = 0;
      if (read(timed.timer.get(), &times, sizeof(times)) != sizeof(times)) continue;
      const std::lock_guard lock(mutex());
      make_event(device, timed);
    }
    const short own = ready[0].revents;
    // No more is asked for where there will be no more; rules go on.
    if (own != 0 && !read_event(device, (own & POLLIN) != 0)) ready[0].fd = -1;
  }
}

// Takes an event that is due. An error of the device comes behind them.
enum class Taken { kNone, kEvent, kError };
Taken take_due(WatchedDevice& device, ibv_async_event& event) {
  if (device.waiting.empty()) {
    if (device.error == 0) return Taken::kNone;
    errno = device.error;
    return Taken::kError;
  }
  const WaitingEvent first = device.waiting.front();
  if (first.due_ns > now_ns()) return Taken::kNone;
  event = first.event;
  if (first.is_made) unacknowledged().push_back({event.event_type, event.element.qp});
  device.waiting.pop_front();
  set_due(device);
  return Taken::kEvent;
}

}  // namespace

void set_event_calls(const EventCalls& calls) { next = calls; }

void begin_events(ibv_context* context) {
  auto device = std::make_unique<WatchedDevice>();
  device->epoll = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  device->due = UniqueFd(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
  device->ends = UniqueFd(eventfd(0, EFD_CLOEXEC));
  size_t index = 0;
  while (const FaultRule* fault = next_event_rule(index, context->device->name)) {
    UniqueFd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (timer && set_timer(timer.get(), fault->after_ns))
      device->events.push_back({fault, std::move(timer)});
  }
  if (device->events.empty() && !has_late_events(context->device->name)) return;
  if (!device->ends || !add_to_epoll(device->epoll.get(), device->due.get())) return;
  device->own_flags = fcntl(context->async_fd, F_GETFL);
  if (device->own_flags < 0) return;
  fcntl(device->epoll.get(), F_SETFL, device->own_flags & O_NONBLOCK);
  const std::lock_guard lock(mutex());
  device->context = context;
  device->own_fd = context->async_fd;
  device->is_read_by_fd = !is_eventfd(context->async_fd);
  if (!start_quiet_thread(device->thread, run, device.get())) return;
  // An event that the descriptor shows may go, with what it is about, before it is taken.
  fcntl(device->own_fd, F_SETFL, device->own_flags | O_NONBLOCK);
  device->show_descriptor();
  devices().push_back(std::move(device));
}

OwnAsyncFd::OwnAsyncFd(ibv_context* context) : context_(is_on() ? context : nullptr) {
  if (context_ == nullptr) return;
  const std::lock_guard lock(mutex());
  WatchedDevice* const device = find_device(context_);
  if (device == nullptr) {
    context_ = nullptr;
    return;
  }
  ++device->calls;
  device->show_descriptor();
}

OwnAsyncFd::~OwnAsyncFd() {
  if (context_ == nullptr) return;
  const std::lock_guard lock(mutex());
  WatchedDevice* const device = find_device(context_);
  if (device == nullptr) return;
  --device->calls;
  device->show_descriptor();
}

void end_events(ibv_context* context) {
  std::unique_ptr<WatchedDevice> ended;
  {
    const std::lock_guard lock(mutex());
    const auto found =
        std::ranges::find_if(devices(), [&](const auto& each) { return each->context == context; });
    if (found == devices().end()) return;
    ended = std::move(*found);
    devices().erase(found);
    context->async_fd = ended->own_fd;
  }
  const uint64_t one = 1;
  if (write(ended->ends.get(), &one, sizeof(one)) == sizeof(one))
    pthread_join(ended->thread, nullptr);
  fcntl(ended->own_fd, F_SETFL, ended->own_flags);
}

ForgetsEvents::ForgetsEvents(const void* element) : element_(is_on() ? element : nullptr) {
  if (element_ == nullptr) return;
  std::vector<ibv_async_event> forgotten;
  {
    const std::lock_guard lock(mutex());
    if (devices().empty()) {
      element_ = nullptr;
      return;
    }
    ending().push_back(element_);
    for (const auto& device : devices()) {
      const size_t erased = std::erase_if(device->waiting, [&](const WaitingEvent& each) {
        if (element_of(each.event) != element_) return false;
        if (!each.is_made) forgotten.push_back(each.event);
        return true;
      });
      if (erased != 0) set_due(*device);
    }
  }
  for (ibv_async_event& event : forgotten) next.acknowledge(&event);
}

ForgetsEvents::~ForgetsEvents() {
  if (element_ == nullptr) return;
  const std::lock_guard lock(mutex());
  const auto found = std::ranges::find(ending(), element_);
  if (found != ending().end()) ending().erase(found);
}

int take_event(ibv_context* context, ibv_async_event* event) {
  while (true) {
    int epoll = -1;
    {
      const std::lock_guard lock(mutex());
      WatchedDevice* const device = find_device(context);
      if (device == nullptr) break;
      const Taken taken = take_due(*device, *event);
      if (taken != Taken::kNone) return taken == Taken::kEvent ? 0 : -1;
      epoll = device->epoll.get();
    }
    const bool waits = (fcntl(epoll, F_GETFL) & O_NONBLOCK) == 0;
    epoll_event ready{};
    const int count = epoll_wait(epoll, &ready, 1, waits ? -1 : 0);
    if (count < 0) return -1;
    if (count == 0) {
      errno = EAGAIN;
      return -1;
    }
  }
  return next.take(context, event);
}

bool acknowledge_event(const ibv_async_event& event) {
  const std::lock_guard lock(mutex());
  auto& made = unacknowledged();
  const auto found = std::ranges::find_if(made, [&](const Made& each) {
    return each.type == event.event_type && each.element == event.element.qp;
  });
  if (found == made.end()) return false;
  made.erase(found);
  return true;
}

bool is_port_down(const ibv_context* context) {
  const std::lock_guard lock(mutex());
  const WatchedDevice* const device = find_device(context);
  return device != nullptr && device->port_down;
}

}  // namespace hostnic::faults
