// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/lab_summary.h"

#include <gtest/gtest.h>

namespace hostnic::cli {
namespace {

constexpr const char* kRefused =
    "hnic0 QP 0x1 (RC) of a (pid 1), peer QP 0x2: destroyed\n"
    "hnic1 QP 0x2 (RC) of a<b> (pid 1), peer QP 0x1: destroyed; had refused a WRITE of its peer\n";

std::string text_of_one(const char* counters, const char* dead, bool impaired) {
  return text_of(summarize({{"", counters, dead}}, impaired));
}

TEST(LabSummary, SumsUpOverNicsAndDirections) {
  EXPECT_EQ(text_of_one("hnic0 tx_packets 100\nhnic0 impair_rx_dropped 3\nhnic1 tx_packets 50\n"
                        "hnic1 impair_tx_dropped 4\nhnic1 retransmitted_packets 9\n",
                        "no queue pair has gone yet\n", true),
            "hostnic lab: 150 packets; on purpose: 7 dropped; 9 sent again\n");
}

TEST(LabSummary, SaysThatAnImpairmentHitNothing) {
  EXPECT_EQ(text_of_one("hnic0 tx_packets 2\nhnic0 impair_rx_seen 2\n", "", true),
            "hostnic lab: 2 packets; the impairment hit nothing; 0 sent again\n");
  EXPECT_EQ(text_of_one("all counters are 0\n", "", false), "") << "nothing was sent";
}

TEST(LabSummary, NamesQueuePairsThatRefusedTheirPeer) {
  EXPECT_EQ(text_of_one("hnic1 nak_sent 1\n", kRefused, false),
            "hostnic lab: 0 packets; 0 sent again; 1 requests refused\n"
            "hostnic lab: hnic1 QP 0x2 (RC) of a<b> (pid 1), peer QP 0x1: destroyed; had refused a "
            "WRITE of its peer\n");
}

TEST(LabSummary, TellsHostsApart) {
  const LabSummary summary = summarize(
      {{"host1", "hnic0 tx_packets 1\n", kRefused}, {"host2", "hnic0 tx_packets 2\n", ""}}, false);
  ASSERT_EQ(summary.nics.size(), 2u);
  EXPECT_EQ(summary.nics[1].host, "host2");
  EXPECT_EQ(summary.sum("tx_packets"), 3u);
  ASSERT_EQ(summary.bad_queue_pairs.size(), 1u);
  EXPECT_TRUE(summary.bad_queue_pairs[0].starts_with("host1: hnic1 QP 0x2"));
}

TEST(LabSummary, IsJson) {
  LabSummary summary = summarize({{"", "hnic0 tx_packets 2\n", kRefused}}, true);
  summary.command = "a \"b\"";
  summary.exit_code = 3;
  summary.duration_ns = 1'500'000'000;
  EXPECT_EQ(
      json_of(summary),
      "{\"command\":\"a \\\"b\\\"\",\"exit_code\":3,\"duration_ns\":1500000000,"
      "\"all_answered\":true,\"impaired\":true,\"rdma_bytes\":0,"
      "\"rdma_messages\":0,\"rdma_queue_pairs\":0,\"packets\":2,\"retransmitted_packets\":0,"
      "\"receiver_not_ready\":0,\"requests_refused\":0,\"impaired_dropped_packets\":0,"
      "\"impaired_rate_dropped_packets\":0,\"impaired_queue_dropped_packets\":0,"
      "\"impaired_duplicated_packets\":0,\"impaired_reordered_packets\":0,"
      "\"impaired_delayed_packets\":0,\"impaired_corrupted_packets\":0,"
      "\"impaired_marked_packets\":0,\"impairment_hit_nothing\":true,\"bad_queue_pairs\":[\"hnic1 "
      "QP 0x2 (RC) of a\\u003cb> (pid 1), peer QP 0x1: destroyed; had refused a WRITE of its "
      "peer\"],\"nics\":[{\"host\":\"\",\"nic\":\"hnic0\",\"counters\":{\"tx_packets\":2}}]}\n");
}

TEST(LabSummary, IsJUnit) {
  LabSummary summary = summarize({{"", "hnic0 tx_packets 2\nhnic1 nak_sent 1\n", kRefused}}, true);
  summary.command = "sh -c 'a & b'\x01";
  summary.exit_code = 3;
  summary.all_answered = false;
  const std::string text = junit_of(summary);
  for (const char* part :
       {"tests=\"4\" failures=\"3\" errors=\"0\" skipped=\"1\"",
        "<property name=\"packets\" value=\"2\"/>",
        "<failure message=\"exit code 3\">sh -c 'a &amp; b'?</failure>",
        "<failure message=\"1 requests refused\">hnic1 QP 0x2 (RC) of a&lt;b&gt; (pid 1)",
        "<failure message=\"it ended before the command, or did not answer\">",
        "<skipped message=\"the impairment hit nothing\"/>"})
    EXPECT_NE(text.find(part), std::string::npos) << part << " is not in\n" << text;
}

TEST(LabSummary, FilesAreOfTwoKinds) {
  EXPECT_TRUE(is_summary_file("a.xml"));
  EXPECT_TRUE(is_summary_file("a/b.json"));
  EXPECT_FALSE(is_summary_file("a.txt"));
  EXPECT_TRUE(content_for("a.xml", {}).starts_with("<?xml"));
  EXPECT_TRUE(content_for("a.json", {}).starts_with("{"));
}

}  // namespace
}  // namespace hostnic::cli
