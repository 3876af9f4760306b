// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/collectives/ranks.h"

#include <fmt/format.h>
#include <getopt.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstring>
#include <exception>
#include <new>
#include <string_view>
#include <thread>

namespace hostnic::collectives {
namespace {

constexpr int kFailed = 1;
constexpr auto kTick = std::chrono::microseconds(200);

constexpr char kUsage[] =
    "usage: hostnic lab -- {} [OPTIONS]\n"
    "  --ranks N        (4)\n"
    "  --rounds N       each opens the devices and connects anew (1)\n"
    "  --steps N        collectives of each kind in a round (5)\n"
    "  --max-bytes N    of a vector (1048576)\n"
    "  --seed N         of sizes and contents (1)\n"
    "  --patience N     seconds without progress until it counts as hung (60)\n"
    "  --devices LIST   comma-separated; ranks take turns (hnic0,hnic1)\n"
    "  --processes      a rank is a process, not a thread\n"
    "  --stay           hung: says so, and stays for a debugger\n";

template <typename T>
bool number(const char* text, T low, T high, T& out) {
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, out);
  return error == std::errc() && stop == end && out >= low && out <= high;
}

std::vector<std::string> split(std::string_view list) {
  std::vector<std::string> names;
  while (!list.empty()) {
    const size_t end = std::min(list.find(','), list.size());
    names.emplace_back(list.substr(0, end));
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return names;
}

std::string describe(const Options& options, const Shared& shared) {
  std::string text;
  for (unsigned r = 0; r < options.ranks; ++r) {
    const Progress& p = shared.progress[r];
    text += fmt::format(
        "  rank {} on {}: collective {}, {}, peer {}, number {}; {} events, {} receives, {} of {} "
        "sends completed\n",
        r, options.devices[r % options.devices.size()], p.step.load(),
        name(static_cast<Doing>(p.doing.load())), p.peer.load(), p.number.load(), p.events.load(),
        p.received.load(), p.completed.load(), p.posted.load());
  }
  return text;
}

// Ends the process when no rank has moved for too long.
void watch(const std::stop_token& stop, const Options& options, const Shared& shared) {
  uint64_t seen = 0;
  auto since = std::chrono::steady_clock::now();
  while (!stop.stop_requested()) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
    const auto now = std::chrono::steady_clock::now();
    if (const uint64_t beats = shared.beats; beats != seen) {
      seen = beats;
      since = now;
    } else if (now - since > std::chrono::seconds(options.patience_seconds)) {
      const auto text = fmt::format("no progress for {} s\n{}", options.patience_seconds,
                                    describe(options, shared));
      if (!options.stay) die(text);
      fmt::print(stderr, "{}", text);
      since = now;
    }
  }
}

void run_rank(const Options& options, Shared& shared, unsigned rank,
              const std::function<void(Place&)>& run) {
  Place place(options, shared, rank);
  try {
    // Their first verbs calls come at once.
    place.meet();
    run(place);
    place.doing(Doing::kEnd);
  } catch (const std::exception& error) {
    die(fmt::format("rank {}: {}\n{}", rank, error.what(), describe(options, shared)));
  }
}

void run_processes(const Options& options, Shared& shared, const std::function<void(Place&)>& run) {
  std::vector<pid_t> children;
  for (unsigned rank = 0; rank < options.ranks; ++rank) {
    const pid_t child = fork();
    if (child < 0) die(fmt::format("fork: {}", strerror(errno)));
    if (child == 0) {
      run_rank(options, shared, rank, run);
      fflush(nullptr);
      _exit(0);
    }
    children.push_back(child);
  }
  const std::jthread watchdog([&](const std::stop_token& stop) { watch(stop, options, shared); });
  for (unsigned ended = 0; ended < options.ranks; ++ended) {
    int status = 0;
    const pid_t child = wait(&status);
    if (child > 0 && status == 0) {
      std::erase(children, child);
      continue;
    }
    for (const pid_t other : children)
      if (other != child) kill(other, SIGKILL);
    die(fmt::format("a rank has ended with wait status {:#x}\n{}", status,
                    describe(options, shared)));
  }
}

void run_threads(const Options& options, Shared& shared, const std::function<void(Place&)>& run) {
  const std::jthread watchdog([&](const std::stop_token& stop) { watch(stop, options, shared); });
  std::vector<std::jthread> threads;
  for (unsigned rank = 0; rank < options.ranks; ++rank)
    threads.emplace_back([&, rank] { run_rank(options, shared, rank, run); });
}

const char* g_program = "";

}  // namespace

std::optional<Options> parse(const char* program, int argc, char** argv) {
  const option known[] = {{"ranks", 1, nullptr, 'n'},     {"rounds", 1, nullptr, 'r'},
                          {"steps", 1, nullptr, 't'},     {"seed", 1, nullptr, 's'},
                          {"patience", 1, nullptr, 'p'},  {"devices", 1, nullptr, 'd'},
                          {"max-bytes", 1, nullptr, 'b'}, {"processes", 0, nullptr, 'x'},
                          {"stay", 0, nullptr, 'y'},      {nullptr, 0, nullptr, 0}};
  Options options;
  bool good = true;
  for (int c = 0; (c = getopt_long(argc, argv, "", known, nullptr)) != -1;) {
    if (c == 'n')
      good &= number(optarg, 2U, kMaxRanks, options.ranks);
    else if (c == 'r')
      good &= number(optarg, 1U, 1'000'000U, options.rounds);
    else if (c == 't')
      good &= number(optarg, 1U, 100'000U, options.steps);
    else if (c == 'b')
      good &= number(optarg, uint64_t{8}, uint64_t{1} << 28, options.max_bytes);
    else if (c == 's')
      good &= number(optarg, uint64_t{0}, ~uint64_t{0}, options.seed);
    else if (c == 'p')
      good &= number(optarg, 1U, 100'000U, options.patience_seconds);
    else if (c == 'd')
      good &= !(options.devices = split(optarg)).empty();
    else if (c == 'x')
      options.processes = true;
    else if (c == 'y')
      options.stay = true;
    else
      good = false;
  }
  if (good && optind == argc) return options;
  fmt::print(stderr, kUsage, program);
  return std::nullopt;
}

const char* name(Doing doing) {
  switch (doing) {
    case Doing::kStart:
      return "starting";
    case Doing::kOpen:
      return "opening the device";
    case Doing::kConnect:
      return "connecting";
    case Doing::kRing:
      return "all-reduce in a ring";
    case Doing::kRingChunked:
      return "all-reduce in a ring, in chunks";
    case Doing::kHalvingDoubling:
      return "all-reduce by halving and doubling";
    case Doing::kBroadcast:
      return "broadcast";
    case Doing::kBarrier:
      return "barrier";
    case Doing::kBarrierToOne:
      return "barrier by one rank";
    case Doing::kWaitAnnouncement:
      return "waiting for the peer to announce a buffer";
    case Doing::kWaitData:
      return "waiting for the peer's data";
    case Doing::kWaitNotice:
      return "waiting for the peer's notice";
    case Doing::kWaitSendQueue:
      return "waiting for room in the send queue";
    case Doing::kWaitSent:
      return "waiting for what it sent to complete";
    case Doing::kMeet:
      return "waiting for the other ranks, not over the NIC";
    case Doing::kClose:
      return "closing";
    case Doing::kEnd:
      return "done";
  }
  return "?";
}

void Place::doing(Doing what, unsigned peer, uint64_t number) {
  Progress& p = progress();
  p.doing.store(static_cast<unsigned>(what), std::memory_order_relaxed);
  p.peer.store(peer, std::memory_order_relaxed);
  p.number.store(number, std::memory_order_relaxed);
  shared.beats.fetch_add(1, std::memory_order_relaxed);
}

void Place::meet() {
  doing(Doing::kMeet, 0, ++meetings_);
  shared.arrived.fetch_add(1);
  while (shared.arrived.load() < meetings_ * options.ranks) std::this_thread::sleep_for(kTick);
}

void die(const std::string& why) {
  fmt::print(stderr, "{}: {}\n", g_program, why);
  fflush(stderr);
  _exit(kFailed);
}

void run_ranks(const char* program, const Options& options,
               const std::function<void(Place&)>& run) {
  g_program = program;
  void* memory =
      mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) die(fmt::format("mmap: {}", strerror(errno)));
  Shared& shared = *new (memory) Shared;
  if (options.processes)
    run_processes(options, shared, run);
  else
    run_threads(options, shared, run);
  fmt::print("{}: ok: {} ranks, {} rounds, {} results compared\n", program, options.ranks,
             options.rounds, shared.checked.load());
}

}  // namespace hostnic::collectives
