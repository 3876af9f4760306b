// SPDX-License-Identifier: BSD-3-Clause
// Communication management's messages: each field at its place, and frames that a Linux kernel sent
// come apart and together again byte for byte.
#include "protocol/cm/mad.h"

#include <gtest/gtest.h>

#include <cstring>
#include <string>
#include <string_view>

namespace hostnic::cm {
namespace {

MadBytes from_hex(std::string_view hex) {
  MadBytes bytes{};
  for (size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes[i / 2] = static_cast<std::byte>(std::stoi(std::string(hex.substr(i, 2)), nullptr, 16));
  return bytes;
}

// What Linux 6.1's rdma_cm sent for rping and udaddy, from 10.7.0.1 to 10.7.0.2 and back. What is
// not given is 0.
struct KernelFrame {
  const char* name;
  const char* hex;
};
constexpr KernelFrame kFrames[] = {
    {"rping REQ",
     "0107020300000000000000020f73421c00100000000000001c42730f000000000000000001061c06"
     "505400fffe12345600000000000000000000110100000001000000a01d057fa7ffff37f0ffffffff"
     "00000000000000000000ffff0a07000100000000000000000000ffff0a0700025d6f300000400098"
     "00000000000000000000000000000000000000000000000000000000000000000000000000000000"
     "000000000040b3730000000000000000000000000a0700010000000000000000000000000a070002"},
    {"rping REP",
     "0107020300000000000000020f73421c001300000000000048de0fef1c42730f0000000000001100"
     "00000000b45bce00010178e0505400fffe123457"},
    {"rping RTU", "0107020300000000000000020f73421c00140000000000001c42730f48de0fef"},
    {"rping DREQ", "0107020300000000000000020f73421c00150000000000001c42730f48de0fef000011"},
    {"rping DREP", "0107020300000000000000020f73421c001600000000000048de0fef1c42730f"},
    {"udaddy SIDR_REQ",
     "0107020300000000000000020f73421d00170000000000001d42730fffff00000000000001111c06"
     "0040d5710000000000000000000000000a0700010000000000000000000000000a070002"},
    {"udaddy SIDR_REP",
     "0107020300000000000000020f73421d00180000000000001d42730f000000000000120000000000"
     "01111c0601234567"},
};

template <typename T>
T kernel_message(const char* name) {
  for (const KernelFrame& frame : kFrames)
    if (std::string_view(frame.name) == name)
      return std::get<T>(parse(from_hex(frame.hex))->message);
  throw std::runtime_error(name);
}

TEST(CmMad, KernelFramesComeApartAndTogether) {
  for (const KernelFrame& frame : kFrames) {
    const MadBytes bytes = from_hex(frame.hex);
    const auto mad = parse(bytes);
    ASSERT_TRUE(mad) << frame.name;
    EXPECT_EQ(build(*mad), bytes) << frame.name;
  }
}

TEST(CmMad, KernelReq) {
  const Req req = kernel_message<Req>("rping REQ");
  EXPECT_EQ(req.local_id, 0x1c42730fu);
  EXPECT_EQ(req.service_id, service_id(0x0106, 7174));
  EXPECT_EQ(req.local_guid, 0x505400fffe123456u);
  EXPECT_EQ(req.qpn, 0x11u);
  EXPECT_EQ(req.responder_resources, 1);
  EXPECT_EQ(req.initiator_depth, 1);
  EXPECT_EQ(req.remote_response_timeout, 20);
  EXPECT_EQ(req.local_response_timeout, 20);
  EXPECT_EQ(req.transport, ServiceType::kRc);
  EXPECT_EQ(req.starting_psn, 0x1d057fu);
  EXPECT_EQ(req.retry_count, 7);
  EXPECT_EQ(req.rnr_retry_count, 7);
  EXPECT_EQ(req.path_mtu, 3);
  EXPECT_EQ(req.max_cm_retries, 15);
  EXPECT_FALSE(req.srq);
  EXPECT_EQ(ipv4_of(req.primary.local_gid), Ipv4Address{0x0a070001});
  EXPECT_EQ(ipv4_of(req.primary.remote_gid), Ipv4Address{0x0a070002});
  EXPECT_EQ(req.primary.flow_label, 0x5d6f3u);
  EXPECT_EQ(req.primary.hop_limit, 64);
  EXPECT_EQ(req.primary.local_ack_timeout, 19);
  const auto ip = parse_ip_header(std::span(req.private_data).first<kIpHeaderBytes>());
  ASSERT_TRUE(ip);
  EXPECT_EQ(*ip, make_ip_header(gid_of(Ipv4Address{0x0a070001}), 0xb373,
                                gid_of(Ipv4Address{0x0a070002})));
  std::array<std::byte, kIpHeaderBytes> again;
  emit(*ip, again);
  EXPECT_EQ(std::memcmp(again.data(), req.private_data.data(), again.size()), 0);
}

TEST(CmMad, KernelRepAndTheRest) {
  const Rep rep = kernel_message<Rep>("rping REP");
  EXPECT_EQ(rep.local_id, 0x48de0fefu);
  EXPECT_EQ(rep.remote_id, 0x1c42730fu);
  EXPECT_EQ(rep.qpn, 0x11u);
  EXPECT_EQ(rep.starting_psn, 0xb45bceu);
  EXPECT_EQ(rep.target_ack_delay, 15);
  EXPECT_EQ(rep.rnr_retry_count, 7);
  EXPECT_EQ(rep.local_guid, 0x505400fffe123457u);
  EXPECT_EQ(kernel_message<Rtu>("rping RTU").remote_id, rep.local_id);
  EXPECT_EQ(kernel_message<Dreq>("rping DREQ").remote_qpn, 0x11u);
  EXPECT_EQ(kernel_message<Drep>("rping DREP").remote_id, 0x1c42730fu);
  EXPECT_EQ(kernel_message<SidrReq>("udaddy SIDR_REQ").service_id, service_id(0x0111, 7174));
  const SidrRep answer = kernel_message<SidrRep>("udaddy SIDR_REP");
  EXPECT_EQ(answer.qpn, 0x12u);
  EXPECT_EQ(answer.qkey, 0x01234567u);
  EXPECT_EQ(answer.status, 0);
}

// The messages that the captures lack, at the bytes that the standard says.
TEST(CmMad, RejAndMraAtTheirPlaces) {
  Rej rej{
      .local_id = 1, .remote_id = 2, .concerned = Concerned::kRep, .info_bytes = 3, .reason = 28};
  rej.info[0] = std::byte{7};
  rej.private_data[147] = std::byte{9};
  const MadBytes bytes = build({5, rej});
  EXPECT_EQ(bytes[17], std::byte{0x12});
  EXPECT_EQ(bytes[24 + 8], std::byte{0x40});
  EXPECT_EQ(bytes[24 + 9], std::byte{6});
  EXPECT_EQ(bytes[24 + 11], std::byte{28});
  EXPECT_EQ(bytes[24 + 12], std::byte{7});
  EXPECT_EQ(bytes[255], std::byte{9});
  EXPECT_EQ(parse(bytes), (Mad{5, rej}));

  const Mra mra{
      .local_id = 1, .remote_id = 2, .concerned = Concerned::kOther, .service_timeout = 24};
  const MadBytes delay = build({6, mra});
  EXPECT_EQ(delay[24 + 8], std::byte{0x80});
  EXPECT_EQ(delay[24 + 9], std::byte{0xc0});
  EXPECT_EQ(parse(delay), (Mad{6, mra}));
}

TEST(CmMad, OtherClassesAreNoMessages) {
  const MadBytes good = build({1, Rtu{}});
  ASSERT_TRUE(parse(good));
  for (const size_t at : {0, 1, 2, 3, 16, 17}) {
    MadBytes bad = good;
    bad[at] = std::byte{0x7f};
    EXPECT_FALSE(parse(bad)) << at;
  }
}

TEST(CmMad, IpHeadersOfOtherVersionsAreRefused) {
  std::array<std::byte, kIpHeaderBytes> bytes;
  emit(make_ip_header(gid_of(Ipv4Address{1}), 2, gid_of(Ipv4Address{3})), bytes);
  EXPECT_TRUE(parse_ip_header(bytes));
  bytes[1] = std::byte{0x50};
  EXPECT_FALSE(parse_ip_header(bytes));
  bytes[1] = std::byte{0x40};
  bytes[0] = std::byte{1};
  EXPECT_FALSE(parse_ip_header(bytes));
}

}  // namespace
}  // namespace hostnic::cm
