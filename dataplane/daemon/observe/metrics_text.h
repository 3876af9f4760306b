// SPDX-License-Identifier: BSD-3-Clause
// Writes metrics as text, in one of two formats: OpenMetrics 1.0, and the older text format of
// Prometheus (0.0.4), which node_exporter's textfile collector and promtool read. They differ in
// the names of counters' families and in the end. One thread.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

namespace hostnic {

enum class MetricsFormat : uint8_t { kOpenMetrics, kPrometheus };
enum class MetricKind : uint8_t { kCounter, kGauge, kInfo };

class MetricsText {
 public:
  using Labels = std::initializer_list<std::pair<std::string_view, std::string_view>>;

  explicit MetricsText(MetricsFormat format) : format_(format) {}

  // Begins a family, whose samples follow. `name` is without _total and _info; names are letters,
  // digits and underscores. A family is begun once.
  void family(std::string_view name, MetricKind kind, std::string_view help);
  // Labels' values may be any text.
  void sample(Labels labels, uint64_t value);
  void sample(Labels labels, double value);

  // The whole text; no calls follow.
  std::string finish();

 private:
  void begin_sample(Labels labels);

  MetricsFormat format_;
  std::string name_;  // of the family's samples
  std::string text_;
};

// The media type of a format, for HTTP.
std::string_view media_type(MetricsFormat format);

}  // namespace hostnic
