// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/lab_summary.h"

#include <gtest/gtest.h>

namespace hostnic::cli {
namespace {

TEST(LabSummary, SumsUpOverNicsAndDirections) {
  EXPECT_EQ(lab_summary("hnic0 tx_packets 100\nhnic0 impair_rx_dropped 3\nhnic1 tx_packets 50\n"
                        "hnic1 impair_tx_dropped 4\nhnic1 retransmitted_packets 9\n",
                        "no queue pair has gone yet\n", true),
            "hostnic lab: 150 packets; on purpose: 7 dropped; 9 sent again\n");
}

TEST(LabSummary, SaysThatAnImpairmentHitNothing) {
  EXPECT_EQ(lab_summary("hnic0 tx_packets 2\nhnic0 impair_rx_seen 2\n", "", true),
            "hostnic lab: 2 packets; the impairment hit nothing; 0 sent again\n");
  EXPECT_EQ(lab_summary("all counters are 0\n", "", false), "") << "nothing was sent";
}

TEST(LabSummary, NamesQueuePairsThatRefusedTheirPeer) {
  EXPECT_EQ(lab_summary("hnic1 nak_sent 1\n",
                        "hnic0 QP 0x1 (RC) of a (pid 1), peer QP 0x2: destroyed\n"
                        "hnic1 QP 0x2 (RC) of a (pid 1), peer QP 0x1: destroyed; had refused a "
                        "WRITE of its peer\n",
                        false),
            "hostnic lab: 0 packets; 0 sent again; 1 requests refused\n"
            "hostnic lab: hnic1 QP 0x2 (RC) of a (pid 1), peer QP 0x1: destroyed; had refused a "
            "WRITE of its peer\n");
}

}  // namespace
}  // namespace hostnic::cli
