// SPDX-License-Identifier: BSD-3-Clause
#include "tests/apps/verify/options.h"

#include <fmt/format.h>
#include <getopt.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <span>

#include "tests/apps/verify/plan.h"

namespace hostnic::verify {
namespace {

constexpr std::array<std::string_view, kOpKinds> kOpNames = {
    "write", "write-imm", "send", "send-imm", "read", "fetch-add", "cmp-swap"};
constexpr std::array<std::string_view, 7> kMemoryNames = {
    "malloc", "mmap", "shm", "memfd", "sysv", "stack-unaligned", "huge"};

std::optional<size_t> index_of(std::span<const std::string_view> names, std::string_view name) {
  for (size_t i = 0; i < names.size(); ++i)
    if (names[i] == name) return i;
  return std::nullopt;
}

// Decimal with an optional k, m or g (powers of 1024).
std::optional<uint64_t> parse_size(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{}) return std::nullopt;
  std::string_view suffix(end, text.data() + text.size() - end);
  if (suffix.empty()) return value;
  if (suffix.size() != 1) return std::nullopt;
  unsigned shift = 0;
  switch (suffix[0] | 0x20) {
    case 'k':
      shift = 10;
      break;
    case 'm':
      shift = 20;
      break;
    case 'g':
      shift = 30;
      break;
    default:
      return std::nullopt;
  }
  if (value >> (40 - shift) != 0) return std::nullopt;
  return value << shift;
}

std::vector<std::string_view> split(std::string_view text, char separator) {
  std::vector<std::string_view> parts;
  for (;;) {
    const size_t at = text.find(separator);
    parts.push_back(text.substr(0, at));
    if (at == std::string_view::npos) return parts;
    text.remove_prefix(at + 1);
  }
}

struct NumberOption {
  int key;
  std::string_view name;
  uint64_t low, high;
  void (*set)(Options&, uint64_t);
};
constexpr NumberOption kNumbers[] = {
    {'r', "rounds", 0, 1u << 30, [](Options& o, uint64_t v) { o.workload.rounds = v; }},
    {'S', "seed", 0, 1ULL << 40, [](Options& o, uint64_t v) { o.workload.seed = v; }},
    {'q', "qps", 1, 256, [](Options& o, uint64_t v) { o.workload.qps = v; }},
    {'o', "ops", 1, 4096, [](Options& o, uint64_t v) { o.workload.ops = v; }},
    {'b', "max-bytes", 0, 1u << 30, [](Options& o, uint64_t v) { o.workload.max_bytes = v; }},
    {'B', "mr-bytes", 0, 1ULL << 40, [](Options& o, uint64_t v) { o.workload.mr_bytes = v; }},
    {'d', "depth", 2, 16384, [](Options& o, uint64_t v) { o.workload.depth = v; }},
    {'t', "timeout-seconds", 1, 86400, [](Options& o, uint64_t v) { o.timeout_seconds = v; }},
    {'a', "ack-timeout", 1, 31,
     [](Options& o, uint64_t v) { o.ack_timeout = static_cast<uint8_t>(v); }},
    {'g', "gid-index", 0, 255, [](Options& o, uint64_t v) { o.gid_index = static_cast<int>(v); }},
    {'m', "mtu", 256, 4096, [](Options& o, uint64_t v) { o.workload.mtu = v; }},
};

std::string set_number(Options& options, const NumberOption& which, std::string_view text) {
  const auto value = parse_size(text);
  if (!value || *value < which.low || *value > which.high)
    return fmt::format("--{} takes a number from {} to {} (k, m, g allowed), not '{}'", which.name,
                       which.low, which.high, text);
  if (which.key == 'm' && (*value & (*value - 1)) != 0)
    return fmt::format("--mtu takes 256, 512, 1024, 2048 or 4096, not '{}'", text);
  which.set(options, *value);
  return {};
}

std::string set_mix(Options& options, std::string_view text) {
  options.workload.mix = 0;
  for (std::string_view name : split(text, ',')) {
    const auto kind = index_of(kOpNames, name);
    if (!kind) return fmt::format("--mix knows {}, not '{}'", fmt::join(kOpNames, ", "), name);
    options.workload.mix |= 1u << *kind;
  }
  return {};
}

std::string set_memory(Options& options, std::string_view text) {
  options.memory.clear();
  for (std::string_view name : split(text, ',')) {
    const auto kind = index_of(kMemoryNames, name);
    if (!kind)
      return fmt::format("--memory knows {}, not '{}'", fmt::join(kMemoryNames, ", "), name);
    options.memory.push_back(static_cast<MemoryKind>(*kind));
  }
  return {};
}

std::string set_text(ParsedOptions& parsed, int key, std::string_view text) {
  Options& o = parsed.options;
  switch (key) {
    case 'L':
      o.mode = Options::Mode::kListen;
      o.port = text;
      return {};
    case 'C': {
      const size_t colon = text.rfind(':');
      if (colon == std::string_view::npos)
        return fmt::format("--connect takes HOST:PORT, not '{}'", text);
      o.mode = Options::Mode::kConnect;
      o.host = text.substr(0, colon);
      o.port = text.substr(colon + 1);
      return {};
    }
    case '2':
      o.mode = Options::Mode::kBoth;
      return {};
    case 'D':
      o.device = text;
      return {};
    case 'P':
      o.peer_device = text;
      return {};
    case 'M':
      return set_memory(o, text);
    case 'x':
      return set_mix(o, text);
    case 'e':
      o.events = true;
      return {};
    case 'F':
      o.workload.fences = 0;
      return {};
    case 'E':
      o.workload.check_errors = 1;
      return {};
    case 'v':
      o.verbose = true;
      return {};
    default:
      parsed.help = true;
      return {};
  }
}

// The largest message must fit into every region that it may lie anywhere in.
std::string check_sizes(const Workload& workload) {
  if (workload.mr_bytes == 0) return {};
  const uint64_t smallest =
      std::min(region_bytes(workload, Use::kSource), region_bytes(workload, Use::kArena));
  if (workload.max_bytes <= smallest) return {};
  return fmt::format(
      "--mr-bytes {} leaves a QP only {} bytes for its largest message: give at least {}, or a "
      "smaller --max-bytes",
      workload.mr_bytes, smallest, (workload.max_bytes + 64) * workload.qps * 32 / 7 + 32);
}

const option kLongOptions[] = {
    {"listen", required_argument, nullptr, 'L'},
    {"connect", required_argument, nullptr, 'C'},
    {"both", no_argument, nullptr, '2'},
    {"device", required_argument, nullptr, 'D'},
    {"peer-device", required_argument, nullptr, 'P'},
    {"memory", required_argument, nullptr, 'M'},
    {"mix", required_argument, nullptr, 'x'},
    {"events", no_argument, nullptr, 'e'},
    {"no-fences", no_argument, nullptr, 'F'},
    {"check-errors", no_argument, nullptr, 'E'},
    {"verbose", no_argument, nullptr, 'v'},
    {"help", no_argument, nullptr, 'h'},
    {"rounds", required_argument, nullptr, 'r'},
    {"seed", required_argument, nullptr, 'S'},
    {"qps", required_argument, nullptr, 'q'},
    {"ops", required_argument, nullptr, 'o'},
    {"max-bytes", required_argument, nullptr, 'b'},
    {"mr-bytes", required_argument, nullptr, 'B'},
    {"depth", required_argument, nullptr, 'd'},
    {"timeout-seconds", required_argument, nullptr, 't'},
    {"ack-timeout", required_argument, nullptr, 'a'},
    {"gid-index", required_argument, nullptr, 'g'},
    {"mtu", required_argument, nullptr, 'm'},
    {nullptr, 0, nullptr, 0},
};

}  // namespace

std::string_view to_string(OpKind kind) { return kOpNames[static_cast<size_t>(kind)]; }
std::string_view to_string(MemoryKind kind) { return kMemoryNames[static_cast<size_t>(kind)]; }

Expected<ParsedOptions, std::string> parse_options(int argc, char** argv) {
  ParsedOptions parsed;
  bool mode_given = false;
  optind = 0;  // also starts over, for tests
  opterr = 0;
  for (int key; (key = getopt_long(argc, argv, "+:h", kLongOptions, nullptr)) != -1;) {
    const char* word = argv[optind - 1];
    if (key == '?') return Unexpected(fmt::format("unknown option '{}' (see --help)", word));
    if (key == ':') return Unexpected(fmt::format("option '{}' needs a value", word));
    mode_given |= key == 'L' || key == 'C' || key == '2';
    const NumberOption* number = nullptr;
    for (const NumberOption& n : kNumbers)
      if (n.key == key) number = &n;
    std::string error = number ? set_number(parsed.options, *number, optarg)
                               : set_text(parsed, key, optarg ? optarg : "");
    if (!error.empty()) return Unexpected(std::move(error));
  }
  if (optind < argc) return Unexpected(fmt::format("unexpected argument '{}'", argv[optind]));
  if (!mode_given && !parsed.help)
    return Unexpected(std::string("one of --both, --listen PORT, --connect HOST:PORT is needed"));
  if (std::string error = check_sizes(parsed.options.workload); !error.empty())
    return Unexpected(std::move(error));
  return parsed;
}

std::string usage() {
  return fmt::format(
      "hostnic-verify --both | --listen PORT | --connect HOST:PORT  [options]\n"
      "Moves random data between two RC endpoints with every operation, and checks every byte and\n"
      "every completion. --both starts both ends; else give both sides the same options.\n"
      "  --device NAME, --peer-device NAME  RDMA devices (default: the first; the same)\n"
      "  --gid-index N                      default: the first IPv4-mapped RoCEv2 GID\n"
      "  --rounds N (8)  --ops N (24)       operations are per QP, direction and round\n"
      "  --seed S (1)  --qps Q (2)  --depth D (64)\n"
      "  --max-bytes B (8m)                 largest message\n"
      "  --mr-bytes B                       one MR of that size, transfers all over it\n"
      "  --mtu 256|512|1024|2048|4096       default: the port's\n"
      "  --mix LIST                         of {}\n"
      "  --memory LIST                      of {} (default malloc)\n"
      "  --events                           sleep on completion channels\n"
      "  --no-fences                        none; READs only of what nothing writes, and last of "
      "all\n"
      "  --check-errors                     also check errors, limits and QP states\n"
      "  --timeout-seconds T (60)           without progress, then a dump and exit status 1\n"
      "  --ack-timeout N (14)               ibv_qp_attr.timeout: 4.096 us * 2^N\n"
      "  --verbose                          one line per round\n",
      fmt::join(kOpNames, ","), fmt::join(kMemoryNames, ","));
}

}  // namespace hostnic::verify
