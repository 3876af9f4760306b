// SPDX-License-Identifier: BSD-3-Clause
// Anybody on the machine may send any bytes to the port of the metrics: what has come of a request
// is unfinished, or decided, and stays so whatever follows.
#include <cstdint>
#include <string_view>

#include "dataplane/daemon/observe/metrics_listener.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hostnic;
  using Kind = MetricsRequest::Kind;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const MetricsRequest whole = parse_metrics_request(text);
  fuzz::require(size < MetricsListener::kMaxRequestBytes || whole.kind != Kind::kUnfinished);
  if (whole.kind == Kind::kGood) fuzz::require(text.starts_with("GET /"));
  // The listener decides as soon as the head is there.
  const size_t end = text.find("\r\n\r\n");
  if (end == std::string_view::npos) return 0;
  const MetricsRequest head = parse_metrics_request(text.substr(0, end + 4));
  fuzz::require(head.kind == whole.kind && head.format == whole.format);
  return 0;
}
