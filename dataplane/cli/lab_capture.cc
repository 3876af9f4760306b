// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/lab_capture.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <string.h>
#include <unistd.h>

#include "dataplane/cli/process.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {
namespace {

constexpr int kReadyLimitMs = 30'000, kStopLimitMs = 30'000;

}  // namespace

Expected<void, std::string> LabCapture::start(const std::string& socket_path,
                                              const std::string& file) {
  return run({"--socket", socket_path}, file);
}

Expected<void, std::string> LabCapture::start(const std::vector<std::string>& hosts,
                                              const std::string& file) {
  std::vector<std::string> options;
  for (const std::string& host : hosts) options.insert(options.end(), {"--host", host});
  return run(options, file);
}

Expected<void, std::string> LabCapture::run(const std::vector<std::string>& options,
                                            const std::string& file) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return Unexpected(fmt::format("pipe: {}", strerror(errno)));
  const UniqueFd ready(ends[0]);
  UniqueFd write_end(ends[1]);
  ChildOptions child;
  child.own_group = child.dies_with_us = child.stdin_null = true;
  child.keep_fds = {write_end.get()};
  std::vector<std::string> command = {
      "/proc/self/exe", "capture", "-w", file, "--ready-fd", fmt::format("{}", write_end.get())};
  command.insert(command.end(), options.begin(), options.end());
  pid_ = start_child(command, child);
  if (pid_ < 0) return Unexpected(fmt::format("fork: {}", strerror(errno)));
  write_end.reset();
  pollfd watched{ready.get(), POLLIN, 0};
  char byte = 0;
  if (poll(&watched, 1, kReadyLimitMs) > 0 && read(ready.get(), &byte, 1) == 1) return {};
  stop();
  return Unexpected(std::string("--capture: the packets can't be captured"));
}

bool LabCapture::stop() {
  if (pid_ <= 0) return true;
  kill(pid_, SIGINT);
  auto status = wait_child_at_work(pid_, kStopLimitMs);
  if (!status) {
    kill(pid_, SIGKILL);
    status = wait_child(pid_, kStopLimitMs);
  }
  pid_ = -1;
  return status && exit_code_of(*status) == 0;
}

}  // namespace hostnic::cli
