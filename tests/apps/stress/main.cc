// SPDX-License-Identifier: BSD-3-Clause
// hostnic-stress: many threads, many queue pairs, random work, and objects that come and go, with a
// check of every byte and completion. An unmodified verbs program: it knows nothing of hostnic.
// Both ends of all connections are in this process, over several contexts of two devices.
#include <fmt/format.h>
#include <getopt.h>

#include <algorithm>
#include <charconv>
#include <cstdio>
#include <cstring>
#include <optional>
#include <thread>

#include "tests/apps/stress/kinds.h"
#include "tests/apps/stress/worker.h"

namespace hostnic::stress {
namespace {

constexpr int kUsageError = 2;
constexpr unsigned kCrowds = 4, kMaxThreads = 1024, kMaxQps = 16000, kMaxContexts = 64;

constexpr char kUsage[] =
    "usage: hostnic lab -- hostnic-stress [OPTIONS]\n"
    "  --seconds N         how long (600)\n"
    "  --threads N         (64)\n"
    "  --qps N             queue pairs at a time (1000)\n"
    "  --contexts N        of each device (4)\n"
    "  --seed N            of what is chosen (1)\n"
    "  --patience N        seconds without progress until it counts as hung (60)\n"
    "  --kinds LIST        of mixed, open, register, cancel, syscalls; or all (mixed)\n"
    "  --kind-threads N    of each kind but mixed (4)\n"
    "  --device NAME, --peer-device NAME   (hnic0, hnic1)\n";

template <typename T>
bool number(const char* text, T low, T high, T& out) {
  const char* end = text + std::strlen(text);
  const auto [stop, error] = std::from_chars(text, end, out);
  return error == std::errc() && stop == end && out >= low && out <= high;
}

bool known_kinds(const std::string& list, std::string& kinds) {
  constexpr const char* kAll = "mixed,open,register,cancel,syscalls";
  kinds = list == "all" ? kAll : list;
  Options all;
  all.kinds = kAll;
  for (size_t at = 0, end = 0; end != std::string::npos; at = end + 1) {
    end = kinds.find(',', at);
    const std::string kind = kinds.substr(at, end == std::string::npos ? end : end - at);
    if (kind.empty() || !all.has_kind(kind)) return false;
  }
  return true;
}

std::optional<Options> parse(int argc, char** argv) {
  const option known[] = {{"seconds", 1, nullptr, 's'},   {"threads", 1, nullptr, 't'},
                          {"qps", 1, nullptr, 'q'},       {"contexts", 1, nullptr, 'c'},
                          {"seed", 1, nullptr, 'r'},      {"patience", 1, nullptr, 'p'},
                          {"device", 1, nullptr, 'd'},    {"peer-device", 1, nullptr, 'e'},
                          {"kinds", 1, nullptr, 'k'},     {"kind-threads", 1, nullptr, 'n'},
                          {"open-once", 0, nullptr, 'o'}, {"help", 0, nullptr, 'h'},
                          {nullptr, 0, nullptr, 0}};
  Options options;
  bool good = true;
  for (int c = 0; (c = getopt_long(argc, argv, "h", known, nullptr)) != -1;) {
    if (c == 's')
      good &= number(optarg, 1U, 1'000'000U, options.seconds);
    else if (c == 't')
      good &= number(optarg, 1U, kMaxThreads, options.threads);
    else if (c == 'q')
      good &= number(optarg, 2U, kMaxQps, options.qps);
    else if (c == 'c')
      good &= number(optarg, 1U, kMaxContexts, options.contexts);
    else if (c == 'r')
      good &= number(optarg, uint64_t{0}, ~uint64_t{0}, options.seed);
    else if (c == 'p')
      good &= number(optarg, 1U, 100'000U, options.patience_seconds);
    else if (c == 'd')
      options.near = optarg;
    else if (c == 'e')
      options.far = optarg;
    else if (c == 'k')
      good &= known_kinds(optarg, options.kinds);
    else if (c == 'n')
      good &= number(optarg, 1U, kMaxThreads, options.kind_threads);
    else if (c == 'o')
      options.open_once = true;
    else if (c == 'h')
      options.help = true;
    else
      good = false;
  }
  if (!good || optind != argc) return std::nullopt;
  return options;
}

// Ends the process, naming who, when a connection that somebody waits for or a thread has not moved
// for too long.
class Watchdog {
 public:
  Watchdog(const Options& options, const std::vector<std::unique_ptr<Connection>>& connections,
           const std::vector<std::unique_ptr<Worker>>& workers)
      : patience_ns_(options.patience_seconds * 1'000'000'000ULL),
        connections_(connections),
        workers_(workers),
        seen_(workers.size(), {0, now_ns()}),
        thread_([this](const std::stop_token& stop) { run(stop); }) {}

 private:
  void run(const std::stop_token& stop) {
    while (!stop.stop_requested()) {
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
      look(now_ns());
    }
  }

  void look(uint64_t now) {
    std::string stuck;
    for (const auto& connection : connections_)
      if (connection->stuck_ns(now) > patience_ns_) stuck += connection->describe();
    for (size_t i = 0; i < workers_.size(); ++i) {
      const uint64_t steps = workers_[i]->steps();
      if (steps != seen_[i].steps || std::strcmp(workers_[i]->doing(), "at its end") == 0)
        seen_[i] = {steps, now};
      else if (now - seen_[i].since_ns > patience_ns_)
        stuck += fmt::format("thread {} is stuck in {}\n", i, workers_[i]->doing());
    }
    if (!stuck.empty())
      die(fmt::format("no progress for {} s:\n{}", patience_ns_ / 1'000'000'000, stuck));
  }

  struct Seen {
    uint64_t steps, since_ns;
  };
  const uint64_t patience_ns_;
  const std::vector<std::unique_ptr<Connection>>& connections_;
  const std::vector<std::unique_ptr<Worker>>& workers_;
  std::vector<Seen> seen_;
  std::jthread thread_;  // last: it looks at the others
};

void print_sums(const Options& options, double seconds) {
  const Tally& t = tally();
  fmt::print(
      "hostnic-stress: ok: {} operations, {:.1f} MiB, {} messages, {} QPs made, {} MRs made, {} "
      "CQs, {} PDs, {} SRQs, {} windows, {} AHs, {} error completions expected, {} flushed, {} "
      "calls refused, {} events, {} threads, {} QPs, seed {}, {:.1f} s\n",
      t.operations.load(), static_cast<double>(t.bytes.load()) / (1 << 20), t.messages.load(),
      t.qps.load(), t.mrs.load(), t.cqs.load(), t.pds.load(), t.srqs.load(), t.windows.load(),
      t.ahs.load(), t.errors_expected.load(), t.flushed.load(), t.calls_refused.load(),
      t.cq_events.load() + t.async_events.load(), options.threads, options.qps, options.seed,
      seconds);
}

using SharedList = std::vector<std::unique_ptr<Shared>>;

void work(const Options& options, SharedList& near, SharedList& far) {
  std::vector<std::unique_ptr<Connection>> connections;
  std::vector<std::vector<Connection*>> dealt(options.threads);
  for (unsigned i = 0; i < options.qps / 2; ++i) {
    connections.push_back(std::make_unique<Connection>(i));
    dealt[i % options.threads].push_back(connections.back().get());
    for (End& end : connections.back()->ends) all_ends.push_back(&end);
  }
  Rng rng(options.seed);
  std::vector<std::unique_ptr<Crowd>> crowds;
  for (unsigned i = 0; i < kCrowds; ++i) {
    crowds.push_back(std::make_unique<Crowd>(static_cast<uint16_t>(i), *near[i % near.size()],
                                             *far[i % far.size()], rng));
    Crowd::all().push_back(crowds.back().get());
  }
  std::vector<std::unique_ptr<Worker>> workers;
  for (unsigned i = 0; i < options.threads; ++i)
    workers.push_back(std::make_unique<Worker>(i, options.seed, near, far, std::move(dealt[i])));
  const Watchdog watchdog(options, connections, workers);
  const uint64_t end_ns = now_ns() + options.seconds * 1'000'000'000ULL;
  std::vector<std::jthread> threads;
  threads.reserve(workers.size());
  for (auto& worker : workers) threads.emplace_back([&worker, end_ns] { worker->run(end_ns); });
  threads.clear();
  crowds.clear();
}

void mixed_work(const Options& options) {
  std::vector<std::unique_ptr<Device>> devices;
  SharedList near, far;
  Rng rng(options.seed);
  for (unsigned i = 0; i < options.contexts; ++i) {
    devices.push_back(std::make_unique<Device>(options.near, i));
    near.push_back(std::make_unique<Shared>(*devices.back(), rng));
    devices.push_back(std::make_unique<Device>(options.far, i));
    far.push_back(std::make_unique<Shared>(*devices.back(), rng));
  }
  work(options, near, far);
}

int run(int argc, char** argv) {
  const auto options = parse(argc, argv);
  if (!options || options->help) {
    fmt::print(options ? stdout : stderr, "{}", kUsage);
    return options ? 0 : kUsageError;
  }
  const uint64_t start = now_ns();
  if (options->open_once) {
    open_at_once(*options);
    return 0;
  }
  {
    const uint64_t end_ns = start + options->seconds * 1'000'000'000ULL;
    std::jthread kinds;
    if (options->kinds != "mixed") kinds = std::jthread([&] { run_kinds(*options, end_ns); });
    if (options->has_kind("mixed")) mixed_work(*options);
  }
  print_sums(*options, static_cast<double>(now_ns() - start) * 1e-9);
  return 0;
}

}  // namespace
}  // namespace hostnic::stress

int main(int argc, char** argv) { return hostnic::stress::run(argc, argv); }
