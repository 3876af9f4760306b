// SPDX-License-Identifier: BSD-3-Clause
// Requests on the control socket: what is right passes unchanged, everything else is refused with a
// line, before anything is done with it.
#include "dataplane/daemon/control/control_request.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <string.h>

#include "protocol/hostif/version.h"

namespace hostnic {
namespace {

class Request {
 public:
  explicit Request(ControlKind kind) { header_.kind = kind; }
  template <typename T>
  Request& add(const T& value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    payload_.insert(payload_.end(), from, from + sizeof(T));
    return *this;
  }
  Request& text(std::string_view words) {
    for (const char c : words) payload_.push_back(static_cast<std::byte>(c));
    return *this;
  }
  ControlRequest& header() { return header_; }
  std::vector<std::byte> bytes() const {
    ControlRequest header = header_;
    header.payload_bytes += static_cast<uint32_t>(payload_.size());
    std::vector<std::byte> out(sizeof(header));
    memcpy(out.data(), &header, sizeof(header));
    out.insert(out.end(), payload_.begin(), payload_.end());
    return out;
  }

 private:
  ControlRequest header_;
  std::vector<std::byte> payload_;
};

std::string answer_to(const Request& request, size_t fds = 0) {
  auto call = parse_control_request(request.bytes(), fds);
  return call ? "accepted" : call.error().message;
}

Request registration(uint32_t count, uint64_t va, uint64_t length) {
  RegisterMrRequest fixed{};
  fixed.va = fixed.iova = va;
  fixed.length_bytes = length;
  fixed.region_count = count;
  return Request(ControlKind::kRegisterMr).add(fixed);
}

TEST(ControlRequest, ListOpenAndTextPass) {
  EXPECT_TRUE(parse_control_request(Request(ControlKind::kListDevices).bytes(), 0));
  OpenRequest open{1, 4711, 0, "ib_write_bw"};
  auto call = parse_control_request(Request(ControlKind::kOpen).add(open).bytes(), 2);
  ASSERT_TRUE(call);
  EXPECT_EQ(std::get<OpenDevice>(*call).device_index, 1u);
  EXPECT_EQ(std::get<OpenDevice>(*call).pid, 4711u);
  EXPECT_EQ(std::get<OpenDevice>(*call).program, "ib_write_bw");
  call = parse_control_request(Request(ControlKind::kText).text("show nic").bytes(), 0);
  ASSERT_TRUE(call);
  EXPECT_EQ(std::get<TextCommand>(*call).text, "show nic");
}

TEST(ControlRequest, OpeningRdmaCm) {
  auto call =
      parse_control_request(Request(ControlKind::kOpenCm).add(OpenCmRequest{0b101}).bytes(), 0);
  ASSERT_TRUE(call);
  EXPECT_EQ(std::get<OpenCmRequest>(*call).visible_devices, 0b101u);
  EXPECT_NE(answer_to(Request(ControlKind::kOpenCm)), "accepted");
  EXPECT_NE(answer_to(Request(ControlKind::kOpenCm).add(OpenCmRequest{}), 1), "accepted");
}

TEST(ControlRequest, Captures) {
  const auto capture = [](uint32_t snap_bytes, uint64_t ring_bytes) {
    return answer_to(Request(ControlKind::kCapture).add(CaptureRequest{1, snap_bytes, ring_bytes}));
  };
  EXPECT_EQ(capture(kMinSnapBytes, kMinCaptureBytes), "accepted");
  EXPECT_EQ(capture(kMaxSnapBytes, kMaxCaptureBytes), "accepted");
  EXPECT_NE(capture(kMinSnapBytes - 1, kMinCaptureBytes), "accepted");
  EXPECT_NE(capture(kMaxSnapBytes + 1, kMinCaptureBytes), "accepted");
  for (const uint64_t bytes : {uint64_t{0}, kMinCaptureBytes / 2, kMinCaptureBytes + 1,
                               kMinCaptureBytes * 3, kMaxCaptureBytes * 2, UINT64_MAX})
    EXPECT_NE(capture(128, bytes), "accepted") << bytes;
  EXPECT_EQ(answer_to(Request(ControlKind::kCapture).text("x")), "capture: wrong length");
  EXPECT_NE(answer_to(Request(ControlKind::kCapture).add(CaptureRequest{}), 1), "accepted");
}

TEST(ControlRequest, Dumps) {
  const auto dump = [](uint32_t wish) {
    return answer_to(Request(ControlKind::kDumpCaptures).add(DumpCapturesRequest{.wish = wish}));
  };
  EXPECT_EQ(dump(0), "accepted");
  EXPECT_EQ(dump(1), "accepted");
  EXPECT_NE(dump(2), "accepted");
  EXPECT_NE(answer_to(Request(ControlKind::kDumpCaptures)), "accepted");
  EXPECT_NE(answer_to(Request(ControlKind::kDumpCaptures).add(DumpCapturesRequest{}), 1),
            "accepted");
}

TEST(ControlRequest, EveryTruncationIsRefused) {
  const auto whole =
      registration(1, 4096, 4096).add(MemoryRegion{4096, 4096, RegionKind::kMemFd, 0, 0}).bytes();
  ASSERT_TRUE(parse_control_request(whole, 0));
  for (size_t length = 0; length < whole.size(); ++length)
    EXPECT_FALSE(parse_control_request(std::span(whole).first(length), 0)) << length;
}

TEST(ControlRequest, WrongMagicAndVersionNameThemselves) {
  Request request(ControlKind::kListDevices);
  request.header().magic ^= 1;
  EXPECT_EQ(answer_to(request), "not a hostnic control request");
  request.header().magic ^= 1;
  request.header().abi_version = kHostAbiVersion + 7;
  strcpy(request.header().build, "9.8.7");
  auto call = parse_control_request(request.bytes(), 0);
  ASSERT_FALSE(call);
  EXPECT_EQ(call.error().error, EPROTONOSUPPORT);
  for (const std::string& part :
       {std::string("9.8.7"), std::string(HOSTNIC_VERSION),
        "ABI " + std::to_string(kHostAbiVersion), "ABI " + std::to_string(kHostAbiVersion + 7)})
    EXPECT_NE(call.error().message.find(part), std::string::npos) << call.error().message;
  // The whole line reaches the client.
  EXPECT_STREQ(error_reply(call.error()).message, call.error().message.c_str());
}

TEST(ControlRequest, AbsurdCountsAreRefusedBeforeAnythingIsAllocated) {
  const std::string counts = "regions, up to";
  EXPECT_EQ(answer_to(registration(0, 0, 4096)),
            "register: the regions do not cover the memory exactly");
  EXPECT_EQ(answer_to(registration(0, 4096, 0)), "accepted") << "a key that reaches nothing";
  EXPECT_NE(answer_to(registration(UINT32_MAX, 0, 4096)).find(counts), std::string::npos);
  EXPECT_NE(answer_to(registration(kMaxRegionsPerMr + 1, 0, 4096)).find(counts), std::string::npos);
  EXPECT_EQ(answer_to(registration(2, 0, 4096).add(MemoryRegion{0, 4096, {}, 0, 0})),
            "register: length and region count disagree");
}

TEST(ControlRequest, RegionsMustCoverTheMemoryAndNameFilesThatCame) {
  EXPECT_EQ(answer_to(registration(1, 0, 8192).add(MemoryRegion{0, 4096, {}, 0, 0})),
            "register: the regions do not cover the memory exactly");
  EXPECT_EQ(
      answer_to(
          registration(1, UINT64_MAX - 10, 100).add(MemoryRegion{UINT64_MAX - 10, 100, {}, 0, 0})),
      "register: the regions do not cover the memory exactly");
  EXPECT_EQ(
      answer_to(
          registration(1, 0, 4096).add(MemoryRegion{0, 4096, static_cast<RegionKind>(4), 0, 0})),
      "register: unknown kind of region");
  for (const RegionKind kind : {RegionKind::kFile, RegionKind::kMirrorLate}) {
    const auto file = registration(1, 0, 4096).add(MemoryRegion{0, 4096, kind, 1, 0});
    EXPECT_EQ(answer_to(file, 1), "register: a region names a file that was not sent");
    EXPECT_EQ(answer_to(file, 2), "accepted");
  }
}

TEST(ControlRequest, FilledMemoryIsNamedByItsKey) {
  const auto filled = Request(ControlKind::kMemoryFilled).add(MemoryFilledRequest{77});
  auto call = parse_control_request(filled.bytes(), 0);
  ASSERT_TRUE(call);
  EXPECT_EQ(std::get<MemoryFilled>(*call).lkey, 77u);
  EXPECT_EQ(answer_to(Request(ControlKind::kMemoryFilled)), "filled: wrong length");
  EXPECT_EQ(answer_to(Request(ControlKind::kMemoryFilled).add(MemoryFilledRequest{77}).text("x")),
            "filled: wrong length");
  EXPECT_EQ(answer_to(filled, 1), "descriptors came along with a request that takes none");
}

TEST(ControlRequest, TakesQuestionsThatThereAre) {
  ExplainRequest question{};
  question.qpn = 0x158e8;
  question.question = kLastQuestion;
  question.sge_count = kMaxSge;
  const auto call = parse_control_request(Request(ControlKind::kExplain).add(question).bytes(), 0);
  ASSERT_TRUE(call);
  EXPECT_EQ(std::get<ExplainRequest>(*call).qpn, 0x158e8u);
  EXPECT_EQ(answer_to(Request(ControlKind::kExplain)), "explain: wrong length");
  question.sge_count = kMaxSge + 1;
  EXPECT_EQ(answer_to(Request(ControlKind::kExplain).add(question)), "explain: no such question");
  question.sge_count = 0;
  question.question = Question{static_cast<uint32_t>(kLastQuestion) + 1};
  EXPECT_EQ(answer_to(Request(ControlKind::kExplain).add(question)), "explain: no such question");
}

TEST(ControlRequest, ChangedMemoryIsARange) {
  const auto change = [](uint64_t va, uint64_t length_bytes, uint32_t kind = 0,
                         uint64_t moved_to = 0) {
    return Request(ControlKind::kChangeMemory)
        .add(MemoryChange{va, length_bytes, static_cast<MemoryChangeKind>(kind), 0, moved_to});
  };
  auto call = parse_control_request(change(4096, 8192, 1, 0x70000).bytes(), 0);
  ASSERT_TRUE(call);
  EXPECT_EQ(std::get<MemoryChange>(*call).va, 4096u);
  EXPECT_EQ(std::get<MemoryChange>(*call).length_bytes, 8192u);
  EXPECT_EQ(std::get<MemoryChange>(*call).kind, MemoryChangeKind::kMoved);
  EXPECT_EQ(std::get<MemoryChange>(*call).moved_to, 0x70000u);
  const std::string no_range = "memory change: the range is empty or wraps around";
  const std::string no_place = "memory change: no place to move to";
  EXPECT_EQ(answer_to(change(4096, 0)), no_range);
  EXPECT_EQ(answer_to(change(UINT64_MAX - 10, 100)), no_range);
  EXPECT_EQ(answer_to(change(4096, 1, 3)), "memory change: unknown kind");
  EXPECT_EQ(answer_to(change(4096, 1, 0, 4096)), no_place);
  EXPECT_EQ(answer_to(change(4096, 8192, 1, kMirrorBytes - 4096)), no_place);
  EXPECT_EQ(answer_to(change(4096, 8192, 1, UINT64_MAX - 4096)), no_place);
  EXPECT_EQ(answer_to(change(4096, 1).text("x")), "memory change: wrong length");
  EXPECT_EQ(answer_to(change(4096, 1), 1), "descriptors came along with a request that takes none");
}

TEST(ControlRequest, OnlyHostsOfIpv6AddressesAreNamed) {
  const auto naming = [](const char* text) {
    NameHostRequest request{};
    const Gid gid = parse_gid(text).value();
    std::memcpy(request.gid, gid.data(), gid.size());
    return Request(ControlKind::kNameHost).add(request);
  };
  auto call = parse_control_request(naming("fd00::1").bytes(), 0);
  ASSERT_TRUE(call);
  EXPECT_EQ(std::get<NameHost>(*call).address, parse_gid("fd00::1").value());
  for (const char* text : {"::", "10.0.0.1", "ff02::1"})
    EXPECT_EQ(answer_to(naming(text)), "name host: no IPv6 address of a host") << text;
  EXPECT_EQ(answer_to(naming("fd00::1").text("x")), "name host: wrong length");
}

TEST(ControlRequest, NetlinkIsTakenWithWhoAsks) {
  RdmaNetlinkRequest fixed{};
  fixed.device_count = 2;
  const auto request = [](const RdmaNetlinkRequest& who) {
    return Request(ControlKind::kRdmaNetlink).add(who);
  };
  auto call = parse_control_request(request(fixed).text("datagram").bytes(), 0);
  ASSERT_TRUE(call);
  EXPECT_EQ(std::get<RdmaNetlink>(*call).datagram.size(), 8u);
  EXPECT_EQ(std::get<RdmaNetlink>(*call).fixed.device_count, 2u);
  EXPECT_EQ(answer_to(request(fixed)), "netlink: wrong length");
  EXPECT_EQ(answer_to(request(fixed).text(std::string(16 * 1024 + 1, 'x'))),
            "netlink: wrong length");
  EXPECT_EQ(answer_to(Request(ControlKind::kRdmaNetlink).text("x")), "netlink: wrong length");
  EXPECT_EQ(answer_to(request(fixed).text("x"), 1),
            "descriptors came along with a request that takes none");
  const std::string no_option = "netlink: no such option, or too many devices";
  RdmaNetlinkRequest wrong = fixed;
  wrong.device_count = kMaxDevices + 1;
  EXPECT_EQ(answer_to(request(wrong).text("x")), no_option);
  wrong = fixed;
  wrong.first_index = UINT32_MAX;
  EXPECT_EQ(answer_to(request(wrong).text("x")), no_option);
  wrong = fixed;
  wrong.short_acks = 2;
  EXPECT_EQ(answer_to(request(wrong).text("x")), no_option);
}

TEST(ControlRequest, IovaMustNotWrap) {
  RegisterMrRequest fixed{};
  fixed.length_bytes = 4096;
  fixed.iova = UINT64_MAX - 100;
  fixed.region_count = 1;
  EXPECT_EQ(answer_to(Request(ControlKind::kRegisterMr)
                          .add(fixed)
                          .add(MemoryRegion{0, 4096, RegionKind::kMemFd, 0, 0})),
            "register: iova + length wraps around");
}

TEST(ControlRequest, DescriptorsMustFitTheRequest) {
  OpenRequest open{};
  // The pidfd may be missing.
  EXPECT_EQ(answer_to(Request(ControlKind::kOpen).add(open), 0),
            "open: 0 descriptors came along, expected 2");
  EXPECT_EQ(answer_to(Request(ControlKind::kOpen).add(open), 1), "accepted");
  EXPECT_EQ(answer_to(Request(ControlKind::kOpen).add(open), 3),
            "open: 3 descriptors came along, expected 2");
  open.has_mirror = 1;
  EXPECT_EQ(answer_to(Request(ControlKind::kOpen).add(open), 1),
            "open: 1 descriptors came along, expected 3");
  EXPECT_EQ(answer_to(Request(ControlKind::kOpen).add(open), 2), "accepted");
  EXPECT_EQ(answer_to(Request(ControlKind::kListDevices), 1),
            "descriptors came along with a request that takes none");
}

TEST(ControlRequest, LengthAndKindAreChecked) {
  EXPECT_EQ(answer_to(Request(ControlKind::kListDevices).text("x")), "list: wrong length");
  EXPECT_EQ(answer_to(Request(static_cast<ControlKind>(99))), "unknown request 99");
  Request request(ControlKind::kText);
  request.header().payload_bytes = 5;
  EXPECT_EQ(answer_to(request), "request of a wrong length");
}

TEST(ControlRequest, TextOfStrangersIsPrintable) {
  OpenRequest open{};
  memset(open.program, 'x', sizeof(open.program));  // no terminator
  open.program[1] = '\n';
  open.program[2] = '\x1b';
  auto call = parse_control_request(Request(ControlKind::kOpen).add(open).bytes(), 2);
  ASSERT_TRUE(call);
  EXPECT_EQ(std::get<OpenDevice>(*call).program, "x??" + std::string(29, 'x'));
}

}  // namespace
}  // namespace hostnic
