// SPDX-License-Identifier: BSD-3-Clause
// hostnicd: the NIC process.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <fstream>
#include <memory>

#include "dataplane/daemon/control/command.h"
#include "dataplane/daemon/control/control_listener.h"
#include "dataplane/daemon/control/prompt.h"
#include "dataplane/daemon/daemon.h"
#include "dataplane/daemon/log.h"
#include "dataplane/daemon/observe/metrics_listener.h"
#include "dataplane/daemon/observe/telemetry.h"
#include "dataplane/daemon/server/server.h"
#include "dataplane/daemon/start/eal.h"
#include "dataplane/daemon/start/options.h"
#include "dataplane/daemon/start/service_manager.h"
#include "dataplane/daemon/trust/foreign_descriptors.h"
#include "dataplane/memory/mem_fd_helper.h"
#include "dataplane/memory/sigbus.h"
#include "protocol/hostif/standard_descriptors.h"
#include "protocol/hostif/version.h"

namespace hostnic {
namespace {

int fail(const std::string& line) {
  log_line("{}", line);
  return 1;
}

// Raises the limit of descriptors: every client costs us some (ClientSession::kDescriptors).
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

// SIGINT and SIGTERM end the control thread's loop; all threads inherit the mask.
int block_signals() {
  sigset_t set;
  sigemptyset(&set);
  for (const int number : {SIGINT, SIGTERM, SIGHUP}) sigaddset(&set, number);
  sigprocmask(SIG_BLOCK, &set, nullptr);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);  // a file that would be too large (ulimit -f) is an error with a line
  return signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK);
}

Expected<std::vector<std::string>, std::string> read_commands(const std::string& path) {
  std::vector<std::string> lines;
  if (path.empty()) return lines;
  std::ifstream file(path);
  if (!file) return Unexpected(fmt::format("--commands {}: {}", path, strerror(errno)));
  for (std::string line; std::getline(file, line);) {
    const ParsedLine parsed = parse_command_line(line);
    if (!parsed.error.empty())
      return Unexpected(fmt::format("{}:{}: {}", path, lines.size() + 1, parsed.error));
    lines.push_back(line);
  }
  return lines;
}

Expected<void, std::string> run_commands(Daemon& daemon, const std::vector<std::string>& lines) {
  for (size_t i = 0; i < lines.size(); ++i) {
    const CommandResult result = run_command(daemon, Asker{}, lines[i]);
    if (result.error != 0)
      return Unexpected(fmt::format("{}:{}: {}", daemon.plan().commands_file, i + 1, result.text));
    fputs(result.text.c_str(), stdout);
  }
  return {};
}

bool impaired(const DaemonPlan& plan) {
  for (const NicPlan& nic : plan.nics)
    if (!nic.rx.rules.empty() || !nic.tx.rules.empty()) return true;
  return false;
}

void say_ready(Daemon& daemon) {
  std::string nics;
  for (const NicInstance& instance : daemon.nics()) {
    const NicSettings& settings = instance.plan.settings;
    nics +=
        fmt::format("{}{} {}/{} mtu {}", nics.empty() ? "" : ", ", settings.name,
                    to_string(instance.plan.address), settings.prefix_length, settings.mtu_bytes);
  }
  if (impaired(daemon.plan())) nics += fmt::format("; impairment seed {}", daemon.plan().seed);
  fmt::print("hostnicd {} ready on {}: {}\n", HOSTNIC_VERSION, daemon.plan().socket_path, nics);
  fflush(stdout);
  tell_service_manager("READY=1");
  if (daemon.plan().ready_fd >= 0) {
    [[maybe_unused]] const ssize_t written = write(daemon.plan().ready_fd, "R", 1);
    close(daemon.plan().ready_fd);
  }
}

// Serves clients, with EAL up. Everything made here is gone when it returns.
int serve(const DaemonPlan& plan, std::vector<ControlListener> listeners, int signal_fd,
          const std::vector<std::string>& commands, std::unique_ptr<MetricsListener> metrics) {
  auto daemon = Daemon::create(plan);
  if (!daemon) return fail(daemon.error());
  if (auto launched = (*daemon)->launch(); !launched) return fail(launched.error());
  if (auto done = run_commands(**daemon, commands); !done) return fail(done.error());
  register_telemetry(**daemon);
  int exit_code = 0;
  {
    const std::unique_ptr<Prompt> prompt = plan.prompt ? Prompt::create(**daemon) : nullptr;
    ControlServer server(**daemon, std::move(listeners), signal_fd, prompt.get());
    if (metrics != nullptr) server.serve_metrics(std::move(metrics));
    say_ready(**daemon);
    exit_code = server.run();
    tell_service_manager("STOPPING=1");
  }
  unregister_telemetry();
  return exit_code;
}

// The listening sockets: hostnicd's own, then one for each view. One that the service manager
// passes is whose path it has; one that has nobody's is hostnicd's own. The others are made.
Expected<std::vector<ControlListener>, std::string> listen(DaemonPlan& plan,
                                                           std::vector<UniqueFd> passed) {
  std::vector<ControlListener> adopted;
  for (UniqueFd& socket : passed) {
    auto listener = ControlListener::adopt(std::move(socket));
    if (!listener) return Unexpected(listener.error());
    adopted.push_back(std::move(*listener));
  }
  std::vector<std::string> paths = {plan.socket_path};
  for (const View& view : plan.views) paths.push_back(view.socket_path);
  const auto nobodys = [&](const ControlListener& listener) {
    return std::ranges::find(paths, listener.path()) == paths.end();
  };
  if (const auto own = std::ranges::find_if(adopted, nobodys); own != adopted.end()) {
    plan.socket_path = paths[0] = own->path();
    if (const auto other = std::ranges::find_if(adopted, nobodys); other != adopted.end())
      return Unexpected(
          fmt::format("the service manager passes a socket {}, which is no view's", other->path()));
  }
  std::vector<ControlListener> listeners;
  for (const std::string& path : paths) {
    const auto found = std::ranges::find(adopted, path, &ControlListener::path);
    auto listener =
        found != adopted.end()
            ? std::move(*found)
            : ControlListener::create(path, {.mode = plan.socket_mode, .group = plan.socket_group});
    if (!listener) return Unexpected(listener.error());
    listeners.push_back(std::move(*listener));
  }
  return listeners;
}

// Places in registered memory are counted in these, and what is mapped elsewhere as well.
constexpr long kPageBytes = 4096;

// This variable tells a hostnicd that has executed itself anew to begin without huge pages.
constexpr const char* kWithoutHugePages = "HOSTNIC_WITHOUT_HUGE_PAGES";

// Becomes a hostnicd that takes no huge pages: EAL can be started once in a process. Returns where
// that is not possible.
void begin_again_without_huge_pages(const std::vector<std::string>& arguments) {
  log_line("huge pages that were free are gone: starting again without");
  setenv(kWithoutHugePages, "1", 1);
  std::vector<char*> argv = {const_cast<char*>("hostnicd")};
  for (const std::string& argument : arguments) argv.push_back(const_cast<char*>(argument.c_str()));
  argv.push_back(nullptr);
  execv("/proc/self/exe", argv.data());
}

int run(const std::vector<std::string>& arguments) {
  auto plan = plan_from_arguments(arguments);
  if (!plan) {
    if (plan.error().exit_code == 0)
      fputs(plan.error().text.c_str(), stdout);
    else
      log_line("{}", plan.error().text);
    return plan.error().exit_code;
  }
  if (getenv(kWithoutHugePages) != nullptr) {
    unsetenv(kWithoutHugePages);
    plan->huge = config::HugePages::kNever;
  }
  if (plan->ready_fd >= 0 && fcntl(plan->ready_fd, F_GETFD) < 0) {
    log_line("--ready-fd {}: {}", plan->ready_fd, strerror(errno));
    return 2;
  }
  if (const long page_bytes = sysconf(_SC_PAGESIZE); page_bytes != kPageBytes) {
    return fail(fmt::format(
        "this kernel has pages of {} bytes: hostnic knows pages of {} only. Boot a kernel that has",
        page_bytes, kPageBytes));
  }
  auto commands = read_commands(plan->commands_file);
  if (!commands) return fail(commands.error());
  raise_descriptor_limit();
  const UniqueFd signal_fd(block_signals());
  if (!install_sigbus_guard()) return fail(fmt::format("sigaction: {}", strerror(errno)));
  // The socket is ours before EAL starts: a second hostnicd on it ends here, in milliseconds.
  auto passed = take_passed_sockets();
  if (!passed) return fail(passed.error());
  const bool made_all = passed->empty();
  auto listeners = listen(*plan, std::move(*passed));
  if (!listeners) return fail(listeners.error());
  std::unique_ptr<MetricsListener> metrics;
  if (plan->metrics_port != 0) {
    auto listener = MetricsListener::create(plan->metrics_port);
    if (!listener) return fail(listener.error());
    metrics = std::move(*listener);
  }
  if (!plan->errors_directory.empty()) {
    if (const int error = error_book().keep_in(plan->errors_directory); error != 0)
      return fail(fmt::format("errors_directory {}: {}", plan->errors_directory, strerror(error)));
  }
  auto eal = std::make_unique<Eal>();
  if (auto started = eal->start(*plan); !started) {
    // A service manager, whose sockets are not passed on, starts a new one itself.
    if (eal->lacked_huge_pages() && made_all) {
      eal.reset();
      listeners->clear();
      metrics.reset();
      begin_again_without_huge_pages(arguments);
    }
    return fail(started.error());
  }
  return serve(*plan, std::move(*listeners), signal_fd.get(), *commands, std::move(metrics));
}

// Ends the process if one of its threads waits for a client's file, which may be for ever. Such a
// thread can't be stopped, and an exit handler that wants to stop all threads, as a leak checker's
// does, would wait as long.
void end_beside_waiting_threads(int exit_code) {
  if (!MemFdHelper::any_transfers() && !closers().busy()) return;
  fflush(nullptr);
  _exit(exit_code);
}

}  // namespace
}  // namespace hostnic

int main(int argc, char** argv) {
  hostnic::open_standard_descriptors();
  const int exit_code = hostnic::run(std::vector<std::string>(argv + 1, argv + argc));
  hostnic::end_beside_waiting_threads(exit_code);
  return exit_code;
}
