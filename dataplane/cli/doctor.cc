// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/doctor.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/userfaultfd.h>
#include <pwd.h>
#include <sched.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "dataplane/cli/control_client.h"
#include "dataplane/cli/locate.h"
#include "dataplane/cli/namespaces.h"
#include "dataplane/cli/preload_obstacle.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {
namespace {

using Verdict = DoctorLine::Verdict;

// hostnicd and a program with a few devices need so many.
constexpr uint64_t kDescriptors = 1024;
// A lab of two NICs takes less; a registration needs as much again as its memory for a moment.
constexpr uint64_t kMemoryBytes = uint64_t{512} << 20;

std::optional<uint64_t> number_of(const char* path) {
  std::ifstream file(path);
  uint64_t value = 0;
  if (file >> value) return value;
  return std::nullopt;
}

uint64_t memory_available() {
  std::ifstream file("/proc/meminfo");
  std::string name;
  uint64_t kilobytes = 0;
  for (std::string unit; file >> name >> kilobytes; std::getline(file, unit))
    if (name == "MemAvailable:") return kilobytes * 1024;
  return 0;
}

// As the library takes it: by the system call, or by its device.
bool may_use_userfaultfd() {
  if (const UniqueFd fd(static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | O_NONBLOCK))); fd)
    return true;
  return access("/dev/userfaultfd", R_OK | W_OK) == 0;
}

// Tried in a child, which then ends.
std::string try_namespaces() {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  UniqueFd from(ends[0]), to(ends[1]);
  const pid_t pid = fork();
  if (pid == 0) {
    const auto entered = enter_lab_namespaces();
    if (!entered) {
      const std::string& why = entered.error();
      [[maybe_unused]] const ssize_t written = write(to.get(), why.data(), why.size());
    }
    _exit(entered ? 0 : 1);
  }
  to.reset();
  if (pid < 0) return "no process is left";
  std::string why(512, '\0');
  const ssize_t got = read(from.get(), why.data(), why.size());
  why.resize(got > 0 ? static_cast<size_t>(got) : 0);
  waitpid(pid, nullptr, 0);
  return why;
}

// Whose the socket is, if it is there and this user may not open it.
std::string owner_of_closed(const std::string& path) {
  struct stat file {};
  if (stat(path.c_str(), &file) != 0 || access(path.c_str(), R_OK | W_OK) == 0) return {};
  const passwd* const user = getpwuid(file.st_uid);
  return fmt::format("{} (uid {}), mode {:04o}", user != nullptr ? user->pw_name : "another user",
                     file.st_uid, file.st_mode & 07777);
}

// The sockets of other hostnicds in this network namespace, by the name that they have by default:
// labs' are none.
std::vector<std::string> other_sockets(const std::string& own) {
  std::vector<std::string> others;
  std::ifstream list("/proc/net/unix");
  constexpr size_t kMost = 4;
  for (std::string line; std::getline(list, line) && others.size() < kMost;) {
    const size_t at = line.find(" /");
    if (at == std::string::npos || !line.ends_with("/hostnic/hostnicd.sock")) continue;
    const std::string path = line.substr(at + 1);
    if (path != own && std::ranges::find(others, path) == others.end()) others.push_back(path);
  }
  return others;
}

// "hnic0: 812", of what `show nic` says.
std::string full_sockets_in(const std::string& nics) {
  std::string full;
  std::istringstream lines(nics);
  for (std::string line; std::getline(lines, line);) {
    const size_t at = line.find(" packets found the socket full");
    if (at == std::string::npos) continue;
    const size_t begin = line.rfind(' ', at - 1) + 1;
    full += fmt::format("{}{}: {}", full.empty() ? "" : ", ", line.substr(0, line.find(' ')),
                        line.substr(begin, at - begin));
  }
  return full;
}

DoctorFacts look(const std::string& socket_path, bool socket_named,
                 const std::vector<std::string>& command) {
  DoctorFacts facts;
  for (const auto& part : {find_hostnicd(), find_shim()})
    if (!part) facts.parts_missing = part.error();
  facts.socket_path = socket_path;
  facts.socket_named = socket_named;
  if (const auto devices = list_devices(socket_path); !devices)
    facts.socket_error = devices.error();
  else if (const auto nics = run_text(socket_path, "show nic"))
    facts.full_sockets = full_sockets_in(*nics);
  if (!facts.socket_error.empty()) {
    facts.socket_owner = owner_of_closed(socket_path);
    facts.other_sockets = other_sockets(socket_path);
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) facts.descriptors = limit.rlim_cur;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0) facts.file_bytes = limit.rlim_cur;
  utsname name{};
  if (uname(&name) == 0) sscanf(name.release, "%u.%u", &facts.kernel_major, &facts.kernel_minor);
  facts.userfaultfd = may_use_userfaultfd();
  facts.namespaces_forbidden = try_namespaces();
  cpu_set_t processors;
  if (sched_getaffinity(0, sizeof processors, &processors) == 0)
    facts.processors = static_cast<uint32_t>(CPU_COUNT(&processors));
  facts.autogroup = number_of("/proc/sys/kernel/sched_autogroup_enabled").value_or(0) != 0;
  facts.huge_pages_free = number_of("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
  facts.raw_sockets = static_cast<bool>(UniqueFd(socket(AF_PACKET, SOCK_RAW | SOCK_CLOEXEC, 0)));
  facts.memory_bytes = memory_available();
  if (!command.empty()) {
    facts.program = command.front();
    const char* const path = getenv("PATH");
    facts.preload_obstacle = preload_obstacle(command, path == nullptr ? "" : path);
  }
  return facts;
}

}  // namespace

std::vector<DoctorLine> judge(const DoctorFacts& facts) {
  std::vector<DoctorLine> lines;
  const auto say = [&](Verdict verdict, const char* subject, std::string text) {
    lines.push_back({verdict, subject, std::move(text)});
  };
  if (facts.parts_missing.empty())
    say(Verdict::kFine, "parts", "hostnicd and the library are there");
  else
    say(Verdict::kToDo, "parts", facts.parts_missing);
  if (facts.socket_error.empty())
    say(Verdict::kFine, "hostnicd", fmt::format("answers at {}, of this build", facts.socket_path));
  else if (!facts.socket_owner.empty())
    say(Verdict::kToDo, "hostnicd",
        fmt::format("{} is of {}: this user may not open it. Its hostnicd lets others in by "
                    "--socket-mode 0666, or --socket-group",
                    facts.socket_path, facts.socket_owner));
  else if (!facts.other_sockets.empty())
    say(Verdict::kToDo, "hostnicd",
        fmt::format("nobody listens on {}; another session's hostnicd does on {}: name it by "
                    "--socket or HOSTNIC_SOCKET",
                    facts.socket_path, fmt::join(facts.other_sockets, ", ")));
  else
    say(facts.socket_named ? Verdict::kToDo : Verdict::kNote, "hostnicd",
        facts.socket_error + (facts.socket_named ? "" : " (labs need none)"));
  if (!facts.full_sockets.empty())
    say(Verdict::kToDo, "UDP socket",
        fmt::format("packets found it full ({}), and were lost: sysctl -w "
                    "net.core.rmem_max=16777216 and start hostnicd anew; or its lcores were "
                    "stopped, or lack a processor",
                    facts.full_sockets));
  if (facts.descriptors >= kDescriptors)
    say(Verdict::kFine, "descriptors", fmt::format("{} may be open", facts.descriptors));
  else
    say(Verdict::kToDo, "descriptors",
        fmt::format("{} may be open: ulimit -n {}", facts.descriptors, kDescriptors));
  if (facts.file_bytes == UINT64_MAX)
    say(Verdict::kFine, "file size", "without a limit");
  else
    say(Verdict::kToDo, "file size",
        fmt::format("{} bytes at most: shared memory counts as files; ulimit -f unlimited",
                    facts.file_bytes));
  const bool is_new_kernel =
      facts.kernel_major > 5 || (facts.kernel_major == 5 && facts.kernel_minor >= 19);
  if (facts.userfaultfd && is_new_kernel)
    say(Verdict::kFine, "memory path",
        "userfaultfd may be used: private memory is shared with hostnicd while the program runs");
  else if (!is_new_kernel)
    say(Verdict::kNote, "memory path",
        fmt::format("Linux {}.{} is older than 5.19: private memory of programs with several "
                    "threads is reached by system calls, which is slower",
                    facts.kernel_major, facts.kernel_minor));
  else
    say(Verdict::kToDo, "memory path",
        "userfaultfd is refused, and private memory is reached by system calls, which is slower: "
        "sysctl vm.unprivileged_userfaultfd=1, or read and write rights on /dev/userfaultfd; in "
        "containers the seccomp profile");
  if (facts.namespaces_forbidden.empty())
    say(Verdict::kFine, "namespaces", "labs may have hosts");
  else
    say(Verdict::kNote, "namespaces", "labs have no --hosts here: " + facts.namespaces_forbidden);
  if (facts.processors >= 3)
    say(Verdict::kFine, "processors", fmt::format("{}", facts.processors));
  else
    say(Verdict::kNote, "processors",
        fmt::format("{}: two programs and a NIC are three busy threads, and latencies are mostly "
                    "waiting for a processor (docs/core-sharing.md)",
                    facts.processors));
  if (!facts.autogroup || facts.processors >= 3)
    say(Verdict::kFine, "sessions", "the kernel does not keep programs from their processors");
  else
    say(Verdict::kNote, "sessions",
        "processors are shared by session: start hostnicd and programs from one shell, or sysctl "
        "kernel.sched_autogroup_enabled=0");
  if (facts.huge_pages_free.value_or(0) != 0)
    say(Verdict::kFine, "huge pages",
        fmt::format("{} of {} are free", *facts.huge_pages_free, facts.huge_page_size));
  else
    say(Verdict::kNote, "huge pages", "none is free: ordinary pages serve, somewhat more slowly");
  if (facts.raw_sockets)
    say(Verdict::kFine, "raw ports", "NICs may have addresses of their own on Ethernet");
  else
    say(Verdict::kNote, "raw ports",
        "net_af_packet and net_af_xdp need cap_net_raw,cap_net_admin; udp and the virtual wire "
        "need nothing");
  if (facts.memory_bytes >= kMemoryBytes)
    say(Verdict::kFine, "memory", fmt::format("{} MB are available", facts.memory_bytes >> 20));
  else
    say(Verdict::kToDo, "memory",
        fmt::format("{} MB are available, and a lab of two NICs needs about {}",
                    facts.memory_bytes >> 20, kMemoryBytes >> 20));
  if (facts.program.empty()) return lines;
  if (facts.preload_obstacle.empty())
    say(Verdict::kFine, "program", facts.program + " can be preloaded");
  else
    say(Verdict::kToDo, "program",
        facts.preload_obstacle +
            ": it will see no hnic device; link it dynamically, or take the bit or capability off "
            "a copy");
  return lines;
}

int run_doctor(const std::string& socket_path, bool socket_named,
               const std::vector<std::string>& command, const std::string& to) {
  int status = 0;
  for (const DoctorLine& line : judge(look(socket_path, socket_named, command))) {
    const char* const verdict = line.verdict == Verdict::kFine   ? "fine "
                                : line.verdict == Verdict::kNote ? "note "
                                                                 : "TO DO";
    fmt::print("{} {:<12} {}\n", verdict, line.subject, line.text);
    if (line.verdict == Verdict::kToDo) status = 1;
  }
  if (to.empty()) return status;
  // hostnicd's lines are as these here.
  const auto probed = run_text(socket_path, "probe " + to);
  const std::string text =
      probed ? *probed : fmt::format("TO DO {:<12} {}\n", "probe", probed.error());
  fputs(text.c_str(), stdout);
  return text.find("TO DO") == std::string::npos ? status : 1;
}

}  // namespace hostnic::cli
