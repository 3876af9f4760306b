// SPDX-License-Identifier: BSD-3-Clause
// What `hostnic top` shows, made of hostnicd's metrics (docs/operate.md) as they are asked for
// again and again: rates, the busiest queue pairs, the last minute. Pure: text comes in, lines go
// out. One thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "protocol/types.h"

namespace hostnic::cli {

// One line of metrics.
struct MetricSample {
  std::string name;
  std::map<std::string, std::string> labels;
  double value = 0;
};
// The samples of a text; what can't be read is left out.
std::vector<MetricSample> parse_metrics(std::string_view text);

enum class TopSort : uint8_t { kBytes, kRepeated, kRoundTrip, kOutstanding, kProgram };
inline constexpr size_t kTopSorts = 5;
const char* name_of(TopSort sort);

struct TopView {
  TopSort sort = TopSort::kBytes;
  std::string filter;  // shows queue pairs in whose line this is; empty: all
  bool ascii = false;  // no blocks in the last minute's lines
  bool paused = false;
  bool filtering = false;  // the filter is being typed
  uint32_t width = 80;
  uint32_t height = 0;  // lines; 0: as many as there are
};

struct TopLine {
  enum class Style : uint8_t { kPlain, kHead, kFaint, kBad };
  std::string text;  // UTF-8, of at most TopView::width columns
  Style style = Style::kPlain;
};

class TopModel {
 public:
  static constexpr size_t kHistory = 60;  // samples, one a second

  // Takes metrics as they were at a moment. The first ones have no rates yet.
  void update(std::string_view metrics, TimeNs now_ns);
  std::vector<TopLine> lines(const TopView& view) const;

 private:
  struct Nic {
    double sent_bytes = 0, received_bytes = 0, sent_packets = 0, received_packets = 0;
    double lost = 0, repeated = 0;
    bool up = true;
  };
  struct Qp {
    std::string device, number, program, pid, type, state, peer;
    double bytes = 0, repeated = 0, outstanding = 0, round_trip_s = 0, silent_s = -1;
  };
  struct Snapshot {
    TimeNs at_ns = 0;
    std::map<std::string, Nic> nics;
    std::map<std::string, Qp> qps;  // by device and number
    double left_out = 0;
  };
  struct Row;

  static Snapshot read(std::string_view metrics, TimeNs now_ns);
  double seconds() const;
  std::string history_text(const std::string& device, bool ascii) const;
  std::vector<Row> rows(const TopView& view) const;

  Snapshot before_, now_;
  bool has_rates_ = false;
  std::map<std::string, std::deque<double>> history_;  // bytes a second, both ways, by device
};

}  // namespace hostnic::cli
