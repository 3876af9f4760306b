// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/message_report.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <system_error>
#include <utility>
#include <vector>

#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {
namespace {

constexpr uint64_t kMostBytes = uint64_t{1} << 32;  // of one file

Expected<std::vector<std::byte>, std::string> read_file(const std::string& path) {
  const auto failed = [&](int error) {
    return Unexpected(fmt::format("{}: {}", path, strerror(error)));
  };
  const UniqueFd file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat about {};
  if (!file || fstat(file.get(), &about) != 0) return failed(errno);
  if (!S_ISREG(about.st_mode)) return failed(EINVAL);
  if (static_cast<uint64_t>(about.st_size) > kMostBytes) return failed(EFBIG);
  std::vector<std::byte> bytes(static_cast<size_t>(about.st_size));
  size_t done = 0;
  while (done < bytes.size()) {
    const ssize_t got = read(file.get(), bytes.data() + done, bytes.size() - done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) return failed(errno);
    if (got == 0) break;
    done += static_cast<size_t>(got);
  }
  bytes.resize(done);
  return bytes;
}

// A trace's files.
struct Trace {
  CtfMetadata metadata;
  std::vector<std::string> streams;
};

Expected<Trace, std::string> open_trace(const std::string& directory) {
  const auto text = read_file(directory + "/metadata");
  if (!text) return Unexpected(text.error());
  auto metadata = CtfMetadata::parse({reinterpret_cast<const char*>(text->data()), text->size()});
  if (!metadata) return Unexpected(fmt::format("{}/metadata: {}", directory, metadata.error()));
  Trace trace{.metadata = std::move(*metadata), .streams = {}};
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(directory, error))
    if (entry.path().filename().string().starts_with("channel"))
      trace.streams.push_back(entry.path().string());
  if (error) return Unexpected(fmt::format("{}: {}", directory, error.message()));
  std::ranges::sort(trace.streams);
  return trace;
}

// The directories of traces: this one, or those in it.
std::vector<std::string> directories_of(const std::string& directory) {
  std::error_code error;
  std::vector<std::string> found;
  if (!std::filesystem::exists(directory + "/metadata", error))
    for (const auto& entry : std::filesystem::directory_iterator(directory, error))
      if (std::filesystem::exists(entry.path() / "metadata", error))
        found.push_back(entry.path().string());
  if (found.empty()) return {directory};
  std::ranges::sort(found);
  return found;
}

}  // namespace

Expected<std::string, std::string> report_messages(const std::string& directory, bool json) {
  std::vector<Trace> traces;
  for (const std::string& one : directories_of(directory)) {
    auto trace = open_trace(one);
    if (!trace) return Unexpected(trace.error());
    traces.push_back(std::move(*trace));
  }
  uint64_t missed = 0;
  MessageTimes times(traces.front().metadata.frequency_hz);
  for (uint32_t daemon = 0; daemon < traces.size(); ++daemon) {
    const Trace& trace = traces[daemon];
    missed += trace.metadata.missed;
    for (const std::string& stream : trace.streams) {
      const auto bytes = read_file(stream);
      if (!bytes) return Unexpected(bytes.error());
      if (auto added = add_stream(trace.metadata, daemon, *bytes, times); !added)
        return Unexpected(fmt::format("{}: {}", stream, added.error()));
    }
  }
  times.finish(missed);
  return json ? times.to_json() : times.to_text();
}

}  // namespace hostnic::cli
