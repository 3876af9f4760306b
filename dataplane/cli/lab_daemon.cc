// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/lab_daemon.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>

#include <fstream>
#include <iterator>
#include <utility>

#include "dataplane/cli/process.h"

namespace hostnic::cli {
namespace {

// The limit for hostnicd's start: EAL takes 0.2 s; under a sanitizer on a busy machine many times
// that.
constexpr int kReadyLimitMs = 30'000;
// The limit for its end, not counting the time in which it is kept from a processor.
constexpr int kStopLimitMs = 10'000;

}  // namespace

LabDaemon::LabDaemon(LabDaemon&& other) noexcept
    : pid_(std::exchange(other.pid_, -1)), ready_(std::move(other.ready_)) {}

bool LabDaemon::start(const LabDaemonPlan& plan) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return false;
  ready_ = UniqueFd(ends[0]);
  const UniqueFd write_end(ends[1]);
  std::vector<std::string> command = {
      plan.program, "--socket", plan.socket(), "--ready-fd", fmt::format("{}", write_end.get()),
      "--no-prompt"};
  command.insert(command.end(), plan.arguments.begin(), plan.arguments.end());
  UniqueFd log;
  ChildOptions child;
  child.environment = {{"XDG_RUNTIME_DIR", plan.directory},
                       {"RUNTIME_DIRECTORY", plan.directory},
                       {"HOSTNIC_LAB", "1"}};
  child.unset = {"LD_PRELOAD", "HOSTNIC_SOCKET"};
  child.own_group = child.dies_with_us = child.stdin_null = true;
  child.keep_fds = {write_end.get()};
  child.before_exec = plan.enter;
  if (!plan.verbose) {
    log = UniqueFd(open(plan.log().c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600));
    child.output_fd = log.get();
  }
  pid_ = start_child(command, child);
  return pid_ > 0;
}

std::optional<int> LabDaemon::wait_ready() {
  pollfd watched{ready_.get(), POLLIN, 0};
  char byte = 0;
  const int ready = poll(&watched, 1, kReadyLimitMs);
  if (ready > 0 && read(ready_.get(), &byte, 1) == 1) return std::nullopt;
  if (ready == 0) {
    fail("lab", fmt::format("hostnicd is not ready after {} s", kReadyLimitMs / 1000));
    return 1;
  }
  const auto status = wait_child(pid_, kStopLimitMs);
  if (!status) return 1;
  pid_ = -1;
  return exit_code_of(*status) == 0 ? 1 : exit_code_of(*status);
}

void LabDaemon::request_stop() const {
  if (pid_ > 0) kill(pid_, SIGTERM);
}

int LabDaemon::stop() {
  if (pid_ <= 0) return 0;
  request_stop();
  auto status = wait_child_at_work(pid_, kStopLimitMs);
  if (!status) {
    fail("lab", "hostnicd does not end, killing it");
    kill(pid_, SIGKILL);
    status = wait_child(pid_, kStopLimitMs);
  }
  pid_ = -1;
  return status ? exit_code_of(*status) : 1;
}

void show_log(const std::string& path) {
  std::ifstream log(path);
  const std::string text{std::istreambuf_iterator<char>(log), std::istreambuf_iterator<char>()};
  fputs(text.c_str(), stderr);
}

}  // namespace hostnic::cli
