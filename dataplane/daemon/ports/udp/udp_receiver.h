// SPDX-License-Identifier: BSD-3-Clause
// Packets arrive at a UDP socket, perhaps many as one datagram (UDP_GRO). Each becomes a buffer as
// other ports deliver them: the headers that a socket keeps to itself are made again. ICRCs are
// checked here, because only the port knows that the identification they cover is a guess; a packet
// with a right one goes on without, and one with a wrong one goes on with it, for the NIC to count.
//
// The kernel writes packets where they stay: a datagram is read into a list of buffers, each as
// long as the packets that came last were. Where packets of another length come, they are moved.
// The lcore of the NIC.
#pragma once

#include <netinet/in.h>
#include <rte_mbuf.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "dataplane/daemon/network/socket_address.h"
#include "dataplane/nic/address_book.h"
#include "protocol/types.h"
#include "protocol/wire/icrc_identification.h"
#include "protocol/wire/packet.h"

namespace hostnic {

class UdpReceiver {
 public:
  // Buffers come from `pool`, each with room for kBufferBytes. `arrivals` is an edge-triggered
  // epoll set of the sockets, whose events have the socket as their data: a look there costs a
  // sixth of what reading two empty sockets does. Set, sockets, pool and book must outlive the
  // receiver.
  UdpReceiver(int arrivals, rte_mempool* pool, AddressBook& book);
  ~UdpReceiver();
  UdpReceiver(const UdpReceiver&) = delete;
  UdpReceiver& operator=(const UdpReceiver&) = delete;

  // The room of a buffer for the largest packet, behind DPDK's headroom.
  static constexpr uint16_t kBufferBytes = 4096 + 512;
  // Fills `packets` with up to `max` packets that have arrived, and returns how many. The caller
  // owns them.
  uint16_t receive(rte_mbuf** packets, uint16_t max);
  // Adds the socket of one of the NIC's addresses, which the NIC knows by a number; removes it.
  void add_own(int socket, Ipv4Address number, const Gid& on_wire);
  void remove_own(Ipv4Address number);
  // Adds the socket of a multicast group, whose packets from the own address are left out: the NIC
  // has them already. Removes it.
  void add_group(int socket, Ipv4Address group, const Gid& on_wire);
  void remove_group(Ipv4Address group);
  // Whether packets wait here for receive().
  bool has_ready() const { return ready_begin_ != ready_end_; }
  // Whether the socket has been full of packets at the last times that it was read.
  bool backlog() const { return full_reads_ >= 4; }

  // For people; any thread. Packets for which the socket had no room; datagrams of hosts for which
  // the book had none; datagrams that are no RoCEv2 packets, or too long.
  uint64_t dropped() const { return dropped_.load(std::memory_order_relaxed); }
  uint64_t unnamed() const { return unnamed_.load(std::memory_order_relaxed); }
  uint64_t malformed() const { return malformed_.load(std::memory_order_relaxed); }

 private:
  static constexpr uint32_t kMessages = 8;   // datagrams by one call, at most
  static constexpr uint32_t kSegments = 64;  // packets of one datagram
  static constexpr uint32_t kReady = kMessages * kSegments;
  static constexpr uint32_t kSenders = 256;

  // A socket, and the address that packets to it are for.
  struct Source {
    int socket;
    Ipv4Address to;  // by the number that the NIC knows it by
    Gid to_on_wire;
    bool is_own;                // else it is a group
    bool may_have_more = true;  // than has been read
    uint32_t drops_seen = 0;    // packets for which this socket had no room, as it last said
  };
  // Where one datagram is read into.
  struct Message {
    std::array<rte_mbuf*, kSegments> buffers;
    std::array<iovec, kSegments> pieces;
    uint32_t piece_bytes = 0;  // the length of the pieces; 0: none is there
    SocketAddress from;
    alignas(16) std::array<std::byte, 128> control;
  };
  // What the kernel says of one datagram.
  struct Datagram {
    uint32_t bytes = 0, segment_bytes = 0;
    uint16_t src_port = 0;
    Ipv4Address from{}, to{};
    uint8_t traffic_class = 0;
    const Source* source = nullptr;
    Gid from_on_wire{};
  };
  // A host that IPv6 packets have come from lately.
  struct Sender {
    Gid address{};
    Ipv4Address number{};
  };

  static void point_pieces(Message& message, uint32_t count);
  void look();
  bool prepare(Message& message, msghdr& header);
  void read_socket(Source& source);
  Datagram describe(const Message& message, const msghdr& header, uint32_t bytes, Source& source);
  bool is_own(Ipv4Address address) const;
  std::optional<Ipv4Address> number_of(const Gid& sender);
  void take(Message& message, const Datagram& datagram);
  void take_one(rte_mbuf* packet, uint32_t bytes, const Datagram& datagram, uint16_t& number);
  void spread(Message& message, const Datagram& datagram);
  void use_headers_of(const Datagram& datagram);
  bool icrc_right(std::byte* bth, uint32_t bytes, const Datagram& datagram, uint16_t& number);
  void count(std::atomic<uint64_t>& counter, uint64_t by) {
    counter.store(counter.load(std::memory_order_relaxed) + by, std::memory_order_relaxed);
  }

  const int arrivals_;
  std::vector<Source> sources_;
  size_t next_source_ = 0;
  uint32_t empty_looks_ = 0;  // at the set, in a row
  uint32_t receives_since_look_ = 0;
  rte_mempool* const pool_;
  AddressBook& book_;
  std::array<Sender, kSenders> senders_{};
  uint32_t piece_bytes_ = 4096 + 128;  // the length of the packets that are expected
  uint32_t wanted_ = 1;                // how many datagrams the next call asks for
  uint32_t full_reads_ = 0;
  std::atomic<uint64_t> dropped_{0}, unnamed_{0}, malformed_{0};
  wire::FlowTemplate headers_;  // of the packets that came last
  Datagram headers_for_;
  wire::IcrcIdentification identification_;
  uint32_t ready_begin_ = 0, ready_end_ = 0;
  std::array<rte_mbuf*, kReady> ready_;
  std::array<mmsghdr, kMessages> headers_of_messages_;
  std::unique_ptr<Message[]> messages_;
  std::unique_ptr<std::byte[]> spread_;  // a datagram of other packets than expected
};

}  // namespace hostnic
