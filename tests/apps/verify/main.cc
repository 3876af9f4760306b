// SPDX-License-Identifier: BSD-3-Clause
// hostnic-verify: two processes move random data between RC queue pairs and check every byte and
// every completion. An unmodified verbs program: it knows nothing of hostnic.
#include <fmt/format.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstring>

#include "tests/apps/verify/channel.h"
#include "tests/apps/verify/device.h"
#include "tests/apps/verify/error_bench.h"
#include "tests/apps/verify/memory.h"
#include "tests/apps/verify/options.h"
#include "tests/apps/verify/session.h"
#include "tests/apps/verify/watchdog.h"

namespace hostnic::verify {
namespace {

constexpr int kUsageError = 2;

// Both sides derive everything from these; different ones would be misread as lost bytes.
void agree_on_workload(const Workload& mine, Channel& channel) {
  const Workload theirs = channel.exchange(mine);
  if (theirs == mine) return;
  throw Failure{fmt::format(
      "the two sides were given different options: here --seed {} --rounds {} --qps {} --ops {} "
      "--max-bytes {} --mr-bytes {} --mtu {} --depth {}, there {} {} {} {} {} {} {} {} (or another "
      "--mix, or --check-errors or --no-fences on one side only)",
      mine.seed, mine.rounds, mine.qps, mine.ops, mine.max_bytes, mine.mr_bytes, mine.mtu,
      mine.depth, theirs.seed, theirs.rounds, theirs.qps, theirs.ops, theirs.max_bytes,
      theirs.mr_bytes, theirs.mtu, theirs.depth)};
}

std::string memory_names(const Options& options) {
  std::string names;
  for (MemoryKind kind : options.memory)
    names += fmt::format(
        "{}{}{}", names.empty() ? "" : ",", to_string(kind),
        kind == MemoryKind::kHuge && used_transparent_huge_pages() ? " (transparent)" : "");
  return names;
}

ErrorTotals check_errors(const Options& options, const Device& device, Channel& channel,
                         uint32_t side) {
  Watchdog watchdog(options.timeout_seconds, [] { return std::string(); });
  const ErrorTotals totals = run_error_cases(device, channel, side, watchdog);
  if (side == 0)
    fmt::print("hostnic-verify: {} error checks passed, {} failed\n", totals.passed, totals.failed);
  return totals;
}

void move_data(const Options& options, const Device& device, Channel& channel, uint32_t side,
               StackArena& stack) {
  const auto start = std::chrono::steady_clock::now();
  Session session(options, device, channel, side, stack);
  Totals totals;
  {
    Watchdog watchdog(options.timeout_seconds, [&session] { return session.dump(); });
    session.run(watchdog);
    totals = session.totals();
  }
  const double seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (side == 0)
    fmt::print(
        "hostnic-verify: ok: {} operations, {:.1f} MiB, {} receives, {} events, {} rounds, {} QPs, "
        "seed {}, memory {}, {:.1f} s\n",
        totals.operations, static_cast<double>(totals.bytes) / (1 << 20), totals.receives,
        totals.events, options.workload.rounds, options.workload.qps, options.workload.seed,
        memory_names(options), seconds);
}

// Exit status of this side.
int run_side(const Options& options, Channel channel, uint32_t side) {
  unsigned failed = 0;
  try {
    agree_on_workload(options.workload, channel);
    const Device device(side == 0 ? options.device : options.peer_device, options.gid_index);
    run_with_stack(Regions::stack_bytes(options), [&](StackArena& stack) {
      if (options.workload.check_errors != 0)
        failed = check_errors(options, device, channel, side).failed;
      if (options.workload.rounds > 0) move_data(options, device, channel, side, stack);
    });
  } catch (const Failure& failure) {
    fmt::print(stderr, "hostnic-verify: side {}: {}\n", side, failure.text);
    return 1;
  }
  fflush(stdout);
  if (destroy_failures() > 0)
    fmt::print(stderr, "hostnic-verify: side {}: {} objects could not be destroyed\n", side,
               destroy_failures());
  return failed == 0 && destroy_failures() == 0 ? 0 : 1;
}

int run_both(const Options& options) {
  int fds[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, fds) != 0) {
    fmt::print(stderr, "hostnic-verify: socketpair: {}\n", strerror(errno));
    return 1;
  }
  const pid_t child = fork();  // before any verbs call
  if (child < 0) {
    fmt::print(stderr, "hostnic-verify: fork: {}\n", strerror(errno));
    return 1;
  }
  if (child == 0) {
    close(fds[0]);
    const int status = run_side(options, Channel(fds[1]), 1);
    fflush(nullptr);
    _exit(status);
  }
  close(fds[1]);
  const int mine = run_side(options, Channel(fds[0]), 0);
  int status = 0;
  while (waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  if (!WIFSIGNALED(status)) return mine != 0 ? mine : WEXITSTATUS(status);
  fmt::print(stderr, "hostnic-verify: side 1 was ended by signal {}\n", WTERMSIG(status));
  return 1;
}

int connect_and_run(const Options& options) {
  try {
    if (options.mode == Options::Mode::kListen)
      return run_side(options, Channel::listen(options.port), 0);
    Options mine = options;
    mine.peer_device = options.device;  // --device names this process's NIC on either side
    return run_side(mine, Channel::connect(options.host, options.port), 1);
  } catch (const Failure& failure) {
    fmt::print(stderr, "hostnic-verify: {}\n", failure.text);
    return 1;
  }
}

int run(int argc, char** argv) {
  auto parsed = parse_options(argc, argv);
  if (!parsed) {
    fmt::print(stderr, "hostnic-verify: {}\n", parsed.error());
    return kUsageError;
  }
  if (parsed->help) {
    fmt::print("{}", usage());
    return 0;
  }
  Options& options = parsed->options;
  if (options.peer_device.empty()) options.peer_device = options.device;
  return options.mode == Options::Mode::kBoth ? run_both(options) : connect_and_run(options);
}

}  // namespace
}  // namespace hostnic::verify

int main(int argc, char** argv) { return hostnic::verify::run(argc, argv); }
