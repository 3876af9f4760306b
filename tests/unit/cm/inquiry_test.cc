// SPDX-License-Identifier: BSD-3-Clause
// What hostnics tell each other about a connection: its bytes, what of it is refused, and that no
// bytes at all make a reader do more than refuse them.
#include "protocol/cm/inquiry.h"

#include <gtest/gtest.h>

#include <random>

namespace hostnic::cm {
namespace {

constexpr Inquiry kInquiry{0x1122334455667788, 0x99aabbcc, 0x158e8, 0x991334, 1024};

InquiryAnswer full_answer() {
  InquiryAnswer answer{.transaction_id = 5, .request_id = 6};
  answer.facts = {.version = 2, .policy = 1, .wanted = Transport::kAuto};
  answer.version = "1.2.3";
  answer.nic = "hnic0";
  answer.heard_bytes = 4096;
  answer.standing = Standing::kPeer;
  answer.qp = {.type = 2,
               .state = 6,
               .transport = 1,
               .is_stopped = true,
               .shared_receives = true,
               .has_refused = true,
               .with_its_program = true,
               .names_asker_host = true,
               .has_psns = true,
               .dest_qpn = 0xffffff,
               .rq_psn = 1,
               .expected = 2,
               .sent_packets = 3,
               .mtu_bytes = 1024,
               .responder_resources = 16,
               .receives_waiting = 7,
               .pid = 4321,
               .gone_ms = 99,
               .other_qpn = 17,
               .program = "ib_write_bw"};
  answer.refusal = {.op = 5,
                    .code = 2,
                    .fault = 6,
                    .is_window = true,
                    .bad_receive = true,
                    .key = 0x66c7,
                    .va = 0x7f0000000000,
                    .length_bytes = 4096,
                    .region_va = 0x7f0000010000,
                    .region_bytes = 65536,
                    .receive_bytes = 100,
                    .packet_bytes = 1024,
                    .qp_access = 7,
                    .region_access = 3,
                    .wanted_access = 4};
  return answer;
}

uint8_t at(const MadBytes& bytes, size_t offset) { return std::to_integer<uint8_t>(bytes[offset]); }

TEST(Inquiry, AQuestionByteByByte) {
  const MadBytes bytes = build(mad_of(kInquiry));
  constexpr size_t kReqPrivate = 40;
  const uint8_t expected[] = {'H',  'N',  'I', 'Q',  1,    0,    0, 0, 0, 1,
                              0x58, 0xe8, 0,   0x99, 0x13, 0x34, 0, 0, 4, 0};
  for (size_t i = 0; i < sizeof expected; ++i) EXPECT_EQ(at(bytes, kReqPrivate + i), expected[i]);
  EXPECT_EQ(inquiry_in(*parse(bytes)), kInquiry);
  EXPECT_FALSE(inquiry_answer_in(*parse(bytes)).has_value());
  EXPECT_FALSE(question_in(*parse(bytes)).has_value()) << "no question what a host speaks";
}

TEST(Inquiry, EveryFieldOfAQuestionIsLookedAt) {
  const auto accepted = [](size_t offset, uint8_t value) {
    Mad mad = mad_of(kInquiry);
    std::get<SidrReq>(mad.message).private_data[offset] = std::byte{value};
    return inquiry_in(mad).has_value();
  };
  EXPECT_TRUE(accepted(9, 1));
  EXPECT_FALSE(accepted(0, 'h'));
  EXPECT_FALSE(accepted(4, 2)) << "a later format";
  EXPECT_FALSE(accepted(8, 1)) << "more than 24 bits";
  EXPECT_FALSE(accepted(12, 1));
  EXPECT_FALSE(accepted(16, 1));
  EXPECT_FALSE(accepted(18, 0x20)) << "8192 bytes";
  EXPECT_FALSE(accepted(18, 0)) << "fewer than a MAD has";
  Mad other = mad_of(kInquiry);
  std::get<SidrReq>(other.message).service_id = kPeerService;
  EXPECT_FALSE(inquiry_in(other).has_value());
}

TEST(Inquiry, AnAnswerComesAsItWasSaid) {
  const InquiryAnswer answer = full_answer();
  const auto heard = inquiry_answer_in(*parse(build(mad_of(answer))));
  ASSERT_TRUE(heard.has_value());
  EXPECT_TRUE(heard->known);
  EXPECT_EQ(heard->answer, answer);
}

TEST(Inquiry, WhoDoesNotKnowTheServiceIsTold) {
  SidrRep rep{.request_id = 6, .status = static_cast<uint8_t>(SidrStatus::kUnsupported)};
  const auto heard = inquiry_answer_in(Mad{5, rep});
  ASSERT_TRUE(heard.has_value());
  EXPECT_FALSE(heard->known);
  EXPECT_EQ(heard->answer.transaction_id, 5u);
  EXPECT_EQ(heard->answer.request_id, 6u);
}

// Whether a change of a byte of a good answer is refused.
bool refused(bool in_info, size_t offset, uint8_t value) {
  Mad mad = mad_of(full_answer());
  auto& rep = std::get<SidrRep>(mad.message);
  (in_info ? rep.info[offset] : rep.private_data[offset]) = std::byte{value};
  const auto heard = inquiry_answer_in(mad);
  return heard.has_value() && !heard->known;
}

TEST(Inquiry, EveryFieldOfAnAnswerIsLookedAt) {
  EXPECT_FALSE(refused(false, 8, 77)) << "any version of the native transport";
  EXPECT_TRUE(refused(false, 3, 'C'));
  EXPECT_TRUE(refused(false, 4, 2)) << "a later format";
  EXPECT_TRUE(refused(false, 9, 3)) << "policy";
  EXPECT_TRUE(refused(false, 10, 3)) << "wanted transport";
  EXPECT_TRUE(refused(false, 10, 5)) << "wanted transport";
  EXPECT_TRUE(refused(false, 11, 6)) << "standing";
  EXPECT_TRUE(refused(false, 14, 0x20)) << "bytes heard";
  EXPECT_TRUE(refused(false, 16, 7)) << "a version that rings the bell";
  EXPECT_TRUE(refused(false, 32, 0x9b)) << "a NIC's name that is no text";
  EXPECT_TRUE(refused(false, 48, 1)) << "type";
  EXPECT_TRUE(refused(false, 48, 5)) << "type";
  EXPECT_TRUE(refused(false, 49, 7)) << "state";
  EXPECT_TRUE(refused(false, 50, 5)) << "transport";
  EXPECT_TRUE(refused(false, 51, 64)) << "flags";
  for (const size_t psn_or_qpn : {52u, 56u, 60u, 64u, 88u})
    EXPECT_TRUE(refused(false, psn_or_qpn, 1)) << psn_or_qpn;
  EXPECT_TRUE(refused(false, 70, 0x20)) << "path MTU";
  EXPECT_TRUE(refused(false, 73, 1)) << "READs";
  EXPECT_TRUE(refused(false, 92, 0x1b)) << "a program's name that moves the cursor";
  EXPECT_TRUE(refused(true, 0, 12)) << "operation";
  EXPECT_TRUE(refused(true, 1, 4)) << "NAK";
  EXPECT_TRUE(refused(true, 2, 8)) << "fault";
  EXPECT_TRUE(refused(true, 3, 4)) << "flags";
}

TEST(Inquiry, NamesAreCutAndPrintable) {
  EXPECT_EQ(told_name("a\nb\x1b[0m"), "a?b?[0m");
  EXPECT_EQ(told_name("a program with a long name"), "a program with ");
  InquiryAnswer answer = full_answer();
  answer.qp.program = "\x1b]0;title\x07 and more than fits";
  const auto heard = inquiry_answer_in(*parse(build(mad_of(answer))));
  ASSERT_TRUE(heard && heard->known);
  EXPECT_EQ(heard->answer.qp.program, "?]0;title? and ");
}

TEST(Inquiry, NoBytesDoMoreThanBeRefused) {
  std::mt19937 random(1);
  const MadBytes good = build(mad_of(full_answer()));
  for (int i = 0; i < 20'000; ++i) {
    MadBytes bytes = good;
    for (int changes = 0; changes < 4; ++changes)
      bytes[24 + random() % (bytes.size() - 24)] = static_cast<std::byte>(random());
    const auto mad = parse(bytes);
    if (!mad) continue;
    const auto heard = inquiry_answer_in(*mad);
    if (!heard || !heard->known) continue;
    const auto again = inquiry_answer_in(mad_of(heard->answer));
    ASSERT_TRUE(again && again->known);
    EXPECT_EQ(again->answer, heard->answer);
  }
}

}  // namespace
}  // namespace hostnic::cm
