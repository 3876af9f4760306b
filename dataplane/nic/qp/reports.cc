// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/qp/reports.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "dataplane/nic/client/qp_status_update.h"
#include "dataplane/nic/limits.h"
#include "protocol/hostif/core_sharing.h"

namespace hostnic {
namespace {
constexpr uint64_t kRewakeNs = 1'000'000;
constexpr uint64_t kAwakeNs = 50'000;
// A poller that has not taken reports for so long waits behind somebody who computes.
constexpr uint64_t kUntakenNs = 50'000;

// Metas of one client that go into its ring together.
struct MetaBatch {
  ClientChannel* client = nullptr;
  uint32_t count = 0;
  std::array<MetaReport, kBurst> metas;
  std::array<QpContext*, kBurst> qps;

  bool has_room_for(const QpContext& qp) const {
    return count == 0 || (qp.client == client && count < metas.size());
  }
  void add(QpContext& qp) {
    client = qp.client;
    metas[count] = {.status_index = qp.status_index, .qpn = qp.qpn, .reserved = {}};
    qps[count++] = &qp;
  }
};

}  // namespace

Reports::Reports(ClientList& clients, const Port& port, Counters& counters, const TimeNs& now,
                 uint32_t max_qps, MessageTap* const& messages)
    : clients_(clients), port_(port), counters_(counters), now_(now), messages_(messages) {
  list_.reserve(max_qps);
}

void Reports::forget(QpContext& qp) {
  std::erase(list_, &qp);
  qp.on_report_list = false;
}

void Reports::add(QpContext& qp) {
  if (qp.on_report_list) return;
  qp.on_report_list = true;
  list_.push_back(&qp);
}

void Reports::publish_event(QpContext& qp, uint32_t event) {
  QpStatusUpdate update(*qp.status);
  qp.status->events |= event;
  add(qp);
}

void Reports::fail_send(QpContext& qp, Psn psn, LocalError error) {
  if (qp.send_failed && distance(qp.send_failed_psn, psn) >= 0) return;
  qp.send_failed = true;
  qp.send_failed_psn = psn;
  QpStatusUpdate update(*qp.status);
  qp.status->local_error = static_cast<uint32_t>(error);
  qp.status->local_error_psn = psn.value();
  add(qp);
}

void Reports::send() {
  size_t kept = 0;
  MetaBatch batch;
  const auto deliver = [&] {
    if (batch.count == 0) return;
    const bool all = batch.client->metas.enqueue_bulk(batch.metas.data(), batch.count);
    for (uint32_t i = 0; i < batch.count; ++i) {
      QpContext& qp = *batch.qps[i];
      if (!all && !batch.client->metas.enqueue_bulk(&batch.metas[i], 1)) {
        // The ring is full: the QP waits here; nobody is blocked and nothing is lost.
        qp.status->dirty.store(0, std::memory_order_relaxed);
        list_[kept++] = &qp;
        continue;
      }
      counters_.add(Counter::meta_reports);
      ClientState& client = ClientList::state_of(*qp.client);
      if (!std::exchange(client.reports_unseen, true)) {
        client.untaken_since_ns = now_;
        clients_.serve(client);
      }
      qp.on_report_list = false;
    }
    batch.count = 0;
  };
  if (list_.empty()) return;
  if (unlikely(messages_ != nullptr))
    for (const QpContext* qp : list_) messages_->note_report(*qp);
  for (QpContext* qp : list_) publish_responses(*qp);
  // The fence orders the statuses' changes before the looks at their flags; the driver clears flags
  // before it reads statuses. There is one fence for all, because each waits until every store
  // before it has found its cache line.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (QpContext* qp : list_) {
    if (qp->status->dirty.load(std::memory_order_relaxed) != 0) {
      qp->on_report_list = false;
      continue;
    }
    qp->status->dirty.store(1, std::memory_order_relaxed);
    if (!batch.has_room_for(*qp)) deliver();
    batch.add(*qp);
  }
  deliver();
  list_.resize(kept);
}

void Reports::publish_responses(QpContext& qp) {
  if (!qp.responses_changed) return;
  qp.responses_changed = false;
  QpStatusUpdate update(*qp.status);
  qp.status->response_una_psn = qp.responses.window.expected().value();
  qp.status->response_epoch = qp.epoch;
  qp.status->response_refused = qp.epoch_refused ? 1 : 0;
  qp.status->responses_ahead = qp.responses.window.received_ahead();
  if (port_.backlog() || std::exchange(qp.response_congestion_seen, false))
    ++qp.status->response_mark_count;
  const auto& words = qp.responses.window.bits().words();
  if (qp.responses.window.has_hole() || qp.response_bits_published) {
    std::copy(words.begin(), words.end(), qp.status->response_bitmap);
    qp.response_bits_published = qp.responses.window.has_hole();
  }
}

void Reports::wake_drivers(bool idle) {
  // The fence orders the reports and responses published above before the looks at sleep flags
  // below: without it wake-ups are lost (protocol/hostif/core_sharing.h).
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (ClientState* client : clients_.served()) {
    SegmentHeader& header = client->channel->header();
    header.nic_turn_ns.store(now_, std::memory_order_relaxed);
    if (std::exchange(client->answered, false) && service_sleeps(header)) wake_service_once(header);
    if (!client->reports_unseen) continue;
    if (client->channel->metas.drained()) {
      client->reports_unseen = false;
      client->wake_due_ns = UINT64_MAX;
      continue;
    }
    if (const uint32_t taken = client->channel->metas.consumed(); taken != client->reports_taken) {
      client->reports_taken = taken;
      client->untaken_since_ns = now_;
    }
    // Pollers are not woken in the midst of work: each wake-up is a system call, and one nap then
    // serves for many reports.
    if (idle) wake_pollers(header);
    if (!service_sleeps(header)) {
      client->wake_due_ns = now_ + kAwakeNs;  // the driver is awake: it looks at the ring before it
                                              // sleeps
      continue;
    }
    if (program_polls(header, now_)) {
      const TimeNs untaken_ns =
          std::max(client->untaken_since_ns + kUntakenNs, client->poller_migrations.next_ns());
      if (!idle || now_ < untaken_ns) {
        client->wake_due_ns = std::min(look_expected_until(header), untaken_ns);
        continue;
      }
      client->poller_migrations.take(now_);
    }
    counters_.add(Counter::driver_wakeups);
    wake_service_once(header);
    client->wake_due_ns = now_ + kRewakeNs;
  }
}

}  // namespace hostnic
