// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/ports/udp/udp_receiver.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netinet/udp.h>
#include <string.h>
#include <sys/epoll.h>

#include <algorithm>

#include "dataplane/daemon/ports/udp/udp_socket.h"
#include "dataplane/nic/packet/packet.h"
#include "protocol/wire/icrc.h"
#include "protocol/wire/ipv6.h"

namespace hostnic {
namespace {

constexpr size_t kMaxDatagramBytes = 65'536;
// Pieces are as long as long packets, and 64 of them hold the longest datagram; short packets are
// moved, which costs little.
constexpr uint32_t kLeastPieceBytes = 1024;
// Sockets are read whatever the set says after so many empty looks at it: what the kernel did not
// announce, if there is such a thing, waits no longer.
constexpr uint32_t kLooksBeforeReading = 64;
// Where one socket always has more, the others are looked at after so many times.
constexpr uint32_t kReceivesBetweenLooks = 8;

}  // namespace

UdpReceiver::UdpReceiver(int arrivals, rte_mempool* pool, AddressBook& book)
    : arrivals_(arrivals),
      pool_(pool),
      book_(book),
      messages_(std::make_unique<Message[]>(kMessages)),
      spread_(std::make_unique<std::byte[]>(kMaxDatagramBytes)) {
  for (mmsghdr& header : headers_of_messages_) header = {};
}

UdpReceiver::~UdpReceiver() {
  for (uint32_t i = ready_begin_; i < ready_end_; ++i) rte_pktmbuf_free(ready_[i]);
  for (uint32_t i = 0; i < kMessages; ++i)
    if (messages_[i].piece_bytes != 0)
      for (rte_mbuf* buffer : messages_[i].buffers) rte_pktmbuf_free(buffer);
}

void UdpReceiver::add_own(int socket, Ipv4Address number, const Gid& on_wire) {
  sources_.push_back({socket, number, on_wire, /*is_own=*/true});
}

void UdpReceiver::remove_own(Ipv4Address number) {
  std::erase_if(sources_,
                [&](const Source& source) { return source.is_own && source.to == number; });
}

void UdpReceiver::add_group(int socket, Ipv4Address group, const Gid& on_wire) {
  sources_.push_back({socket, group, on_wire, /*is_own=*/false});
}

void UdpReceiver::remove_group(Ipv4Address group) {
  std::erase_if(sources_,
                [&](const Source& source) { return !source.is_own && source.to == group; });
}

bool UdpReceiver::is_own(Ipv4Address address) const {
  return std::ranges::any_of(
      sources_, [&](const Source& source) { return source.is_own && source.to == address; });
}

// The number by which the NIC knows the sender of a packet; nothing: the book has no room for it.
std::optional<Ipv4Address> UdpReceiver::number_of(const Gid& sender) {
  // No host has an IPv4 address of those that stand for IPv6 addresses.
  if (const auto ip = ipv4_of(sender)) return is_stand_in(*ip) ? std::nullopt : ip;
  Sender& known =
      senders_[(std::to_integer<uint32_t>(sender[15]) ^ std::to_integer<uint32_t>(sender[7])) %
               kSenders];
  // The entry of a host that nobody names may have been used anew.
  if (known.address == sender && book_.address_of(known.number) == sender) return known.number;
  const auto met = book_.meet(sender);
  if (met) known = {sender, *met};
  return met;
}

// Points the first `count` pieces at their buffers, behind the room for headers.
void UdpReceiver::point_pieces(Message& message, uint32_t count) {
  for (uint32_t i = 0; i < count; ++i)
    message.pieces[i] = {rte_pktmbuf_mtod_offset(message.buffers[i], std::byte*, wire::kFlowBytes),
                         message.piece_bytes};
}

// Gives a message buffers, where it has none, and the length of the packets expected. Returns false
// if there are too few buffers.
bool UdpReceiver::prepare(Message& message, msghdr& header) {
  if (message.piece_bytes == 0 &&
      rte_pktmbuf_alloc_bulk(pool_, message.buffers.data(), kSegments) != 0)
    return false;
  if (message.piece_bytes != piece_bytes_) {
    message.piece_bytes = piece_bytes_;
    point_pieces(message, kSegments);
  }
  header.msg_name = &message.from;
  header.msg_namelen = sizeof message.from;
  header.msg_iov = message.pieces.data();
  header.msg_iovlen = std::min<size_t>(kSegments, kMaxDatagramBytes / piece_bytes_ + 1);
  header.msg_control = message.control.data();
  header.msg_controllen = message.control.size();
  header.msg_flags = 0;
  return true;
}

UdpReceiver::Datagram UdpReceiver::describe(const Message& message, const msghdr& header,
                                            uint32_t bytes, Source& source) {
  // The port is at the same place in both families' addresses.
  static_assert(offsetof(sockaddr_in, sin_port) == offsetof(sockaddr_in6, sin6_port));
  Datagram datagram{.bytes = bytes,
                    .segment_bytes = bytes,
                    .src_port = ntohs(message.from.ipv4.sin_port),
                    .to = source.to,
                    .source = &source,
                    .from_on_wire = gid_of(message.from.any).value_or(Gid{})};
  auto* const mutable_header = const_cast<msghdr*>(&header);
  for (cmsghdr* at = CMSG_FIRSTHDR(mutable_header); at != nullptr;
       at = CMSG_NXTHDR(mutable_header, at)) {
    if (at->cmsg_level == IPPROTO_UDP && at->cmsg_type == UDP_GRO) {
      int segment_bytes = 0;
      memcpy(&segment_bytes, CMSG_DATA(at), sizeof segment_bytes);
      if (segment_bytes > 0) datagram.segment_bytes = static_cast<uint32_t>(segment_bytes);
    } else if (at->cmsg_level == IPPROTO_IP && at->cmsg_type == IP_TOS) {
      memcpy(&datagram.traffic_class, CMSG_DATA(at), sizeof datagram.traffic_class);
    } else if (at->cmsg_level == IPPROTO_IPV6 && at->cmsg_type == IPV6_TCLASS) {
      int traffic_class = 0;
      memcpy(&traffic_class, CMSG_DATA(at), sizeof traffic_class);
      datagram.traffic_class = static_cast<uint8_t>(traffic_class);
    } else if (at->cmsg_level == SOL_SOCKET && at->cmsg_type == SO_RXQ_OVFL) {
      uint32_t drops = 0;
      memcpy(&drops, CMSG_DATA(at), sizeof drops);
      count(dropped_, drops - source.drops_seen);
      source.drops_seen = drops;
    }
  }
  return datagram;
}

// Makes the headers of packets from this sender, where they are not those of the last packets.
void UdpReceiver::use_headers_of(const Datagram& datagram) {
  if (headers_for_.from == datagram.from && headers_for_.to == datagram.to &&
      headers_for_.src_port == datagram.src_port &&
      headers_for_.traffic_class == datagram.traffic_class)
    return;
  headers_ = wire::make_flow_template({}, {}, datagram.from, datagram.to, datagram.src_port,
                                      datagram.traffic_class);
  headers_for_ = datagram;
}

// Whether the ICRC that ends the `bytes` from BTH on is right. The bytes before BTH are written.
// For IPv4 `number` is the identification that it is probably right for, and becomes the one that
// it is.
bool UdpReceiver::icrc_right(std::byte* bth, uint32_t bytes, const Datagram& datagram,
                             uint16_t& number) {
  const size_t covered_of_bth = bytes - wire::kIcrcBytes;
  const uint32_t found = wire::load_icrc(bth + covered_of_bth);
  if (is_stand_in(datagram.from)) {
    std::byte* const ipv6 = bth - wire::kUdpBytes - wire::kIpv6Bytes;
    static_assert(RTE_PKTMBUF_HEADROOM + wire::kFlowBytes >=
                  wire::kIpv6Bytes + wire::kUdpBytes + wire::kIcrcPrefixBytes);
    emit(wire::Ipv6{.payload_bytes = static_cast<uint16_t>(wire::kUdpBytes + bytes),
                    .src = datagram.from_on_wire,
                    .dst = datagram.source->to_on_wire},
         std::span<std::byte, wire::kIpv6Bytes>(ipv6, wire::kIpv6Bytes));
    emit(wire::Udp{.src_port = datagram.src_port,
                   .dst_port = wire::kRoceUdpPort,
                   .length_bytes = static_cast<uint16_t>(wire::kUdpBytes + bytes),
                   .checksum = 0},
         std::span<std::byte, wire::kUdpBytes>(bth - wire::kUdpBytes, wire::kUdpBytes));
    return icrc_of_ipv6(ipv6, wire::kIpv6Bytes + wire::kUdpBytes + covered_of_bth) == found;
  }
  std::byte* const ip = bth - kBytesBeforeBth;
  const size_t covered = kBytesBeforeBth + covered_of_bth;
  wire::write_flow(headers_, covered + wire::kIcrcBytes, ip - wire::kEthernetBytes);
  wire::store_be16(ip + wire::ipv4_offset::kIdentification, number);
  const uint32_t expected = icrc_of(ip, covered);
  if (expected == found) return true;
  const auto identification = identification_.find(expected ^ found, number, covered);
  if (identification) number = *identification;
  return identification.has_value();
}

// Takes one packet, which begins with its BTH behind the room for its headers. `number` is the
// identification that it probably has; then it is the one of the next.
void UdpReceiver::take_one(rte_mbuf* packet, uint32_t bytes, const Datagram& datagram,
                           uint16_t& number) {
  if (bytes < wire::kBthBytes + wire::kIcrcBytes || bytes + wire::kFlowBytes > kBufferBytes) {
    count(malformed_, 1);
    rte_pktmbuf_free(packet);
    return;
  }
  use_headers_of(datagram);
  auto* const frame = rte_pktmbuf_mtod(packet, std::byte*);
  std::byte* const bth = frame + wire::kFlowBytes;
  const bool right = icrc_right(bth, bytes, datagram, number);
  size_t ip_bytes = kBytesBeforeBth + bytes;
  std::byte& flags = bth[wire::bth_offset::kFlags];
  const size_t covered = bytes - wire::kIcrcBytes;  // from BTH on
  const size_t pad = std::to_integer<size_t>(flags) >> wire::bth_bit::kPadShift & 3;
  if (right && covered % 4 == 0 && covered - pad >= wire::kBthBytes) {
    ip_bytes = kBytesBeforeBth + covered - pad;
    flags &= ~std::byte{3 << wire::bth_bit::kPadShift};
  } else {
    packet->ol_flags |= icrc_flag();
  }
  ++number;
  wire::write_flow(headers_, ip_bytes, frame);
  packet->data_len = static_cast<uint16_t>(wire::kEthernetBytes + ip_bytes);
  packet->pkt_len = packet->data_len;
  ready_[ready_end_++] = packet;
}

// Moves the packets of a datagram, which were read into pieces of another length, to the beginnings
// of the buffers.
void UdpReceiver::spread(Message& message, const Datagram& datagram) {
  for (uint32_t done = 0, i = 0; done < datagram.bytes; ++i) {
    const uint32_t part = std::min(datagram.bytes - done, message.piece_bytes);
    memcpy(spread_.get() + done, message.pieces[i].iov_base, part);
    done += part;
  }
  for (uint32_t done = 0, i = 0; done < datagram.bytes && i < kSegments; ++i) {
    const uint32_t part = std::min(datagram.bytes - done, datagram.segment_bytes);
    if (part + wire::kFlowBytes <= kBufferBytes)
      memcpy(message.pieces[i].iov_base, spread_.get() + done, part);
    done += part;
  }
}

// Takes the packets of a datagram, and gives the message other buffers.
void UdpReceiver::take(Message& message, const Datagram& datagram) {
  const uint32_t segment_bytes = datagram.segment_bytes;
  const uint32_t arrived = (datagram.bytes + segment_bytes - 1) / segment_bytes;
  const uint32_t packets = std::min(arrived, kSegments);
  count(malformed_, arrived - packets);  // hostnic sends no more together
  const bool in_place =
      packets == 1 ? datagram.bytes <= message.piece_bytes : segment_bytes == message.piece_bytes;
  if (!in_place) spread(message, datagram);
  if (segment_bytes >= kLeastPieceBytes && segment_bytes + wire::kFlowBytes <= kBufferBytes)
    piece_bytes_ = segment_bytes;
  uint16_t number = 0;
  for (uint32_t i = 0; i < packets; ++i) {
    const uint32_t bytes = std::min(segment_bytes, datagram.bytes - i * segment_bytes);
    take_one(message.buffers[i], bytes, datagram, number);
  }
  if (rte_pktmbuf_alloc_bulk(pool_, message.buffers.data(), packets) != 0) {
    for (uint32_t i = packets; i < kSegments; ++i) rte_pktmbuf_free(message.buffers[i]);
    message.piece_bytes = 0;
    return;
  }
  point_pieces(message, packets);
}

// Reads what has arrived at a socket. Called when nothing is ready.
void UdpReceiver::read_socket(Source& source) {
  ready_begin_ = ready_end_ = 0;
  uint32_t prepared = 0;
  while (prepared < wanted_ && prepare(messages_[prepared], headers_of_messages_[prepared].msg_hdr))
    ++prepared;
  if (prepared == 0) return;
  const int read =
      recvmmsg(source.socket, headers_of_messages_.data(), prepared, MSG_DONTWAIT, nullptr);
  // The call ends early where there is no more, or at an error, which the next one returns.
  source.may_have_more = read < 0 ? errno != EAGAIN : static_cast<uint32_t>(read) == prepared;
  const uint32_t datagrams = read > 0 ? static_cast<uint32_t>(read) : 0;
  for (uint32_t i = 0; i < datagrams; ++i) {
    const mmsghdr& header = headers_of_messages_[i];
    Datagram datagram = describe(messages_[i], header.msg_hdr, header.msg_len, source);
    const auto from = number_of(datagram.from_on_wire);
    if (header.msg_len == 0 || (header.msg_hdr.msg_flags & MSG_TRUNC) != 0) {
      count(malformed_, 1);
    } else if (!from) {
      count(unnamed_, 1);
    } else if (!is_own(*from)) {
      datagram.from = *from;
      take(messages_[i], datagram);
    }
  }
  full_reads_ = datagrams == kMessages ? full_reads_ + 1 : 0;
  wanted_ = datagrams == prepared ? std::min(2 * wanted_, kMessages) : std::max(datagrams, 1u);
}

// Asks the kernel at which sockets something has arrived since they were last read empty.
void UdpReceiver::look() {
  std::array<epoll_event, 16> events;
  receives_since_look_ = 0;
  const int found = epoll_wait(arrivals_, events.data(), events.size(), 0);
  empty_looks_ = found > 0 ? 0 : empty_looks_ + 1;
  for (int i = 0; i < found; ++i)
    for (Source& source : sources_)
      if (source.socket == events[static_cast<size_t>(i)].data.fd) source.may_have_more = true;
  if (empty_looks_ < kLooksBeforeReading) return;
  empty_looks_ = 0;
  for (Source& source : sources_) source.may_have_more = true;
}

uint16_t UdpReceiver::receive(rte_mbuf** packets, uint16_t max) {
  if (!has_ready() && (++receives_since_look_ >= kReceivesBetweenLooks ||
                       std::ranges::none_of(sources_, &Source::may_have_more)))
    look();
  for (size_t tries = 0; !has_ready() && tries < sources_.size(); ++tries) {
    next_source_ = next_source_ + 1 < sources_.size() ? next_source_ + 1 : 0;
    if (sources_[next_source_].may_have_more) read_socket(sources_[next_source_]);
  }
  const uint32_t taken = std::min<uint32_t>(max, ready_end_ - ready_begin_);
  std::copy_n(ready_.begin() + ready_begin_, taken, packets);
  ready_begin_ += taken;
  return static_cast<uint16_t>(taken);
}

}  // namespace hostnic
