// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/stress/worker.h"

#include <sched.h>

#include <utility>

#include "tests/apps/stress/calls.h"

namespace hostnic::stress {

Worker::Worker(unsigned worker_number, uint64_t seed, std::vector<std::unique_ptr<Shared>>& near,
               std::vector<std::unique_ptr<Shared>>& far, std::vector<Connection*> mine)
    : number(worker_number),
      rng_(seed * 1'000'003 + worker_number),
      near_(near),
      far_(far),
      connections_(std::move(mine)) {}

Shared& Worker::any_shared() {
  auto& nic = rng_.percent(50) ? near_ : far_;
  return *nic[rng_.below(nic.size())];
}

void Worker::open(Connection& connection) {
  note("making a connection");
  // Within one NIC, or between the two.
  connection.open(any_shared(), any_shared(), rng_);
}

void Worker::serve() {
  int taken = 0;
  for (Connection* connection : connections_) {
    if (!connection->is_open()) continue;
    for (End& end : connection->ends) {
      if (!end.send_cq) continue;
      taken += end.send_cq->poll(rng_);
      if (end.receive_cq != end.send_cq) taken += end.receive_cq->poll(rng_);
    }
    connection->serve_receives(rng_);
  }
  steps_.fetch_add(1, std::memory_order_relaxed);
  if (taken == 0) sched_yield();
}

void Worker::on_connection(Connection& connection) {
  const uint64_t choice = rng_.below(1000);
  const auto serve_all = [this] { serve(); };
  if (choice < 6) {
    note("breaking a connection");
    connection.break_it(rng_, serve_all);
  } else if (choice < 10) {
    note("closing a connection");
    connection.close_quietly(rng_, serve_all);
  } else if (choice < 14) {
    note("destroying a connection");
    connection.close_abruptly(rng_, serve_all);
  } else if (choice < 30) {
    note("changing windows and regions");
    connection.change_objects(rng_);
  } else {
    note("posting");
    connection.post_some(rng_);
    End& end = connection.ends[rng_.below(2)];
    note("polling");
    Cq& cq = rng_.percent(50) ? *end.send_cq : *end.receive_cq;
    if (cq.has_channel() && rng_.percent(10))
      cq.wait(rng_);
    else
      cq.poll(rng_);
    connection.serve_receives(rng_);
  }
}

void Worker::step() {
  const uint64_t choice = rng_.below(1000);
  if (choice < 5) {
    note("making and destroying objects");
    make_and_destroy(any_shared(), rng_);
  } else if (choice < 10) {
    note("calling wrongly");
    call_wrongly(any_shared(), rng_);
  } else if (choice < 11) {
    note("replacing shared objects");
    any_shared().replace(rng_);
  } else if (choice < 60) {
    note("in a crowd");
    auto& crowds = Crowd::all();
    Crowd& crowd = *crowds[rng_.below(crowds.size())];
    rng_.below(500) == 0 ? crowd.replace(rng_) : crowd.work(number, rng_);
  } else if (choice < 120) {
    note("serving all");
    serve();
  } else if (!connections_.empty()) {
    Connection& connection = *connections_[rng_.below(connections_.size())];
    connection.is_open() ? on_connection(connection) : open(connection);
  }
}

void Worker::run(uint64_t end_ns) {
  for (Connection* connection : connections_) open(*connection);
  while (now_ns() < end_ns) step();
  // Together with the others: what these wait for may be in our queues, until all is closed.
  for (Connection* connection : connections_) {
    if (!connection->is_open()) continue;
    note("closing a connection at the end");
    connection->close_quietly(rng_, [this] { serve(); });
  }
  note("at its end");
}

}  // namespace hostnic::stress
