// SPDX-License-Identifier: BSD-3-Clause
// Asynchronous events that no device has made. The descriptor that the program sees is an epoll one
// over the device's own and over timers, so that it waits for both with whatever it waits by.
#pragma once

#include <infiniband/verbs.h>

namespace hostnic::faults {

using GetEvent = int (*)(ibv_context*, ibv_async_event*);

// A device that was opened gets the events that its rules say.
void begin_events(ibv_context* context);
// It is about to be closed, and gets its own descriptor back.
void end_events(ibv_context* context);
// A call during which the context has the device's own descriptor: the kernel is told by it where
// events of what is made then shall go, and takes no other (UVERBS_ATTR_CREATE_CQ_EVENT_FD). A
// program's thread that reads the descriptor meanwhile waits for the device's own events only.
class OwnAsyncFd {
 public:
  explicit OwnAsyncFd(ibv_context* context);
  ~OwnAsyncFd();
  OwnAsyncFd(const OwnAsyncFd&) = delete;
  OwnAsyncFd& operator=(const OwnAsyncFd&) = delete;

 private:
  ibv_context* context_;  // null: nothing is to be undone
};
// Takes the next event, a device's own by `next`. Results as those of ibv_get_async_event().
int take_event(ibv_context* context, ibv_async_event* event, GetEvent next);
// Whether an event that is acknowledged was made here, and so is nothing to the device.
bool acknowledge_event(const ibv_async_event& event);
// Whether the device's port is down by a rule now.
bool is_port_down(const ibv_context* context);

}  // namespace hostnic::faults
