// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/lab.h"

#include <errno.h>
#include <fmt/format.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <algorithm>

#include "dataplane/cli/control_client.h"
#include "dataplane/cli/lab_capture.h"
#include "dataplane/cli/lab_daemon.h"
#include "dataplane/cli/lab_directory.h"
#include "dataplane/cli/lab_end.h"
#include "dataplane/cli/locate.h"
#include "dataplane/cli/preload_obstacle.h"
#include "dataplane/cli/process.h"
#include "dataplane/cli/report.h"
#include "dataplane/cli/shared_board.h"

namespace hostnic::cli {
namespace {

// These are global because wait_and_forward's callback has no argument of its own.
LabDaemon* running_daemon = nullptr;
LabCapture* running_capture = nullptr;
std::string running_log;

void child_ended(pid_t pid, int status) {
  if (running_capture != nullptr && pid == running_capture->pid()) {
    running_capture->forget();
    fail("lab", fmt::format("--capture: it ended while the command ran (exit code {})",
                            exit_code_of(status)));
    return;
  }
  if (running_daemon == nullptr || pid != running_daemon->pid()) return;
  running_daemon->forget();
  fail("lab",
       fmt::format("hostnicd ended while the command ran (exit code {}):", exit_code_of(status)));
  show_log(running_log);
}

}  // namespace

bool opened_to_others(const LabOptions& options) {
  for (const std::string& argument : options.daemon_arguments)
    if (argument.starts_with("--socket-mode=")) return true;
  return false;
}

std::string capture_file(const LabOptions& options, const std::string& directory) {
  if (!options.capture.empty()) return options.capture;
  return options.report.empty() ? std::string() : directory + "/report.pcapng";
}

void write_lab_report(const LabOptions& options, const std::string& directory,
                      const std::vector<std::string>& sockets,
                      const std::vector<std::string>& command) {
  // One that does not answer any more has its own line.
  const auto ask = [&](const char* what) {
    std::string all;
    for (const std::string& socket : sockets) {
      const auto answer = run_text(socket, what);
      if (!answer || !answer->starts_with('[')) continue;
      const size_t end = answer->rfind(']');
      if (end > 1) all += (all.empty() ? "" : ",") + answer->substr(1, end - 1);
    }
    return "[" + all + "]";
  };
  ReportOptions report;
  report.input = capture_file(options, directory);
  report.output = options.report;
  for (const std::string& word : command) report.title += (report.title.empty() ? "" : " ") + word;
  constexpr size_t kLongestTitle = 120;
  if (report.title.size() > kLongestTitle) report.title.resize(kLongestTitle);
  report.programs = ask("show dead --json");
  report.errors = ask("show errors --json");
  report.trace_points = options.trace_points;
  if (auto written = write_report(report); !written)
    fail("lab", fmt::format("--report: {}", written.error()));
}

int run_lab(const LabOptions& options, const std::vector<std::string>& command) {
  auto program = find_hostnicd();
  if (!program) return fail("lab", program.error());
  auto preload = preload_value(getenv("LD_PRELOAD"), command);
  if (!preload) return fail("lab", preload.error());
  auto directory = LabDirectory::create(kLabPrefix);
  if (!directory) return fail("lab", directory.error());
  if (opened_to_others(options)) chmod(directory->path().c_str(), 0711);
  block_signals();
  const LabDaemonPlan plan{.program = *program,
                           .directory = directory->path(),
                           .arguments = options.daemon_arguments,
                           .verbose = options.verbose,
                           .enter = {}};
  LabDaemon daemon;
  if (!daemon.start(plan)) return fail("lab", fmt::format("hostnicd: {}", strerror(errno)));
  if (const auto failed = daemon.wait_ready()) {
    show_log(plan.log());
    return *failed;
  }
  LabCapture capture;
  if (const std::string file = capture_file(options, directory->path()); !file.empty())
    if (auto started = capture.start(plan.socket(), file); !started)
      return fail("lab", started.error());
  begin_lab_trace(options, {{"", plan.socket()}});
  running_capture = &capture;
  running_daemon = &daemon;
  running_log = plan.log();
  SharedBoard<UseBoard> use;
  if (auto made = use.make("use", opened_to_others(options)); !made)
    return fail("lab", made.error());
  ChildOptions child;
  warn_if_not_preloaded("lab", command);
  child.environment = {{"LD_PRELOAD", *preload},
                       {"ASAN_OPTIONS", asan_options_value(getenv("ASAN_OPTIONS"))},
                       {"HOSTNIC_LAB", "1"},
                       {"HOSTNIC_SOCKET", plan.socket()},
                       {kUseBoardVariable, use.path()},
                       {"PATH", path_with_us(getenv("PATH"))}};
  child.unset = {"HOSTNIC_DEVICE", "HOSTNIC_LAB_DIR", "HOSTNIC_HOSTS", "HOSTNIC_ADDRESSES"};
  const uint64_t start_ns = monotonic_ns();
  const pid_t pid = start_child(command, child);
  if (pid < 0) return fail("lab", fmt::format("fork: {}", strerror(errno)));
  const int status = wait_and_forward(pid, child_ended);
  const uint64_t duration_ns = monotonic_ns() - start_ns;
  running_daemon = nullptr;
  running_capture = nullptr;
  if (!capture.stop())
    fail("lab",
         fmt::format("--capture: {} is not complete", capture_file(options, directory->path())));
  await_programs_end({{"", plan.socket()}});
  end_lab_trace(options, {{"", plan.socket()}});
  if (!options.report.empty())
    write_lab_report(options, directory->path(), {plan.socket()}, command);
  const int exit_code = conclude_lab(options, {{"", plan.socket()}}, command, exit_code_of(status),
                                     duration_ns, *use);
  if (const int code = daemon.stop(); code != 0) {
    fail("lab", fmt::format("hostnicd stopped with exit code {}:", code));
    show_log(plan.log());
  }
  if (options.keep_log)
    fmt::print(stderr, "hostnic lab: hostnicd's log is {}/hostnicd.log\n", directory->keep());
  return exit_code;
}

}  // namespace hostnic::cli
