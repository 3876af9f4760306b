// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/hosts.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>

#include "dataplane/cli/guardian.h"
#include "dataplane/cli/hosts_plan.h"
#include "dataplane/cli/lab_capture.h"
#include "dataplane/cli/lab_directory.h"
#include "dataplane/cli/lab_end.h"
#include "dataplane/cli/lab_record.h"
#include "dataplane/cli/locate.h"
#include "dataplane/cli/process.h"
#include "dataplane/cli/shared_board.h"
#include "protocol/impair/spec_values.h"

namespace hostnic::cli {
namespace {

// The guardian waits for programs, then for each hostnicd.
constexpr int kGuardianEndsMs = 60'000;

pid_t running_guardian = -1;
LabCapture running_capture;

void child_ended(pid_t pid, int status) {
  if (pid == running_capture.pid()) {
    running_capture.forget();
    fail("lab", fmt::format("--capture: it ended while the command ran (exit code {})",
                            exit_code_of(status)));
    return;
  }
  if (pid != running_guardian) return;
  running_guardian = -1;
  fail("lab", fmt::format("the process that has the hosts ended while the command ran (exit code "
                          "{}): they are gone",
                          exit_code_of(status)));
}

struct Pipe {
  UniqueFd read_end, write_end;
  bool make() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) return false;
    read_end.reset(ends[0]);
    write_end.reset(ends[1]);
    return true;
  }
};

// What COMMAND is told of the hosts.
std::vector<std::pair<std::string, std::string>> environment_of(const HostsPlan& plan,
                                                                const std::string& directory) {
  std::string names, addresses;
  for (const HostPlan& host : plan.hosts) {
    names += (names.empty() ? "" : ",") + host.name;
    addresses += (addresses.empty() ? "" : ",") + impair::format_ipv4(host.address);
  }
  return {{"HOSTNIC_HOSTS", names},
          {"HOSTNIC_ADDRESSES", addresses},
          {"HOSTNIC_LAB_DIR", directory},
          {"PATH", path_with_us(getenv("PATH"))}};
}

Expected<void, std::string> start_capture(const HostsPlan& plan, const std::string& directory,
                                          const std::string& file) {
  if (file.empty()) return {};
  std::vector<std::string> hosts;
  for (const HostPlan& host : plan.hosts)
    hosts.push_back(
        fmt::format("{}={}/hostnicd.sock", host.name, host_directory(directory, host.name)));
  return running_capture.start(hosts, file);
}

// The hosts' sockets; where all have one hostnicd, its own socket, which sees all NICs.
std::vector<LabSocket> sockets_of(const HostsPlan& plan, const std::string& directory) {
  if (plan.port == HostsPort::kWire) return {{"", directory + "/hostnicd.sock"}};
  std::vector<LabSocket> sockets;
  for (const HostPlan& host : plan.hosts)
    sockets.push_back({host.name, host_directory(directory, host.name) + "/hostnicd.sock"});
  return sockets;
}

// Runs COMMAND; returns its exit code.
int run_command(const LabOptions& options, const HostsPlan& plan, const std::string& directory,
                const SharedBoard<UseBoard>& use, int orders,
                const std::vector<std::string>& command) {
  ChildOptions child;
  child.environment = environment_of(plan, directory);
  child.environment.emplace_back(kUseBoardVariable, use.path());
  child.unset = {"HOSTNIC_SOCKET", "HOSTNIC_DEVICE"};
  // It says itself who it is: at no moment it runs and the guardian does not know.
  child.before_exec = [orders] {
    signal(SIGPIPE, SIG_DFL);
    const std::string order = fmt::format("{}\n", getpid());
    return write(orders, order.data(), order.size()) == static_cast<ssize_t>(order.size());
  };
  begin_lab_trace(options, sockets_of(plan, directory));
  const uint64_t start_ns = monotonic_ns();
  const pid_t pid = start_child(command, child);
  if (pid < 0) return fail("lab", fmt::format("fork: {}", strerror(errno)));
  const int status = wait_and_forward(pid, child_ended);
  const uint64_t duration_ns = monotonic_ns() - start_ns;
  if (!running_capture.stop()) fail("lab", "--capture: the file is not complete");
  await_programs_end(sockets_of(plan, directory));
  end_lab_trace(options, sockets_of(plan, directory));
  if (!options.report.empty()) {
    std::vector<std::string> sockets;
    for (const HostPlan& host : plan.hosts)
      sockets.push_back(host_directory(directory, host.name) + "/hostnicd.sock");
    write_lab_report(options, directory, sockets, command);
  }
  const int exit_code = conclude_lab(options, sockets_of(plan, directory), command,
                                     exit_code_of(status), duration_ns, *use);
  [[maybe_unused]] const ssize_t told = write(orders, &kEndOrder, 1);
  return exit_code;
}

}  // namespace

int run_hosts_lab(const LabOptions& options, const std::vector<std::string>& command) {
  auto program = find_hostnicd();
  if (!program) return fail("lab", program.error());
  if (auto shim = find_shim(); !shim) return fail("lab", shim.error());
  auto plan = plan_hosts(options);
  if (!plan) {
    fail("lab", plan.error());
    return 2;
  }
  auto directory = LabDirectory::create(kHostsPrefix);
  if (!directory) return fail("lab", directory.error());
  if (opened_to_others(options)) chmod(directory->path().c_str(), 0711);
  SharedBoard<UseBoard> use;
  if (auto made = use.make("use", opened_to_others(options)); !made)
    return fail("lab", made.error());
  Pipe orders, ready;
  if (!orders.make() || !ready.make()) return fail("lab", fmt::format("pipe: {}", strerror(errno)));
  block_signals();
  signal(SIGPIPE, SIG_IGN);  // of orders to a guardian that was killed
  running_guardian = fork();
  if (running_guardian < 0) return fail("lab", fmt::format("fork: {}", strerror(errno)));
  if (running_guardian == 0) {
    orders.write_end.reset();
    ready.read_end.reset();
    const int code = guard_hosts({.hosts = *plan,
                                  .hostnicd = *program,
                                  .keep_log = options.keep_log,
                                  .verbose = options.verbose,
                                  .open_to_others = opened_to_others(options),
                                  .orders = std::move(orders.read_end),
                                  .ready = std::move(ready.write_end)},
                                 *directory);
    directory->forget();
    use.remove_file();
    _exit(code);
  }
  const pid_t guardian = running_guardian;
  orders.read_end.reset();
  ready.write_end.reset();
  char byte = 0;
  int code = 1;
  const bool hosts_are_there = read(ready.read_end.get(), &byte, 1) == 1;
  const auto record = read_record(directory->path());
  const HeldNetworks networks = record ? HeldNetworks(*record) : HeldNetworks();
  if (hosts_are_there) {
    if (auto started =
            start_capture(*plan, directory->path(), capture_file(options, directory->path()));
        !started)
      fail("lab", started.error());
    else
      code = run_command(options, *plan, directory->path(), use, orders.write_end.get(), command);
  }
  orders.write_end.reset();
  bool all_is_done = false;
  if (running_guardian > 0) {
    const auto status = wait_child(guardian, kGuardianEndsMs);
    all_is_done = status && exit_code_of(*status) == 0;
    if (!hosts_are_there) code = status ? std::max(exit_code_of(*status), 1) : 1;
    // Otherwise it has said itself what was wrong.
    if (!hosts_are_there && code > 128)
      fail("lab", fmt::format("the process that was to make the hosts was killed (signal {})",
                              code - 128));
  }
  // A guardian that was killed has left its work to us.
  if (!all_is_done) end_programs(networks);
  directory->remove();
  return code;
}

}  // namespace hostnic::cli
