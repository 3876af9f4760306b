// SPDX-License-Identifier: BSD-3-Clause
// Frames of a genuine RoCEv2 peer (tests/data/rxe/): each is understood in the standard's dialect,
// its ICRC is the one that we compute, and what was understood makes the same frame again, byte for
// byte, from Ethernet to ICRC. Only the IP identification is taken from the frame: the peer counts
// there, hostnic sends 0.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <variant>

#include "protocol/cm/mad.h"
#include "tests/support/pcap_file.h"
#include "tests/support/rxe_recording.h"
#include "tests/unit/wire/samples.h"

namespace hostnic::wire {
namespace {

using samples::Bytes;

constexpr size_t kIp = kEthernetBytes, kUdp = kIp + kIpv4Bytes;

std::vector<std::filesystem::path> captures() {
  std::vector<std::filesystem::path> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(recording::folder()))
    if (entry.path().extension() == ".pcap") paths.push_back(entry.path());
  std::sort(paths.begin(), paths.end());
  return paths;
}

bool is_roce(std::span<const std::byte> frame) {
  Packet packet;
  const ParseError error = parse_bth(frame, frame.size(), true, packet);
  return error != ParseError::kNotIpv4 && error != ParseError::kNotRoce;
}

ParseError parse_standard(std::span<const std::byte> frame, Packet& out) {
  const ParseError error = parse_bth(frame, frame.size(), true, out);
  return error != ParseError::kNone ? error : parse_extensions(Dialect::kRocev2, frame, true, out);
}

std::span<const std::byte> payload_of(std::span<const std::byte> frame, const Packet& packet) {
  return frame.subspan(packet.header_bytes, packet.payload_bytes);
}

// The frame that a NIC of ours makes of what it understood of this one.
Bytes rebuild_frame(std::span<const std::byte> frame, const Packet& packet) {
  const EthernetView ethernet(frame.first<kEthernetBytes>());
  const UdpView udp(frame.subspan<kUdp, kUdpBytes>());
  const FlowTemplate flow = make_flow_template(ethernet.src(), ethernet.dst(), packet.src_ip,
                                               packet.dst_ip, udp.src_port(), packet.traffic_class);
  Bytes bytes(header_bytes(packet));
  build(flow, packet, true, {}, bytes);
  const size_t identification = kIp + ipv4_offset::kIdentification;
  store_be16(&bytes[identification], load_be16(&frame[identification]));
  samples::fix_ip_checksum(bytes);
  const auto payload = payload_of(frame, packet);
  bytes.insert(bytes.end(), payload.begin(), payload.end());
  bytes.resize(bytes.size() + pad_bytes(packet.payload_bytes));
  const uint32_t icrc = icrc_reference(std::span(bytes).subspan(kIp));
  bytes.resize(bytes.size() + kIcrcBytes);
  store_icrc(bytes.data() + bytes.size() - kIcrcBytes, icrc);
  return bytes;
}

class RxeCapture : public testing::TestWithParam<std::filesystem::path> {
 protected:
  std::vector<Bytes> roce_frames() const {
    std::vector<Bytes> frames = pcap::read_frames(GetParam());
    std::erase_if(frames, [](const Bytes& frame) { return !is_roce(frame); });
    return frames;
  }
};

TEST_P(RxeCapture, FramesComeApartAndTogether) {
  const auto frames = roce_frames();
  ASSERT_FALSE(frames.empty());
  for (size_t i = 0; i < frames.size(); ++i) {
    const samples::ExactCopy frame(frames[i]);
    Packet packet;
    ASSERT_EQ(parse_standard(frame.bytes(), packet), ParseError::kNone) << "frame " << i;
    const auto covered = frame.bytes().subspan(kIp, icrc_covered_bytes(packet));
    ASSERT_EQ(kIp + covered.size() + kIcrcBytes, frame.bytes().size()) << "frame " << i;
    EXPECT_EQ(icrc_reference(covered), load_icrc(covered.data() + covered.size()))
        << "frame " << i << ": " << to_string(packet);
    EXPECT_EQ(rebuild_frame(frame.bytes(), packet), frames[i])
        << "frame " << i << ": " << to_string(packet);
  }
}

TEST_P(RxeCapture, ManagementDatagramsComeApartAndTogether) {
  for (const Bytes& frame : roce_frames()) {
    Packet packet;
    ASSERT_EQ(parse_standard(frame, packet), ParseError::kNone);
    if (raw(packet.dest_qpn) != cm::kManagementQpn) continue;
    EXPECT_EQ(raw(packet.src_qpn), cm::kManagementQpn);
    EXPECT_EQ(packet.qkey, cm::kManagementQkey);
    const auto payload = payload_of(frame, packet);
    ASSERT_EQ(payload.size(), cm::kMadBytes);
    const auto mad = cm::parse(payload.first<cm::kMadBytes>());
    ASSERT_TRUE(mad);
    EXPECT_TRUE(std::ranges::equal(cm::build(*mad), payload));
  }
}

// What all of the peer's packets say, and ours should say as well.
TEST_P(RxeCapture, HeadersSayWhatIsUsual) {
  for (const Bytes& frame : roce_frames()) {
    Packet packet;
    ASSERT_EQ(parse_standard(frame, packet), ParseError::kNone);
    EXPECT_GE(view_front<UdpView>(std::span(frame).subspan(kUdp))->src_port(), kFlowTagBase);
    EXPECT_EQ(packet.pkey, kDefaultPkey);
    EXPECT_EQ(packet.traffic_class, 0);
    EXPECT_FALSE(packet.fecn || packet.becn);
    if (opcode_info(packet.opcode).has_aeth && packet.aeth.kind == AckKind::kAck) {
      EXPECT_EQ(packet.aeth.code, 0x1f) << "no credits are counted";
    }
  }
}

std::string name_of(const testing::TestParamInfo<std::filesystem::path>& info) {
  std::string name = info.param.stem().string();
  if (info.param.parent_path().filename() == "tcg") name = "tcg_" + name;
  std::replace_if(
      name.begin(), name.end(), [](char c) { return std::isalnum(c) == 0; }, '_');
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, RxeCapture, testing::ValuesIn(captures()), name_of);

// Nothing that the tests above say is said of too little.
TEST(RxeCaptures, HaveEveryOpcodeOfTheStandard) {
  std::set<Opcode> seen;
  for (const auto& path : captures()) {
    for (const Bytes& frame : pcap::read_frames(path)) {
      Packet packet;
      if (is_roce(frame) && parse_standard(frame, packet) == ParseError::kNone)
        seen.insert(packet.opcode);
    }
  }
  const std::set<Opcode> missing = {Opcode::kRcSendLastInv, Opcode::kCnp};
  for (const OpcodeInfo& info : kRocev2Opcodes)
    EXPECT_NE(seen.contains(info.opcode), missing.contains(info.opcode)) << info.name;
}

// The kinds of management datagrams in a capture, by their place in cm::Message.
std::vector<size_t> messages_of(const char* capture) {
  std::vector<size_t> kinds;
  for (const Bytes& frame : pcap::read_frames(recording::folder() / capture)) {
    Packet packet;
    if (!is_roce(frame) || parse_standard(frame, packet) != ParseError::kNone ||
        raw(packet.dest_qpn) != cm::kManagementQpn)
      continue;
    const auto mad = cm::parse(payload_of(frame, packet).first<cm::kMadBytes>());
    if (mad) kinds.push_back(mad->message.index());
  }
  return kinds;
}

TEST(RxeCaptures, HaveConnectionsThatComeAndGo) {
  const auto place = []<typename M>(M message) { return cm::Message(message).index(); };
  const std::vector<size_t> rping = {place(cm::Req{}), place(cm::Rep{}), place(cm::Rtu{}),
                                     place(cm::Dreq{}), place(cm::Drep{})};
  EXPECT_EQ(messages_of("cm_rping_tap.pcap"), rping);
  const std::vector<size_t> udaddy = {place(cm::SidrReq{}), place(cm::SidrRep{})};
  EXPECT_EQ(messages_of("cm_udaddy_tap.pcap"), udaddy);
}

}  // namespace
}  // namespace hostnic::wire
