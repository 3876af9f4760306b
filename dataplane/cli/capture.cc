// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/capture.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/format.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/signalfd.h>
#include <time.h>

#include <algorithm>
#include <bit>
#include <deque>
#include <filesystem>
#include <memory>
#include <optional>

#include "dataplane/cli/capture_dump.h"
#include "dataplane/cli/capture_filter.h"
#include "dataplane/cli/capture_packet.h"
#include "dataplane/cli/capture_source.h"
#include "dataplane/cli/control_client.h"
#include "dataplane/cli/pcapng.h"
#include "dataplane/cli/process.h"
#include "dataplane/cli/quantities.h"
#include "protocol/hostif/capture_message.h"
#include "protocol/hostif/control_socket.h"
#include "protocol/hostif/version.h"

namespace hostnic::cli {
namespace {

constexpr uint64_t kNsPerSecond = 1'000'000'000;
constexpr int kLookMs = 2;               // how often rings that were empty are looked at
constexpr int kEndMs = 5'000;            // how long hostnicd is waited for to end a capture
constexpr size_t kWriteBytes = 1 << 20;  // what is written at a time
constexpr size_t kAtOnce = 4096;         // records taken before signals are looked at
constexpr uint64_t kMostKeptBytes = uint64_t{1} << 30;  // of packets that wait to be wanted
constexpr uint64_t kMostBeforeWish = 4'000'000;         // records taken before these are written
constexpr uint32_t kMostDeathFiles = 16;                // for programs that die

TimeNs time_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<TimeNs>(now.tv_sec) * kNsPerSecond + static_cast<TimeNs>(now.tv_nsec);
}

UniqueFd open_file(const std::string& file) {
  return UniqueFd(open(file.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
}

// As others find it, whose working directory is another.
std::string absolute_path(const std::string& file) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::absolute(file, error);
  return error ? file : path.string();
}

// A packet that is wanted, ready to be shown.
struct Shown {
  uint32_t interface = 0;
  TimeNs wall_ns = 0;
  uint32_t frame_bytes = 0;
  bool sent = false;
  std::vector<std::byte> bytes;
  std::string comment, line;
};

class Capture {
 public:
  explicit Capture(const CaptureOptions& options) : options_(options) {}
  int run();

 private:
  Expected<void, std::string> prepare();
  Expected<void, std::string> open_output();
  Expected<void, std::string> open_sources();
  Expected<void, std::string> open_sources_of(const std::string& host, const std::string& path,
                                              std::string& names);
  size_t drain();
  void take(CaptureSource& source, uint32_t interface);
  void emit(const Shown& shown);
  void keep(Shown shown);
  void write_kept(const std::string& file);
  void write_for(uint32_t died_pid);
  void take_wishes();
  void begin_file();
  void flush(bool all);
  void end();
  void end_file();
  bool is_over() const;
  bool ended_by_signal(int signals);

  const CaptureOptions& options_;
  CaptureFilter filter_;
  std::string nic_;
  CaptureRequest request_;
  uint64_t seconds_ns_ = 0, last_ns_ = 0;
  std::vector<std::unique_ptr<CaptureSource>> sources_;
  PcapngWriter writer_;
  UniqueFd file_;
  TimeNs wall_offset_ns_ = 0;  // what CLOCK_REALTIME is ahead of CLOCK_MONOTONIC
  uint64_t written_ = 0;
  bool failed_ = false;
  std::string error_;
  std::deque<Shown> kept_;
  uint32_t death_files_ = 0;
  uint64_t kept_bytes_ = 0;
  Shown shown_;
};

Expected<void, std::string> Capture::prepare() {
  std::span<const std::string> words = options_.words;
  if (!words.empty() && !begins_filter(words[0])) {
    nic_ = words[0] == "all" ? "" : words[0];
    words = words.subspan(1);
  }
  auto filter = parse_capture_filter(words);
  if (!filter) return Unexpected(filter.error());
  filter_ = *filter;
  const auto bytes = parse_bytes(options_.buffer);
  if (!bytes || *bytes < kMinCaptureBytes || *bytes > kMaxCaptureBytes)
    return Unexpected(fmt::format("--buffer {}: between 64K and 1G are possible", options_.buffer));
  request_.ring_bytes = std::bit_ceil(*bytes);
  if (options_.snap_bytes != 0) {
    if (options_.snap_bytes < kMinSnapBytes || options_.snap_bytes > kMaxSnapBytes)
      return Unexpected(fmt::format("--snaplen {}: between {} and {} bytes are possible",
                                    options_.snap_bytes, kMinSnapBytes, kMaxSnapBytes));
    request_.snap_bytes = options_.snap_bytes;
  }
  const auto duration = [](const char* name, const std::string& text,
                           uint64_t& ns) -> Expected<void, std::string> {
    if (text.empty()) return {};
    const auto parsed = parse_duration_ns(text);
    if (!parsed || *parsed == 0)
      return Unexpected(fmt::format("{} {}: a time is expected, such as 10s or 500ms", name, text));
    ns = *parsed;
    return {};
  };
  if (auto done = duration("--seconds", options_.seconds, seconds_ns_); !done) return done;
  if (auto done = duration("--last", options_.last, last_ns_); !done) return done;
  if (last_ns_ != 0 && (options_.file.empty() || options_.file == "-"))
    return Unexpected(std::string("--last: name a file by -w FILE"));
  return {};
}

Expected<void, std::string> Capture::open_output() {
  if (options_.file.empty() || options_.file == "-") return {};
  file_ = open_file(options_.file);
  if (!file_) return Unexpected(fmt::format("{}: {}", options_.file, strerror(errno)));
  return {};
}

Expected<void, std::string> Capture::open_sources_of(const std::string& host,
                                                     const std::string& path, std::string& names) {
  auto devices = list_devices(path);
  if (!devices) return Unexpected(devices.error());
  for (const DeviceInfo& device : *devices) {
    names += (names.empty() ? "" : ", ") + std::string(device.name);
    if (!nic_.empty() && nic_ != device.name) continue;
    auto source = CaptureSource::open(path, device.index, request_);
    if (!source) return Unexpected(fmt::format("{}: {}", device.name, source.error()));
    (*source)->set_host(host);
    sources_.push_back(std::move(*source));
  }
  return {};
}

Expected<void, std::string> Capture::open_sources() {
  std::string names;
  for (const std::string& host : options_.hosts) {
    const size_t divider = std::min(host.find('='), host.size());
    if (auto opened = open_sources_of(host.substr(0, divider),
                                      host.substr(std::min(divider + 1, host.size())), names);
        !opened)
      return opened;
  }
  if (options_.hosts.empty())
    if (auto opened = open_sources_of({}, options_.socket_path, names); !opened) return opened;
  if (sources_.empty())
    return Unexpected(fmt::format(
        "no NIC \"{}\" (there are: {}; a filter begins with qp, peer, opcode or verdict)", nic_,
        names));
  wall_offset_ns_ = time_of(CLOCK_REALTIME) - time_of(CLOCK_MONOTONIC);
  return {};
}

// ---- packets

// Takes what lies in the rings, in the order of time. Returns how much that was.
size_t Capture::drain() {
  size_t taken = 0;
  while (taken < kAtOnce && !is_over()) {
    CaptureSource* earliest = nullptr;
    uint32_t interface = 0;
    for (uint32_t i = 0; i < sources_.size(); ++i) {
      const CaptureRecord* const record = sources_[i]->front();
      if (record == nullptr ||
          (earliest != nullptr && earliest->front()->time_ns <= record->time_ns))
        continue;
      earliest = sources_[i].get();
      interface = i;
    }
    if (earliest == nullptr) break;
    take(*earliest, interface);
    earliest->drop();
    ++taken;
  }
  return taken;
}

std::string time_text(TimeNs wall_ns) {
  const auto seconds = static_cast<time_t>(wall_ns / kNsPerSecond);
  tm local{};
  localtime_r(&seconds, &local);
  return fmt::format("{:02}:{:02}:{:02}.{:09}", local.tm_hour, local.tm_min, local.tm_sec,
                     wall_ns % kNsPerSecond);
}

void Capture::take(CaptureSource& source, uint32_t interface) {
  const CaptureRecord& record = *source.front();
  const auto bytes = source.bytes();
  shown_.interface = interface;
  shown_.wall_ns = record.time_ns + wall_offset_ns_;
  shown_.sent = record.direction == CaptureDirection::kSent;
  shown_.bytes.assign(bytes.begin(), bytes.end());
  shown_.frame_bytes = make_frame(record, shown_.bytes);
  const auto headers = headers_in(shown_.bytes, shown_.frame_bytes);
  const wire::Packet* const p = headers ? &*headers : nullptr;
  const std::string verdict = verdict_of(record, source.counters(), p);
  const std::string changes = changes_in(record, source.counters());
  shown_.comment = changes.empty() ? verdict : fmt::format("{} [{}]", verdict, changes);
  if (!filter_.wants(p, shown_.comment)) return;
  if (options_.file.empty())
    shown_.line = fmt::format(
        "{} {} {} {}: {}\n", time_text(shown_.wall_ns), source.name(), shown_.sent ? "->" : "<-",
        p != nullptr ? wire::to_string(*p) : fmt::format("{} bytes", shown_.frame_bytes), verdict);
  if (last_ns_ != 0)
    keep(std::exchange(shown_, {}));
  else
    emit(shown_);
  ++written_;
  ++source.written;
}

void Capture::emit(const Shown& shown) {
  if (options_.file.empty()) {
    fputs(shown.line.c_str(), stdout);
    return;
  }
  writer_.add_packet({.interface = shown.interface,
                      .wall_ns = shown.wall_ns,
                      .original_bytes = shown.frame_bytes,
                      .bytes = shown.bytes,
                      .sent = shown.sent,
                      .comment = shown.comment});
  flush(false);
}

// Keeps a packet, and lets those go that are too old, or too many.
void Capture::keep(Shown shown) {
  const TimeNs oldest_ns = shown.wall_ns - std::min(shown.wall_ns, last_ns_);
  const auto size = [](const Shown& each) {
    return sizeof(Shown) + each.bytes.size() + each.comment.size();
  };
  kept_bytes_ += size(shown);
  kept_.push_back(std::move(shown));
  while (!kept_.empty() && (kept_.front().wall_ns < oldest_ns || kept_bytes_ > kMostKeptBytes)) {
    kept_bytes_ -= size(kept_.front());
    kept_.pop_front();
  }
}

// Writes a file anew, with what is kept.
void Capture::write_kept(const std::string& file) {
  file_ = open_file(file);
  if (!file_) {
    failed_ = true;
    error_ = fmt::format("{}: {}", file, strerror(errno));
    return;
  }
  begin_file();
  for (const Shown& shown : kept_) emit(shown);
  end_file();
  fmt::print(stderr, "hostnic capture: {} packets of the last {} written to {}\n", kept_.size(),
             options_.last, file);
}

// Writes what was kept when a program died to a file of its own: what comes later is not to take
// its place.
void Capture::write_for(uint32_t died_pid) {
  if (++death_files_ > kMostDeathFiles) return;
  const std::filesystem::path file = options_.file;
  const std::string name =
      fmt::format("{}-died-{}{}", file.stem().string(), died_pid, file.extension().string());
  write_kept((file.parent_path() / name).string());
}

// Writes what is kept, if somebody wants it, or a program has died.
void Capture::take_wishes() {
  uint32_t died_pid = 0;
  std::vector<CaptureSource*> wishes;
  for (const auto& source : sources_) {
    if (const uint32_t pid = source->take_death(); pid != 0) died_pid = pid;
    if (source->take_wish()) wishes.push_back(source.get());
  }
  if (died_pid == 0 && wishes.empty()) return;
  // What happened before is in the rings at most.
  for (uint64_t taken = 0; taken < kMostBeforeWish;) {
    const size_t now = drain();
    if (now == 0) break;
    taken += now;
  }
  if (died_pid != 0) write_for(died_pid);
  if (!wishes.empty()) write_kept(options_.file);
  for (CaptureSource* source : wishes) source->fulfil(!failed_);
}

// ---- the file

void Capture::begin_file() {
  writer_.clear();
  if (options_.file.empty()) return;
  writer_.begin(fmt::format("hostnic {}", HOSTNIC_VERSION));
  for (const auto& source : sources_)
    writer_.add_interface(
        {.name = source->name(),
         .description = fmt::format("{} {}", to_string(gid_in(source->device().address)),
                                    source->device().port),
         .snap_bytes = options_.snap_bytes});
  flush(true);
}

// Writes the buffer, or some of it if it is long.
void Capture::flush(bool all) {
  if (options_.file.empty()) {
    if (all && fflush(stdout) != 0) failed_ = true;
    return;
  }
  if (failed_ || (!all && writer_.buffer().size() < kWriteBytes)) return;
  const int fd = options_.file == "-" ? STDOUT_FILENO : file_.get();
  std::string_view rest = writer_.buffer();
  while (!rest.empty() && !failed_) {
    const ssize_t n = write(fd, rest.data(), rest.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) {
      failed_ = true;
      // The reader of our output has enough, which is no error.
      if (errno != EPIPE) error_ = fmt::format("{}: {}", options_.file, strerror(errno));
    } else {
      rest.remove_prefix(static_cast<size_t>(n));
    }
  }
  writer_.clear();
}

void Capture::end_file() {
  for (uint32_t i = 0; i < sources_.size() && !options_.file.empty(); ++i) {
    const CaptureSource& source = *sources_[i];
    const CaptureHeader& header = source.header();
    std::string counters;
    const size_t count = std::min<size_t>(source.counters().size(), kMaxCaptureCounters);
    for (size_t k = 0; source.ended() && k < count; ++k)
      if (const uint64_t by = header.at_end[k] - header.at_start[k]; by != 0)
        counters += fmt::format("{}{} {}", counters.empty() ? "counters meanwhile: " : ", ",
                                source.counters()[k], by);
    writer_.add_statistics({.interface = i,
                            .wall_start_ns = source.started_ns,
                            .wall_end_ns = time_of(CLOCK_REALTIME),
                            .received = header.seen.load(std::memory_order_relaxed),
                            .dropped = header.not_kept.load(std::memory_order_relaxed),
                            .comment = counters});
  }
  flush(true);
}

// ---- life and end

bool Capture::is_over() const {
  return failed_ || (options_.count != 0 && written_ >= options_.count && last_ns_ == 0);
}

bool Capture::ended_by_signal(int signals) {
  signalfd_siginfo info{};
  while (read(signals, &info, sizeof(info)) == sizeof(info)) {
    if (info.ssi_signo != SIGUSR1) return true;
    if (last_ns_ != 0) write_kept(options_.file);
  }
  return false;
}

// Has hostnicd end, and takes what is still in the rings.
void Capture::end() {
  for (const auto& source : sources_) source->end();
  const TimeNs until = time_of(CLOCK_MONOTONIC) + TimeNs{kEndMs} * 1'000'000;
  for (;;) {
    const bool all_ended = std::ranges::all_of(
        sources_, [](const auto& source) { return source->ended() || source->closed; });
    if (drain() != 0) continue;
    if (is_over() && options_.count != 0 && all_ended) break;
    if (all_ended || time_of(CLOCK_MONOTONIC) > until) break;
    poll(nullptr, 0, kLookMs);
  }
  if (last_ns_ != 0)
    write_kept(options_.file);
  else
    end_file();
  for (const auto& source : sources_) {
    const uint64_t not_kept = source->header().not_kept.load(std::memory_order_relaxed);
    fmt::print(stderr, "hostnic capture: {}: {} packets, {} {}{}\n", source->name(),
               source->header().seen.load(std::memory_order_relaxed), source->written,
               last_ns_ != 0 ? "wanted" : "written",
               not_kept == 0 ? std::string()
                             : fmt::format(", {} not kept (the ring was full: --snaplen, --buffer)",
                                           not_kept));
  }
}

int Capture::run() {
  for (auto step : {&Capture::prepare, &Capture::open_output, &Capture::open_sources})
    if (auto done = (this->*step)(); !done) return fail("capture", done.error());
  sigset_t wanted;
  sigemptyset(&wanted);
  for (const int number : {SIGINT, SIGTERM, SIGHUP, SIGUSR1}) sigaddset(&wanted, number);
  sigprocmask(SIG_BLOCK, &wanted, nullptr);
  signal(SIGPIPE, SIG_IGN);
  const UniqueFd signals(signalfd(-1, &wanted, SFD_CLOEXEC | SFD_NONBLOCK));
  if (last_ns_ == 0) begin_file();
  for (const auto& source : sources_)
    if (last_ns_ != 0) source->announce_keeping(absolute_path(options_.file));
  if (options_.ready_fd >= 0) {
    [[maybe_unused]] const ssize_t told = write(options_.ready_fd, "R", 1);
    close(options_.ready_fd);
  }
  std::vector<pollfd> watched = {{signals.get(), POLLIN, 0}};
  for (const auto& source : sources_) watched.push_back({source->socket(), POLLIN, 0});
  const TimeNs until = seconds_ns_ == 0 ? UINT64_MAX : time_of(CLOCK_MONOTONIC) + seconds_ns_;
  while (!is_over() && time_of(CLOCK_MONOTONIC) < until) {
    const size_t taken = drain();
    if (taken == 0) flush(last_ns_ == 0);
    if (last_ns_ != 0) take_wishes();
    for (const auto& source : sources_)
      if (source->broken()) {
        error_ = "hostnicd's ring says what can't be";
        failed_ = true;
      }
    if (poll(watched.data(), watched.size(), taken != 0 ? 0 : kLookMs) <= 0) continue;
    if (watched[0].revents != 0 && ended_by_signal(signals.get())) break;
    bool any_open = false;
    for (size_t i = 1; i < watched.size(); ++i) {
      if (watched[i].revents != 0) {
        sources_[i - 1]->closed = true;
        watched[i].fd = -1;
      }
      any_open |= watched[i].fd >= 0;
    }
    if (!any_open) break;
  }
  end();
  return error_.empty() ? 0 : fail("capture", error_);
}

}  // namespace

int run_capture(const CaptureOptions& options) {
  return options.dump ? run_dump(options) : Capture(options).run();
}

}  // namespace hostnic::cli
