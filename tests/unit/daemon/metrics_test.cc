// SPDX-License-Identifier: BSD-3-Clause
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include "dataplane/daemon/observe/metrics_listener.h"
#include "dataplane/daemon/observe/metrics_text.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic {
namespace {

std::string example(MetricsFormat format) {
  MetricsText out(format);
  out.family("hostnic_tx_packets", MetricKind::kCounter, "packets \\ handed over");
  out.sample({{"device", "hnic0"}}, uint64_t{18'446'744'073'709'551'615u});
  out.family("hostnic_qp", MetricKind::kInfo, "whose");
  out.sample({{"program", "a\"b\\c\nd"}, {"qp", "0x1"}}, uint64_t{1});
  out.family("hostnic_round_trip_seconds", MetricKind::kGauge, "time");
  out.sample({}, 0.000125);
  return out.finish();
}

TEST(MetricsText, OpenMetricsNamesFamiliesWithoutTheirEndings) {
  EXPECT_EQ(example(MetricsFormat::kOpenMetrics),
            "# HELP hostnic_tx_packets packets \\\\ handed over\n"
            "# TYPE hostnic_tx_packets counter\n"
            "hostnic_tx_packets_total{device=\"hnic0\"} 18446744073709551615\n"
            "# HELP hostnic_qp whose\n"
            "# TYPE hostnic_qp info\n"
            "hostnic_qp_info{program=\"a\\\"b\\\\c\\nd\",qp=\"0x1\"} 1\n"
            "# HELP hostnic_round_trip_seconds time\n"
            "# TYPE hostnic_round_trip_seconds gauge\n"
            "hostnic_round_trip_seconds 0.000125\n"
            "# EOF\n");
}

TEST(MetricsText, PrometheusOlderFormatNamesTheSamples) {
  EXPECT_EQ(example(MetricsFormat::kPrometheus),
            "# HELP hostnic_tx_packets_total packets \\\\ handed over\n"
            "# TYPE hostnic_tx_packets_total counter\n"
            "hostnic_tx_packets_total{device=\"hnic0\"} 18446744073709551615\n"
            "# HELP hostnic_qp_info whose\n"
            "# TYPE hostnic_qp_info gauge\n"
            "hostnic_qp_info{program=\"a\\\"b\\\\c\\nd\",qp=\"0x1\"} 1\n"
            "# HELP hostnic_round_trip_seconds time\n"
            "# TYPE hostnic_round_trip_seconds gauge\n"
            "hostnic_round_trip_seconds 0.000125\n");
}

TEST(MetricsRequest, IsAGetOfOneOfTwoPaths) {
  using Kind = MetricsRequest::Kind;
  const auto kind = [](std::string_view text) { return parse_metrics_request(text).kind; };
  EXPECT_EQ(kind("GET /metrics HTTP/1.1\r\nHost: a\r\n"), Kind::kUnfinished);
  EXPECT_EQ(kind("GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n"), Kind::kGood);
  EXPECT_EQ(kind("GET /metrics?x=1 HTTP/1.0\r\n\r\n"), Kind::kGood);
  EXPECT_EQ(kind("GET / HTTP/1.1\r\n\r\n"), Kind::kGood);
  EXPECT_EQ(kind("GET /secrets HTTP/1.1\r\n\r\n"), Kind::kNotFound);
  EXPECT_EQ(kind("POST /metrics HTTP/1.1\r\n\r\n"), Kind::kBadMethod);
  EXPECT_EQ(kind("GET /metrics\r\n\r\n"), Kind::kBad);
  EXPECT_EQ(kind("\r\n\r\n"), Kind::kBad);
  EXPECT_EQ(kind(std::string(MetricsListener::kMaxRequestBytes, 'x')), Kind::kBad);
  EXPECT_EQ(kind(std::string(MetricsListener::kMaxRequestBytes - 1, 'x')), Kind::kUnfinished);
}

TEST(MetricsRequest, GetsTheFormatThatItTakes) {
  EXPECT_EQ(parse_metrics_request("GET / HTTP/1.1\r\n\r\n").format, MetricsFormat::kPrometheus);
  EXPECT_EQ(parse_metrics_request("GET / HTTP/1.1\r\nAccept: application/openmetrics-text;"
                                  "version=1.0.0,text/plain\r\n\r\n")
                .format,
            MetricsFormat::kOpenMetrics);
}

class Listener : public ::testing::Test {
 protected:
  void SetUp() override {
    auto made = MetricsListener::create(0);
    ASSERT_TRUE(made) << made.error();
    listener_ = std::move(*made);
  }
  UniqueFd connected() const {
    UniqueFd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_port = htons(listener_->port());
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof(address)), 0);
    return fd;
  }
  // Lets the listener work until the connection has been closed; returns what has come.
  std::string answer_on(int fd, const std::string& text) {
    std::string answer;
    for (int quiet = 0; quiet < 2000;) {
      listener_->handle([&](MetricsFormat) {
        ++made_;
        return text;
      });
      char part[65536];
      const ssize_t got = recv(fd, part, sizeof(part), MSG_DONTWAIT);
      if (got == 0 || (got < 0 && errno != EAGAIN)) return answer;
      if (got > 0) {
        answer.append(part, static_cast<size_t>(got));
        continue;
      }
      pollfd wait[] = {{listener_->fd(), POLLIN, 0}, {fd, POLLIN, 0}};
      quiet += poll(wait, 2, 10) == 0 ? 1 : 0;
    }
    return answer + "... and then nothing";
  }
  std::unique_ptr<MetricsListener> listener_;
  int made_ = 0;
};

TEST_F(Listener, AnswersWholeWhateverTheLength) {
  const UniqueFd fd = connected();
  const std::string request = "GET /metrics HTTP/1.1\r\n\r\n";
  ASSERT_EQ(send(fd.get(), request.data(), request.size(), 0),
            static_cast<ssize_t>(request.size()));
  // More than sockets buffer: the rest waits for room.
  std::string text;
  text.resize(20'000'000, 'm');
  const std::string answer = answer_on(fd.get(), text);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 200 OK\r\n"));
  EXPECT_EQ(answer.substr(answer.find("\r\n\r\n") + 4), text);
}

TEST_F(Listener, WhoAsksAtOnceAgainGetsTheSame) {
  for (int i = 0; i < 3; ++i) {
    const UniqueFd fd = connected();
    const std::string request = "GET / HTTP/1.1\r\n\r\n";
    send(fd.get(), request.data(), request.size(), 0);
    EXPECT_NE(answer_on(fd.get(), "m\n").find("\r\n\r\nm\n"), std::string::npos);
  }
  EXPECT_LE(made_, 3) << "at most one text a request, and fewer while it is fresh";
  EXPECT_GE(made_, 1);
}

TEST_F(Listener, ConnectionsThatSayNothingMakeRoom) {
  std::vector<UniqueFd> silent;
  for (size_t i = 0; i < MetricsListener::kMaxConnections + 4; ++i) {
    silent.push_back(connected());
    listener_->handle([](MetricsFormat) { return std::string(); });
  }
  const UniqueFd fd = connected();
  const std::string request = "GET /none HTTP/1.1\r\n\r\n";
  send(fd.get(), request.data(), request.size(), 0);
  EXPECT_TRUE(answer_on(fd.get(), "").starts_with("HTTP/1.1 404 "));
  char byte = 0;
  EXPECT_EQ(recv(silent[0].get(), &byte, 1, MSG_DONTWAIT), 0) << "the oldest one was closed";
}

}  // namespace
}  // namespace hostnic
