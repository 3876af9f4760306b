// SPDX-License-Identifier: BSD-3-Clause
// What takes acknowledgements and answers, of the native transport and of the standard's RC: by
// itself, with the parts of a NIC that nothing arrives at and nothing leaves.
#include <gtest/gtest.h>

#include <array>
#include <memory>

#include "dataplane/nic/nic_core.h"
#include "dataplane/nic/transport/hostnic/completer.h"
#include "dataplane/nic/transport/roce/completer.h"
#include "protocol/wire/bytes.h"
#include "tests/unit/nic/ports_fixture.h"

namespace hostnic {
namespace {

constexpr uint16_t kMtu = 1024;
constexpr Psn kFirst{0xfffffe};  // numbers run over

class Completers : public Ports {
 protected:
  Completers() {
    qp_.status = &status_;
    qp_.mtu_bytes = kMtu;
    qp_.una = qp_.transmitted = kFirst;
    qp_.roce = std::make_unique<RoceConnection>();
    status_.una_psn = status_.sack_end_psn = kFirst.value();
    status_.acknowledged_psn = kFirst.value();
    nic_.now = 5'000;
  }
  TransportServices services() {
    return {.settings = shared_.settings,
            .qps = nic_.qps,
            .groups = nic_.groups,
            .answer_lines = nic_.answer_lines,
            .egress = nic_.egress,
            .placement = nic_.placement,
            .windows = nic_.windows,
            .packetizer = nic_.packetizer,
            .receives = nic_.receives,
            .reorder = nic_.reorder,
            .reports = nic_.reports,
            .counters = nic_.counters,
            .split_atomic = nic_.split_atomic,
            .now = nic_.now,
            .messages = nic_.messages};
  }
  // A WRITE of so many packets has left.
  void send(RoceCompleter& completer, uint32_t packets) {
    for (uint32_t i = 0; i < packets; ++i) {
      wire::Packet p;
      p.psn = qp_.transmitted;
      SendDescriptor write{};
      write.op = SendOp::kWrite;
      completer.note_transmitted(qp_, write, p);
    }
  }
  // An acknowledgement of the standard's: kAck of everything to `psn`, or a NAK about `psn`.
  static wire::Packet acknowledgement(Psn psn, wire::AckKind kind, uint8_t code = 0) {
    wire::Packet p;
    p.opcode = wire::Opcode::kRcAck;
    p.psn = psn;
    p.aeth.kind = kind;
    p.aeth.code = code;
    return p;
  }

  MrTable mrs_{64};
  NicShared shared_{{.ip = kOwn, .nic_qps = 16}, mrs_, pools_};
  NicShard nic_{shared_, pipe_};
  alignas(64) QpStatus status_{};
  QpContext qp_;
};

TEST_F(Completers, AnAcknowledgementOfTheStandardsCountsForAllBefore) {
  RoceCompleter completer(services());
  send(completer, 4);
  EXPECT_EQ(status_.transmitted_psn, (kFirst + 4).value());
  completer.receive_ack(qp_, acknowledgement(kFirst + 2, wire::AckKind::kAck));
  EXPECT_EQ(qp_.una, kFirst + 3);
  EXPECT_EQ(status_.una_psn, (kFirst + 3).value());
  EXPECT_EQ(status_.nak, 0u);
  EXPECT_EQ(status_.ack_count, 1u);
  EXPECT_EQ(nic_.reports.waiting(), 1u) << "the driver is told to look";
}

TEST_F(Completers, ImpossibleAcknowledgementsChangeNothing) {
  RoceCompleter completer(services());
  send(completer, 2);
  for (const uint32_t psn : {2u, 1000u, 0x7fffffu, 0xfffffdu})
    completer.receive_ack(qp_, acknowledgement(kFirst + psn, wire::AckKind::kAck));
  EXPECT_EQ(qp_.una, kFirst);
  EXPECT_EQ(status_.ack_count, 0u);
  EXPECT_EQ(nic_.reports.waiting(), 0u);
}

TEST_F(Completers, ANakAcknowledgesWhatIsBeforeIt) {
  RoceCompleter completer(services());
  send(completer, 4);
  completer.receive_ack(qp_, acknowledgement(kFirst + 2, wire::AckKind::kRnrNak, 7));
  EXPECT_EQ(status_.una_psn, (kFirst + 2).value());
  EXPECT_EQ(status_.nak, make_nak(static_cast<uint32_t>(wire::AckKind::kRnrNak), 7));
  EXPECT_EQ(status_.nak_psn, (kFirst + 2).value());
  EXPECT_EQ(nic_.counters.get(Counter::rnr_nak_received), 1u);
  completer.receive_ack(qp_, acknowledgement(kFirst + 2, wire::AckKind::kAck));
  EXPECT_EQ(status_.nak, 0u) << "progress ends it";
}

TEST_F(Completers, AnAcknowledgementBehindAReadsAnswerSaysThatItIsLost) {
  RoceCompleter completer(services());
  wire::Packet p;
  p.psn = kFirst;
  SendDescriptor read{};
  read.op = SendOp::kRead;
  read.length_bytes = read.message_bytes = 2 * kMtu;
  read.recv_sn = 1;
  completer.note_transmitted(qp_, read, p);
  send(completer, 1);
  EXPECT_EQ(qp_.transmitted, kFirst + 3) << "answers have PSNs";
  for (int i = 0; i < 2; ++i)
    completer.receive_ack(qp_, acknowledgement(kFirst + 2, wire::AckKind::kAck));
  EXPECT_EQ(qp_.una, kFirst) << "nothing has come";
  EXPECT_NE(status_.nak, 0u);
  EXPECT_EQ(status_.nak_psn, kFirst.value());
  EXPECT_EQ(status_.nak_count, 1u) << "told once";
}

TEST_F(Completers, AFailureBehindWhatIsAcknowledgedIsNone) {
  RoceCompleter completer(services());
  send(completer, 2);
  status_.acknowledged_psn = (kFirst + 1).value();
  completer.fail_send(qp_, kFirst, LocalError::kProtection);
  EXPECT_EQ(status_.local_error, 0u) << "its memory may be deregistered by now";
  completer.fail_send(qp_, kFirst + 1, LocalError::kProtection);
  EXPECT_EQ(status_.local_error, static_cast<uint32_t>(LocalError::kProtection));
  EXPECT_EQ(status_.local_error_psn, (kFirst + 1).value());
}

class NativeCompleter : public Completers {
 protected:
  void send(uint32_t packets) {
    completer_.note_transmitted(qp_, Transmitted{qp_.transmitted + (packets - 1)}, packets,
                                RepeatCause::kNone);
  }
  void receive(Psn base, uint64_t bits = 0) {
    wire::Sack sack;
    sack.base = base;
    sack.highest_acceptable = base + 100;
    std::array<std::byte, sizeof(bits)> words;
    wire::store_be64(words.data(), bits);
    sack.word_count = bits == 0 ? 0 : 1;
    completer_.receive_ack(qp_, sack, {}, words.data());
  }
  bool is_set(Psn psn) const {
    return (status_.sack[psn.value() / 64 % kBitmapWords] >> psn.value() % 64 & 1) != 0;
  }

  AdvanceList advance_list_{16};
  Completer completer_{services(), advance_list_};
};

TEST_F(NativeCompleter, TheNewestBaseWins) {
  send(8);
  receive(kFirst + 5);
  receive(kFirst + 3);
  EXPECT_EQ(qp_.una, kFirst + 5);
  EXPECT_EQ(status_.una_psn, (kFirst + 5).value());
  receive(kFirst + 9);
  EXPECT_EQ(status_.una_psn, (kFirst + 5).value()) << "nothing of that has left";
}

TEST_F(NativeCompleter, BitsBeyondTheBaseAreAddedAndLeaveWithIt) {
  send(8);
  receive(kFirst, 0b1010);
  receive(kFirst, 0b0100);
  EXPECT_FALSE(is_set(kFirst));
  for (const uint32_t i : {1u, 2u, 3u}) EXPECT_TRUE(is_set(kFirst + i)) << i;
  EXPECT_EQ(status_.sack_end_psn, (kFirst + 4).value());
  receive(kFirst + 4);
  for (const uint32_t i : {1u, 2u, 3u}) EXPECT_FALSE(is_set(kFirst + i)) << i;
}

TEST_F(NativeCompleter, BitsOfPacketsThatNeverLeftAreIgnored) {
  send(3);
  receive(kFirst, ~uint64_t{0});
  EXPECT_TRUE(is_set(kFirst + 2));
  EXPECT_FALSE(is_set(kFirst + 3));
  EXPECT_EQ(status_.sack_end_psn, (kFirst + 3).value());
}

}  // namespace
}  // namespace hostnic
