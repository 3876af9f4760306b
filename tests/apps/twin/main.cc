// SPDX-License-Identifier: BSD-3-Clause
// hostnic-twin: programs that do to their address space whatever Linux lets them, with memory that
// is registered, beside a model of what becomes of it where an adapter has pinned the pages. An
// unmodified verbs program: it knows nothing of hostnic.
#include <fmt/format.h>
#include <getopt.h>

#include <cerrno>
#include <charconv>
#include <cstddef>
#include <cstdio>
#include <cstring>
#include <memory>
#include <optional>

#include "tests/apps/twin/crowd.h"
#include "tests/apps/twin/executor.h"
#include "tests/apps/twin/runner.h"
#include "tests/support/forbid_userfaultfd.h"

namespace hostnic::twin {
namespace {

constexpr int kUsageError = 2;
constexpr uint64_t kArena = 0x2000'0000'0000;

constexpr char kUsage[] =
    "usage: hostnic lab -- hostnic-twin [OPTIONS]\n"
    "  --seeds A..B         each in a process of its own (1..100)\n"
    "  --ops N              operations of a seed (150)\n"
    "  --threads N          others that do operations while the main thread registers (0)\n"
    "  --only KIND,...      of these kinds of operations only; --kinds lists them\n"
    "  --without KIND,...   none of these\n"
    "  --no-raw             no bare system calls\n"
    "  --by-libc KIND,...   none of these by bare system calls\n"
    "  --dry                nothing is registered: what the model expects of Linux itself\n"
    "  --no-userfaultfd     as in a container that forbids it\n"
    "  --may-refuse         registrations may be refused (EOPNOTSUPP)\n"
    "  --bare-may-fail      mremap in place (ENOMEM) and bare MADV_FREE (EINVAL) may fail\n"
    "  --limit-seconds N    of a seed (30)\n"
    "  --failures N         after so many it stops (20)\n"
    "  --shrink             leaves out what a failure doesn't need\n"
    "  --one SEED [--keep N,...] [--verbose]   one seed, in this process; only those operations\n"
    "  --device NAME, --peer-device NAME   (hnic0, hnic1)\n";

struct Options {
  RunOptions run;
  Choice choice;
  std::optional<uint64_t> one;
  std::optional<std::set<size_t>> keep;
  bool no_userfaultfd = false, may_refuse = false, bare_may_fail = false, verbose = false;
  std::string device = "hnic0", peer_device = "hnic1";
};

template <typename T>
bool number(std::string_view text, T low, T high, T& out) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && stop == text.data() + text.size() && out >= low && out <= high;
}

std::vector<std::string> split(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t at = 0; at <= text.size();) {
    const size_t end = std::min(text.find(',', at), text.size());
    parts.push_back(text.substr(at, end - at));
    at = end + 1;
  }
  return parts;
}

bool kinds(const std::string& text, std::set<Kind>& into) {
  for (const std::string& each : split(text)) {
    Kind kind{};
    if (!find_kind(each, kind)) return false;
    into.insert(kind);
  }
  return true;
}

bool seeds(std::string_view text, RunOptions& run) {
  constexpr uint64_t kMost = 1ull << 48;
  const size_t dots = text.find("..");
  if (dots == std::string_view::npos) {
    if (!number(text, uint64_t{1}, kMost, run.first)) return false;
    run.last = run.first;
    return true;
  }
  return number(text.substr(0, dots), uint64_t{1}, kMost, run.first) &&
         number(text.substr(dots + 2), run.first, kMost, run.last);
}

bool kept(const std::string& text, std::optional<std::set<size_t>>& keep) {
  keep.emplace();
  if (text == "none") return true;
  for (const std::string& each : split(text)) {
    size_t index = 0;
    if (!number(each, size_t{0}, size_t{1'000'000}, index)) return false;
    keep->insert(index);
  }
  return true;
}

std::optional<Options> parse(int argc, char** argv) {
  const option known[] = {{"seeds", 1, nullptr, 's'},
                          {"ops", 1, nullptr, 'n'},
                          {"threads", 1, nullptr, 't'},
                          {"only", 1, nullptr, 'o'},
                          {"without", 1, nullptr, 'w'},
                          {"no-raw", 0, nullptr, 'r'},
                          {"by-libc", 1, nullptr, 'b'},
                          {"dry", 0, nullptr, 'd'},
                          {"no-userfaultfd", 0, nullptr, 'u'},
                          {"may-refuse", 0, nullptr, 'm'},
                          {"bare-may-fail", 0, nullptr, 'F'},
                          {"limit-seconds", 1, nullptr, 'l'},
                          {"failures", 1, nullptr, 'f'},
                          {"shrink", 0, nullptr, 'x'},
                          {"one", 1, nullptr, '1'},
                          {"keep", 1, nullptr, 'k'},
                          {"verbose", 0, nullptr, 'v'},
                          {"kinds", 0, nullptr, 'K'},
                          {"device", 1, nullptr, 'D'},
                          {"peer-device", 1, nullptr, 'P'},
                          {"help", 0, nullptr, 'h'},
                          {nullptr, 0, nullptr, 0}};
  Options options;
  bool good = true;
  int which = 0;
  for (int c = 0; (c = getopt_long(argc, argv, "h", known, &which)) != -1;) {
    // What a seed's process has to know as well.
    if (std::strchr("owrbdumFvDP", c) != nullptr) {
      options.run.passed_on.push_back(std::string("--") + known[which].name);
      if (known[which].has_arg != 0) options.run.passed_on.emplace_back(optarg);
    }
    uint64_t seed = 0;
    switch (c) {
      case 's':
        good &= seeds(optarg, options.run);
        break;
      case 'n':
        good &= number(optarg, size_t{1}, size_t{100'000}, options.run.operations);
        break;
      case 't':
        good &= number(optarg, 0u, 64u, options.run.threads);
        break;
      case 'o':
        good &= kinds(optarg, options.choice.only);
        break;
      case 'w':
        good &= kinds(optarg, options.choice.without);
        break;
      case 'r':
        options.choice.raw = false;
        break;
      case 'b':
        good &= kinds(optarg, options.choice.by_libc);
        break;
      case 'd':
        options.choice.dry = true;
        break;
      case 'u':
        options.no_userfaultfd = true;
        break;
      case 'm':
        options.may_refuse = true;
        break;
      case 'F':
        options.bare_may_fail = true;
        break;
      case 'l':
        good &= number(optarg, 1u, 3600u, options.run.limit_s);
        break;
      case 'f':
        good &= number(optarg, 1u, 1'000'000u, options.run.most_failures);
        break;
      case 'x':
        options.run.shrink = true;
        break;
      case '1':
        good &= number(optarg, uint64_t{1}, uint64_t{1} << 48, seed);
        options.one = seed;
        break;
      case 'k':
        good &= kept(optarg, options.keep);
        break;
      case 'v':
        options.verbose = true;
        break;
      case 'D':
        options.device = optarg;
        break;
      case 'P':
        options.peer_device = optarg;
        break;
      case 'K':
        for (size_t i = 0; i < kKinds; ++i) fmt::print("{}\n", name(static_cast<Kind>(i)));
        exit(0);
      case 'h':
        fmt::print("{}", kUsage);
        exit(0);
      default:
        good = false;
    }
  }
  if (!good || optind != argc) {
    fmt::print(stderr, "{}", kUsage);
    return std::nullopt;
  }
  return options;
}

std::string again(const Options& options) {
  std::string text = "hostnic lab -- hostnic-twin --one " + std::to_string(*options.one) +
                     " --ops " + std::to_string(options.run.operations);
  if (options.run.threads != 0) text += " --threads " + std::to_string(options.run.threads);
  for (const std::string& each : options.run.passed_on) text += " " + each;
  if (options.keep) {
    text += " --keep ";
    bool first = true;
    for (const size_t each : *options.keep) {
      text += (first ? "" : ",") + std::to_string(each);
      first = false;
    }
    if (first) text += "none";
  }
  for (const char* each : {"HOSTNIC_MEMORY", "HOSTNIC_MIGRATE"})
    if (const char* value = getenv(each)) text = fmt::format("{}={} {}", each, value, text);
  return text;
}

// The program's data, in which the twin's own lies as well.
uint8_t data_of_program[300'000];

void run_one(const Options& options, const char* program) {
  Settings settings;
  settings.seed = *options.one;
  settings.choice = options.choice;
  settings.may_refuse = options.may_refuse;
  settings.bare_may_fail = options.bare_may_fail;
  settings.verbose = options.verbose;
  settings.again = again(options);
  std::unique_ptr<Peer> peer;
  std::unique_ptr<Ends> ends;
  if (!options.choice.dry) peer = std::make_unique<Peer>(program, options.peer_device.c_str());
  if (options.no_userfaultfd && !forbid_userfaultfd()) {
    perror("hostnic-twin: seccomp");
    exit(kUsageError);
  }
  if (!options.choice.dry) {
    ends = std::make_unique<Ends>(options.device.c_str());
    peer->connect(*ends);
  }
  install_handlers();
  Longest longest{};
  if (options.run.threads != 0) {
    run_crowd(settings, options.run.threads, options.run.operations, ends.get(), peer.get(),
              longest);
  } else {
    const Profile how = profile(settings.seed, settings.choice);
    Executor executor(settings, how, kArena, ends.get(), peer.get());
    uint8_t on_stack[100'000];
    executor.add_fixed(data_of_program, sizeof(data_of_program));
    executor.add_fixed(on_stack, sizeof(on_stack));
    for (size_t i = 0; i < options.run.operations; ++i)
      if (!options.keep || options.keep->contains(i))
        executor.run(operation(settings.seed, i, how, settings.choice), i);
    executor.finish();
    stop_signals();
    longest = executor.longest;
  }
  std::string text = "LONGEST";
  for (size_t i = 0; i < kKinds; ++i)
    if (longest[i] > 0)
      text += fmt::format(" {} {:.3f}", name(static_cast<Kind>(i)), longest[i] * 1e3);
  fmt::print("{}\n", text);
  fflush(stdout);
}

}  // namespace
}  // namespace hostnic::twin

int main(int argc, char** argv) {
  using namespace hostnic::twin;
  if (argc == 5 && std::strcmp(argv[1], "--peer") == 0)
    return run_peer(std::atoi(argv[2]), std::atoi(argv[3]), argv[4]);
  const std::optional<Options> options = parse(argc, argv);
  if (!options) return kUsageError;
  char program[4096] = {};
  if (readlink("/proc/self/exe", program, sizeof(program) - 1) < 0) return kUsageError;
  if (!options->one) return run_seeds(program, options->run);
  run_one(*options, program);
  return 0;
}
