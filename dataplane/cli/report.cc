// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/report.h"

#include <errno.h>
#include <fmt/format.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include <memory>
#include <string_view>
#include <utility>

#include "dataplane/cli/capture_packet.h"
#include "dataplane/cli/message_report.h"
#include "dataplane/cli/pcapng_reader.h"
#include "dataplane/cli/process.h"
#include "dataplane/cli/report_data.h"
#include "dataplane/cli/report_page.h"
#include "protocol/hostif/version.h"

namespace hostnic::cli {
namespace {

constexpr std::string_view kDataMark = "@DATA@", kTitleMark = "@TITLE@";

struct Closer {
  void operator()(FILE* file) const { fclose(file); }
};
using File = std::unique_ptr<FILE, Closer>;

Expected<bool, std::string> read_capture(FILE* file, ReportData& data) {
  PcapngReader reader(file);
  for (;;) {
    auto item = reader.next();
    if (!item) return Unexpected(item.error());
    if (const auto* interface = std::get_if<ReadInterface>(&*item)) {
      data.add_interface(interface->name, interface->description);
    } else if (const auto* packet = std::get_if<ReadPacket>(&*item)) {
      data.add({.interface = packet->interface,
                .wall_ns = packet->wall_ns,
                .sent = packet->sent,
                .headers = headers_in(packet->bytes, packet->original_bytes),
                .comment = packet->comment});
    } else if (const auto* statistics = std::get_if<ReadStatistics>(&*item)) {
      data.add_statistics(statistics->interface, statistics->received, statistics->dropped,
                          statistics->comment);
    } else {
      data.finish();
      return reader.cut();
    }
  }
}

std::string escaped_html(std::string_view text) {
  std::string out;
  for (const char c : text) out += c == '<' ? "&lt;" : c == '&' ? "&amp;" : std::string(1, c);
  return out;
}

// The page around the data.
std::string page_of(const std::string& title, const std::string& data) {
  std::string page;
  std::string_view rest = kReportPage;
  while (!rest.empty()) {
    const size_t mark = std::min({rest.find(kDataMark), rest.find(kTitleMark), rest.size()});
    page += rest.substr(0, mark);
    rest.remove_prefix(mark);
    if (rest.starts_with(kDataMark)) {
      page += data;
      rest.remove_prefix(kDataMark.size());
    } else if (rest.starts_with(kTitleMark)) {
      page += escaped_html(title);
      rest.remove_prefix(kTitleMark.size());
    }
  }
  return page;
}

std::string output_of(const ReportOptions& options) {
  if (!options.output.empty()) return options.output;
  constexpr std::string_view kEnding = ".pcapng";
  std::string name = options.input;
  if (name.ends_with(kEnding)) name.resize(name.size() - kEnding.size());
  return name + (options.json ? ".json" : ".html");
}

}  // namespace

Expected<void, std::string> write_report(const ReportOptions& options) {
  const auto failed = [](const std::string& name) {
    return Unexpected(fmt::format("{}: {}", name, strerror(errno)));
  };
  const File input(fopen(options.input.c_str(), "rbe"));
  if (!input) return failed(options.input);
  ReportData data;
  const auto is_cut = read_capture(input.get(), data);
  if (!is_cut) return Unexpected(fmt::format("{}: {}", options.input, is_cut.error()));
  std::string times;
  if (!options.trace_points.empty()) {
    auto read = report_messages(options.trace_points, /*json=*/true);
    if (!read) return Unexpected(read.error());
    times = std::move(*read);
  }
  const size_t slash = options.input.rfind('/');
  const std::string title = options.title.empty()
                                ? options.input.substr(slash == std::string::npos ? 0 : slash + 1)
                                : options.title;
  const std::string json = data.to_json({.title = title,
                                         .made_by = fmt::format("hostnic {}", HOSTNIC_VERSION),
                                         .is_cut = *is_cut,
                                         .programs = options.programs,
                                         .errors = options.errors,
                                         .times = times});
  const std::string text = options.json ? json : page_of(title, json);
  const std::string name = output_of(options);
  const File made(name == "-" ? nullptr : fopen(name.c_str(), "wbe"));
  FILE* const output = name == "-" ? stdout : made.get();
  if (output == nullptr) return failed(name);
  if (fwrite(text.data(), 1, text.size(), output) != text.size() || fflush(output) != 0)
    return failed(name);
  if (name != "-") fmt::print(stderr, "hostnic report: {}: {} records\n", name, data.packets());
  return {};
}

namespace {

// The report of traced messages is text, and goes to stdout if nothing else is said.
int report_directory(const ReportOptions& options) {
  const auto text = report_messages(options.input, options.json);
  if (!text) return fail("report", text.error());
  const bool to_stdout = options.output.empty() || options.output == "-";
  const File made(to_stdout ? nullptr : fopen(options.output.c_str(), "wbe"));
  FILE* const output = to_stdout ? stdout : made.get();
  if (output == nullptr || fwrite(text->data(), 1, text->size(), output) != text->size() ||
      fflush(output) != 0)
    return fail("report", fmt::format("{}: {}", options.output, strerror(errno)));
  return 0;
}

bool is_directory(const std::string& path) {
  struct stat about {};
  return stat(path.c_str(), &about) == 0 && S_ISDIR(about.st_mode);
}

}  // namespace

int run_report(const ReportOptions& options) {
  if (is_directory(options.input)) {
    if (!options.trace_points.empty())
      return fail("report", options.input + " is a trace itself: --trace-points is for captures");
    return report_directory(options);
  }
  if (auto written = write_report(options); !written) return fail("report", written.error());
  return 0;
}

}  // namespace hostnic::cli
