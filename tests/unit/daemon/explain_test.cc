// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/explain.h"

#include <gtest/gtest.h>

namespace hostnic {
namespace {

KeyView bounds(uint64_t va, uint64_t length_bytes) {
  KeyView view;
  view.fault = KeyFault::kBounds;
  view.key = 0x66c7;
  view.va = va;
  view.length_bytes = length_bytes;
  view.region_va = 0x7f0000010000;
  view.region_bytes = 65536;
  return view;
}

TEST(Explain, NamesTheBoundThatWasLeftAndByHowMuch) {
  EXPECT_EQ(to_text(bounds(0x7f000001f001, 4096), "hnic1", true),
            "region 0x7f0000010000+65536 (rkey 0x66c7) ends 1 byte before the request's end, "
            "0x7f000001f001+4096");
  EXPECT_EQ(to_text(bounds(0x7f0000020000, 8), "hnic1", false),
            "region 0x7f0000010000+65536 (lkey 0x66c7) ends 8 bytes before the request's end, "
            "0x7f0000020000+8");
  EXPECT_EQ(to_text(bounds(0x7f000000fff0, 64), "hnic1", true),
            "region 0x7f0000010000+65536 (rkey 0x66c7) begins 16 bytes behind the request's begin, "
            "0x7f000000fff0");
}

TEST(Explain, NamesTheRightThatIsMissing) {
  KeyView view = bounds(0x7f0000010000, 8);
  view.fault = KeyFault::kRight;
  view.wanted_access = kAccessMwBind | kAccessLocalWrite;
  view.region_access = kAccessLocalWrite;
  EXPECT_EQ(to_text(view, "hnic1", false),
            "region 0x7f0000010000+65536 (lkey 0x66c7) lacks MW_BIND");
}

TEST(Explain, NamesTheNicThatHasNoSuchKey) {
  KeyView view;
  view.fault = KeyFault::kUnknown;
  view.key = 0x66c7;
  EXPECT_EQ(to_text(view, "hnic1", true),
            "rkey 0x66c7 is of no region of hnic1: wrong, or deregistered");
  view.is_window = true;
  EXPECT_EQ(to_text(view, "hnic1", true),
            "rkey 0x66c7 is of no region or memory window of hnic1: wrong, or deregistered");
}

TEST(Explain, SaysNothingOfWhatIsRight) { EXPECT_EQ(to_text(KeyView{}, "hnic1", true), ""); }

TEST(Explain, SaysHowLongAnswersTakeAndWhatWentAgain) {
  QpView qp;
  EXPECT_EQ(describe_timing(qp), "  sent again: nothing\n");
  qp.rto_ns = 4'000'000;
  EXPECT_EQ(describe_timing(qp),
            "  retransmission timeout: 4.0 ms; no round trip was measured\n"
            "  sent again: nothing\n");
  qp.srtt_ns = 31'200;
  qp.rtt_ns = 28'000;
  qp.retransmitted_packets = 8;
  qp.repeated[static_cast<size_t>(RepeatCause::gap) - 1] = 7;
  qp.repeated[static_cast<size_t>(RepeatCause::probe) - 1] = 1;
  qp.last_repeat = RepeatCause::probe;
  qp.last_repeat_psn = 1234;
  qp.last_repeat_ago_ns = 2'500'000'000;
  qp.last_repeat_acknowledged = true;
  qp.last_repair_ns = 45'000;
  EXPECT_EQ(describe_timing(qp),
            "  round trip: 31.2 us, the newest 28.0 us\n"
            "  retransmission timeout: 4.0 ms\n"
            "  sent again: 8 packets: 7 for gap (the peer had received what was sent later); 1 for "
            "probe (nothing was heard for about two round trips)\n"
            "  the last: up to PSN 1234 for probe, 2.5 s ago, acknowledged 45.0 us later\n");
}

TEST(Explain, NamesAllAccessFlags) {
  EXPECT_EQ(access_names(kAccessRemoteWrite | kAccessRemoteAtomic), "REMOTE_WRITE, REMOTE_ATOMIC");
  EXPECT_EQ(access_names(0), "");
}

}  // namespace
}  // namespace hostnic
