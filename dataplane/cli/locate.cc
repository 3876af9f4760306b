#include "dataplane/cli/locate.h"

#include <fmt/format.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>

namespace hostnic::cli {
namespace {

namespace fs = std::filesystem;

bool executable(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error) && access(path.c_str(), X_OK) == 0;
}

bool readable(const fs::path& path) { return access(path.c_str(), R_OK) == 0; }

}  // namespace

std::string own_directory() {
  std::error_code error;
  return fs::read_symlink("/proc/self/exe", error).parent_path().string();
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

Expected<std::string, std::string> find_shim() {
  const fs::path beside = fs::path(own_directory()) / "libhostnic-verbs.so";
  const fs::path installed = fs::path(HOSTNIC_SHIMDIR) / "libhostnic-verbs.so";
  // An installed tree may have been moved as a whole.
  const fs::path relative =
      fs::path(own_directory()) / HOSTNIC_SHIM_FROM_BIN / "libhostnic-verbs.so";
  for (const fs::path& candidate : {beside, relative, installed})
    if (readable(candidate)) return candidate.lexically_normal().string();
  return Unexpected(fmt::format("no libhostnic-verbs.so in {} nor in {} (build it: ./run build)",
                                own_directory(), HOSTNIC_SHIMDIR));
}

Expected<std::string, std::string> preload_value(const char* current) {
  auto shim = find_shim();
  if (!shim) return shim;
  if (shim->find_first_of(": \t") != std::string::npos)
    return Unexpected(fmt::format(
        "{} can't be preloaded: the dynamic linker takes no path with a space or colon", *shim));
  std::string value = HOSTNIC_PRELOAD_EXTRA;
  if (const char* extra = getenv("HOSTNIC_PRELOAD_EXTRA")) value = extra;
  if (!value.empty()) value += ':';
  value += *shim;
  const std::string before = current == nullptr ? "" : current;
  // Nested: a lab in a lab, or `run` in one.
  if (before == value || before.starts_with(value + ":")) return before;
  return before.empty() ? value : value + ":" + before;
}

}  // namespace hostnic::cli
