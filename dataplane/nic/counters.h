// SPDX-License-Identifier: BSD-3-Clause
// What a NIC counts, under the names that RDMA people know from
// /sys/class/infiniband/*/ports/*/hw_counters where one exists. Written by the NIC's lcore only;
// read by anyone (plain 64-bit loads). Those that begin with repeated_ are parts of
// retransmitted_packets, one for each cause (protocol/repeat_cause.h).
#pragma once

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "protocol/repeat_cause.h"

namespace hostnic {

#define HOSTNIC_COUNTERS(X)                                                              \
  X(tx_packets, "packets handed to the port")                                            \
  X(tx_bytes, "their bytes, with headers")                                               \
  X(rx_packets, "packets received from the port or the loopback")                        \
  X(rx_bytes, "their bytes, with headers")                                               \
  X(retransmitted_packets, "data packets sent again")                                    \
  HOSTNIC_REPEAT_CAUSES(X, repeated_)                                                    \
  X(out_of_sequence, "packets that arrived ahead of a missing one")                      \
  X(packet_seq_err, "holes that opened in a request stream")                             \
  X(duplicate_request, "packets received a second time")                                 \
  X(policy_mismatch, "packets whose sender recovers by another policy, refused")         \
  X(out_of_window, "packets beyond the receive window, dropped")                         \
  X(rnr_nak_sent, "receiver not ready answers sent")                                     \
  X(rnr_nak_received, "receiver not ready answers received")                             \
  X(nak_sent, "fatal NAKs sent")                                                         \
  X(nak_received, "fatal NAKs received")                                                 \
  X(acks_sent, "ACKs sent, NAKs included")                                               \
  X(acks_received, "ACKs received, NAKs included")                                       \
  X(cnp_sent, "congestion notifications sent (transport roce)")                          \
  X(cnp_received, "congestion notifications received")                                   \
  X(rate_cuts, "times a queue pair's rate was cut by a congestion notification")         \
  X(rate_recoveries, "times a queue pair that was limited was at the line rate again")   \
  X(acks_dropped, "ACKs that found no room and were not sent")                           \
  X(time_wait_acks_sent, "ACKs to peers of connections that have ended here")            \
  X(read_requests_served, "READ pulls answered")                                         \
  X(read_answers_repeated, "READ answers given again as they were the first time")       \
  X(read_pulls_refused, "READ pulls that would have read out of order, refused")         \
  X(atomics_executed, "atomics executed")                                                \
  X(atomics_replayed, "duplicate atomics answered from the record")                      \
  X(stale_epoch, "READ answers to an older epoch, dropped")                              \
  X(reorder_buffered, "packets kept until all before them were placed")                  \
  X(reorder_full, "early packets dropped because the reorder buffer was full")           \
  X(late_bytes_skipped, "bytes of late packets not written over newer data")             \
  X(bytes_copied_mapped, "payload bytes placed by memcpy")                               \
  X(bytes_copied_mem_fd, "payload bytes placed or fetched by system call")               \
  X(mem_fd_put_off, "transfers put off while the client's mappings changed")             \
  X(unfilled_put_off, "accesses put off until memory has come into the mirror")          \
  X(rx_unknown_qp, "packets for no QP of ours")                                          \
  X(rx_wrong_tag,                                                                        \
    "packets of an older connection of the QP, or of another QP than the connected one") \
  X(rx_wrong_service, "packets of another service (RC, UC, UD) than their QP's")         \
  X(rx_wrong_qkey, "datagrams with another Q_Key than their QP's")                       \
  X(management_sent, "management datagrams sent by QP 1")                                \
  X(management_received, "management datagrams that came to QP 1")                       \
  X(management_dropped, "management datagrams that found no room")                       \
  X(mrc_sacks_sent, "MRC's SACKs sent")                                                  \
  X(mrc_sacks_received, "MRC's SACKs received")                                          \
  X(mrc_nacks_sent, "MRC's NACKs sent: packets that could not be taken")                 \
  X(mrc_nacks_received, "MRC's NACKs received")                                          \
  X(mrc_trimmed, "packets whose payload a switch had cut off")                           \
  X(mrc_probes_sent, "MRC's probes sent, of paths that are assumed to be bad")           \
  X(mrc_endpoint_requests, "MRC's requests to the node that have come: ports, probes")   \
  X(mrc_endpoint_answers, "answers to such requests")                                    \
  X(mrc_endpoint_dropped, "such requests beyond the rate, or without room")              \
  X(mrc_paths_lost, "times that MRC assumed a path to be bad")                           \
  X(mrc_paths_regained, "times that a probe of MRC found a path good again")             \
  X(peer_questions_sent, "questions to hosts about what they speak")                     \
  X(peer_questions_answered, "such questions of hosts that were answered")               \
  X(peer_questions_refused, "such questions beyond the rate, dropped")                   \
  X(inquiries_sent, "questions to hosts about connections that fail or wait")            \
  X(inquiries_answered, "such questions of hosts that were answered")                    \
  X(inquiries_refused, "such questions beyond the rate, dropped")                        \
  X(rx_no_receive, "UC and UD messages dropped: no receive was posted")                  \
  X(rx_too_long, "UC and UD messages dropped: longer than allowed")                      \
  X(uc_incomplete, "UC messages dropped: a packet of them did not come")                 \
  X(uc_access_refused, "UC WRITEs dropped: key, bounds or right")                        \
  X(rx_parse_error, "packets that are no valid RoCEv2")                                  \
  X(rx_icrc_error, "packets with a wrong ICRC")                                          \
  X(rx_not_ours, "packets for another address or protocol")                              \
  X(tx_bundles, "bundles: several packets handed over as one buffer")                    \
  X(rx_bundles, "bundles taken at once, not packet by packet")                           \
  X(bundle_parts, "buffers that impairments made of parts of bundles")                   \
  X(rx_no_buffer, "packets of bundles lost for want of buffers to impair them in")       \
  X(tx_no_buffer, "times the transmitter waited for packet buffers")                     \
  X(tx_unresolved, "packets dropped because the peer's address is not resolved")         \
  X(arp_broadcasts, "ARP requests to all")                                               \
  X(arp_probes, "ARP requests to a neighbour that was known")                            \
  X(neighbours_refused, "times an address found no place in the ARP table")              \
  X(duplicate_address, "ARP packets of another host that has the NIC's address")         \
  X(descriptors, "send descriptors taken")                                               \
  X(descriptors_discarded, "send descriptors of QPs that may not send")                  \
  X(meta_reports, "reports given to drivers")                                            \
  X(driver_wakeups, "times a sleeping driver was woken")                                 \
  X(clients_dropped, "clients dropped for impossible ring contents")                     \
  X(link_downed, "times the port's link went down")                                      \
  X(address_lost, "times the NIC's address went from the machine's interfaces")          \
  X(interface_lost, "times the port's interface was removed")                            \
  X(mtu_changed, "times the MTU of the port's interface changed")

enum class Counter : uint32_t {
#define HOSTNIC_COUNTER_ENUM(name, help) name,
  HOSTNIC_COUNTERS(HOSTNIC_COUNTER_ENUM)
#undef HOSTNIC_COUNTER_ENUM
      kCount
};
inline constexpr size_t kCounterCount = static_cast<size_t>(Counter::kCount);

// The counter of the packets that went again for a cause; together they are retransmitted_packets.
constexpr Counter counter_of(RepeatCause cause) {
  return static_cast<Counter>(static_cast<uint32_t>(Counter::repeated_gap) +
                              static_cast<uint32_t>(cause) - 1);
}
constexpr bool counts_repeats(Counter counter) {
  return counter >= Counter::repeated_gap &&
         counter <= counter_of(static_cast<RepeatCause>(kRepeatCauses));
}

const char* counter_name(Counter counter);
// What it counts, for people.
const char* counter_help(Counter counter);

// The counters of one thread, which alone writes them: an increment is a relaxed load and store, no
// locked instruction.
class Counters {
 public:
  void add(Counter counter, uint64_t n = 1) {
    auto& value = values_[static_cast<size_t>(counter)];
    value.store(value.load(std::memory_order_relaxed) + n, std::memory_order_relaxed);
  }
  uint64_t get(Counter counter) const {
    return values_[static_cast<size_t>(counter)].load(std::memory_order_relaxed);
  }
  void clear() {
    for (auto& value : values_) value.store(0, std::memory_order_relaxed);
  }

 private:
  std::array<std::atomic<uint64_t>, kCounterCount> values_{};
};

}  // namespace hostnic
