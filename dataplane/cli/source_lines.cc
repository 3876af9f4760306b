// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/source_lines.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <sstream>

#include "dataplane/cli/process.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {
namespace {

template <size_t kBytes>
std::string text_in(const char (&text)[kBytes]) {
  return {text, strnlen(text, kBytes)};
}

std::string output_of(const std::vector<std::string>& command) {
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return {};
  UniqueFd from(ends[0]), to(ends[1]);
  ChildOptions options;
  options.output_fd = to.get();
  options.stdin_null = true;
  const pid_t child = start_child(command, options);
  to = UniqueFd();
  if (child < 0) return {};
  std::string output;
  char piece[512];
  for (ssize_t size = 0; (size = read(from.get(), piece, sizeof(piece))) != 0;) {
    if (size > 0)
      output.append(piece, static_cast<size_t>(size));
    else if (errno != EINTR)
      break;
  }
  // Whoever waits for the command may have seen its end.
  while (waitpid(child, nullptr, 0) < 0 && errno == EINTR) {
  }
  return output;
}

std::string file_name(const std::string& path) { return path.substr(path.rfind('/') + 1); }

}  // namespace

SourcePlace source_of(const CheckPlace& place) {
  const std::string object = text_in(place.object);
  SourcePlace source;
  source.function = text_in(place.symbol);
  source.object = fmt::format("{}+{:#x}", object.empty() ? "?" : file_name(object), place.offset);
  if (object.empty()) return source;
  // The call is in front of where it returns to.
  const uint64_t address = place.offset - (place.is_return ? 1 : 0);
  std::istringstream lines(
      output_of({"addr2line", "-f", "-i", "-C", "-e", object, fmt::format("{:#x}", address)}));
  std::string function, line;
  // From the innermost outwards: calls of verbs are inline functions of a header.
  do {
    if (!std::getline(lines, function) || !std::getline(lines, line)) return source;
  } while (line.find("/infiniband/") != std::string::npos ||
           line.find("/rdma/") != std::string::npos);
  if (function != "??") source.function = function;
  line.erase(std::min(line.find(" (discriminator"), line.size()));
  if (!line.starts_with("??") && !line.ends_with(":?") && !line.ends_with(":0"))
    source.line = file_name(line);
  return source;
}

}  // namespace hostnic::cli
