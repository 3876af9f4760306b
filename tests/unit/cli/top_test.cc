// SPDX-License-Identifier: BSD-3-Clause
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "dataplane/cli/top_model.h"

namespace hostnic::cli {
namespace {

constexpr TimeNs kSecond = 1'000'000'000;

std::string metrics(uint64_t sent_bytes, uint64_t repeated, uint64_t lost = 0,
                    uint64_t other_qp_bytes = 0) {
  return fmt::format(
      "# TYPE x counter\n"
      "node_infiniband_port_data_transmitted_bytes_total{{device=\"hnic0\",port=\"1\"}} {}\n"
      "node_infiniband_state_id{{device=\"hnic0\",port=\"1\"}} 4\n"
      "hostnic_retransmitted_packets_total{{device=\"hnic0\"}} {}\n"
      "hostnic_impaired_total{{device=\"hnic0\",direction=\"rx\",action=\"dropped\"}} {}\n"
      "hostnic_impaired_total{{device=\"hnic0\",direction=\"rx\",action=\"seen\"}} 5000\n"
      "hostnic_qp_info{{device=\"hnic0\",qp=\"0x11\",type=\"RC\",state=\"RTS\",peer=\"1.2.3.4\","
      "peer_qp=\"0x1\",program=\"a \\\"b\\\\\",pid=\"7\"}} 1\n"
      "hostnic_qp_request_bytes_total{{device=\"hnic0\",qp=\"0x11\"}} {}\n"
      "hostnic_qp_round_trip_seconds{{device=\"hnic0\",qp=\"0x11\"}} 1.25e-05\n"
      "hostnic_qp_info{{device=\"hnic0\",qp=\"0x22\",type=\"UD\",state=\"RTS\",peer=\"0.0.0.0\","
      "peer_qp=\"0x0\",program=\"other\",pid=\"8\"}} 1\n"
      "hostnic_qp_request_bytes_total{{device=\"hnic0\",qp=\"0x22\"}} {}\n"
      "hostnic_qps_left_out 0\n# EOF\n",
      sent_bytes, repeated, lost, sent_bytes, other_qp_bytes);
}

std::string text_of(const TopModel& model, const TopView& view) {
  std::string text;
  for (const TopLine& line : model.lines(view)) text += line.text + "\n";
  return text;
}

TEST(ParseMetrics, UndoesEscapesAndLeavesOutNonsense) {
  const auto samples = parse_metrics(
      "a 1\nb{x=\"1\\\"2\\\\3\",y=\"\"} 2.5\nnonsense\nc{x=\"1} 3\nd{} x\n# e 5\n{ 6\nf{g} 7\n");
  ASSERT_EQ(samples.size(), 2u);
  EXPECT_EQ(samples[0].name, "a");
  EXPECT_EQ(samples[1].labels.at("x"), "1\"2\\3");
  EXPECT_EQ(samples[1].value, 2.5);
}

TEST(Top, ShowsRatesBetweenTwoLooks) {
  TopModel model;
  model.update(metrics(1'000'000, 10), 5 * kSecond);
  TopView view{.width = 200};
  EXPECT_NE(text_of(model, view).find("hnic0   up          0 b/s"), std::string::npos)
      << "one look has no rates: " << text_of(model, view);
  model.update(metrics(26'000'000, 30, 4), 7 * kSecond);
  const std::string text = text_of(model, view);
  // 25 MB in two seconds.
  EXPECT_NE(text.find("hnic0   up       100 Mb/s       0 b/s"), std::string::npos) << text;
  EXPECT_NE(text.find("     2 /s     10 /s"), std::string::npos) << "lost, repeated: " << text;
  EXPECT_NE(text.find("hnic0   0x11      RC      RTS      100 Mb/s"), std::string::npos) << text;
  EXPECT_NE(text.find("12 us    never  a \"b\\ (7) to 1.2.3.4"), std::string::npos) << text;
  EXPECT_NE(text.find("2 queue pairs, by bytes"), std::string::npos) << text;
}

TEST(Top, CountersThatAreSetBackAreNoRates) {
  TopModel model;
  model.update(metrics(26'000'000, 30), 5 * kSecond);
  model.update(metrics(1'000, 0), 6 * kSecond);
  EXPECT_NE(text_of(model, {.width = 200}).find("hnic0   up          0 b/s"), std::string::npos);
}

TEST(Top, SortsAndFilters) {
  TopModel model;
  model.update(metrics(0, 0, 0, 0), 5 * kSecond);
  model.update(metrics(1000, 0, 0, 5000), 6 * kSecond);
  const std::string by_bytes = text_of(model, {.width = 200});
  EXPECT_LT(by_bytes.find("0x22"), by_bytes.find("0x11")) << by_bytes;
  const std::string by_time = text_of(model, {.sort = TopSort::kRoundTrip, .width = 200});
  EXPECT_LT(by_time.find("0x11"), by_time.find("0x22")) << by_time;
  const std::string filtered = text_of(model, {.filter = "other", .width = 200});
  EXPECT_EQ(filtered.find("0x11"), std::string::npos) << filtered;
  EXPECT_NE(filtered.find("0x22"), std::string::npos) << filtered;
}

TEST(Top, FitsTheTerminal) {
  TopModel model;
  for (uint32_t i = 0; i < 100; ++i)
    model.update(metrics(i * (i % 7) * 1000, 0), (i + 1) * kSecond);
  const TopView small{.width = 40, .height = 7};
  const auto lines = model.lines(small);
  EXPECT_LE(lines.size(), 6u) << "one line is for the keys";
  for (const TopLine& line : lines) {
    const auto columns = std::ranges::count_if(
        line.text, [](char c) { return (static_cast<uint8_t>(c) & 0xc0) != 0x80; });
    EXPECT_LE(columns, 40) << line.text;
  }
  EXPECT_NE(lines.back().text.find("1 more"), std::string::npos) << lines.back().text;
}

TEST(Top, TheLastMinuteHasAsManySeconds) {
  TopModel model;
  model.update(metrics(0, 0), kSecond);
  uint64_t bytes = 0;
  for (uint32_t i = 1; i <= 70; ++i)
    model.update(metrics(bytes += i == 70 ? 8000 : 1000, 0), (i + 1) * kSecond);
  const std::string text = text_of(model, {.ascii = true, .width = 300});
  const size_t line = text.find("\nhnic0 ");
  const std::string nic = text.substr(line + 1, text.find('\n', line + 1) - line - 1);
  EXPECT_TRUE(nic.ends_with(std::string(TopModel::kHistory - 1, '.') + "#")) << nic;
}

}  // namespace
}  // namespace hostnic::cli
