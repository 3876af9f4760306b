// SPDX-License-Identifier: BSD-3-Clause
// `hostnic on`: this process moves into a host and becomes the command, so that signals, input,
// output and the exit status need no help.
#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

#include "dataplane/cli/hosts.h"
#include "dataplane/cli/hosts_plan.h"
#include "dataplane/cli/lab_record.h"
#include "dataplane/cli/locate.h"
#include "dataplane/cli/namespaces.h"
#include "dataplane/cli/preload_obstacle.h"
#include "dataplane/cli/process.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {
namespace {

std::string joined(const LabRecord& lab, std::string HostRecord::*field) {
  std::string list;
  for (const HostRecord& host : lab.hosts) list += (list.empty() ? "" : ",") + host.*field;
  return list;
}

struct Namespace {
  int kind;
  int guardian_fd;
  const char* name;
};

bool is_in(const UniqueFd& target, const char* name) {
  struct stat there {
  }, here{};
  const UniqueFd own = own_namespace(name);
  return own && fstat(own.get(), &here) == 0 && fstat(target.get(), &there) == 0 &&
         here.st_ino == there.st_ino && here.st_dev == there.st_dev;
}

// Moves this process into a host; what it may do there it may still do after exec.
Expected<void, std::string> enter_host(const LabRecord& lab, const HostRecord& host) {
  std::error_code failed;
  const std::string directory = std::filesystem::current_path(failed);
  const Namespace wanted[] = {{CLONE_NEWUSER, lab.user_fd, "user"},
                              {CLONE_NEWNET, host.network_fd, "net"},
                              {CLONE_NEWUTS, host.names_fd, "uts"},
                              {CLONE_NEWNS, host.mounts_fd, "mnt"}};
  // All are opened first: where the host's mounts are there may be no /proc that shows them.
  UniqueFd opened[std::size(wanted)];
  for (size_t i = 0; i < std::size(wanted); ++i) {
    if (wanted[i].guardian_fd < 0) continue;
    opened[i] = open_of_guardian(lab, wanted[i].guardian_fd);
    if (!opened[i])
      return Unexpected(errno == ENOENT ? std::string("the lab has ended")
                                        : fmt::format("the lab is another user's, or this is no "
                                                      "place from which to enter it: {}",
                                                      strerror(errno)));
    if (wanted[i].kind == CLONE_NEWNET && !is_network_of(host, opened[i]))
      return Unexpected(std::string("the lab has ended"));
  }
  const UniqueFd root = open_of_guardian(lab, host.root_fd);
  if (!root) return Unexpected(std::string("the lab has ended"));
  const auto move = [&](size_t i) {
    return wanted[i].kind == CLONE_NEWNS ? enter_mounts(opened[i].get(), root.get())
                                         : setns(opened[i].get(), wanted[i].kind) == 0;
  };
  for (size_t i = 0; i < std::size(wanted); ++i)
    if (opened[i] && !is_in(opened[i], wanted[i].name) && !move(i))
      return Unexpected(fmt::format("setns ({}): {}", wanted[i].name, strerror(errno)));
  if (chdir(directory.c_str()) != 0 && chdir("/") != 0)
    return Unexpected(fmt::format("{}: {}", directory, strerror(errno)));
  if (lab.user_fd >= 0) keep_capabilities();
  return {};
}

}  // namespace

int run_on_host(const std::string& directory, const std::string& host,
                const std::vector<std::string>& command) {
  if (directory.empty())
    return fail("on",
                "which lab? Inside `hostnic lab --hosts N -- COMMAND` HOSTNIC_LAB_DIR says it; "
                "elsewhere --lab DIRECTORY does");
  auto lab = read_record(directory);
  if (!lab) return fail("on", lab.error());
  const int number = host_number(host, lab->hosts.size());
  if (number < 0)
    return fail(
        "on", fmt::format("no host \"{}\" (there are: host1 to host{})", host, lab->hosts.size()));
  const HostRecord& wanted = lab->hosts[static_cast<size_t>(number) - 1];
  auto preload = preload_value(getenv("LD_PRELOAD"), command);
  if (!preload) return fail("on", preload.error());
  warn_if_not_preloaded("on", command);
  if (auto entered = enter_host(*lab, wanted); !entered) return fail("on", entered.error());
  const std::string socket = host_directory(directory, wanted.name) + "/hostnicd.sock";
  setenv("LD_PRELOAD", preload->c_str(), 1);
  setenv("ASAN_OPTIONS", asan_options_value(getenv("ASAN_OPTIONS")).c_str(), 1);
  setenv("HOSTNIC_SOCKET", socket.c_str(), 1);
  setenv("HOSTNIC_LAB", "1", 1);
  setenv("HOSTNIC_LAB_DIR", directory.c_str(), 1);
  setenv("HOSTNIC_HOSTS", joined(*lab, &HostRecord::name).c_str(), 1);
  setenv("HOSTNIC_ADDRESSES", joined(*lab, &HostRecord::address).c_str(), 1);
  setenv("PATH", path_with_us(getenv("PATH")).c_str(), 1);
  unsetenv("HOSTNIC_DEVICE");
  return exec_command(command);
}

}  // namespace hostnic::cli
