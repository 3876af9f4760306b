// SPDX-License-Identifier: BSD-3-Clause
// What one lcore runs: it polls its NICs while there is work, sleeps when there is none, and in
// between runs tasks that control threads post to it. When to yield and to sleep is
// idle_strategy.h's business.
//
// Sleeping (docs/transport.md rule 34; protocol/hostif/core_sharing.h): the loop raises
// DoorbellPage::lcore_sleeping, fences, looks at everything once more, and waits in epoll. Whoever
// publishes work for it (a client, another NIC of this process, a control thread) fences, reads
// that word, and writes an eventfd if it is set.
//
// A task runs between two turns, when the lcore holds no pointer into any table: having run one is
// the quiescent point of MrTable (docs/transport.md rule 12).
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "dataplane/daemon/lcore/idle_strategy.h"
#include "dataplane/daemon/lcore/longest_turn.h"
#include "protocol/expected.h"
#include "protocol/hostif/core_sharing.h"
#include "protocol/hostif/unique_fd.h"
#include "protocol/types.h"

namespace hostnic {

// The part of a NIC that the loop drives; see Nic for what each call means.
class Pollable {
 public:
  virtual ~Pollable() = default;
  virtual uint32_t poll(TimeNs now_ns) = 0;
  virtual TimeNs next_deadline_ns() const = 0;
  virtual bool work_waiting() = 0;
  // Whether packets arrive without anybody ringing: the loop then looks at least every
  // LcoreIdle::max_tick_ns.
  virtual bool needs_tick() const = 0;
  virtual bool delivered_to(uint32_t cpu) = 0;
};

class LcoreLoop {
 public:
  // Makes the doorbell page, the eventfd and the epoll set. An error is one line.
  static Expected<std::unique_ptr<LcoreLoop>, std::string> create(const LcoreIdle& idle);
  ~LcoreLoop();
  LcoreLoop(const LcoreLoop&) = delete;
  LcoreLoop& operator=(const LcoreLoop&) = delete;

  // Adds a NIC; called before run(), or from a task.
  void add(Pollable* nic);

  // Runs until request_stop(). Called by the lcore.
  void run();
  // Ends run(), which returns after the tasks posted so far; for any thread.
  void request_stop();

  // Executes `task` between two turns and returns when it has been executed; for any thread but the
  // lcore itself, while run() runs. This costs a wake-up, and allocates.
  void run_on(const std::function<void()>& task);
  // As run_on(), but does not wait.
  void post(std::function<void()> task);

  // Says whether NICs are served, or left alone (`stop` at the prompt); tasks run all the same. For
  // any thread.
  void set_handling(bool on);
  bool handling() const { return handling_.load(std::memory_order_relaxed); }

  // Wakes the lcore if it sleeps; for any thread, after publishing work for one of the NICs. This
  // includes the full fence. It is a system call only if the lcore does sleep.
  void ring();

  // Has the lcore wake when `event_fd` is written; nobody needs to read it (the epoll set is
  // edge-triggered). For any thread. Returns 0 or an errno value.
  int watch(int event_fd);
  void unwatch(int event_fd);
  // Has the lcore wake when packets arrive at a socket, or no more; called before run(), or from a
  // task. Each such packet costs whoever sends it some 5 % more while somebody listens: a busy
  // lcore does not.
  int watch_arrivals(int socket);
  void unwatch_arrivals(int socket);

  // A descriptor of the doorbell page for clients: its memory can't be written through it.
  int doorbell_fd() const { return doorbell_fd_.get(); }

  // These are for people, and any thread.
  bool sleeping() const { return page_->lcore_sleeping.load(std::memory_order_relaxed) != 0; }
  uint64_t turns() const { return turns_.load(std::memory_order_relaxed); }
  uint64_t sleeps() const { return sleeps_.load(std::memory_order_relaxed); }
  uint64_t longest_turn_ns() const { return longest_turn_.ns(); }
  void clear_longest_turn() { longest_turn_.clear(); }  // called by the lcore

 private:
  explicit LcoreLoop(const LcoreIdle& idle) : idle_(idle) {}
  uint32_t turn(TimeNs now_ns);
  void run_tasks();
  void end_turn(TimeNs now_ns);
  void idle_turn(TimeNs now_ns);
  bool in_the_way();
  int wait_for_events(uint64_t bound_ns) const;
  void sleep(TimeNs now_ns);
  uint64_t sleep_bound_ns(TimeNs now_ns);
  bool something_waits(TimeNs now_ns);
  bool hear_arrivals(bool on);

  struct Task {
    std::function<void()> function;
    std::atomic<uint32_t> done{0};
  };
  void post(std::shared_ptr<Task> task);

  LcoreIdle idle_;
  std::vector<Pollable*> nics_;
  DoorbellPage* page_ = nullptr;
  std::optional<IdleStrategy> strategy_;  // the lcore's own; made with the page
  UniqueFd doorbell_fd_, event_fd_, epoll_fd_;
  std::atomic<bool> stop_{false}, handling_{true}, tasks_waiting_{false};
  std::mutex tasks_mutex_;
  std::vector<std::shared_ptr<Task>> tasks_;
  std::atomic<uint64_t> turns_{0}, sleeps_{0};
  LongestTurn longest_turn_;

  // The members from here on are the lcore's own.
  uint64_t tick_ns_ = 0;
  TimeNs turn_began_ns_ = 0;  // 0: it has been noted
  std::vector<int> arrival_sockets_;
  bool hears_arrivals_ = true;
};

}  // namespace hostnic
