// SPDX-License-Identifier: BSD-3-Clause
// The question of what a host speaks: each byte of it, what is refused, and who speaks what to
// whom.
#include "protocol/cm/peer.h"

#include <gtest/gtest.h>

#include <array>

namespace hostnic::cm {
namespace {

constexpr PeerFacts kFacts{.version = 3, .policy = 1, .wanted = Transport::kAuto};
constexpr PeerQuestion kQuestion{0x1122334455667788, 0x99aabbcc, kFacts};

uint8_t at(const MadBytes& bytes, size_t offset) { return std::to_integer<uint8_t>(bytes[offset]); }

// Offsets in the datagram: the common header has 24 bytes.
constexpr size_t kRequestId = 24, kServiceId = 32, kReqPrivate = 40;
constexpr size_t kStatus = 28, kRepServiceId = 36, kRepPrivate = 120;

void expect_bytes(const MadBytes& bytes, size_t offset, std::initializer_list<uint8_t> expected) {
  for (const uint8_t byte : expected) {
    EXPECT_EQ(at(bytes, offset), byte) << offset;
    ++offset;
  }
}

TEST(Peer, AQuestionByteByByte) {
  const MadBytes bytes = build(mad_of(kQuestion));
  // Class 7 of version 2, method Send, attribute SIDR_REQ.
  expect_bytes(bytes, 0, {1, 7, 2, 3});
  expect_bytes(bytes, 8, {0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x00, 0x17});
  expect_bytes(bytes, kRequestId, {0x99, 0xaa, 0xbb, 0xcc, 0xff, 0xff});
  expect_bytes(bytes, kServiceId, {0x10, 0x02, 'h', 'n', 'i', 'c', 0, 1});
  expect_bytes(bytes, kReqPrivate, {'H', 'N', 'I', 'C', 1, 3, 1, 2});
  for (size_t i = kReqPrivate + 8; i < bytes.size(); ++i) EXPECT_EQ(at(bytes, i), 0) << i;
  EXPECT_EQ(question_in(*parse(bytes)), kQuestion);
  EXPECT_EQ(answer_in(*parse(bytes)), std::nullopt);
}

TEST(Peer, AnAnswerByteByByte) {
  const PeerAnswer answer{kQuestion.transaction_id, kQuestion.request_id, kFacts};
  const MadBytes bytes = build(mad_of(answer));
  expect_bytes(bytes, 0, {1, 7, 2, 3});
  expect_bytes(bytes, 8, {0x11, 0x22, 0x33, 0x44, 0x55, 0x66, 0x77, 0x88, 0x00, 0x18});
  expect_bytes(bytes, kRequestId, {0x99, 0xaa, 0xbb, 0xcc, 0});
  expect_bytes(bytes, kRepServiceId, {0x10, 0x02, 'h', 'n', 'i', 'c', 0, 1});
  expect_bytes(bytes, kRepPrivate, {'H', 'N', 'I', 'C', 1, 3, 1, 2});
  EXPECT_EQ(answer_in(*parse(bytes)), answer);
  EXPECT_EQ(question_in(*parse(bytes)), std::nullopt);
}

TEST(Peer, EveryFieldOfAnAnswerIsLookedAt) {
  const Mad good = mad_of(PeerAnswer{1, 2, kFacts});
  const auto facts_with = [&good](auto change) {
    Mad mad = good;
    change(std::get<SidrRep>(mad.message));
    const auto answer = answer_in(*parse(build(mad)));
    EXPECT_TRUE(answer.has_value());
    EXPECT_EQ(answer->request_id, 2u);
    return answer->facts;
  };
  EXPECT_EQ(facts_with([](SidrRep&) {}), kFacts);
  EXPECT_FALSE(facts_with([](SidrRep& rep) { rep.status = 1; })) << "what a Linux kernel answers";
  EXPECT_FALSE(facts_with([](SidrRep& rep) { rep.service_id ^= 1; }));
  for (size_t byte = 0; byte < 5; ++byte)
    EXPECT_FALSE(facts_with([byte](SidrRep& rep) { rep.private_data[byte] ^= std::byte{1}; }));
  const auto put = [](size_t offset, uint8_t value) {
    return [=](SidrRep& rep) { rep.private_data[offset] = std::byte{value}; };
  };
  EXPECT_EQ(facts_with(put(5, 77))->version, 77);
  EXPECT_EQ(facts_with(put(6, 2))->policy, 2);
  EXPECT_FALSE(facts_with(put(6, 3)));
  EXPECT_EQ(facts_with(put(7, 1))->wanted, Transport::kRoce);
  EXPECT_FALSE(facts_with(put(7, 3)));
  EXPECT_EQ(facts_with(put(8, 0xff)), kFacts) << "for later formats";
}

TEST(Peer, EveryFieldOfAQuestionIsLookedAt) {
  const Mad good = mad_of(kQuestion);
  const auto with = [&good](auto change) {
    Mad mad = good;
    change(std::get<SidrReq>(mad.message));
    return question_in(*parse(build(mad)));
  };
  EXPECT_EQ(with([](SidrReq&) {}), kQuestion);
  EXPECT_FALSE(with([](SidrReq& req) { req.service_id ^= 1; })) << "a program's service";
  for (size_t byte = 0; byte < 5; ++byte)
    EXPECT_FALSE(with([byte](SidrReq& req) { req.private_data[byte] ^= std::byte{1}; }));
  EXPECT_FALSE(with([](SidrReq& req) { req.private_data[6] = std::byte{3}; }));
  EXPECT_FALSE(with([](SidrReq& req) { req.private_data[7] = std::byte{3}; }));
  EXPECT_FALSE(question_in({1, Rtu{}}));
  EXPECT_FALSE(answer_in({1, Rtu{}}));
}

TEST(Peer, ARefusalSaysNothingOfItself) {
  const PeerAnswer refusal{5, 6, std::nullopt};
  const MadBytes bytes = build(mad_of(refusal));
  EXPECT_EQ(at(bytes, kStatus), 1);
  EXPECT_EQ(answer_in(*parse(bytes)), refusal);
}

TEST(Peer, WhoSpeaksWhatToWhom) {
  using enum Transport;
  const auto native = [](Transport a, Transport b, uint8_t version = 2, uint8_t policy = 0) {
    const PeerFacts one{2, 0, a}, other{version, policy, b};
    EXPECT_EQ(native_between(one, other), native_between(other, one));
    return native_between(one, other);
  };
  EXPECT_TRUE(native(kAuto, kAuto));
  EXPECT_TRUE(native(kAuto, kHostnic));
  EXPECT_FALSE(native(kAuto, kRoce));
  EXPECT_FALSE(native(kHostnic, kRoce));
  EXPECT_FALSE(native(kAuto, kAuto, 3)) << "another version";
  EXPECT_FALSE(native(kAuto, kHostnic, 1)) << "another version";
  EXPECT_FALSE(native(kAuto, kAuto, 2, 1)) << "another policy";
}

}  // namespace
}  // namespace hostnic::cm
