// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/lab_end.h"

#include <errno.h>
#include <fmt/format.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>

#include <algorithm>
#include <filesystem>
#include <fstream>

#include "dataplane/cli/control_client.h"
#include "dataplane/cli/lab_summary.h"
#include "dataplane/cli/process.h"

namespace hostnic::cli {
namespace {

bool impairs(const LabOptions& options) {
  return std::ranges::any_of(options.daemon_arguments, [](const std::string& argument) {
    return argument.starts_with("--loss=") || argument.starts_with("--impair=");
  });
}

}  // namespace

uint64_t monotonic_ns() {
  timespec now{};
  clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(now.tv_nsec);
}

void begin_lab_trace(const LabOptions& options, const std::vector<LabSocket>& sockets) {
  if (options.trace_points.empty()) return;
  for (const LabSocket& socket : sockets)
    if (const auto done = run_text(socket.path, "trace points on"); !done)
      fail("lab", fmt::format("--trace-points: {}", done.error()));
}

void await_programs_end(const std::vector<LabSocket>& sockets) {
  constexpr uint64_t kPatienceNs = 500'000'000;
  constexpr timespec kPause{0, 2'000'000};
  const uint64_t give_up_ns = monotonic_ns() + kPatienceNs;
  for (const LabSocket& socket : sockets) {
    while (monotonic_ns() < give_up_ns) {
      const auto clients = run_text(socket.path, "show client");
      if (!clients || clients->starts_with("no clients")) break;
      nanosleep(&kPause, nullptr);
    }
  }
}

void end_lab_trace(const LabOptions& options, const std::vector<LabSocket>& sockets) {
  if (options.trace_points.empty()) return;
  const std::string directory = std::filesystem::absolute(options.trace_points).string();
  if (sockets.size() > 1 && mkdir(directory.c_str(), 0777) != 0)
    fail("lab", fmt::format("--trace-points: {}: {}", directory, strerror(errno)));
  for (const LabSocket& socket : sockets) {
    const std::string own = sockets.size() > 1 ? directory + "/" + socket.host : directory;
    if (const auto done = run_text(socket.path, "trace points save " + own); !done)
      fail("lab", fmt::format("--trace-points: {}", done.error()));
  }
}

int conclude_lab(const LabOptions& options, const std::vector<LabSocket>& sockets,
                 const std::vector<std::string>& command, int exit_code, uint64_t duration_ns,
                 const UseBoard& board) {
  const RdmaUse use = use_of(board);
  const int code = judge_use("lab", options.required_bytes, use, exit_code);
  if (options.quiet && options.summary.empty()) return code;
  std::vector<LabAnswers> answers;
  for (const LabSocket& socket : sockets) {
    // A hostnicd that does not answer any more has its own line.
    const auto counters = run_text(socket.path, "show counters");
    const auto dead = run_text(socket.path, "show dead");
    if (counters && dead) answers.push_back({socket.host, *counters, *dead});
  }
  LabSummary summary = summarize(answers, impairs(options));
  summary.all_answered = answers.size() == sockets.size();
  summary.use = use;
  summary.command = fmt::format("{}", fmt::join(command, " "));
  summary.exit_code = exit_code;
  summary.duration_ns = duration_ns;
  if (!options.quiet && !answers.empty()) fputs(text_of(summary).c_str(), stderr);
  if (options.summary.empty()) return code;
  std::ofstream file(options.summary, std::ios::binary);
  file << content_for(options.summary, summary);
  file.close();
  if (!file) fail("lab", fmt::format("--summary: {}: {}", options.summary, strerror(errno)));
  return code;
}

}  // namespace hostnic::cli
