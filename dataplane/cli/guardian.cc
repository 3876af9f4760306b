// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/guardian.h"

#include <errno.h>
#include <fmt/format.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/signalfd.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <set>
#include <vector>

#include "dataplane/cli/host_files.h"
#include "dataplane/cli/lab_daemon.h"
#include "dataplane/cli/lab_members.h"
#include "dataplane/cli/lab_record.h"
#include "dataplane/cli/namespaces.h"
#include "dataplane/cli/netlink.h"
#include "dataplane/cli/process.h"
#include "protocol/impair/spec_values.h"

namespace hostnic::cli {
namespace {

constexpr const char* kBridge = "lab";
// Programs that are left in the hosts have that long to end by themselves.
constexpr int kPatienceMs = 1'000;

using Result = Expected<void, std::string>;

struct Host {
  HostPlan plan;
  std::string directory;
  HostNamespaces namespaces;
};

class Guardian {
 public:
  Guardian(GuardianPlan plan, LabDirectory& directory)
      : plan_(std::move(plan)), directory_(directory) {
    std::error_code gone;
    started_in_ = std::filesystem::current_path(gone);
  }

  int run();

 private:
  Result build();
  Result build_host(const HostPlan& plan);
  Result connect_host(const HostPlan& plan);
  Result return_to_lab() const;
  void make_host_files(const HostPlan& plan) const;
  Result start_daemons();
  LabDaemonPlan daemon_of(const Host& host) const;
  LabDaemonPlan daemon_of_all() const;
  Result record();
  bool serve();
  void daemons_ended();
  void end(bool lab_was_killed);

  GuardianPlan plan_;
  LabDirectory& directory_;
  std::string started_in_;  // where relative paths among hostnicd's options begin
  bool has_user_namespace_ = false;
  UniqueFd user_, network_, mounts_, names_, root_;  // the lab's own
  std::optional<Netlink> lab_network_;
  std::vector<Host> hosts_;
  std::vector<LabDaemonPlan> daemon_plans_;
  std::vector<LabDaemon> daemons_;
  pid_t command_ = 0;
  int exit_code_ = 1;
};

// Moves this process; the descriptors are of a host.
bool enter(const HostNamespaces& host) {
  return setns(host.network.get(), CLONE_NEWNET) == 0 &&
         enter_mounts(host.mounts.get(), host.root.get()) &&
         setns(host.names.get(), CLONE_NEWUTS) == 0;
}

Unexpected<std::string> failed(const std::string& what) {
  return Unexpected(fmt::format("{}: {}", what, strerror(errno)));
}

void write_hosts_file(const std::string& path, const std::vector<HostPlan>& hosts) {
  std::ifstream real("/etc/hosts");
  std::ofstream file(path);
  if (real.peek() != std::ifstream::traits_type::eof()) file << real.rdbuf();
  file << "\n# The hosts of this lab\n";
  for (const HostPlan& host : hosts)
    file << impair::format_ipv4(host.address) << ' ' << host.name << '\n';
}

// ---- making hosts

Result Guardian::build() {
  auto entered = enter_lab_namespaces();
  if (!entered) return Unexpected(entered.error());
  has_user_namespace_ = *entered;
  if (has_user_namespace_) user_ = own_namespace("user");
  network_ = own_namespace("net");
  mounts_ = own_namespace("mnt");
  names_ = own_namespace("uts");
  root_ = own_root();
  auto netlink = Netlink::open();
  if (!netlink) return Unexpected(netlink.error());
  lab_network_.emplace(std::move(*netlink));
  if (auto made = lab_network_->add_bridge(kBridge); !made) return made;
  if (auto up = lab_network_->set_up(kBridge); !up) return up;
  write_hosts_file(directory_.file("hosts"), plan_.hosts.hosts);
  for (const HostPlan& host : plan_.hosts.hosts)
    if (auto built = build_host(host); !built)
      return Unexpected(fmt::format("{}: {}", host.name, built.error()));
  return {};
}

// Makes the directories of a host. With one hostnicd for all, what it says of the NIC of this name
// is what the host has of its device.
void Guardian::make_host_files(const HostPlan& plan) const {
  namespace fs = std::filesystem;
  std::error_code ignored;
  const fs::path own = host_directory(directory_.path(), plan.name);
  const std::string& device = plan_.hosts.device_name;
  fs::create_directories(own / "infiniband" / device, ignored);
  if (plan_.open_to_others) chmod(own.c_str(), 0711);
  if (plan_.hosts.port != HostsPort::kWire) return;
  const fs::path shown = fs::path(directory_.file("infiniband"));
  fs::create_directories(shown, ignored);
  fs::create_directory_symlink(own / "infiniband" / device, shown / plan.name, ignored);
}

Result Guardian::build_host(const HostPlan& plan) {
  make_host_files(plan);
  auto made = enter_new_host();
  if (!made) return Unexpected(made.error());
  if (sethostname(plan.name.data(), plan.name.size()) != 0) return failed("its name");
  const std::string own = host_directory(directory_.path(), plan.name);
  if (auto mounted = mount_host_files(own + "/infiniband", directory_.file("hosts")); !mounted)
    return mounted;
  if (auto connected = connect_host(plan); !connected) return connected;
  hosts_.push_back({plan, own, std::move(*made)});
  return return_to_lab();
}

// The kernel looks for a second for others with an interface's IPv6 address. Nobody else is in the
// lab's network, and the NIC's GIDs would change under the programs that have begun meanwhile.
// Where /proc/sys may not be written they do.
void skip_duplicate_address_detection(const char* interface) {
  std::ofstream(fmt::format("/proc/sys/net/ipv6/conf/{}/accept_dad", interface)) << '0';
}

// Gives the host its interface and address; its cable ends on the lab's bridge.
Result Guardian::connect_host(const HostPlan& plan) {
  auto own = Netlink::open();
  if (!own) return Unexpected(own.error());
  if (auto up = own->set_up("lo"); !up) return up;
  const int lab = network_.get();
  if (auto added = own->add_veth(kHostInterface, plan.name, lab, plan_.hosts.mtu_bytes); !added)
    return added;
  skip_duplicate_address_detection(kHostInterface);
  const std::vector<Result> steps = {
      own->add_address(kHostInterface, plan.address, plan_.hosts.prefix_length),
      lab_network_->join(plan.name, kBridge), lab_network_->set_up(plan.name),
      own->set_up(kHostInterface)};
  for (const Result& step : steps)
    if (!step) return step;
  return {};
}

Result Guardian::return_to_lab() const {
  if (setns(network_.get(), CLONE_NEWNET) != 0 || !enter_mounts(mounts_.get(), root_.get()) ||
      setns(names_.get(), CLONE_NEWUTS) != 0)
    return failed("back to the lab");
  return {};
}

// ---- hostnicd

LabDaemonPlan Guardian::daemon_of(const Host& host) const {
  LabDaemonPlan daemon{.program = plan_.hostnicd,
                       .directory = host.directory,
                       .arguments = plan_.hosts.common_arguments,
                       .verbose = plan_.verbose,
                       .enter = {}};
  daemon.arguments.insert(daemon.arguments.end(), host.plan.daemon_arguments.begin(),
                          host.plan.daemon_arguments.end());
  daemon.arguments.push_back("--sysfs=" + host.directory);
  daemon.enter = [&namespaces = host.namespaces, this] {
    if (!enter(namespaces)) {
      fmt::print(stderr, "hostnic lab: entering a host: {}\n", strerror(errno));
      return false;
    }
    if (has_user_namespace_) keep_capabilities();
    return chdir(started_in_.c_str()) == 0 || chdir("/") == 0;
  };
  return daemon;
}

LabDaemonPlan Guardian::daemon_of_all() const {
  LabDaemonPlan daemon{.program = plan_.hostnicd,
                       .directory = directory_.path(),
                       .arguments = plan_.hosts.common_arguments,
                       .verbose = plan_.verbose,
                       .enter = {}};
  for (const Host& host : hosts_) {
    daemon.arguments.insert(daemon.arguments.end(), host.plan.daemon_arguments.begin(),
                            host.plan.daemon_arguments.end());
    daemon.arguments.push_back(
        fmt::format("--view=nic={},netdev={},name={},socket={}/hostnicd.sock", host.plan.name,
                    kHostInterface, plan_.hosts.device_name, host.directory));
  }
  daemon.arguments.push_back("--sysfs=" + directory_.path());
  daemon.enter = [this] { return chdir(started_in_.c_str()) == 0 || chdir("/") == 0; };
  return daemon;
}

Result Guardian::start_daemons() {
  if (plan_.hosts.port == HostsPort::kWire)
    daemon_plans_.push_back(daemon_of_all());
  else
    for (const Host& host : hosts_) daemon_plans_.push_back(daemon_of(host));
  daemons_.reserve(daemon_plans_.size());
  for (const LabDaemonPlan& plan : daemon_plans_) {
    daemons_.emplace_back();
    if (!daemons_.back().start(plan)) return failed("hostnicd");
  }
  for (size_t i = 0; i < daemons_.size(); ++i) {
    if (const auto code = daemons_[i].wait_ready()) {
      exit_code_ = *code;
      show_log(daemon_plans_[i].log());
      return Unexpected(std::string("hostnicd doesn't start"));
    }
  }
  return {};
}

Result Guardian::record() {
  LabRecord record{.guardian = getpid(), .user_fd = user_.get(), .hosts = {}};
  for (const Host& host : hosts_)
    record.hosts.push_back({host.plan.name, impair::format_ipv4(host.plan.address),
                            host.namespaces.network.get(), host.namespaces.mounts.get(),
                            host.namespaces.names.get(), host.namespaces.root.get(),
                            host.namespaces.network_id});
  if (!write_record(directory_.path(), record)) return failed(directory_.path());
  return {};
}

// ---- life and end

int Guardian::run() {
  setpgid(0, 0);  // the terminal's signals are for COMMAND
  for (auto step : {&Guardian::build, &Guardian::start_daemons, &Guardian::record}) {
    if (auto done = (this->*step)(); !done) {
      fail("lab", done.error());
      end(false);
      return exit_code_;
    }
  }
  [[maybe_unused]] const ssize_t told = write(plan_.ready.get(), "R", 1);
  plan_.ready.reset();
  const bool lab_was_killed = !serve();
  end(lab_was_killed);
  return 0;
}

// Returns whether `hostnic lab` said that it has ended.
bool Guardian::serve() {
  sigset_t children;
  sigemptyset(&children);
  sigaddset(&children, SIGCHLD);
  const UniqueFd signals(signalfd(-1, &children, SFD_CLOEXEC | SFD_NONBLOCK));
  std::string said;
  for (;;) {
    pollfd watched[] = {{plan_.orders.get(), POLLIN, 0}, {signals.get(), POLLIN, 0}};
    if (poll(watched, 2, -1) < 0 && errno != EINTR) return false;
    signalfd_siginfo info{};
    if (read(signals.get(), &info, sizeof info) > 0) daemons_ended();
    if (watched[0].revents == 0) continue;
    char bytes[64];
    const ssize_t got = read(plan_.orders.get(), bytes, sizeof bytes);
    if (got <= 0) return said.ends_with(kEndOrder);
    said.append(bytes, static_cast<size_t>(got));
    command_ = atoi(said.c_str());
  }
}

void Guardian::daemons_ended() {
  int status = 0;
  for (pid_t pid = 0; (pid = waitpid(-1, &status, WNOHANG)) > 0;) {
    for (size_t i = 0; i < daemons_.size(); ++i) {
      if (daemons_[i].pid() != pid) continue;
      daemons_[i].forget();
      fail("lab", fmt::format("hostnicd{} ended while the command ran (exit code {}):",
                              daemons_.size() > 1 ? " of " + hosts_[i].plan.name : "",
                              exit_code_of(status)));
      show_log(daemon_plans_[i].log());
    }
  }
}

void Guardian::end(bool lab_was_killed) {
  std::set<ino_t> networks;
  std::set<pid_t> ours = {getpid()};
  for (const Host& host : hosts_) networks.insert(host.namespaces.network_id);
  for (const LabDaemon& daemon : daemons_) ours.insert(daemon.pid());
  std::set<pid_t> commands;
  if (lab_was_killed && command_ > 0) commands.insert(command_);
  const auto find = [&] {
    std::set<pid_t> found = processes_in(networks, ours);
    commands = with_descendants(commands);
    found.insert(commands.begin(), commands.end());
    return found;
  };
  remove_record(directory_.path());
  end_processes(find, kPatienceMs);
  for (const LabDaemon& daemon : daemons_) daemon.request_stop();
  for (size_t i = 0; i < daemons_.size(); ++i) {
    if (const int code = daemons_[i].stop(); code != 0) {
      fail("lab", fmt::format("hostnicd stopped with exit code {}:", code));
      show_log(daemon_plans_[i].log());
    }
  }
  // Once more, for a program that was just on its way into a host.
  end_processes(find, kPatienceMs);
  if (plan_.keep_log)
    fmt::print(stderr, "hostnic lab: the logs of hostnicd are in {}\n", directory_.keep());
  directory_.remove();
}

}  // namespace

int guard_hosts(GuardianPlan plan, LabDirectory& directory) {
  return Guardian(std::move(plan), directory).run();
}

void end_programs(const HeldNetworks& networks) {
  end_processes([&] { return processes_in(networks.ids(), {}); }, kPatienceMs);
}

}  // namespace hostnic::cli
