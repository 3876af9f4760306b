// Towards the driver: state into each QpStatus, one meta report per QP, wake-ups (docs/transport.md
// rules 21, 34).
#include <algorithm>
#include <utility>

#include "dataplane/nic/impl.h"

namespace hostnic {
namespace {
constexpr uint64_t kRewakeNs = 1'000'000;
constexpr uint64_t kAwakeNs = 50'000;
// A program that polls takes reports sooner, or it waits behind somebody who computes.
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

void Nic::Impl::report(QpContext& qp) {
  if (qp.on_report_list) return;
  qp.on_report_list = true;
  report_list.push_back(&qp);
}

void Nic::Impl::publish_event(QpContext& qp, uint32_t event) {
  QpStatusUpdate update(*qp.status);
  qp.status->events |= event;
  report(qp);
}

void Nic::Impl::send_reports() {
  size_t kept = 0;
  MetaBatch batch;
  const auto deliver = [&] {
    if (batch.count == 0) return;
    const bool all = batch.client->metas.enqueue_bulk(batch.metas.data(), batch.count);
    for (uint32_t i = 0; i < batch.count; ++i) {
      QpContext& qp = *batch.qps[i];
      if (!all && !batch.client->metas.enqueue_bulk(&batch.metas[i], 1)) {
        // The ring is full: the QP waits here, nobody is blocked, nothing is lost.
        qp.status->dirty.store(0, std::memory_order_relaxed);
        report_list[kept++] = &qp;
        continue;
      }
      counters.add(Counter::meta_reports);
      ClientState& client = state_of(*qp.client);
      if (!std::exchange(client.reports_unseen, true)) {
        client.untaken_since_ns = now;
        serve(client);
      }
      qp.on_report_list = false;
    }
    batch.count = 0;
  };
  if (report_list.empty()) return;
  for (QpContext* qp : report_list) publish_responses(*qp);
  // The statuses' changes before the looks at their flags; the driver clears flags before it reads
  // statuses. One fence for all: each one waits until every store before it has found its cache
  // line.
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (QpContext* qp : report_list) {
    if (qp->status->dirty.load(std::memory_order_relaxed) != 0) {
      qp->on_report_list = false;
      continue;
    }
    qp->status->dirty.store(1, std::memory_order_relaxed);
    if (!batch.has_room_for(*qp)) deliver();
    batch.add(*qp);
  }
  deliver();
  report_list.resize(kept);
}

ClientState& Nic::Impl::state_of(ClientChannel& channel) {
  return *static_cast<ClientState*>(channel.nic_state);
}

void Nic::Impl::wake_drivers(bool idle) {
  // Reports and responses published above, sleep flags read below: without the fence wake-ups are
  // lost (docs/hostnicd.md, "Wake-ups").
  std::atomic_thread_fence(std::memory_order_seq_cst);
  for (ClientState* client : served) {
    SegmentHeader& header = client->channel->header();
    header.nic_turn_ns.store(now, std::memory_order_relaxed);
    if (std::exchange(client->answered, false) &&
        header.driver_sleeping.load(std::memory_order_acquire) != 0) {
      client->channel->wake_driver();
    }
    if (!client->reports_unseen) continue;
    if (client->channel->metas.drained()) {
      client->reports_unseen = false;
      client->wake_due_ns = UINT64_MAX;
      continue;
    }
    if (const uint32_t taken = client->channel->metas.consumed(); taken != client->reports_taken) {
      client->reports_taken = taken;
      client->untaken_since_ns = now;
    }
    // Not in the midst of work: each wake-up is a system call, and one nap then serves for many
    // reports.
    if (idle) client->channel->wake_poller();
    if (header.driver_sleeping.load(std::memory_order_acquire) == 0) {
      client->wake_due_ns = now + kAwakeNs;  // awake: it looks at the ring before it sleeps
      continue;
    }
    const uint64_t polling_until_ns = header.polling_until_ns.load(std::memory_order_relaxed);
    if (header.armed_cqs.load(std::memory_order_relaxed) == 0 && now < polling_until_ns) {
      const TimeNs untaken_ns =
          std::max(client->untaken_since_ns + kUntakenNs, client->poller_migrations.next_ns());
      if (!idle || now < untaken_ns) {
        client->wake_due_ns = std::min(polling_until_ns, untaken_ns);
        continue;
      }
      client->poller_migrations.take(now);
    }
    counters.add(Counter::driver_wakeups);
    client->channel->wake_driver();
    client->wake_due_ns = now + kRewakeNs;
  }
}

}  // namespace hostnic
