// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/observe/message_trace.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <rte_trace.h>
#include <stdio.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <span>

#include "dataplane/daemon/daemon.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic {
namespace {

// Opens a new file for writing; null: errno says why.
FILE* new_file(int directory, const char* name) {
  const int fd =
      openat(directory, name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600);
  if (fd < 0) return nullptr;
  FILE* const file = fdopen(fd, "wb");
  if (file == nullptr) close(fd);
  return file;
}

// Closes a file. Returns 0, or errno of what went wrong with it.
int close_file(FILE* file) {
  const bool bad = ferror(file) != 0;
  const int error = errno;
  if (fclose(file) != 0) return errno;
  return bad ? (error == 0 ? EIO : error) : 0;
}

int write_stream(int directory, size_t number, std::span<const std::byte> bytes) {
  FILE* const file = new_file(directory, fmt::format("channel0_{}", number).c_str());
  if (file == nullptr) return errno;
  fwrite(bytes.data(), 1, bytes.size(), file);
  return close_file(file);
}

// What was not recorded stands behind DPDK's own text, as a comment.
int write_metadata(int directory, uint64_t missed) {
  FILE* const file = new_file(directory, "metadata");
  if (file == nullptr) return errno;
  rte_trace_metadata_dump(file);
  fmt::print(file, "/* hostnic: not traced: {} */\n", missed);
  return close_file(file);
}

}  // namespace

Expected<void, std::string> MessageTrace::start(uint32_t bytes) {
  stop();
  lcores_.clear();
  for (size_t i = 0; i < daemon_.lcores().size(); ++i) {
    auto lcore = std::make_unique<Lcore>();
    if (const int error = lcore->points.make_memory(bytes, static_cast<uint32_t>(i + 1));
        error != 0)
      return Unexpected(fmt::format("trace points: memory of {} bytes for each lcore: {}", bytes,
                                    strerror(error)));
    lcores_.push_back(std::move(lcore));
  }
  if (++session_ == 0) ++session_;
  enable_message_points(true);
  set_taps(true);
  is_on_ = true;
  return {};
}

void MessageTrace::stop() {
  if (!is_on_) return;
  take_events();
  set_taps(false);
  enable_message_points(false);
  is_on_ = false;
}

void MessageTrace::set_taps(bool on) {
  for (size_t i = 0; i < lcores_.size(); ++i) {
    Lcore& lcore = *lcores_[i];
    daemon_.lcores()[i]->run_on([&] {
      if (on) lcore.points.begin();
      for (NicInstance& instance : daemon_.nics()) {
        if (instance.lcore_number != i) continue;
        if (on) lcore.taps.push_back(std::make_unique<MessageTap>(lcore.points, session_));
        instance.nic->set_message_tap(on ? lcore.taps.back().get() : nullptr);
      }
      if (!on) lcore.points.end();
    });
    if (!on) lcore.taps.clear();
  }
}

// Has what programs told taken. Returns how much there is.
MessageTrace::Count MessageTrace::take_events() {
  Count count;
  for (size_t i = 0; i < lcores_.size(); ++i) {
    daemon_.lcores()[i]->run_on([&] {
      for (NicInstance& instance : daemon_.nics())
        if (is_on_ && instance.lcore_number == i) instance.nic->take_message_events();
      count.recorded += lcores_[i]->points.recorded();
      count.missed += lcores_[i]->points.missed();
    });
  }
  return count;
}

Expected<std::string, std::string> MessageTrace::save(const std::string& directory) {
  const auto failed = [&](int error) {
    return Unexpected(fmt::format("trace points: {}: {}", directory, strerror(error)));
  };
  if (lcores_.empty())
    return Unexpected(std::string("trace points: nothing was traced (`trace points on` begins)"));
  if (!directory.starts_with('/'))
    return Unexpected(
        fmt::format("trace points: {}: hostnicd wants to know where: begin it with /", directory));
  const Count count = take_events();
  if (mkdir(directory.c_str(), 0700) != 0) return failed(errno);
  const UniqueFd made(open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  if (!made) return failed(errno);
  // A stream's bytes are read where its lcore may write on, behind them.
  for (size_t i = 0; i < lcores_.size(); ++i) {
    std::span<const std::byte> bytes;
    daemon_.lcores()[i]->run_on([&] { bytes = lcores_[i]->points.stream(); });
    if (const int error = write_stream(made.get(), i, bytes); error != 0) return failed(error);
  }
  if (const int error = write_metadata(made.get(), count.missed); error != 0) return failed(error);
  return fmt::format("{} events in {}, {} not recorded\n", count.recorded, directory, count.missed);
}

std::string MessageTrace::state_text() {
  const Count count = take_events();
  return fmt::format("trace points {}: {} events, {} not recorded\n", is_on_ ? "on" : "off",
                     count.recorded, count.missed);
}

}  // namespace hostnic
