// SPDX-License-Identifier: BSD-3-Clause
// Answers to READs and atomics leave in the turn of the client whose memory is read, and come out
// of its share, whatever transport they belong to. Each client has a line of what it owes. In it
// stand
//   jobs:        ranges of one transport's answers, in the order of their requests. The first that
//                finds no room stops the line;
//   queue pairs: which keep their answers themselves, and go behind the others after each turn. One
//                that finds no room lets the others pass.
// What an answer says, and in which order those of a queue pair leave, is the transport's to know.
//
// The NIC's lcore.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "dataplane/nic/client/client_list.h"
#include "dataplane/nic/limits.h"
#include "dataplane/nic/qp/qp_context.h"
#include "dataplane/nic/qp/qp_directory.h"

namespace hostnic {

// What a transport did when it was asked for the next packets of what is first in line.
struct AnswerStep {
  enum class Then : uint8_t {
    kGoesOn,   // more is to come
    kOver,     // nothing more is owed, or not now: it leaves the line
    kStopped,  // there is no room or no buffer, or it is not its turn
  };
  Then then = Then::kGoesOn;
  uint32_t done = 0;           // of a turn's budget
  uint32_t packets = 0;        // packets that have left; 0: the work counts as refused
  uint32_t payload_bytes = 0;  // their payload
};

class AnswerLines {
 public:
  // `nic_qps` is how many queue pairs there may be.
  AnswerLines(const QpDirectory& qps, ClientList& clients, uint32_t nic_qps);

  // Puts a job of the queue pair behind what its client owes. Returns its number, below kReadJobs,
  // which stays its own until it is over; nothing if the client has as many as are free: alone it
  // has half of all, and whatever others have there is room for one who has few.
  std::optional<uint32_t> add_job(QpContext& qp) {
    ClientState& client = ClientList::state_of(*qp.client);
    if (client.answer_line.jobs >= jobs_free_) return std::nullopt;
    const uint32_t place = take(first_free_job_);
    --jobs_free_;
    ++client.answer_line.jobs;
    append(client, place, qp);
    return place;
  }
  // Puts the queue pair itself behind what its client owes. It must not be in line.
  void add_qp(QpContext& qp) { append(ClientList::state_of(*qp.client), take(first_free_qp_), qp); }
  // Takes all that is the queue pair's out of the line.
  void forget(QpContext& qp);

  // Makes answers that the client owes leave, as many as its turn and its share allow. Returns how
  // much of a turn they are. serve(qp, place, budget) makes the next packets of what is in that
  // place leave: a job's number, or kReadJobs and more for a queue pair itself. Returns AnswerStep.
  template <class Serve>
  uint32_t serve(ClientState& client, Serve&& serve);

  uint32_t jobs() const { return kReadJobs - jobs_free_; }

 private:
  struct Place {
    uint32_t next = 0;  // behind it in its client's line, or among those that are free
    uint32_t qpn = 0;
  };

  static bool is_job(uint32_t place) { return place < kReadJobs; }
  uint32_t take(uint32_t& first_free) {
    const uint32_t place = first_free;
    first_free = places_[place].next;
    return place;
  }
  void append(ClientState& client, uint32_t place, QpContext& qp) {
    places_[place].qpn = qp.qpn;
    push(client.answer_line, place);
    ++qp.answers_in_line;
    if (!client.served) clients_.serve(client);
  }
  void push(AnswerLine& line, uint32_t place) {
    (line.count == 0 ? line.first : places_[line.last].next) = place;
    line.last = place;
    ++line.count;
  }
  uint32_t pop(AnswerLine& line) {
    --line.count;
    return std::exchange(line.first, places_[line.first].next);
  }
  void release(AnswerLine& line, uint32_t place) {
    uint32_t& first_free = is_job(place) ? first_free_job_ : first_free_qp_;
    places_[place].next = first_free;
    first_free = place;
    if (!is_job(place)) return;
    ++jobs_free_;
    --line.jobs;
  }
  template <class Serve>
  AnswerStep::Then serve_first(ClientState& client, QpContext& qp, uint32_t& done, Serve&& serve);

  const QpDirectory& qps_;
  ClientList& clients_;
  std::vector<Place> places_;  // kReadJobs, and behind them one for each queue pair
  uint32_t first_free_job_ = 0, first_free_qp_ = kReadJobs, jobs_free_ = kReadJobs;
};

// Serves what is first in line as long as the client's turn allows.
template <class Serve>
[[gnu::always_inline]] inline AnswerStep::Then AnswerLines::serve_first(ClientState& client,
                                                                        QpContext& qp,
                                                                        uint32_t& done,
                                                                        Serve&& serve) {
  while (done < kTxBudget && !client.share.spent()) {
    const AnswerStep step = serve(qp, client.answer_line.first, kTxBudget - done);
    done += step.done;
    if (step.packets != 0)
      client.share.charge(step.packets, step.payload_bytes);
    else
      client.share.charge_refused(step.done);
    if (step.then != AnswerStep::Then::kGoesOn) return step.then;
  }
  return AnswerStep::Then::kGoesOn;
}

template <class Serve>
uint32_t AnswerLines::serve(ClientState& client, Serve&& serve) {
  using Then = AnswerStep::Then;
  AnswerLine& line = client.answer_line;
  uint32_t done = 0, went_behind = 0, first_behind = UINT32_MAX;
  while (line.count != 0 && done < kTxBudget && !client.share.spent()) {
    // A queue pair that finds no room is looked at once, and not all of them where there are many.
    if (line.first == first_behind || went_behind == kTxBudget) break;
    QpContext* const qp = qps_.find(places_[line.first].qpn);
    const Then then = qp == nullptr ? Then::kOver : serve_first(client, *qp, done, serve);
    if (then == Then::kOver) {
      if (qp != nullptr) --qp->answers_in_line;
      const uint32_t place = pop(line);
      release(line, place);
      continue;
    }
    if (is_job(line.first)) break;
    if (went_behind++ == 0) first_behind = line.first;
    push(line, pop(line));
  }
  return done;
}

}  // namespace hostnic
