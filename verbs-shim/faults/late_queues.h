// SPDX-License-Identifier: BSD-3-Clause
// Completions that are held back, and the events that say of them. Each completion queue of which
// something may be held is emptied into a queue of ours, in order, from which programs poll: what
// stands behind a completion that is held waits as well, so that the order within a queue stays.
//
// An event of a completion channel whose completion is held waits with it. Where a program arms a
// queue of which something is held, the device knows nothing of that, and the event is made here.
//
// For any thread. A forked child goes on with what was held.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace hostnic::faults {

// A completion as either kind of queue delivers it.
struct HeldCompletion {
  ibv_wc wc{};
  uint64_t timestamp = 0, wallclock_ns = 0;
  uint32_t flow_tag = 0;
  uint16_t cvlan = 0;
  ibv_wc_tm_info tag_matching{};
};

// What the queues of devices do, by the next library's functions.
struct QueueCalls {
  // Takes completions off a queue. Returns how many, or -1.
  int (*take)(ibv_cq* cq, HeldCompletion* completions, int most);
  int (*arm)(ibv_cq* cq, int solicited_only);
  int (*take_event)(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context);
  void (*acknowledge)(ibv_cq* cq, unsigned count);
  void (*to_error)(ibv_qp* qp);
};
// Is called once, before any program's call.
void set_queue_calls(const QueueCalls& calls);

// A kernel's channel is a file of its own kind; libibverbs reads it, and a context's asynchronous
// events, by the descriptor that the program sees. hostnic's are eventfds, which its library reads
// by a descriptor that it has noted.
bool is_eventfd(int fd);

// Whether some rule holds completions back: then, and only then, the calls below are made instead
// of the device's. Once true it stays so.
bool holds_completions();

struct LateQueue;

void begin_cq(ibv_cq* cq);
// A queue is about to be destroyed: forgets it, since another may be at its place at once. Then
// cq_ended() is to be called, by which it is known again if it `stays`. Null: it was unknown.
LateQueue* end_cq(ibv_cq* cq);
void cq_ended(LateQueue* queue, bool stays);
// The place of a queue among those that the process created, from 1; 0: unknown.
uint32_t cq_ordinal(const ibv_cq* cq);
// Null: there is none at that place.
ibv_cq* find_cq(uint32_t ordinal);

// Takes at most so many completions that need not be held any more, changed as rules say. Returns
// how many, or -1 as the device does.
int take_completions(ibv_cq* cq, HeldCompletion* completions, int most);
// As ibv_req_notify_cq().
int arm_cq(ibv_cq* cq, int solicited_only);
// Forgets what is held of a queue pair that is destroyed or reset.
void drop_completions(const ibv_context* context, uint32_t qpn);

// A channel's descriptor is another one from then on, that is readable when an event is delivered.
// Where no rule holds anything, it stays, and completions of its queues are never held.
void begin_channel(ibv_comp_channel* channel);
// It is about to be destroyed, and gets its own descriptor back.
void end_channel(ibv_comp_channel* channel);
// As ibv_get_cq_event().
int take_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context);
// Returns how many of these events the device has made: they are to be acknowledged to it.
unsigned acknowledged_events(ibv_cq* cq, unsigned count);

}  // namespace hostnic::faults
