// SPDX-License-Identifier: BSD-3-Clause
// Each protocol header by itself: its bytes as the specification draws them, the way back, every
// shorter length, and its printer.
#include <gtest/gtest.h>

#include <vector>

#include "protocol/wire/arp.h"
#include "protocol/wire/packet.h"

namespace hostnic::wire {
namespace {

std::vector<std::byte> from_hex(std::string_view text) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::vector<std::byte> bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(std::byte(digit(text[i]) << 4 | digit(text[i + 1])));
  }
  return bytes;
}

std::string to_hex(std::span<const std::byte> bytes) {
  std::string text;
  for (std::byte b : bytes) {
    text += "0123456789abcdef"[std::to_integer<int>(b) >> 4];
    text += "0123456789abcdef"[std::to_integer<int>(b) & 15];
  }
  return text;
}

// value <-> bytes both ways, and no view of fewer bytes than the header has. Bytes behind the
// header change nothing.
template <typename View, typename Header>
void expect_layout(const Header& value, std::string_view hex) {
  const std::vector<std::byte> expected = from_hex(hex);
  ASSERT_EQ(expected.size(), View::kBytes);
  std::array<std::byte, View::kBytes> emitted;
  emitted.fill(std::byte{0xee});  // emit() must write every byte
  emit(value, std::span<std::byte, View::kBytes>(emitted));
  EXPECT_EQ(to_hex(emitted), hex);

  for (size_t length = 0; length < View::kBytes; ++length) {
    EXPECT_FALSE(view_front<View>(std::span(expected).first(length))) << length;
  }
  std::vector<std::byte> longer = expected;
  longer.push_back(std::byte{0x77});
  for (const auto& bytes : {expected, longer}) {
    const auto view = view_front<View>(bytes);
    ASSERT_TRUE(view);
    EXPECT_EQ(view->read(), value);
  }
}

TEST(Bytes, EveryWidthIsBigEndianAtOddAddresses) {
  std::array<std::byte, 9> memory{};
  std::byte* at = memory.data() + 1;
  store_be64(at, 0x0102030405060708);
  EXPECT_EQ(to_hex(memory), "000102030405060708");
  EXPECT_EQ(load_be64(at), 0x0102030405060708u);
  EXPECT_EQ(load_be32(at), 0x01020304u);
  EXPECT_EQ(load_be24(at), 0x010203u);
  EXPECT_EQ(load_be16(at), 0x0102u);
  EXPECT_EQ(load_le32(at), 0x04030201u);
  store_be24(at, 0xff112233);
  EXPECT_EQ(to_hex(memory), "001122330405060708") << "24 bits touch three bytes";
  store_le32(at, 0xa1a2a3a4);
  EXPECT_EQ(to_hex(memory), "00a4a3a2a105060708");
}

TEST(EthernetHeader, Layout) {
  const Ethernet header{{2, 0, 0, 0, 0, 9}, {2, 1, 2, 3, 4, 0xfa}, 0x0800};
  expect_layout<EthernetView>(header,
                              "02000000000902010203"
                              "04fa0800");
  EXPECT_EQ(to_string(header), "02:01:02:03:04:fa > 02:00:00:00:00:09 type 0x0800");
}

TEST(Ipv4Header, Layout) {
  const Ipv4 header{.traffic_class = 0x6a,
                    .total_bytes = 0x0123,
                    .hop_limit = 63,
                    .protocol = 17,
                    .src = Ipv4Address{0xc0a80007},
                    .dst = Ipv4Address{0x0a0000fe}};
  expect_layout<Ipv4View>(header, "456a0123000040003f116eb3c0a800070a0000fe");
  EXPECT_EQ(to_string(header), "192.168.0.7 > 10.0.0.254 proto 17 tos 0x6a ttl 63 len 291");
}

// A header often used as an example; its checksum is 0xb861.
TEST(Ipv4Header, ChecksumOfAKnownHeader) {
  auto bytes = from_hex("45000073000040004011b861c0a80001c0a800c7");
  const std::span<std::byte, kIpv4Bytes> header(bytes.data(), kIpv4Bytes);
  EXPECT_TRUE(Ipv4View(header).checksum_ok());
  store_be16(bytes.data() + ipv4_offset::kChecksum, 0);
  EXPECT_EQ(static_cast<uint16_t>(~ipv4_sum(header)), 0xb861);
}

TEST(Ipv4Header, EveryFlippedBitFailsTheChecksum) {
  const auto good = from_hex("45000073000040004011b861c0a80001c0a800c7");
  for (size_t bit = 0; bit < good.size() * 8; ++bit) {
    auto bad = good;
    bad[bit / 8] ^= std::byte(1 << bit % 8);
    EXPECT_FALSE(view_front<Ipv4View>(bad)->checksum_ok()) << "bit " << bit;
  }
}

TEST(Ipv4Header, IncrementalChecksumEqualsTheFullOneForEveryLength) {
  std::array<std::byte, kIpv4Bytes> memory;
  Ipv4 header{.src = Ipv4Address{0x0a000001}, .dst = Ipv4Address{0xffffffff}};
  emit(header, memory);
  const uint16_t of_zero = Ipv4View(memory).checksum();
  for (uint32_t length = 0; length <= 0xffff; ++length) {
    header.total_bytes = static_cast<uint16_t>(length);
    emit(header, memory);
    ASSERT_EQ(update_checksum(of_zero, 0, header.total_bytes), Ipv4View(memory).checksum())
        << length;
  }
}

TEST(Ipv4Header, FragmentsAreSeenAndDontFragmentIsNone) {
  auto bytes = from_hex("45000073000040004011b861c0a80001c0a800c7");
  const auto is_fragment = [&](uint16_t field) {
    store_be16(bytes.data() + ipv4_offset::kFragment, field);
    return view_front<Ipv4View>(bytes)->is_fragment();
  };
  EXPECT_FALSE(is_fragment(0x0000));
  EXPECT_FALSE(is_fragment(0x4000));
  EXPECT_TRUE(is_fragment(0x2000)) << "more fragments";
  EXPECT_TRUE(is_fragment(0x0001)) << "offset 8";
  EXPECT_TRUE(is_fragment(0x1000)) << "highest bit of the offset";
}

TEST(UdpHeader, Layout) {
  const Udp header{
      .src_port = 0xd00d, .dst_port = 4791, .length_bytes = 0x0203, .checksum = 0x0405};
  expect_layout<UdpView>(header, "d00d12b702030405");
  EXPECT_EQ(to_string(header), "udp 53261 > 4791 len 515");
}

TEST(BthHeader, Layout) {
  Bth header;
  header.opcode = 0xc1;
  header.dest_qpn = Qpn{0x010203};
  header.psn = Psn{0xfffffe};
  expect_layout<BthView>(header, "c100ffff0001020300fffffe");
  EXPECT_EQ(to_string(header), "opcode 0xc1 qp 0x10203 psn 16777214");
}

TEST(BthHeader, EachFlagHasItsBit) {
  const auto expect_bits = [](auto set, std::string_view hex, std::string_view printed) {
    Bth header;
    set(header);
    expect_layout<BthView>(header, hex);
    EXPECT_EQ(to_string(header), "opcode 0x00 qp 0x0 psn 0" + std::string(printed));
  };
  expect_bits([](Bth& h) { h.solicited = true; }, "0080ffff0000000000000000", " solicited");
  expect_bits([](Bth& h) { h.migration = true; }, "0040ffff0000000000000000", " migration");
  expect_bits([](Bth& h) { h.pad_count = 3; }, "0030ffff0000000000000000", " pad 3");
  expect_bits([](Bth& h) { h.version = 15; }, "000fffff0000000000000000", " version 15");
  expect_bits([](Bth& h) { h.pkey = 0x1234; }, "000012340000000000000000", " pkey 0x1234");
  expect_bits([](Bth& h) { h.fecn = true; }, "0000ffff8000000000000000", " fecn");
  expect_bits([](Bth& h) { h.becn = true; }, "0000ffff4000000000000000", " becn");
  expect_bits([](Bth& h) { h.ack_request = true; }, "0000ffff0000000080000000", " ack-request");
  expect_bits([](Bth& h) { h.cont = true; }, "0000ffff0000000040000000", " cont");
  expect_bits([](Bth& h) { h.more = true; }, "0000ffff0000000020000000", " more");
  expect_bits([](Bth& h) { h.attempt = 3; }, "0000ffff0000000018000000", " attempt 3");
  expect_bits([](Bth& h) { h.policy = Policy::kGoBackN; }, "0000ffff0000000002000000",
              " go-back-n");
  expect_bits([](Bth& h) { h.policy = Policy::kWholeMessage; }, "0000ffff0000000004000000",
              " whole-message");
}

TEST(BthHeader, WideValuesDoNotSpill) {
  Bth header;
  header.pad_count = 0xff;
  header.version = 0;
  header.attempt = 0xfc;
  header.dest_qpn = Qpn{0xff000001};
  std::array<std::byte, kBthBytes> out;
  emit(header, out);
  EXPECT_EQ(to_hex(out), "0030ffff0000000100000000");
}

TEST(RethHeader, Layout) {
  const Reth header{0x0102030405060708, 0x11121314, 0x21222324};
  expect_layout<RethView>(header, "01020304050607081112131421222324");
  EXPECT_EQ(to_string(header), "va 0x102030405060708 rkey 0x11121314 len 555885348");
}

TEST(DethHeader, Layout) {
  const Deth header{0x80112233, Qpn{0xa1b2c3}};
  expect_layout<DethView>(header, "8011223300a1b2c3");
  EXPECT_EQ(to_string(header), "qkey 0x80112233 src-qp 0xa1b2c3");
}

TEST(ImmDtHeader, KeepsTheApplicationsByteOrder) {
  ImmDt header;
  std::memcpy(&header.imm_data, "\xde\xad\xbe\x0f", 4);
  expect_layout<ImmDtView>(header, "deadbe0f");
  EXPECT_EQ(to_string(header), "imm 0xdeadbe0f");
}

TEST(AtomicEthHeader, Layout) {
  const AtomicEth header{0x0102030405060708, 0x11121314, 0x2122232425262728, 0x3132333435363738};
  expect_layout<AtomicEthView>(header,
                               "0102030405060708111213142122232425262728"
                               "3132333435363738");
  EXPECT_EQ(to_string(header),
            "va 0x102030405060708 rkey 0x11121314 swap-or-add 0x2122232425262728 compare "
            "0x3132333435363738");
}

TEST(AethHeader, LayoutOfEachKind) {
  expect_layout<AethView>(Aeth{AckKind::kAck, 31, 0x010203}, "1f010203");
  expect_layout<AethView>(Aeth{AckKind::kRnrNak, 14, 0xffffff}, "2effffff");
  expect_layout<AethView>(Aeth{AckKind::kNak, 2, 0}, "62000000");
  EXPECT_EQ(to_string(Aeth{AckKind::kAck, 0, 7}), "ack msn 7");
  EXPECT_EQ(to_string(Aeth{AckKind::kRnrNak, 14, 7}), "rnr-nak timer 14 msn 7");
  EXPECT_EQ(to_string(Aeth{AckKind::kNak, 2, 7}), "nak remote-access msn 7");
  EXPECT_EQ(to_string(Aeth{AckKind::kNak, 9, 7}), "nak reserved msn 7");
}

TEST(NativeHeaders, Layout) {
  expect_layout<NethView>(Neth{1, Qpn{0x020304}}, "01020304");
  expect_layout<RecvEthView>(RecvEth{0xa1a2a3a4, 0xb1b2b3b4}, "a1a2a3a4b1b2b3b4");
  const ReadEth read{0x01020304, Psn{0x111213}, 0x14, 0x21222324, 0x31323334};
  expect_layout<ReadEthView>(read, "01020304111213142122232431323334");
  expect_layout<RespEthView>(RespEth{0xfe}, "fe000000");
  EXPECT_EQ(to_string(Neth{1, Qpn{0x020304}}), "native 1 src-qp 0x20304");
  EXPECT_EQ(to_string(RecvEth{9, 70}), "sn 9 message 70");
  EXPECT_EQ(to_string(ReadEth{1, Psn{2}, 3, 4, 5}), "read 1 response-psn 2 epoch 3 range 4+5");
  EXPECT_EQ(to_string(RespEth{254}), "epoch 254");
}

TEST(SackEthHeader, Layout) {
  const Sack sack{.base = Psn{0x010203},
                  .highest_acceptable = Psn{0x111213},
                  .recv_sn_limit = 0x21222324,
                  .echo_psn = Psn{0x313233},
                  .nak_sn = 0x41424344,
                  .word_count = 64};
  expect_layout<SackEthView>(sack, "0102034011121300212223243132330041424344");
  EXPECT_EQ(to_string(Sack{}), "base 0 window-end 0");
}

TEST(SackEthHeader, EachFlagHasItsBit) {
  const auto expect_flags = [](Sack sack, std::string_view flags, std::string_view printed) {
    expect_layout<SackEthView>(sack,
                               "00000000000000" + std::string(flags) + "000000000000000000000000");
    EXPECT_EQ(to_string(sack), "base 0 window-end 0" + std::string(printed));
  };
  expect_flags({.echo_valid = true}, "01", " echo 0/0");
  expect_flags({.echo_valid = true, .echo_duplicate = true}, "03", " echo 0/0 duplicate");
  expect_flags({.has_credit = true}, "04", " credit 0");
  expect_flags({.congestion_mark = true}, "08", " congested");
  expect_flags({.echo_attempt = 3, .echo_valid = true}, "31", " echo 0/3");
}

TEST(ArpHeader, LayoutOfRequestAndReply) {
  const MacAddress own = {2, 0, 0, 0, 0, 1}, peer = {2, 0, 0, 0, 0, 2};
  const Ipv4Address own_ip{0x0a000001}, peer_ip{0x0a000002};
  const Arp request = make_arp_request(own, own_ip, peer_ip);
  expect_layout<ArpView>(request, "00010800060400010200000000010a0000010000000000000a000002");
  EXPECT_EQ(to_string(request), "who-has 10.0.0.2 tell 10.0.0.1 (02:00:00:00:00:01)");
  const Arp reply = make_arp_reply(peer, request);
  expect_layout<ArpView>(reply, "00010800060400020200000000020a0000020200000000010a000001");
  EXPECT_EQ(to_string(reply), "10.0.0.2 is-at 02:00:00:00:00:02");
}

TEST(ArpFrame, RequestsAreBroadcastRepliesAreNot) {
  const Arp request =
      make_arp_request({2, 0, 0, 0, 0, 1}, Ipv4Address{0x0a000001}, Ipv4Address{0x0a000002});
  const Arp reply = make_arp_reply({2, 0, 0, 0, 0, 2}, request);
  std::vector<std::byte> frame(kArpFrameBytes);
  ASSERT_EQ(build_arp(request, frame), kArpFrameBytes);
  EXPECT_EQ(view_front<EthernetView>(frame)->dst(), kBroadcastMac);
  EXPECT_EQ(parse_arp(frame), request);
  ASSERT_EQ(build_arp(reply, frame), kArpFrameBytes);
  EXPECT_EQ(view_front<EthernetView>(frame)->dst(), request.sender_mac);
  EXPECT_EQ(view_front<EthernetView>(frame)->src(), reply.sender_mac);
  EXPECT_EQ(parse_arp(frame), reply);
  frame.resize(kMinFrameBytes);
  EXPECT_EQ(parse_arp(frame), reply) << "padding is ignored";
}

TEST(ArpFrame, OtherFramesAreNotArp) {
  const Arp request = make_arp_request({2, 0, 0, 0, 0, 1}, Ipv4Address{1}, Ipv4Address{2});
  std::vector<std::byte> good(kArpFrameBytes);
  ASSERT_EQ(build_arp(request, good), kArpFrameBytes);
  for (size_t length = 0; length < good.size(); ++length) {
    EXPECT_FALSE(parse_arp(std::span(good).first(length))) << length;
    EXPECT_EQ(build_arp(request, std::span(good).first(length)), 0u) << length;
  }
  // Ethertype, hardware and protocol type and size, operation: nothing but the one value is ours.
  for (size_t at : {12, 13, 14, 15, 16, 17, 18, 19, 20, 21}) {
    auto bad = good;
    bad[at] ^= std::byte{0x40};
    EXPECT_FALSE(parse_arp(bad)) << "byte " << at;
  }
}

}  // namespace
}  // namespace hostnic::wire
