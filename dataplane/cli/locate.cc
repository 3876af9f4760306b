// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/locate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>

#include "dataplane/cli/elf_program.h"

namespace hostnic::cli {
namespace {

namespace fs = std::filesystem;

bool executable(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

bool readable(const fs::path& path) { return access(path.c_str(), R_OK) == 0; }

// A library or program that lies in the libraries' directory where all is installed.
Expected<std::string, std::string> find_part(const char* name) {
  const fs::path beside = fs::path(own_directory()) / name;
  const fs::path installed = fs::path(HOSTNIC_SHIMDIR) / name;
  // The relative place comes before the configured one: an installed tree may have been moved as a
  // whole.
  const fs::path relative = fs::path(own_directory()) / HOSTNIC_SHIM_FROM_BIN / name;
  for (const fs::path& candidate : {beside, relative, installed})
    if (readable(candidate)) return candidate.lexically_normal().string();
  return Unexpected(fmt::format("no {} in {} nor in {} (build it: ./run build)", name,
                                own_directory(), HOSTNIC_SHIMDIR));
}

}  // namespace

std::string own_directory() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path().string();
}

std::string path_with_us(const char* current) {
  const std::string before = current == nullptr ? "/usr/bin:/bin" : current;
  const std::string own = own_directory();
  return (":" + before + ":").find(":" + own + ":") != std::string::npos ? before
                                                                         : before + ":" + own;
}

Expected<std::string, std::string> find_hostnicd() {
  const fs::path beside = fs::path(own_directory()) / "hostnicd";
  if (executable(beside)) return beside.string();
  std::string path = getenv("PATH") == nullptr ? "" : getenv("PATH");
  for (size_t at = 0; at <= path.size();) {
    const size_t end = std::min(path.find(':', at), path.size());
    const fs::path candidate = fs::path(path.substr(at, end - at)) / "hostnicd";
    if (end != at && executable(candidate)) return candidate.string();
    at = end + 1;
  }
  const fs::path installed = fs::path(HOSTNIC_BINDIR) / "hostnicd";
  if (executable(installed)) return installed.string();
  return Unexpected(
      fmt::format("no hostnicd in {} nor in PATH (build it: ./run build)", own_directory()));
}

Expected<std::string, std::string> find_shim() { return find_part("libhostnic-verbs.so"); }

Expected<std::string, std::string> find_calls_library() { return find_part("libhostnic-calls.so"); }

Expected<std::string, std::string> find_gpu_library() { return find_part("gpu/libhostnic-gpu.so"); }

Expected<std::string, std::string> find_libdir() {
  auto library = find_part("lib/libibverbs.so.1");
  if (!library) return library;
  return fs::path(*library).parent_path().string();
}

Expected<std::string, std::string> find_simulate() { return find_part("hostnic-simulate"); }

std::string join_preloads(const std::vector<std::string>& first, const std::string& current,
                          const std::string& shim) {
  std::vector<std::string> all = first;
  // Spaces and colons are both separators to the dynamic linker. In a lab in a lab, or a `run` in
  // one, the shim is there already.
  for (size_t at = 0; at < current.size();) {
    const size_t end = std::min(current.find_first_of(": ", at), current.size());
    if (end != at) all.push_back(current.substr(at, end - at));
    at = end + 1;
  }
  all.push_back(shim);
  std::string value;
  for (auto each = all.begin(); each != all.end(); ++each) {
    if (std::find(all.begin(), each, *each) != each) continue;
    value += (value.empty() ? "" : ":") + *each;
  }
  return value;
}

Expected<std::string, std::string> preload_value(const char* current,
                                                 const std::vector<std::string>& command) {
  auto shim = find_shim();
  if (!shim) return shim;
  if (shim->find_first_of(": \t") != std::string::npos)
    return Unexpected(fmt::format(
        "{} can't be preloaded: the dynamic linker takes no path with a space or colon", *shim));
  std::string extra = HOSTNIC_PRELOAD_EXTRA;
  if (const char* wanted = getenv("HOSTNIC_PRELOAD_EXTRA")) extra = wanted;
  std::vector<std::string> first =
      command.empty()
          ? std::vector<std::string>{}
          : sanitizer_runtimes(read_elf_program(find_program(command[0], getenv("PATH"))));
  if (!extra.empty()) first.push_back(extra);
  const std::string before = current == nullptr ? "" : current;
  // A runtime that is preloaded by hand, under a path, is the same one.
  std::erase_if(first, [&](const std::string& name) {
    return name.find('/') == std::string::npos && before.find("/" + name) != std::string::npos;
  });
  return join_preloads(first, before, *shim);
}

std::string preload_in_front(const char* current, const std::string& library) {
  std::vector<std::string> runtimes, others;
  const std::string before = current == nullptr ? HOSTNIC_PRELOAD_EXTRA : current;
  for (size_t at = 0; at < before.size();) {
    const size_t end = std::min(before.find_first_of(": ", at), before.size());
    const std::string each = before.substr(at, end - at);
    const std::string name = each.substr(each.rfind('/') + 1);
    const bool runtime = name.starts_with("libasan") || name.starts_with("libtsan") ||
                         name.starts_with("libclang_rt");
    if (!each.empty()) (runtime ? runtimes : others).push_back(each);
    at = end + 1;
  }
  runtimes.push_back(library);
  std::string rest;
  for (const std::string& each : others) rest += each + ":";
  std::string value;
  for (const std::string& each : runtimes) value += (value.empty() ? "" : ":") + each;
  return rest.empty() ? value : value + ":" + rest.substr(0, rest.size() - 1);
}

std::string asan_options_value(const char* current) {
  std::string before = current == nullptr ? "" : current;
  if (before.find("verify_asan_link_order") != std::string::npos) return before;
  return before + (before.empty() ? "" : ":") + "verify_asan_link_order=0";
}

}  // namespace hostnic::cli
