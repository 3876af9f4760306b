// SPDX-License-Identifier: BSD-3-Clause
// Answers HTTP requests for metrics on a TCP port of the loopback address 127.0.0.1. Everybody on
// this machine may ask, so it is off unless the configuration names a port (metrics_port). Each
// connection serves one request: GET /metrics, or /. The control thread; nothing waits for a peer.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <string>
#include <string_view>

#include "dataplane/daemon/observe/metrics_text.h"
#include "protocol/expected.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic {

// What a request gets.
struct MetricsRequest {
  enum class Kind : uint8_t { kUnfinished, kGood, kBadMethod, kNotFound, kBad };
  Kind kind = Kind::kUnfinished;
  MetricsFormat format = MetricsFormat::kPrometheus;
};
// Looks at what has come of a request so far. Pure.
MetricsRequest parse_metrics_request(std::string_view text);

class MetricsListener {
 public:
  // The most connections; the oldest one makes room for another.
  static constexpr size_t kMaxConnections = 16;
  static constexpr size_t kMaxRequestBytes = 8192;
  // A question that comes sooner gets the same text: lcores are not to be asked without end.
  static constexpr std::chrono::milliseconds kFresh{200};

  // `port` 0: any that is free. An error is one line.
  static Expected<std::unique_ptr<MetricsListener>, std::string> create(uint16_t port);

  uint16_t port() const { return port_; }
  // Readable while handle() has something to do.
  int fd() const { return epoll_fd_.get(); }
  // Accepts, reads and answers; `metrics` makes the text for those who get it.
  void handle(const std::function<std::string(MetricsFormat)>& metrics);

 private:
  struct Connection {
    UniqueFd socket;
    std::string request, answer;
    size_t sent = 0;
  };
  MetricsListener() = default;
  void accept_connections();
  bool serve(Connection& connection, const std::function<std::string(MetricsFormat)>& metrics);
  bool send_answer(Connection& connection);
  const std::string& fresh_text(MetricsFormat format,
                                const std::function<std::string(MetricsFormat)>& metrics);

  UniqueFd listener_, epoll_fd_;
  uint16_t port_ = 0;
  std::list<Connection> connections_;  // oldest first
  struct Text {
    std::string text;
    std::chrono::steady_clock::time_point made{};
  };
  Text texts_[2];  // by format
};

}  // namespace hostnic
