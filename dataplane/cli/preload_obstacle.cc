// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/preload_obstacle.h"

#include <fmt/format.h>
#include <sys/prctl.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "dataplane/cli/elf_program.h"
#include "dataplane/cli/locate.h"

namespace hostnic::cli {
namespace {

// The kernel's limits: interpreters of interpreters, and how much of a first line counts.
constexpr int kMaxInterpreters = 5;
constexpr size_t kMaxFirstLine = 256;

// The words behind "#!"; none if the file is no script.
std::vector<std::string> interpreter_line(const std::string& file) {
  std::ifstream script(file, std::ios::binary);
  std::string line(kMaxFirstLine, '\0');
  script.read(line.data(), static_cast<std::streamsize>(line.size()));
  line.resize(static_cast<size_t>(script.gcount()));
  if (!line.starts_with("#!")) return {};
  std::istringstream words(line.substr(2, line.find('\n') - 2));
  std::vector<std::string> found;
  for (std::string word; words >> word;) found.push_back(word);
  return found;
}

// The program that `env` starts with these arguments, without a path; empty: none.
std::string started_by_env(const std::vector<std::string>& words) {
  if (std::filesystem::path(words[0]).filename() != "env") return {};
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i][0] != '-' && words[i].find('=') == std::string::npos) return words[i];
  }
  return {};
}

// Whether a file's capabilities count; root's own rights do not grow by them.
bool gains_capabilities(const std::string& file) {
  return getuid() != 0 && getxattr(file.c_str(), "security.capability", nullptr, 0) > 0;
}

// Whether files give rights at all: the kernel gives none to who renounced them, nor on a file
// system that is mounted nosuid.
bool rights_count(const std::string& file) {
  struct statvfs system;
  return prctl(PR_GET_NO_NEW_PRIVS, 0, 0, 0, 0) != 1 && statvfs(file.c_str(), &system) == 0 &&
         (system.f_flag & ST_NOSUID) == 0;
}

std::string obstacle_of_program(const std::string& file) {
  if (read_elf_program(file).is_static) return "is statically linked";
  struct stat status;
  if (stat(file.c_str(), &status) != 0 || !rights_count(file)) return {};
  if (changes_identity(status, getuid(), getgid()))
    return "is set-uid or set-gid, which drops preloads";
  if (gains_capabilities(file)) return "has file capabilities, which drop preloads";
  return {};
}

}  // namespace

bool changes_identity(const struct stat& file, uid_t user, gid_t group) {
  // A set-gid bit without the group's execute bit meant mandatory locking, and does not count.
  const bool set_gid = (file.st_mode & S_ISGID) != 0 && (file.st_mode & S_IXGRP) != 0;
  return ((file.st_mode & S_ISUID) != 0 && file.st_uid != user) ||
         (set_gid && file.st_gid != group);
}

std::string preload_obstacle(const std::vector<std::string>& command, const char* path) {
  if (command.empty()) return {};
  std::string file = find_program(command[0], path);
  std::string name = command[0];
  for (int i = 0; i < kMaxInterpreters && !file.empty(); ++i) {
    const std::vector<std::string> words = interpreter_line(file);
    if (words.empty()) {
      const std::string obstacle = obstacle_of_program(file);
      return obstacle.empty() ? std::string() : name + " " + obstacle;
    }
    const std::string behind_env = started_by_env(words);
    file = behind_env.empty() ? words[0] : find_program(behind_env, path);
    name =
        fmt::format("{}'s interpreter {}", command[0], behind_env.empty() ? words[0] : behind_env);
  }
  return {};
}

std::string way_to_devices(const std::vector<std::string>& command, const char* path) {
  const std::string file = find_program(command[0], path);
  if (file.empty()) return fmt::format("none: there is no {}", command[0]);
  const std::string obstacle = preload_obstacle(command, path);
  if (!obstacle.empty()) return fmt::format("none: {}", obstacle);
  auto shim = find_shim();
  if (!shim) return fmt::format("none: {}", shim.error());
  const std::string way = fmt::format("preload: {}", *shim);
  auto libdir = find_libdir();
  const char* searched = getenv("LD_LIBRARY_PATH");
  const bool by_path =
      libdir && searched != nullptr &&
      fmt::format(":{}:", searched).find(fmt::format(":{}:", *libdir)) != std::string::npos;
  return by_path ? way + "; library by path, without the preload: " + *libdir + "/libibverbs.so.1"
                 : way;
}

void warn_if_not_preloaded(const std::string& subcommand, const std::vector<std::string>& command) {
  const std::string obstacle = preload_obstacle(command, getenv("PATH"));
  if (!obstacle.empty())
    fmt::print(stderr, "hostnic {}: {}: it will see no hnic device\n", subcommand, obstacle);
}

}  // namespace hostnic::cli
