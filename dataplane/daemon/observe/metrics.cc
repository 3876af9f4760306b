// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/metrics.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "dataplane/daemon/daemon.h"
#include "dataplane/daemon/observe/error_book.h"
#include "dataplane/daemon/observe/view_json.h"
#include "dataplane/daemon/observe/view_text.h"
#include "protocol/hostif/version.h"

namespace hostnic {
namespace {

// RoCE ports have one port, number 1, and node_exporter labels it so.
constexpr std::string_view kPort = "1";

// Packets that the NIC did not use, by the counter that says why. Packets that are counted here are
// in no other family.
constexpr std::array kDrops = {
    Counter::out_of_window,      Counter::policy_mismatch,       Counter::acks_dropped,
    Counter::stale_epoch,        Counter::reorder_full,          Counter::rx_unknown_qp,
    Counter::rx_wrong_tag,       Counter::rx_wrong_service,      Counter::rx_wrong_qkey,
    Counter::rx_no_receive,      Counter::rx_too_long,           Counter::uc_incomplete,
    Counter::uc_access_refused,  Counter::rx_parse_error,        Counter::rx_icrc_error,
    Counter::rx_not_ours,        Counter::rx_no_buffer,          Counter::tx_unresolved,
    Counter::management_dropped, Counter::peer_questions_refused};

// Packets that are repeated, and what about others makes a sender repeat them.
constexpr std::array kRecovery = {Counter::packet_seq_err, Counter::rnr_nak_received,
                                  Counter::nak_received, Counter::duplicate_request};

bool is_in(auto& list, Counter counter) { return std::ranges::find(list, counter) != list.end(); }

// What was gathered before anything is written, since families come one behind the other.
struct NicSnapshot {
  std::string name;
  std::array<uint64_t, kCounterCount> counters{};
  NicView view;
  bool up = false;
  uint32_t speed_mbps = 0;
  std::optional<impair::Counters> impaired[2];  // transmit, receive
  std::optional<SwitchCounters> switched;

  uint64_t get(Counter counter) const { return counters[static_cast<size_t>(counter)]; }
};

struct QpSnapshot {
  std::string nic, qpn, peer, peer_qpn, pid;
  QpView view;
};

std::vector<NicSnapshot> nics_of(Daemon& daemon) {
  std::vector<NicSnapshot> nics;
  for (NicInstance& instance : daemon.nics()) {
    NicSnapshot& nic = nics.emplace_back();
    nic.name = instance.plan.settings.name;
    for (size_t i = 0; i < kCounterCount; ++i)
      nic.counters[i] = instance.nic->counters().get(static_cast<Counter>(i));
    instance.lcore->run_on([&] {
      nic.view = instance.nic->views().nic();
      for (const bool receive_side : {false, true})
        nic.impaired[receive_side] = instance.nic->impairment_counters(receive_side);
      nic.switched = instance.nic->switch_counters();
    });
    nic.up = daemon.port_up(instance);
    nic.speed_mbps = daemon.device_info(instance).speed_mbps;
  }
  return nics;
}

std::vector<QpSnapshot> qps_of(Daemon& daemon, const Asker& asker, size_t& left_out) {
  std::vector<QpSnapshot> all;
  for (NicInstance& instance : daemon.nics()) {
    for (uint32_t from = 0; from != NicViews::kNoMoreQps;) {
      std::vector<QpView> qps;
      instance.lcore->run_on([&] { qps = instance.nic->views().qps(from); });
      for (QpView& qp : qps) {
        if (!asker.sees(qp.uid)) continue;
        if (all.size() == kMaxQpsInMetrics) {
          ++left_out;
          continue;
        }
        all.push_back({instance.plan.settings.name, fmt::format("{:#x}", qp.qpn),
                       peer_address(daemon, qp), fmt::format("{:#x}", qp.dest_qpn),
                       fmt::format("{}", qp.pid), std::move(qp)});
      }
    }
  }
  return all;
}

// The families of node_exporter's collector "infiniband", so that its dashboards and alerts are
// about hostnic, too.
void write_infiniband(MetricsText& out, const std::vector<NicSnapshot>& nics) {
  const auto counter = [&](const char* name, const char* help, auto&& value) {
    out.family(fmt::format("node_infiniband_{}", name), MetricKind::kCounter, help);
    for (const NicSnapshot& nic : nics)
      out.sample({{"device", nic.name}, {"port", kPort}}, uint64_t{value(nic)});
  };
  const auto gauge = [&](const char* name, const char* help, auto&& value) {
    out.family(fmt::format("node_infiniband_{}", name), MetricKind::kGauge, help);
    for (const NicSnapshot& nic : nics)
      out.sample({{"device", nic.name}, {"port", kPort}}, uint64_t{value(nic)});
  };
  out.family("node_infiniband", MetricKind::kInfo,
             "Non-numeric data from /sys/class/infiniband/<device>, value is always 1.");
  for (const NicSnapshot& nic : nics)
    out.sample({{"board_id", "hostnic"},
                {"device", nic.name},
                {"firmware_version", HOSTNIC_VERSION},
                {"hca_type", "hostnic"}},
               uint64_t{1});
  counter("port_data_received_bytes", "Number of data octets received on all links",
          [](const NicSnapshot& nic) { return nic.get(Counter::rx_bytes); });
  counter("port_data_transmitted_bytes", "Number of data octets transmitted on all links",
          [](const NicSnapshot& nic) { return nic.get(Counter::tx_bytes); });
  counter("port_packets_received",
          "Number of packets received on all VLs by this port (including errors)",
          [](const NicSnapshot& nic) { return nic.get(Counter::rx_packets); });
  counter("port_packets_transmitted",
          "Number of packets transmitted on all VLs from this port (including errors)",
          [](const NicSnapshot& nic) { return nic.get(Counter::tx_packets); });
  counter("port_errors_received",
          "Number of packets containing an error that were received on this port",
          [](const NicSnapshot& nic) {
            return nic.get(Counter::rx_parse_error) + nic.get(Counter::rx_icrc_error);
          });
  counter("port_discards_transmitted",
          "Number of outbound packets discarded by the port because the port is down or congested",
          [](const NicSnapshot& nic) { return nic.get(Counter::tx_unresolved); });
  counter("link_downed",
          "Number of times the link failed to recover from an error state and went down",
          [](const NicSnapshot& nic) { return nic.get(Counter::link_downed); });
  gauge("state_id", "State of the InfiniBand port (1: down, 4: active)",
        [](const NicSnapshot& nic) { return nic.up ? 4u : 1u; });
  gauge("physical_state_id", "Physical state of the InfiniBand port (3: disabled, 5: link up)",
        [](const NicSnapshot& nic) { return nic.up ? 5u : 3u; });
  gauge("rate_bytes_per_second", "Maximum signal transfer rate",
        [](const NicSnapshot& nic) { return uint64_t{nic.speed_mbps} * 125'000; });
}

void write_nics(MetricsText& out, const std::vector<NicSnapshot>& nics) {
  for (size_t i = 0; i < kCounterCount; ++i) {
    const auto counter = static_cast<Counter>(i);
    if (is_in(kDrops, counter) || is_in(kRecovery, counter) || counts_repeats(counter)) continue;
    out.family(fmt::format("hostnic_{}", counter_name(counter)), MetricKind::kCounter,
               counter_help(counter));
    for (const NicSnapshot& nic : nics) out.sample({{"device", nic.name}}, nic.counters[i]);
  }
  out.family("hostnic_dropped", MetricKind::kCounter,
             "packets and messages that a NIC did not use, by reason");
  for (const NicSnapshot& nic : nics)
    for (const Counter counter : kDrops)
      out.sample({{"device", nic.name}, {"reason", counter_name(counter)}}, nic.get(counter));
  out.family("hostnic_recovery_events", MetricKind::kCounter,
             "what made senders repeat packets, or was repeated in vain");
  for (const NicSnapshot& nic : nics)
    for (const Counter counter : kRecovery)
      out.sample({{"device", nic.name}, {"event", counter_name(counter)}}, nic.get(counter));
  out.family("hostnic_retransmissions", MetricKind::kCounter, "packets sent again, by cause");
  for (const NicSnapshot& nic : nics)
    for (size_t i = 1; i <= kRepeatCauses; ++i) {
      const auto cause = static_cast<RepeatCause>(i);
      out.sample({{"device", nic.name}, {"cause", name_of(cause)}}, nic.get(counter_of(cause)));
    }
  out.family("hostnic_impaired", MetricKind::kCounter,
             "packets to which impairments did something on purpose");
  for (const NicSnapshot& nic : nics) {
    for (const bool receive_side : {true, false}) {
      if (!nic.impaired[receive_side]) continue;
      nic.impaired[receive_side]->for_each([&](const char* name, uint64_t value) {
        out.sample(
            {{"device", nic.name}, {"direction", receive_side ? "rx" : "tx"}, {"action", name}},
            value);
      });
    }
  }
  const auto gauge = [&](const char* name, const char* help, auto&& value) {
    out.family(name, MetricKind::kGauge, help);
    for (const NicSnapshot& nic : nics) out.sample({{"device", nic.name}}, uint64_t{value(nic)});
  };
  gauge("hostnic_clients", "devices that programs have open",
        [](const NicSnapshot& nic) { return nic.view.clients; });
  gauge("hostnic_queue_pairs", "queue pairs", [](const NicSnapshot& nic) { return nic.view.qps; });
  gauge("hostnic_buffers_in_use", "packet buffers in use",
        [](const NicSnapshot& nic) { return nic.view.buffers_in_use; });
  gauge("hostnic_buffers", "packet buffers",
        [](const NicSnapshot& nic) { return nic.view.buffers; });
  out.family("hostnic_port_lost", MetricKind::kCounter,
             "packets that a port had no use for, or could not send, by reason");
  for (const NicSnapshot& nic : nics) {
    const PortView& port = nic.view.port;
    const auto lost = [&](const char* reason, uint64_t packets) {
      if (packets != 0) out.sample({{"device", nic.name}, {"reason", reason}}, packets);
    };
    lost("no_link", port.lost_without_link);
    lost("socket_full", port.socket_full);
    lost("no_number", port.without_number);
    lost("malformed", port.malformed);
    lost("refused_by_kernel", port.refused_by_kernel);
    lost("missed", port.missed);
    lost("without_buffer", port.without_buffer);
    lost("bad_frames", port.bad_frames);
    lost("not_sent", port.not_sent);
  }
}

// What the links of the switch have done, where NICs hang on one: the port of each, and its paths.
void write_switch(MetricsText& out, const std::vector<NicSnapshot>& nics) {
  if (std::ranges::none_of(nics, [](const NicSnapshot& nic) { return nic.switched.has_value(); }))
    return;
  const auto each = [&](const char* name, MetricKind kind, const char* help, auto&& value) {
    out.family(fmt::format("hostnic_switch_{}", name), kind, help);
    for (const NicSnapshot& nic : nics) {
      if (!nic.switched) continue;
      out.sample({{"device", nic.name}, {"link", "port"}}, uint64_t{value(nic.switched->port)});
      for (size_t i = 0; i < nic.switched->paths.size(); ++i)
        out.sample({{"device", nic.name}, {"link", fmt::format("path {}", i + 1)}},
                   uint64_t{value(nic.switched->paths[i])});
    }
  };
  using impair::LinkCounters;
  each("packets", MetricKind::kCounter, "packets that a link of the switch has sent on",
       [](const LinkCounters& link) { return link.packets; });
  each("bytes", MetricKind::kCounter, "bytes that a link of the switch has sent on",
       [](const LinkCounters& link) { return link.bytes; });
  each("dropped", MetricKind::kCounter, "packets that found a queue of the switch full",
       [](const LinkCounters& link) { return link.dropped; });
  each("marked", MetricKind::kCounter, "packets that a queue of the switch has marked (ECN)",
       [](const LinkCounters& link) { return link.marked; });
  each("trimmed", MetricKind::kCounter, "packets whose payload the switch has cut off",
       [](const LinkCounters& link) { return link.trimmed; });
  each("longest_queue", MetricKind::kGauge, "the most packets that a queue of the switch has held",
       [](const LinkCounters& link) { return link.longest_queue; });
}

void write_qps(MetricsText& out, const std::vector<QpSnapshot>& qps, size_t left_out) {
  const auto each = [&](const char* name, MetricKind kind, const char* help, auto&& value) {
    out.family(name, kind, help);
    for (const QpSnapshot& qp : qps) {
      const auto number = value(qp.view);
      if (number) out.sample({{"device", qp.nic}, {"qp", qp.qpn}}, *number);
    }
  };
  const auto number = [](uint64_t value) { return std::optional<uint64_t>(value); };
  out.family("hostnic_qp", MetricKind::kInfo, "queue pairs, and whose they are");
  for (const QpSnapshot& qp : qps)
    out.sample({{"device", qp.nic},
                {"qp", qp.qpn},
                {"type", type_name(qp.view)},
                {"state", state_name(qp.view.state)},
                {"peer", qp.peer},
                {"peer_qp", qp.peer_qpn},
                {"program", qp.view.program},
                {"pid", qp.pid}},
               uint64_t{1});
  each("hostnic_qp_request_bytes", MetricKind::kCounter,
       "payload bytes of requests that have left, repetitions included",
       [&](const QpView& qp) { return number(qp.request_bytes); });
  each("hostnic_qp_retransmitted_packets", MetricKind::kCounter, "data packets sent again",
       [&](const QpView& qp) { return number(qp.retransmitted_packets); });
  out.family("hostnic_qp_retransmissions", MetricKind::kCounter, "packets sent again, by cause");
  for (const QpSnapshot& qp : qps)
    for (size_t i = 0; i < kRepeatCauses; ++i)
      if (qp.view.repeated[i] != 0)
        out.sample({{"device", qp.nic},
                    {"qp", qp.qpn},
                    {"cause", name_of(static_cast<RepeatCause>(i + 1))}},
                   qp.view.repeated[i]);
  each("hostnic_qp_naks", MetricKind::kCounter, "NAKs received, RNR included",
       [&](const QpView& qp) { return number(qp.naks); });
  each("hostnic_qp_outstanding_packets", MetricKind::kGauge,
       "packets of requests that are not acknowledged",
       [&](const QpView& qp) { return number(qp.outstanding()); });
  each("hostnic_qp_receives_posted", MetricKind::kGauge, "receives posted and not taken",
       [&](const QpView& qp) {
         return qp.shared_receives ? std::nullopt : number(qp.receives_waiting);
       });
  each("hostnic_qp_round_trip_seconds", MetricKind::kGauge, "the newest round trip",
       [](const QpView& qp) {
         return qp.rtt_ns == 0 ? std::nullopt : std::optional(qp.rtt_ns / 1e9);
       });
  const auto each_path = [&](const char* name, MetricKind kind, const char* help, auto&& value) {
    out.family(name, kind, help);
    for (const QpSnapshot& qp : qps)
      for (size_t i = 0; i < qp.view.paths.size(); ++i)
        if (const auto number = value(qp.view.paths[i]))
          out.sample({{"device", qp.nic}, {"qp", qp.qpn}, {"path", fmt::format("{}", i + 1)}},
                     *number);
  };
  each_path("hostnic_qp_path_avoided", MetricKind::kGauge,
            "1: a path of a queue pair that is avoided",
            [&](const PathView& path) { return number(path.good ? 0 : 1); });
  each_path("hostnic_qp_path_lost_packets", MetricKind::kCounter,
            "packets of a queue pair that a path has lost",
            [&](const PathView& path) { return number(path.lost); });
  each_path("hostnic_qp_path_round_trip_seconds", MetricKind::kGauge,
            "smoothed round trip of a path of a queue pair", [](const PathView& path) {
              return path.srtt_ns == 0 ? std::nullopt
                                       : std::optional(static_cast<double>(path.srtt_ns) / 1e9);
            });
  each("hostnic_qp_retransmission_timeout_seconds", MetricKind::kGauge,
       "after so long without an answer something goes again", [](const QpView& qp) {
         return qp.rto_ns == 0 ? std::nullopt : std::optional(static_cast<double>(qp.rto_ns) / 1e9);
       });
  each("hostnic_qp_silent_seconds", MetricKind::kGauge, "time since the peer's last answer",
       [](const QpView& qp) {
         return qp.heard ? std::optional(static_cast<double>(qp.silent_ns) / 1e9) : std::nullopt;
       });
  out.family("hostnic_qps_left_out", MetricKind::kGauge,
             "queue pairs beyond the first thousand, which have no metrics of their own");
  out.sample({}, uint64_t{left_out});
}

void write_clients(MetricsText& out, Daemon& daemon, const Asker& asker) {
  std::vector<ClientInfo> clients = daemon.clients().all();
  std::erase_if(clients, [&](const ClientInfo& client) { return !asker.sees(client.uid); });
  const auto each = [&](const char* name, MetricKind kind, const char* help, auto&& value) {
    out.family(name, kind, help);
    for (const ClientInfo& client : clients)
      out.sample({{"device", daemon.nics()[client.nic].plan.settings.name},
                  {"client", fmt::format("{}", client.client_id)},
                  {"program", client.program},
                  {"pid", fmt::format("{}", client.pid)},
                  {"uid", fmt::format("{}", client.uid)}},
                 uint64_t{value(client)});
  };
  const auto read = [](const auto& value) { return value.load(std::memory_order_relaxed); };
  each("hostnic_client_sent_bytes", MetricKind::kCounter,
       "bytes that have left for a program, headers included",
       [&](const ClientInfo& client) { return read(client.use->sent_bytes); });
  each("hostnic_client_queue_pairs", MetricKind::kGauge, "queue pairs of a program",
       [&](const ClientInfo& client) { return read(client.use->queue_pairs); });
  each("hostnic_client_memory_windows", MetricKind::kGauge, "memory windows of a program",
       [&](const ClientInfo& client) { return read(client.use->windows); });
  each("hostnic_client_memory_regions", MetricKind::kGauge, "memory regions of a program",
       [](const ClientInfo& client) { return client.regions; });
  each("hostnic_client_mapped_bytes", MetricKind::kGauge,
       "registered memory of a program that hostnicd maps",
       [](const ClientInfo& client) { return client.bytes_mapped; });
  each("hostnic_client_mem_fd_bytes", MetricKind::kGauge,
       "registered memory of a program that is reached by system calls",
       [](const ClientInfo& client) { return client.bytes_mem_fd; });
}

void write_lcores(MetricsText& out, Daemon& daemon) {
  const auto each = [&](const char* name, MetricKind kind, const char* help, auto&& value) {
    out.family(name, kind, help);
    for (size_t i = 0; i < daemon.lcores().size(); ++i)
      out.sample({{"lcore", fmt::format("{}", i)}}, value(*daemon.lcores()[i]));
  };
  each("hostnic_lcore_turns", MetricKind::kCounter, "turns of an lcore's loop",
       [](const LcoreLoop& lcore) { return lcore.turns(); });
  each("hostnic_lcore_sleeps", MetricKind::kCounter, "times that an lcore went to sleep",
       [](const LcoreLoop& lcore) { return lcore.sleeps(); });
  each("hostnic_lcore_longest_turn_seconds", MetricKind::kGauge,
       "the longest turn since `clear counters`",
       [](const LcoreLoop& lcore) { return static_cast<double>(lcore.longest_turn_ns()) / 1e9; });
}

void write_errors(MetricsText& out) {
  uint64_t lines = error_book().forgotten();
  const auto entries = error_book().entries();
  for (const ErrorBook::Entry& entry : entries) lines += entry.count;
  out.family("hostnic_errors", MetricKind::kCounter, "errors that `hostnic errors` tells of");
  out.sample({}, lines);
  out.family("hostnic_error_kinds", MetricKind::kGauge, "different kinds of them");
  out.sample({}, uint64_t{entries.size()});
}

}  // namespace

std::string metrics_of(Daemon& daemon, const Asker& asker, MetricsFormat format) {
  const std::vector<NicSnapshot> nics = nics_of(daemon);
  size_t left_out = 0;
  const std::vector<QpSnapshot> qps = qps_of(daemon, asker, left_out);
  MetricsText out(format);
  write_infiniband(out, nics);
  write_nics(out, nics);
  write_switch(out, nics);
  write_qps(out, qps, left_out);
  write_clients(out, daemon, asker);
  write_lcores(out, daemon);
  if (asker.is_owner) write_errors(out);
  return out.finish();
}

}  // namespace hostnic
