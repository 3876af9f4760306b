// The NIC's turn (rule 33 gives its order) and its outside.
#include "dataplane/nic/nic.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cerrno>
#include <new>

#include "dataplane/nic/impl.h"

namespace hostnic {
namespace {

const char* state_name(QpState state) {
  static constexpr const char* kNames[] = {"RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"};
  return kNames[static_cast<size_t>(state)];
}

const char* type_name(QpType type) {
  return type == QpType::kRc ? "RC" : type == QpType::kUc ? "UC" : "UD";
}

std::string ip_text(uint32_t ip) {
  return fmt::format("{}.{}.{}.{}", ip >> 24, ip >> 16 & 255, ip >> 8 & 255, ip & 255);
}

}  // namespace

Nic::Impl::Impl(const NicSettings& nic_settings, MrTable& mr_table, const MbufPools& mbuf_pools,
                Port& nic_port)
    : settings(nic_settings),
      mrs(mr_table),
      pools(mbuf_pools),
      port(nic_port),
      adds_icrc(!nic_port.is_wire() || nic_settings.always_icrc),
      reorder_storage(static_cast<ReorderSlot*>(
          std::calloc(size_t{kReorderBlocks} * nic_settings.window, sizeof(ReorderSlot)))) {
  if (reorder_storage == nullptr) throw std::bad_alloc();
  for (uint32_t i = 0; i < kReorderBlocks; ++i)
    free_reorder_blocks.push_back(&reorder_storage[size_t{i} * settings.window]);
  reorder_limit = pools.copies->size / 4 * 3;  // the rest is for impairments
  reorder_limit_per_space =
      std::max(reorder_limit / 4, 1u);  // one QP with a hole leaves room for others
  qps.reserve(settings.max_qps + 16);
  generations.reserve(settings.max_qps + 16);
  for (auto* list : {&ack_list, &ack_next, &report_list, &advance_list, &advance_next})
    list->reserve(settings.max_qps);
}

Nic::Impl::~Impl() {
  for (auto& qp : qps) {
    if (qp != nullptr) quiesce_qp(*qp);
  }
  for (OutputQueue& queue : outputs) {
    for (uint32_t i = 0; i < queue.count; ++i) release_packet(queue.packets[i], payload_references);
  }
  for (; loopback_count != 0; --loopback_count) {
    release_packet(loopback[loopback_head], payload_references);
    loopback_head = (loopback_head + 1) % kLoopbackCapacity;
  }
}

Nic::Nic(const NicSettings& settings, MrTable& mrs, const MbufPools& pools, Port& port)
    : impl_(std::make_unique<Impl>(settings, mrs, pools, port)) {}
Nic::~Nic() = default;

uint32_t Nic::poll(TimeNs now_ns) {
  Impl& nic = *impl_;
  nic.now = now_ns;
  nic.look_at_unserved();
  nic.ask_for_descriptors();
  uint32_t work = nic.advance_windows();
  work += nic.receive_turn();
  nic.send_acks();
  work += nic.command_turn();
  // Each in its turn comes first: on a slow port the other finds no room.
  if (!broken(Fault::answers_sent_last)) nic.answers_first = !nic.answers_first;
  if (nic.answers_first) work += nic.serve_reads();
  work += nic.transmit_turn();
  if (!nic.answers_first) work += nic.serve_reads();
  nic.payload_references.flush();
  work += nic.ask_neighbours();
  if (nic.tx_stage) nic.run_tx_stage();
  nic.flush_all();
  if (!nic.report_list.empty()) ++work;
  nic.send_reports();
  nic.wake_drivers(work == 0);
  nic.forget_idle();
  return work;
}

// What is to be sent lies in the caches of the programs' cores: it can come while arrivals are
// copied.
void Nic::Impl::ask_for_descriptors() {
  for (const ClientState* client : served)
    if (client->sends.waiting() < kTxBudget) client->channel->sends.prefetch(kTxBudget);
}

uint32_t Nic::Impl::advance_windows() {
  advance_list.swap(advance_next);
  for (QpContext* qp : advance_list) {
    qp->on_advance_list = false;
    if (qp->requests.window.expected_received() && !qp->fatal) {
      // An atomic at the front may have to wait for many turns.
      const Psn before = qp->requests.window.expected();
      advance_requests(*qp);
      if (qp->requests.window.expected() != before || qp->fatal) owe_plain_ack(*qp);
    }
    if (qp->responses.window.expected_received()) {
      advance_responses(*qp);
      report_responses(*qp);
    }
  }
  const auto done = static_cast<uint32_t>(advance_list.size());
  advance_list.clear();
  return done;
}

TimeNs Nic::next_deadline_ns() const {
  const Impl& nic = *impl_;
  TimeNs earliest = UINT64_MAX;
  if (nic.rx_stage) earliest = std::min(earliest, nic.rx_stage->next_deadline_ns());
  if (nic.tx_stage) earliest = std::min(earliest, nic.tx_stage->next_deadline_ns());
  for (const ClientState* client : nic.served) earliest = std::min(earliest, client->wake_due_ns);
  if (!nic.port.is_wire()) earliest = std::min(earliest, nic.neighbours.next_deadline_ns());
  return earliest;
}

bool Nic::work_waiting() {
  Impl& nic = *impl_;
  if (nic.loopback_count != 0 || nic.read_count != 0) return true;
  if (!nic.ack_list.empty() || !nic.advance_next.empty() || !nic.report_list.empty()) return true;
  for (uint32_t peer = 0; peer < nic.output_peers; ++peer) {
    if (nic.outputs[peer].count != 0) return true;
  }
  if (nic.outputs[kLoopbackPeer].count != 0) return true;
  for (const auto& client : nic.clients) {
    if (client->served ? Impl::has_work(*client) : Impl::has_published(*client)) {
      nic.serve(*client);
      return true;
    }
  }
  return false;
}

bool Nic::delivered_to(uint32_t cpu) {
  bool delivered = false;
  for (ClientState* client : impl_->served) {
    if (!std::exchange(client->data_arrived, false)) continue;
    delivered |= client->channel->header().program_cpu.load(std::memory_order_relaxed) == cpu + 1;
  }
  return delivered;
}

int Nic::attach(ClientChannel* client) {
  Impl& nic = *impl_;
  if (nic.clients.size() >= kMaxClients) return ENOMEM;
  auto state = std::make_unique<ClientState>();
  state->deferred.reserve(kCommandRingSize);
  state->channel = client;
  client->nic_state = state.get();
  nic.serve(*state);
  nic.clients.push_back(std::move(state));
  return 0;
}

void Nic::detach(ClientChannel* client) {
  Impl& nic = *impl_;
  const auto it = std::find_if(nic.clients.begin(), nic.clients.end(),
                               [&](const auto& state) { return state->channel == client; });
  if (it == nic.clients.end()) return;
  const std::vector<uint32_t> qpns = (*it)->qpns;
  for (const uint32_t qpn : qpns) nic.destroy_qp(**it, *nic.find_qp(qpn));
  nic.drop_windows_of(client->settings().client_id);
  client->nic_state = nullptr;
  std::erase(nic.served, it->get());
  nic.clients.erase(it);
  nic.next_client = nic.next_unserved = 0;
}

void Nic::set_impairment(bool receive_side, const impair::Spec& spec, uint64_t seed) {
  Impl& nic = *impl_;
  auto& stage = receive_side ? nic.rx_stage : nic.tx_stage;
  std::unique_ptr<impair::ImpairmentStage> old = std::move(stage);
  stage.reset();
  if (!spec.rules.empty()) stage = std::make_unique<impair::ImpairmentStage>(spec, seed, nic);
  std::array<void*, kBurst> packets;
  for (size_t n; old != nullptr && (n = old->drain(packets)) != 0;) {
    for (size_t i = 0; i < n; ++i) {
      auto* packet = static_cast<rte_mbuf*>(packets[i]);
      if (receive_side) {
        nic.receive_packet(packet);
      } else {
        nic.enqueue(packet, packet->port);
      }
    }
  }
  nic.end_train();
}

std::optional<impair::Counters> Nic::impairment_counters(bool receive_side) const {
  const auto& stage = receive_side ? impl_->rx_stage : impl_->tx_stage;
  if (!stage) return std::nullopt;
  return stage->counters();
}

void Nic::clear_counters() {
  impl_->counters.clear();
  if (impl_->rx_stage) impl_->rx_stage->clear_counters();
  if (impl_->tx_stage) impl_->tx_stage->clear_counters();
}

std::string Nic::describe() const {
  const Impl& nic = *impl_;
  size_t qps = 0;
  for (const auto& qp : nic.qps) qps += qp != nullptr ? 1 : 0;
  const char* const no_bundles = nic.why_no_bundles();
  const std::string bundles = no_bundles == nullptr ? "on" : fmt::format("off ({})", no_bundles);
  return fmt::format(
      "{} {}/{} mtu {} window {} policy {} icrc {} segmentation {} clients {} qps {} port {}",
      nic.settings.name, ip_text(raw(nic.settings.ip)), nic.settings.prefix_length,
      nic.settings.mtu_bytes, nic.settings.window, wire::to_string(nic.settings.policy),
      nic.adds_icrc ? "on" : "off", bundles, nic.clients.size(), qps, nic.port.describe());
}

std::vector<std::string> Nic::describe_qps() const {
  std::vector<std::string> lines;
  for (const auto& qp : impl_->qps) {
    if (qp == nullptr) continue;
    lines.push_back(fmt::format(
        "{} qp {:#08x} {} {} client {} peer {}:{:#08x} mtu {} rx-base {} ahead {} tx-next {} acked "
        "{} "
        "recv-sn {} epoch {}{}",
        impl_->settings.name, qp->qpn, type_name(qp->type), state_name(qp->state),
        qp->client->settings().client_id, ip_text(qp->dest_ip), qp->dest_qpn, qp->mtu_bytes,
        qp->requests.window.expected().value(), qp->requests.window.received_ahead(),
        qp->transmitted.value(), qp->una.value(), qp->recv_next_sn, qp->epoch,
        qp->fatal ? " refused its peer" : ""));
  }
  return lines;
}

NicGauges Nic::gauges() const {
  const Impl& nic = *impl_;
  NicGauges g;
  g.reorder_packets = nic.reorder_packets;
  g.reorder_limit = nic.reorder_limit;
  g.reorder_blocks = kReorderBlocks - static_cast<uint32_t>(nic.free_reorder_blocks.size());
  g.early_writes = kEarlyWriteCapacity - nic.early_write_pool.available();
  g.read_jobs = nic.read_count;
  g.read_jobs_limit = kReadJobs;
  g.loopback = nic.loopback_count;
  g.loopback_limit = kLoopbackCapacity;
  for (const auto& qp : nic.qps) {
    if (qp == nullptr) continue;
    ++g.qps;
    for (const ReceiveSpace* space : {&qp->requests, &qp->responses}) {
      g.reorder_slots += space->reorder_slots_used;
      g.received_ahead = std::max(g.received_ahead, space->window.received_ahead());
    }
  }
  for (const OutputQueue& queue : nic.outputs)
    g.output_packets = std::max(g.output_packets, queue.count);
  for (const auto* list :
       {&nic.ack_list, &nic.ack_next, &nic.report_list, &nic.advance_list, &nic.advance_next})
    g.longest_list = std::max(g.longest_list, static_cast<uint32_t>(list->size()));
  for (const auto& stage : {nic.rx_stage.get(), nic.tx_stage.get()})
    g.impaired_packets += stage == nullptr ? 0 : static_cast<uint32_t>(stage->queued());
  return g;
}

const Counters& Nic::counters() const { return impl_->counters; }
const NicSettings& Nic::settings() const { return impl_->settings; }

}  // namespace hostnic
