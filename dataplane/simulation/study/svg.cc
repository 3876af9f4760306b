// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/simulation/study/svg.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <optional>
#include <span>

#include "dataplane/simulation/study/output.h"
#include "dataplane/simulation/study/recovery_cells.h"
#include "dataplane/simulation/study/sweep.h"

namespace hostnic::study {
namespace {

constexpr int kPanelWidth = 340, kPanelHeight = 250;
// Around a panel's plot.
constexpr int kLeft = 62, kRight = 14, kTop = 30, kBottom = 48;
constexpr int kMargin = 12, kLineHeight = 18;
constexpr double kCharacterWidth = 7.2;
// Spans that are wider than this have a logarithmic axis.
constexpr double kLinearSpan = 20;

constexpr const char* kStyle = R"(<style>
svg { --page: #ffffff; --ink: #1c1f23; --faint: #5b6470; --line: #d5d9de;
  --c0: #0060a8; --c1: #b35900; --c2: #7a3a91; --c3: #1c1f23; --c4: #7d8790; }
@media (prefers-color-scheme: dark) {
  svg { --page: #14171a; --ink: #e8eaed; --faint: #a2abb6; --line: #3a4149;
    --c0: #6cb8f5; --c1: #ffa94d; --c2: #d59be8; --c3: #e8eaed; --c4: #98a2ac; }
}
text { font: 12px system-ui, "DejaVu Sans", sans-serif; fill: var(--ink); }
.faint { fill: var(--faint); font-size: 11px; }
.head { font-weight: 600; }
.grid { stroke: var(--line); stroke-width: 1; }
.curve { fill: none; stroke-width: 1.8; }
</style>
)";

struct LineStyle {
  const char* dashes;
  int corners;  // of its marks; 0: a circle
};
constexpr std::array<LineStyle, 5> kLineStyles = {
    {{"none", 0}, {"7 3", 4}, {"2 3", 3}, {"11 3 2 3", 5}, {"4 2", 6}}};

// A panel's value of a result; nothing where it has none.
struct Metric {
  const char* title;
  std::optional<double> (*value)(const Result& result);
};
constexpr std::array<Metric, 3> kMetrics = {
    {{"goodput, Gb/s",
      [](const Result& r) -> std::optional<double> { return goodput_bits_per_second(r) / 1e9; }},
     {"completion time, median, us",
      [](const Result& r) -> std::optional<double> {
        if (r.completed == 0) return std::nullopt;
        return static_cast<double>(r.p50_ns) / 1e3;
      }},
     {"completion time, 99th percentile, us", [](const Result& r) -> std::optional<double> {
        if (r.completed < kLeastForP99) return std::nullopt;
        return static_cast<double>(r.p99_ns) / 1e3;
      }}}};

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '<')
      out += "&lt;";
    else if (c == '&')
      out += "&amp;";
    else if (c == '"')
      out += "&quot;";
    else
      out += c;
  }
  return out;
}

// ---- axes

struct Axis {
  double least = 0, most = 1;
  bool logarithmic = false;
  std::vector<double> ticks;

  // From 0 at the bottom to 1 at the top.
  double place(double value) const {
    if (!logarithmic) return (value - least) / (most - least);
    return std::log(std::max(value, least) / least) / std::log(most / least);
  }
};

double nice_step(double span) {
  const double power = std::pow(10, std::floor(std::log10(span / 4)));
  for (const double factor : {1.0, 2.0, 5.0})
    if (span / (factor * power) <= 5) return factor * power;
  return 10 * power;
}

Axis axis_of(const std::vector<double>& values, bool may_be_logarithmic) {
  Axis axis;
  double least = 0, most = 0;
  for (const double value : values) {
    if (value > 0) least = least == 0 ? value : std::min(least, value);
    most = std::max(most, value);
  }
  if (most == 0) most = least = 1;
  axis.logarithmic = may_be_logarithmic && most / least > kLinearSpan;
  if (axis.logarithmic) {
    axis.least = std::pow(10, std::floor(std::log10(least)));
    axis.most = std::pow(10, std::ceil(std::log10(most)));
    for (double tick = axis.least; tick <= axis.most * 1.001; tick *= 10)
      axis.ticks.push_back(tick);
    return axis;
  }
  const double step = nice_step(most);
  axis.most = std::ceil(most / step * 1.0001) * step;
  for (int i = 0; i * step <= axis.most * 1.001; ++i) axis.ticks.push_back(i * step);
  return axis;
}

std::string tick_text(double tick) {
  return tick >= 1 ? fmt::format("{:.10g}", tick) : fmt::format("{:.3g}", tick);
}

// ---- the picture

struct Point {
  size_t place;  // along the x axis
  double value;
  bool done;
};

struct Facet {
  std::string title;
  std::vector<size_t> cells;
};

class Picture {
 public:
  Picture(const std::vector<Cell>& cells, const std::vector<Result>& results)
      : cells_(cells), results_(results), dimensions_(dimensions_of(cells)) {
    choose_x();
    choose_facets();
    for (const Recovery& recovery : all_recoveries())
      if (std::ranges::any_of(cells, [&](const Cell& cell) { return is_of(cell, recovery); }))
        recoveries_.push_back(&recovery);
  }

  size_t facets() const { return facets_.size(); }

  std::string draw() {
    const int width = 2 * kMargin + kPanelWidth * static_cast<int>(kMetrics.size());
    int y = kMargin + kLineHeight - 4;
    std::string body = title(y, width);
    body += legend(y, width);
    for (const Facet& facet : facets_) {
      if (!facet.title.empty()) {
        body += text(kMargin, y + kLineHeight, "head", "start", facet.title);
        y += kLineHeight + 6;
      }
      for (size_t i = 0; i < kMetrics.size(); ++i)
        body += panel(facet, kMetrics[i], kMargin + static_cast<int>(i) * kPanelWidth, y);
      y += kPanelHeight;
    }
    body += note(y);
    return fmt::format(
               "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {} {}\" width=\"{}\" "
               "height=\"{}\" role=\"img\" aria-label=\"{}\">\n",
               width, y + kMargin, width, y + kMargin, escaped(common_of(cells_))) +
           kStyle + "<rect width=\"100%\" height=\"100%\" style=\"fill: var(--page)\"/>\n" + body +
           "</svg>\n";
  }

 private:
  static bool is_of(const Cell& cell, const Recovery& recovery) {
    return cell.policy == recovery.policy && cell.roce == recovery.roce;
  }

  std::vector<uint64_t> values_of(const Dimension& dimension) const {
    std::vector<uint64_t> values;
    for (const Cell& cell : cells_) values.push_back(dimension.value(cell));
    std::ranges::sort(values);
    values.erase(std::unique(values.begin(), values.end()), values.end());
    return values;
  }

  void choose_x() {
    for (const Dimension* each : dimensions_)
      if (x_ == nullptr || values_of(*each).size() > values_of(*x_).size()) x_ = each;
    if (x_ != nullptr) places_ = values_of(*x_);
  }

  size_t place_of(const Cell& cell) const {
    if (x_ == nullptr) return 0;
    return static_cast<size_t>(std::ranges::lower_bound(places_, x_->value(cell)) -
                               places_.begin());
  }

  void choose_facets() {
    for (size_t i = 0; i < cells_.size(); ++i) {
      std::string name;
      for (const Dimension* each : dimensions_)
        if (each != x_)
          name += fmt::format("{}{}: {}", name.empty() ? "" : "; ", each->title,
                              text_of(each->unit, each->value(cells_[i])));
      auto facet = std::ranges::find(facets_, name, &Facet::title);
      if (facet == facets_.end()) facet = facets_.insert(facets_.end(), {name, {}});
      facet->cells.push_back(i);
    }
  }

  static std::string text(double x, double y, const char* style, const char* anchor,
                          const std::string& words) {
    return fmt::format(
        "<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\" text-anchor=\"{}\">{}</text>\n", x, y, style,
        anchor, escaped(words));
  }

  // In as many lines as it needs.
  std::string title(int& y, int width) const {
    const auto room = static_cast<size_t>((width - 2 * kMargin) / kCharacterWidth);
    std::string rest = common_of(cells_), out;
    while (!rest.empty()) {
      size_t end = rest.size() <= room ? rest.size() : rest.rfind(' ', room);
      if (end == std::string::npos || end == 0) end = std::min(room, rest.size());
      out += text(kMargin, y, "head", "start", rest.substr(0, end));
      rest.erase(0, std::min(end + 1, rest.size()));
      y += kLineHeight;
    }
    return out;
  }

  std::string legend(int& y, int width) const {
    std::string out;
    double x = kMargin;
    for (const Recovery* each : recoveries_) {
      const std::string name = each->name;
      const double needs = 44 + static_cast<double>(name.size()) * kCharacterWidth + 18;
      if (x + needs > width) {
        x = kMargin;
        y += kLineHeight;
      }
      const size_t style = style_of(*each);
      out += fmt::format("<path class=\"curve\" d=\"M{:.1f} {}h36\" style=\"{}\"/>\n", x, y - 4,
                         stroke(style));
      out += mark(style, x + 18, y - 4, true);
      out += text(x + 44, y, "", "start", name);
      x += needs;
    }
    y += kLineHeight / 2;
    return out;
  }

  std::string note(int& y) const {
    std::string words;
    if (std::ranges::any_of(results_, [](const Result& r) { return r.outcome != Outcome::kDone; }))
      words = "Hollow: a request failed, or the cell was stopped; what had completed counts. ";
    if (std::ranges::any_of(results_, [](const Result& r) { return r.completed < kLeastForP99; }))
      words += fmt::format("No 99th percentile of fewer than {} transfers.", kLeastForP99);
    if (words.empty()) return {};
    y += kLineHeight;
    return text(kMargin, y, "faint", "start", words);
  }

  size_t style_of(const Recovery& recovery) const {
    return static_cast<size_t>(&recovery - all_recoveries().data());
  }
  static std::string stroke(size_t style) {
    return fmt::format("stroke: var(--c{}); stroke-dasharray: {}", style,
                       kLineStyles[style].dashes);
  }

  static std::string mark(size_t style, double x, double y, bool filled) {
    const std::string paint = fmt::format("stroke: var(--c{}); stroke-width: 1.6; fill: var(--{})",
                                          style, filled ? fmt::format("c{}", style) : "page");
    const int corners = kLineStyles[style].corners;
    if (corners == 0)
      return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"3.4\" style=\"{}\"/>\n", x, y,
                         paint);
    std::string points;
    for (int i = 0; i < corners; ++i) {
      const double angle = 2 * M_PI * i / corners - M_PI / 2 + (corners == 4 ? M_PI / 4 : 0);
      points += fmt::format("{:.1f},{:.1f} ", x + 4.4 * std::cos(angle), y + 4.4 * std::sin(angle));
    }
    return fmt::format("<polygon points=\"{}\" style=\"{}\"/>\n", points, paint);
  }

  std::vector<Point> points_of(const Facet& facet, const Metric& metric,
                               const Recovery& recovery) const {
    std::vector<Point> points;
    for (const size_t i : facet.cells) {
      if (!is_of(cells_[i], recovery)) continue;
      if (const auto value = metric.value(results_[i]))
        points.push_back({place_of(cells_[i]), *value, results_[i].outcome == Outcome::kDone});
    }
    std::ranges::sort(points, {}, &Point::place);
    return points;
  }

  // Where along the x axis, in pixels of the plot.
  double x_of(size_t place) const {
    const int plot = kPanelWidth - kLeft - kRight;
    const size_t count = std::max<size_t>(places_.size(), 1);
    return count == 1
               ? plot / 2.0
               : 10 + (plot - 20.0) * static_cast<double>(place) / static_cast<double>(count - 1);
  }

  std::string panel(const Facet& facet, const Metric& metric, int left, int top) const {
    std::vector<double> values;
    for (const Recovery* each : recoveries_)
      for (const Point& point : points_of(facet, metric, *each)) values.push_back(point.value);
    const Axis axis = axis_of(values, &metric != kMetrics.data());
    const double plot_height = kPanelHeight - kTop - kBottom;
    const double bottom = top + kTop + plot_height, x0 = left + kLeft;
    const auto y_of = [&](double value) { return bottom - axis.place(value) * plot_height; };
    std::string out = text(x0, top + kTop - 10, "", "start", metric.title);
    for (const double tick : axis.ticks) {
      out += fmt::format("<path class=\"grid\" d=\"M{:.1f} {:.1f}h{}\"/>\n", x0, y_of(tick),
                         kPanelWidth - kLeft - kRight);
      out += text(x0 - 6, y_of(tick) + 4, "faint", "end", tick_text(tick));
    }
    out += x_labels(x0, bottom);
    for (const Recovery* each : recoveries_) {
      const size_t style = style_of(*each);
      std::string path, marks;
      for (const Point& point : points_of(facet, metric, *each)) {
        const double x = x0 + x_of(point.place), y = y_of(point.value);
        path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", x, y);
        marks += mark(style, x, y, point.done);
      }
      if (!path.empty())
        out += fmt::format("<path class=\"curve\" d=\"{}\" style=\"{}\"/>\n", path, stroke(style));
      out += marks;
    }
    return out;
  }

  // Only so many that none overlaps.
  std::string x_labels(double x0, double bottom) const {
    if (x_ == nullptr) return {};
    size_t longest = 1;
    std::vector<std::string> names;
    for (const uint64_t value : places_) {
      names.push_back(text_of(x_->unit, value));
      longest = std::max(longest, names.back().size());
    }
    const double plot = kPanelWidth - kLeft - kRight;
    const auto room = static_cast<size_t>(
        std::max(1.0, plot / ((static_cast<double>(longest) + 1.5) * kCharacterWidth)));
    const size_t step = (names.size() + room - 1) / room;
    std::string out;
    for (size_t i = 0; i < names.size(); i += step)
      out += text(x0 + x_of(i), bottom + 16, "faint", "middle", names[i]);
    return out + text(x0 + plot / 2, bottom + 34, "", "middle", x_->title);
  }

  const std::vector<Cell>& cells_;
  const std::vector<Result>& results_;
  std::vector<const Dimension*> dimensions_;
  const Dimension* x_ = nullptr;
  std::vector<uint64_t> places_;
  std::vector<Facet> facets_;
  std::vector<const Recovery*> recoveries_;
};

}  // namespace

Expected<std::string, std::string> svg_of(const std::vector<Cell>& cells,
                                          const std::vector<Result>& results) {
  if (std::ranges::any_of(cells, [&](const Cell& cell) { return cell.study != cells[0].study; }))
    return Unexpected(std::string("--svg: a picture is of one study (--study stream, or --csv)"));
  Picture picture(cells, results);
  if (picture.facets() > kMostFacets)
    return Unexpected(
        fmt::format("--svg: {} rows of panels are too many ({} at most): vary less, or "
                    "use --csv",
                    picture.facets(), kMostFacets));
  return picture.draw();
}

}  // namespace hostnic::study
