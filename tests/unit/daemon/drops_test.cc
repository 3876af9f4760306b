// SPDX-License-Identifier: BSD-3-Clause
// What was dropped without a word, in words: each reason with its numbers.
#include "dataplane/daemon/observe/drops.h"

#include <gtest/gtest.h>

namespace hostnic {
namespace {

QpView dropped(QpType type, SilentDrop why, uint64_t count = 1) {
  QpView qp;
  qp.type = type;
  qp.state = QpState::kRts;
  qp.mtu_bytes = 1024;
  qp.qkey = 0x11111111;
  qp.drops.last = why;
  qp.drops.count = count;
  return qp;
}

TEST(Drops, NothingIsSaidOfNothing) { EXPECT_EQ(why_dropped(QpView{}, "hnic1"), ""); }

TEST(Drops, ADatagramNeedsRoomForItsNetworkHeader) {
  QpView qp = dropped(QpType::kUd, SilentDrop::kTooLong);
  qp.drops.packet.packet_bytes = 64;
  qp.drops.room_bytes = 64;
  EXPECT_EQ(why_dropped(qp, "hnic1"),
            "a datagram of 64 bytes was dropped: a receive begins with 40 bytes of network header "
            "(GRH), so 104 are needed, and the receive has room for 64 bytes");
}

TEST(Drops, AMessageThatIsTooLongIsNoWrongPathMtu) {
  QpView qp = dropped(QpType::kUc, SilentDrop::kTooLong);
  qp.drops.packet.packet_bytes = 1024;
  qp.drops.packet.is_last = false;
  qp.drops.room_bytes = 16;
  EXPECT_EQ(why_dropped(qp, "hnic1"),
            "a message was dropped: it is longer than its receive, which has room for 16 bytes");
  qp.drops.packet.packet_bytes = 256;
  EXPECT_NE(why_dropped(qp, "hnic1").find("packets have 256 bytes, and its path MTU is 1024"),
            std::string::npos);
  qp.drops.packet.is_last = true;
  EXPECT_NE(why_dropped(qp, "hnic1").find("longer than its receive"), std::string::npos)
      << "a last packet may be short";
}

TEST(Drops, OthersHaveTheirNumbers) {
  QpView qp = dropped(QpType::kUd, SilentDrop::kOtherQkey, 3);
  qp.drops.qkey = 0x2222;
  EXPECT_EQ(why_dropped(qp, "hnic1"),
            "3 datagrams for it came with another Q_Key (0x2222) than its own, 0x11111111");
  EXPECT_EQ(why_dropped(dropped(QpType::kUc, SilentDrop::kNoReceive, 2), "hnic1"),
            "2 messages for it were dropped, since no receive was posted");
  qp = dropped(QpType::kRc, SilentDrop::kNotConnected);
  qp.state = QpState::kInit;
  EXPECT_EQ(why_dropped(qp, "hnic1"),
            "1 packet for it was dropped, since it is in INIT: nothing arrives before RTR");
  qp = dropped(QpType::kUc, SilentDrop::kAccess);
  qp.drop_fault.fault = KeyFault::kUnknown;
  qp.drop_fault.key = 0x66c7;
  EXPECT_EQ(why_dropped(qp, "hnic1"),
            "a WRITE to it was dropped: rkey 0x66c7 is of no region of hnic1: wrong, or "
            "deregistered");
}

TEST(Drops, StraysAreNamedBesideTheOwnNumber) {
  EXPECT_EQ(why_stray({}, "hnic1", "", 0x22), "");
  EXPECT_EQ(why_stray({.count = 1, .last_qpn = 0x62}, "hnic1", "127.77.0.1", 0x22),
            "hnic1 has dropped 1 datagram for queue pairs that it does not have, the last one from "
            "127.77.0.1 for QP 0x62; this one is QP 0x22");
}

TEST(Drops, StraysAreNamedToTheirSender) {
  EXPECT_EQ(why_lost({}, "hnic1"), "");
  EXPECT_EQ(why_lost({.count = 2, .last_qpn = 0x62}, "hnic1"),
            "hnic1 has dropped 2 datagrams for queue pairs that it does not have, the last one "
            "from here for QP 0x62: whoever named that number has ended, or belongs to another "
            "lab");
}

// A run of one reason is counted, and the newest reason is told.
TEST(Drops, TheNewestReasonIsNoted) {
  SilentDrops drops;
  wire::Packet p;
  p.payload_bytes = 100;
  p.qkey = 7;
  drops.note(SilentDrop::kNoReceive, p, 1);
  drops.note(SilentDrop::kNoReceive, p, 1);
  EXPECT_EQ(drops.count, 2u);
  p.more = true;
  drops.note(SilentDrop::kTooLong, p, 2, 64);
  EXPECT_EQ(drops.last, SilentDrop::kTooLong);
  EXPECT_EQ(drops.count, 1u);
  EXPECT_EQ(drops.room_bytes, 64u);
  EXPECT_EQ(drops.packet.packet_bytes, 100u);
  EXPECT_FALSE(drops.packet.is_last);
}

}  // namespace
}  // namespace hostnic
