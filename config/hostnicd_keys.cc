// SPDX-License-Identifier: BSD-3-Clause
// Keys of [hostnicd] and [hostnicd.limits].
#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "config/values.h"

namespace hostnic::config {

namespace {

constexpr int64_t kMaxLcores = 128;  // DPDK's RTE_MAX_LCORE in Debian's build

ValueResult set_socket(HostnicdConfig& config, const Value& value) {
  const std::string& path = std::get<std::string>(value);
  const bool has_nul = path.find('\0') != std::string::npos;
  if (path.empty() || path.size() > kMaxSocketPathBytes || has_nul) {
    return bad_value("socket", fmt::format("\"{}\"", path),
                     fmt::format("use a path of 1 to {} bytes", kMaxSocketPathBytes));
  }
  config.socket_path = path;
  return std::nullopt;
}

ValueResult set_socket_mode(HostnicdConfig& config, const Value& value) {
  const std::string& text = std::get<std::string>(value);
  const auto mode = parse_socket_mode(text);
  if (!mode) {
    return bad_value("socket_mode", fmt::format("\"{}\"", text),
                     "use octal digits such as \"0660\", for reading and writing only");
  }
  config.socket_mode = *mode;
  return std::nullopt;
}

// Takes "3" or "3-5", a CPU or an ascending range; advances past it.
bool take_cpu_range(const char*& at, const char* end) {
  unsigned first = 0, last = 0;
  auto result = std::from_chars(at, end, first);
  if (result.ec != std::errc()) return false;
  last = first;
  if (result.ptr != end && *result.ptr == '-') {
    result = std::from_chars(result.ptr + 1, end, last);
    if (result.ec != std::errc()) return false;
  }
  at = result.ptr;
  return first <= last && last < 1024;
}

bool is_cpu_list(const std::string& text) {
  const char* at = text.data();
  const char* const end = at + text.size();
  while (take_cpu_range(at, end)) {
    if (at == end) return true;
    if (*at++ != ',') return false;
  }
  return false;
}

ValueResult set_lcores(HostnicdConfig& config, const Value& value) {
  if (std::holds_alternative<int64_t>(value)) {
    config.lcore_list.clear();
    return set_integer(config.lcore_count, "lcores", value, 1, kMaxLcores);
  }
  const std::string& list = std::get<std::string>(value);
  if (!is_cpu_list(list)) {
    return bad_value("lcores", fmt::format("\"{}\"", list),
                     "use a number of cores such as 2, or a list of CPUs such as \"2,4-5\"");
  }
  config.lcore_count = 0;
  config.lcore_list = list;
  return std::nullopt;
}

ValueResult set_switch(HostnicdConfig& config, const Value& value) {
  const std::string& text = std::get<std::string>(value);
  auto spec = impair::parse_switch(text);
  if (!spec) return ValueError{"switch: " + spec.error().message(), spec.error().column - 1};
  config.network_switch = *spec;
  return std::nullopt;
}

const std::array<Key<HostnicdConfig>, 11> kHostnicdKeys{{
    {"socket", kString, set_socket},
    {"socket_mode", kString, set_socket_mode},
    {"socket_group", kString,
     [](HostnicdConfig& config, const Value& value) -> ValueResult {
       config.socket_group = std::get<std::string>(value);
       return std::nullopt;
     }},
    {"idle", kString,
     [](HostnicdConfig& config, const Value& value) {
       return set_choice(config.idle, "idle", value,
                         {{"adaptive", Idle::kAdaptive}, {"poll", Idle::kPoll}});
     }},
    {"lcores", kInteger | kString, set_lcores},
    {"huge", kString,
     [](HostnicdConfig& config, const Value& value) {
       return set_choice(config.huge, "huge", value,
                         {{"auto", HugePages::kAuto},
                          {"never", HugePages::kNever},
                          {"require", HugePages::kRequire}});
     }},
    {"lend_userfaultfd", kBoolean,
     [](HostnicdConfig& config, const Value& value) -> ValueResult {
       config.lend_userfaultfd = std::get<bool>(value);
       return std::nullopt;
     }},
    {"switch", kString, set_switch},
    {"seed", kInteger,
     [](HostnicdConfig& config, const Value& value) {
       return set_integer(config.seed, "seed", value, 0, std::numeric_limits<int64_t>::max());
     }},
    {"metrics_port", kInteger,
     [](HostnicdConfig& config, const Value& value) {
       return set_integer(config.metrics_port, "metrics_port", value, 0, 65535);
     }},
    {"errors_directory", kString,
     [](HostnicdConfig& config, const Value& value) -> ValueResult {
       config.errors_directory = std::get<std::string>(value);
       return std::nullopt;
     }},
}};

const std::array<Key<Limits>, 10> kLimitsKeys{{
    {"max_qps", kInteger,
     [](Limits& limits, const Value& value) {
       // The limit is 65520 because a QPN has 16 bits for the index, and the first 16 stay free.
       return set_integer(limits.max_qps, "max_qps", value, 16, 65520);
     }},
    {"max_mrs", kInteger,
     [](Limits& limits, const Value& value) {
       return set_integer(limits.max_mrs, "max_mrs", value, 16, 524286);
     }},
    {"max_clients", kInteger,
     [](Limits& limits, const Value& value) {
       return set_integer(limits.max_clients, "max_clients", value, 1, 4096);
     }},
    {"nic_qps", kInteger,
     [](Limits& limits, const Value& value) {
       return set_integer(limits.nic_qps, "nic_qps", value, 16, 65520);
     }},
    {"all_mrs", kInteger,
     [](Limits& limits, const Value& value) {
       return set_integer(limits.all_mrs, "all_mrs", value, 16, 524286);
     }},
    {"user_clients", kInteger,
     [](Limits& limits, const Value& value) {
       return set_integer(limits.user_clients, "user_clients", value, 1, 4096);
     }},
    {"user_qps", kInteger,
     [](Limits& limits, const Value& value) {
       return set_integer(limits.user_qps, "user_qps", value, 1, 65520);
     }},
    {"user_mrs", kInteger,
     [](Limits& limits, const Value& value) {
       return set_integer(limits.user_mrs, "user_mrs", value, 1, 524286);
     }},
    {"user_registered_mb", kInteger,
     [](Limits& limits, const Value& value) {
       return set_integer(limits.user_registered_mb, "user_registered_mb", value, 1,
                          std::numeric_limits<int32_t>::max());
     }},
    {"user_page_tables_mb", kInteger,
     [](Limits& limits, const Value& value) {
       return set_integer(limits.user_page_tables_mb, "user_page_tables_mb", value, 1, 1 << 20);
     }},
}};

}  // namespace

std::span<const Key<HostnicdConfig>> hostnicd_keys() { return kHostnicdKeys; }
std::span<const Key<Limits>> limits_keys() { return kLimitsKeys; }

std::optional<uint32_t> parse_socket_mode(const std::string& text) {
  uint32_t mode = 0;
  const char* const end = text.data() + text.size();
  const auto [at, code] = std::from_chars(text.data(), end, mode, 8);
  if (code != std::errc() || at != end || (mode & ~0666u) != 0) return std::nullopt;
  return mode;
}

}  // namespace hostnic::config
