// SPDX-License-Identifier: BSD-3-Clause
// Packets leave through a UDP socket. What the NIC built as a whole frame is sent from its BTH on;
// the kernel makes the headers before that, and the ICRC is made for what it will make: Linux
// numbers the packets of one segmented send 0, 1, 2, ... in their IP identification, which the ICRC
// covers, and gives 0 to packets that are sent singly. IPv6 has no such number.
//
// Packets of one size to one destination are one GSO send (UDP_SEGMENT), several of which leave by
// one sendmmsg. The lcore of the NIC.
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
#include "dataplane/nic/limits.h"
#include "dataplane/nic/packet/external_payload.h"
#include "protocol/wire/ipv6.h"
#include "protocol/wire/packet.h"

namespace hostnic {

// An own address that packets leave from, by a socket that is bound to it.
struct UdpOrigin {
  Gid address{};
  Ipv4Address number{};  // by which the NIC names it
  int socket = -1;
  uint32_t interface_index = 0;
  bool is_ipv6() const { return is_stand_in(number); }
};

class UdpSender {
 public:
  // `segments`: the kernel knows UDP_SEGMENT. The sockets and the book must outlive the sender.
  UdpSender(bool segments, const AddressBook& book);
  UdpSender(const UdpSender&) = delete;
  UdpSender& operator=(const UdpSender&) = delete;

  // Sends packets, in order, and returns how many are done with; these are freed. Fewer than
  // `count`: the socket is full. External payload is read here; where the socket did not take it,
  // it is read anew next time, so that READs are read in their order (rule 18, READs stay ordered).
  // Packets that the network can't take (too long for the path, no route, a firewall) are lost, as
  // on any network, and counted.
  uint16_t send(rte_mbuf** packets, uint16_t count);

  // Whether a socket had no room when packets were last sent.
  bool full() const { return full_; }
  // Adds an own address, and removes it: packets that say that they are from it are refused then.
  void add_origin(const UdpOrigin& origin) { origins_.push_back(origin); }
  void remove_origin(Ipv4Address number) {
    std::erase_if(origins_, [&](const UdpOrigin& origin) { return origin.number == number; });
  }
  // Says that the addresses are another interface's now.
  void set_interface(uint32_t index) {
    for (UdpOrigin& origin : origins_) origin.interface_index = index;
  }

  // For people; any thread. Whether there are GSO sends; packets that the kernel refused, and its
  // last reason (errno).
  bool segments() const { return segments_.load(std::memory_order_relaxed); }
  uint64_t refused() const { return refused_.load(std::memory_order_relaxed); }
  int last_error() const { return last_error_.load(std::memory_order_relaxed); }
  // How often the socket was full.
  uint64_t times_full() const { return times_full_.load(std::memory_order_relaxed); }
  // The destination of the last packet that was too long for the way there, once. Any thread.
  std::optional<Ipv4Address> take_too_long() {
    const uint32_t to = too_long_to_.exchange(0, std::memory_order_relaxed);
    return to == 0 ? std::nullopt : std::optional(Ipv4Address{to});
  }

 private:
  static constexpr uint32_t kMaxSegments = 64;      // UDP_MAX_SEGMENTS of older kernels
  static constexpr uint32_t kMaxGsoBytes = 65'507;  // of one datagram
  static constexpr uint32_t kPackets = 2 * kBurst;  // of one call
  // Slots are 71 cache lines long: their beginnings are spread over the cache's sets.
  static constexpr size_t kSlotBytes = 71 * 64;
  static constexpr size_t kBthOffset = 64;
  static constexpr size_t kIpOffset = kBthOffset - wire::kIpv4Bytes - wire::kUdpBytes;
  static constexpr size_t kIpv6Offset = kBthOffset - wire::kIpv6Bytes - wire::kUdpBytes;
  static constexpr size_t kMostBytes = kSlotBytes - kIpOffset - wire::kIcrcBytes - 3;
  using PacketSlot = std::array<std::byte, kSlotBytes>;

  // What is known of the packet in a slot.
  struct Staged {
    uint32_t covered_bytes;  // from the IPv4 header to the end of the pad
    uint32_t icrc_error;     // what its ICRC is to be wrong by
    uint32_t origin;         // which of origins_ it leaves from
    Ipv4Address destination;
    uint8_t traffic_class, hop_limit;
  };
  // Packets that leave by one message of sendmmsg.
  struct GsoSend {
    uint32_t origin = 0;
    Ipv4Address destination{};
    uint8_t traffic_class = 0, hop_limit = 0;
    uint32_t first_packet = 0, packets = 0;
    uint32_t segment_bytes = 0, bytes = 0;  // of the first packet; of all
    bool ended = false;                     // by a packet shorter than the others
  };
  // The ancillary data of a message: TOS, TTL and segment size.
  struct alignas(16) Control {
    std::array<std::byte, 2 * CMSG_SPACE(sizeof(int)) + CMSG_SPACE(sizeof(uint16_t))> bytes;
  };

  std::byte* ip_of(uint32_t index) { return slots_[index].data() + kIpOffset; }
  std::optional<uint32_t> origin_of(Ipv4Address source) const;
  Gid on_wire(const UdpOrigin& origin, Ipv4Address destination) const;
  uint32_t icrc_on_wire(uint32_t index, uint16_t number);
  bool stage(rte_mbuf* packet, uint32_t index);
  void append(uint32_t index);
  void describe_gso_send(uint32_t number);
  bool refuse_gso_send(const GsoSend& gso, int error);
  uint32_t transmit_gso_sends();
  void release(rte_mbuf** packets, uint32_t count);

  std::vector<UdpOrigin> origins_;
  const AddressBook& book_;
  std::atomic<bool> segments_;
  std::atomic<uint64_t> refused_{0}, times_full_{0};
  std::atomic<int> last_error_{0};
  std::atomic<uint32_t> too_long_to_{0};
  PayloadReferences references_;
  bool full_ = false;
  uint32_t gso_send_count_ = 0;
  std::array<Staged, kPackets> staged_;
  std::array<iovec, kPackets> pieces_;
  std::array<GsoSend, kPackets> gso_sends_;
  std::array<mmsghdr, kPackets> messages_;
  std::array<SocketAddress, kPackets> names_;
  std::array<Control, kPackets> controls_;
  std::unique_ptr<PacketSlot[]> slots_;
};

}  // namespace hostnic
