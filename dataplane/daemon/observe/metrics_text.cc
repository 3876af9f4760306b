// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/metrics_text.h"

#include <fmt/format.h>

namespace hostnic {
namespace {

// Backslashes and ends of lines are escaped everywhere, quotes in labels' values only.
std::string escaped(std::string_view text, bool quotes) {
  std::string out;
  for (const char c : text) {
    if (c == '\\') {
      out += "\\\\";
    } else if (c == '\n') {
      out += "\\n";
    } else if (c == '"' && quotes) {
      out += "\\\"";
    } else {
      out += c;
    }
  }
  return out;
}

}  // namespace

void MetricsText::family(std::string_view name, MetricKind kind, std::string_view help) {
  name_ = name;
  if (kind == MetricKind::kCounter) name_ += "_total";
  if (kind == MetricKind::kInfo) name_ += "_info";
  // OpenMetrics names a family without the ending of its samples, and knows the kind info.
  const bool open = format_ == MetricsFormat::kOpenMetrics;
  const std::string_view family = open ? name : std::string_view(name_);
  const std::string_view type = kind == MetricKind::kCounter        ? "counter"
                                : kind == MetricKind::kInfo && open ? "info"
                                                                    : "gauge";
  text_ += fmt::format("# HELP {} {}\n# TYPE {} {}\n", family, escaped(help, open), family, type);
}

void MetricsText::begin_sample(Labels labels) {
  text_ += name_;
  if (labels.size() == 0) return;
  char before = '{';
  for (const auto& [name, value] : labels) {
    text_ += before;
    text_ += fmt::format("{}=\"{}\"", name, escaped(value, true));
    before = ',';
  }
  text_ += '}';
}

void MetricsText::sample(Labels labels, uint64_t value) {
  begin_sample(labels);
  text_ += fmt::format(" {}\n", value);
}

void MetricsText::sample(Labels labels, double value) {
  begin_sample(labels);
  text_ += fmt::format(" {}\n", value);
}

std::string MetricsText::finish() {
  if (format_ == MetricsFormat::kOpenMetrics) text_ += "# EOF\n";
  return std::move(text_);
}

std::string_view media_type(MetricsFormat format) {
  return format == MetricsFormat::kOpenMetrics
             ? "application/openmetrics-text; version=1.0.0; charset=utf-8"
             : "text/plain; version=0.0.4; charset=utf-8";
}

}  // namespace hostnic
