// SPDX-License-Identifier: BSD-3-Clause
#include "verbs-shim/faults/events.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <vector>

#include "protocol/hostif/unique_fd.h"
#include "verbs-shim/faults/injector.h"
#include "verbs-shim/faults/queue_pairs.h"

namespace hostnic::faults {
namespace {

constexpr uint64_t kSecondNs = 1'000'000'000;

struct TimedEvent {
  const FaultRule* fault;
  UniqueFd timer;
  bool ends = false;  // what comes next is the end of PORT_ERR
};

struct WatchedDevice {
  ibv_context* context = nullptr;
  int own_fd = -1;  // the device's
  UniqueFd epoll;
  uint32_t calls = 0;  // that need the device's own descriptor, under way
  std::vector<TimedEvent> events;
  bool port_down = false;

  void show_descriptor() const { context->async_fd = calls != 0 ? own_fd : epoll.get(); }
};

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

// Puts the event of a timer that has come together; false: there is nothing that it could be about.
bool make_event(WatchedDevice& device, TimedEvent& timed, ibv_async_event& event) {
  event = {};
  event.event_type = static_cast<ibv_event_type>(timed.fault->event);
  if (is_of_qp(timed.fault->event)) {
    const KnownQp of = timed.fault->qpn ? find_qp(device.context->device, *timed.fault->qpn)
                                        : find_qp(timed.fault->qp_ordinal.value_or(1));
    if (of.qp == nullptr || of.qp->context != device.context) return false;
    event.element.qp = of.qp;
  } else if (is_of_port(timed.fault->event)) {
    event.element.port_num = 1;
  }
  if (timed.ends) {
    event.event_type = IBV_EVENT_PORT_ACTIVE;
    device.port_down = false;
  } else if (event.event_type == IBV_EVENT_PORT_ERR) {
    device.port_down = true;
    if (timed.fault->for_ns != 0) timed.ends = set_timer(timed.timer.get(), timed.fault->for_ns);
  }
  if (event.event_type != IBV_EVENT_PORT_ACTIVE || timed.fault->event == IBV_EVENT_PORT_ACTIVE)
    count_event(*timed.fault);
  unacknowledged().push_back({event.event_type, event.element.qp});
  return true;
}

// Takes an event whose time has come.
bool take_made(WatchedDevice& device, ibv_async_event& event) {
  for (TimedEvent& timed : device.events) {
    uint64_t times = 0;
    if (read(timed.timer.get(), &times, sizeof(times)) != sizeof(times)) continue;
    if (make_event(device, timed, event)) return true;
  }
  return false;
}

}  // namespace

void begin_events(ibv_context* context) {
  auto device = std::make_unique<WatchedDevice>();
  device->epoll = UniqueFd(epoll_create1(EPOLL_CLOEXEC));
  size_t index = 0;
  while (const FaultRule* fault = next_event_rule(index, context->device->name)) {
    UniqueFd timer(timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC | TFD_NONBLOCK));
    if (timer && set_timer(timer.get(), fault->after_ns) &&
        add_to_epoll(device->epoll.get(), timer.get()))
      device->events.push_back({fault, std::move(timer)});
  }
  if (device->events.empty() || !add_to_epoll(device->epoll.get(), context->async_fd)) return;
  const int flags = fcntl(context->async_fd, F_GETFL);
  if (flags >= 0) fcntl(device->epoll.get(), F_SETFL, flags & O_NONBLOCK);
  const std::lock_guard lock(mutex());
  device->context = context;
  device->own_fd = context->async_fd;
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
  const std::lock_guard lock(mutex());
  WatchedDevice* const device = find_device(context);
  if (device == nullptr) return;
  context->async_fd = device->own_fd;
  std::erase_if(devices(), [&](const auto& each) { return each.get() == device; });
}

int take_event(ibv_context* context, ibv_async_event* event, GetEvent next) {
  while (true) {
    int epoll = -1, own = -1;
    {
      const std::lock_guard lock(mutex());
      WatchedDevice* const device = find_device(context);
      if (device == nullptr) break;
      if (take_made(*device, *event)) return 0;
      epoll = device->epoll.get();
      own = device->own_fd;
    }
    const bool waits = (fcntl(epoll, F_GETFL) & O_NONBLOCK) == 0;
    epoll_event ready{};
    const int count = epoll_wait(epoll, &ready, 1, waits ? -1 : 0);
    if (count < 0) return -1;
    if (count == 0) {
      errno = EAGAIN;
      return -1;
    }
    if (ready.data.fd != own) continue;
    // libibverbs reads the descriptor that the context has.
    const OwnAsyncFd shown(context);
    return next(context, event);
  }
  return next(context, event);
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
