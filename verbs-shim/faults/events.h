// SPDX-License-Identifier: BSD-3-Clause
// Asynchronous events that no device has made, and devices' own that come late. The descriptor that
// the program sees is an epoll one over a timer. A thread takes the device's own events and makes
// those of rules, so that the descriptor is readable when one is delivered, and only then.
//
// For any thread. A forked child gets no more events of devices that its parent has opened.
#pragma once

#include <infiniband/verbs.h>

namespace hostnic::faults {

// The next library's ibv_get_async_event() and ibv_ack_async_event().
struct EventCalls {
  int (*take)(ibv_context* context, ibv_async_event* event);
  void (*acknowledge)(ibv_async_event* event);
};
// Is called once, before any program's call.
void set_event_calls(const EventCalls& calls);

// A device that was opened gets the events that its rules say.
void begin_events(ibv_context* context);
// It is about to be closed, and gets its own descriptor back.
void end_events(ibv_context* context);
// A call during which the context has the device's own descriptor: the kernel is told by it where
// events of what is made then shall go, and takes no other (UVERBS_ATTR_CREATE_CQ_EVENT_FD). A
// program's thread that reads the descriptor meanwhile gets the device's own one.
class OwnAsyncFd {
 public:
  explicit OwnAsyncFd(ibv_context* context);
  ~OwnAsyncFd();
  OwnAsyncFd(const OwnAsyncFd&) = delete;
  OwnAsyncFd& operator=(const OwnAsyncFd&) = delete;

 private:
  ibv_context* context_;  // null: nothing is to be undone
};
// A call that destroys a queue or queue pair: the events about it that the program has not taken
// are forgotten, as a device forgets them. They are acknowledged, or the call would wait for that.
class ForgetsEvents {
 public:
  explicit ForgetsEvents(const void* element);
  ~ForgetsEvents();
  ForgetsEvents(const ForgetsEvents&) = delete;
  ForgetsEvents& operator=(const ForgetsEvents&) = delete;

 private:
  const void* element_;  // null: nothing is to be undone
};
// Takes the next event. Results as those of ibv_get_async_event().
int take_event(ibv_context* context, ibv_async_event* event);
// Whether an event that is acknowledged was made here, and so is nothing to the device.
bool acknowledge_event(const ibv_async_event& event);
// Whether the device's port is down by a rule now.
bool is_port_down(const ibv_context* context);

}  // namespace hostnic::faults
