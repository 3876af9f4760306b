// SPDX-License-Identifier: BSD-3-Clause
// Child processes of `hostnic`, and how its subcommands fail.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "dataplane/cli/processor_wait.h"

namespace hostnic::cli {

// Says on stderr what is wrong, in one line, and what to do where descriptors are lacking. Returns
// the exit code, 1.
int fail(const std::string& subcommand, const std::string& line);

struct ChildOptions {
  std::vector<std::pair<std::string, std::string>> environment;  // variables set in addition
  std::vector<std::string> unset;
  // The child gets no terminal signals. It has no session of its own: where the kernel schedules
  // sessions as groups (autogroup), a thread that yields its core yields to its own session only.
  bool own_group = false;
  bool dies_with_us = false;
  bool stdin_null = false;
  int output_fd = -1;         // stdout and stderr go there; -1: to ours
  std::vector<int> keep_fds;  // descriptors that lose their close-on-exec flag
  // The last thing that the child does before it executes the command; false: it ends with 1.
  std::function<bool()> before_exec;
};

// Starts a child: returns its pid, or -1 with errno when there is no process to be had. A command
// that can't be executed prints one line and exits 127 (not found) or 126, as in a shell. The
// signal mask is that of `hostnic`'s start.
pid_t start_child(const std::vector<std::string>& command, const ChildOptions& options);

// Replaces this process. It returns only when it fails, with the exit code (after one line).
int exec_command(const std::vector<std::string>& command);

// The exit code that a shell gives for a wait status.
int exit_code_of(int wait_status);

// Waits up to `limit_ms` for the child's end; returns its wait status, if it ended.
std::optional<int> wait_child(pid_t pid, int limit_ms);
// As wait_child(); but time in which a thread of the child waits for a processor does not count, up
// to ten times the limit: a busy machine is no reason to give it up. `waits` says how long its
// threads have waited (processor_wait.h): the kernel's numbers, or a test's.
std::optional<int> wait_child_at_work(pid_t pid, int limit_ms);
std::optional<int> wait_child_at_work(pid_t pid, int limit_ms,
                                      const std::function<ProcessorWaits()>& waits);

// Blocks the signals that run() handles, and remembers the mask for children.
void block_signals();
// Waits for `pid` and passes on signals sent to us by other processes (those from the terminal
// reached the child already). Returns its wait status. `on_other(pid, status)` hears of other
// children's ends.
int wait_and_forward(pid_t pid, void (*on_other)(pid_t pid, int status));

}  // namespace hostnic::cli
