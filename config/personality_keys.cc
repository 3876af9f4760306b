// SPDX-License-Identifier: BSD-3-Clause
// Keys of [personality].
#include <algorithm>
#include <array>

#include "config/values.h"

namespace hostnic::config {

namespace {

struct Feature {
  std::string_view name;
  MissingFeature bit;
};
constexpr Feature kFeatures[] = {
    {"uc", kMissingUc},
    {"ud", kMissingUd},
    {"srq", kMissingSrq},
    {"send-ops", kMissingSendOps},
    {"extended-cq", kMissingExtendedCq},
    {"timestamps", kMissingTimestamps},
    {"windows", kMissingWindows},
    {"on-demand", kMissingOnDemand},
};

ValueResult set_about(Personality& personality, const Value& value) {
  const std::string& text = std::get<std::string>(value);
  constexpr size_t kLongest = 120;
  const bool printable =
      std::all_of(text.begin(), text.end(), [](char c) { return c >= ' ' && c != 0x7f; });
  if (text.empty() || text.size() > kLongest || !printable)
    return bad_value("about", fmt::format("\"{}\"", text), "use one line of 1 to 120 bytes");
  personality.about = text;
  return std::nullopt;
}

ValueResult set_device_name(Personality& personality, const Value& value) {
  const std::string& name = std::get<std::string>(value);
  if (name.empty() || name.size() > kMaxDeviceNameBytes || !is_plain_name(name)) {
    return bad_value("device_name", fmt::format("\"{}\"", name),
                     "use 1 to 12 letters, digits, '-' and '_', before the number: mlx5_");
  }
  personality.device_name = name;
  return std::nullopt;
}

ValueResult set_missing(Personality& personality, const Value& value) {
  const std::string& text = std::get<std::string>(value);
  uint32_t missing = 0;
  for (size_t at = 0; (at = text.find_first_not_of(' ', at)) != std::string::npos;) {
    const size_t end = std::min(text.find(' ', at), text.size());
    const std::string_view word = std::string_view(text).substr(at, end - at);
    const auto* const found = std::ranges::find(kFeatures, word, &Feature::name);
    if (found == std::end(kFeatures)) {
      std::string names;
      for (const Feature& each : kFeatures)
        names += (names.empty() ? "" : ", ") + std::string(each.name);
      return ValueError{fmt::format("missing has \"{}\" (use words of {}, with spaces between)",
                                    shown(word), names),
                        at};
    }
    missing |= found->bit;
    at = end;
  }
  personality.offer.missing = missing;
  return std::nullopt;
}

ValueResult set_failing(Personality& personality, const Value& value) {
  const std::string& text = std::get<std::string>(value);
  if (text != "send-with-inv")
    return bad_value("failing", fmt::format("\"{}\"", text), "use \"send-with-inv\"");
  personality.offer.fails_send_with_inv = 1;
  return std::nullopt;
}

// Sets a limit, hostnic's own at most: of those that are beyond is kept for people which.
ValueResult set_limit(Personality& personality, std::string_view key, uint32_t& own,
                      const Value& value, int64_t least = 1) {
  uint32_t asked = 0;
  if (auto error = set_integer(asked, key, value, least, UINT32_MAX)) return error;
  if (asked > own) personality.capped.push_back(fmt::format("{} = {} ({} here)", key, asked, own));
  own = std::min(own, asked);
  return std::nullopt;
}

// Adapters are faster than a busy laptop, which is what hostnic's own delay is for.
ValueResult set_ack_delay(Personality& personality, const Value& value) {
  constexpr const char* kKey = "local_ca_ack_delay";
  uint32_t& own = personality.offer.local_ca_ack_delay;
  uint32_t asked = 0;
  if (auto error = set_integer(asked, kKey, value, 0, 31)) return error;
  if (asked < own) personality.capped.push_back(fmt::format("{} = {} ({} here)", kKey, asked, own));
  own = std::max(own, asked);
  return std::nullopt;
}

ValueResult set_max_qps(Personality& personality, const Value& value) {
  return set_integer(personality.max_qps, "max_qps", value, 16, UINT32_MAX);
}

// The least of some limits is what the driver grants at least.
constexpr int64_t kLeastWr = 16, kLeastCqe = 64;

const std::array<Key<Personality>, 23> kPersonalityKeys{{
    {"about", kString, set_about},
    {"device_name", kString, set_device_name},
    {"gids", kString,
     [](Personality& personality, const Value& value) {
       Gids gids{};
       ValueResult error = set_gids(gids, value);
       if (!error) personality.gids = gids;
       return error;
     }},
    {"gid_moves", kBoolean,
     [](Personality& personality, const Value& value) -> ValueResult {
       personality.gid_moves = std::get<bool>(value);
       return std::nullopt;
     }},
    {"missing", kString, set_missing},
    {"failing", kString, set_failing},
    {"mem_mgt_extensions", kBoolean,
     [](Personality& personality, const Value& value) -> ValueResult {
       personality.offer.has_mem_mgt_extensions = std::get<bool>(value) ? 1 : 0;
       return std::nullopt;
     }},
    {"vendor_id", kInteger | kString,
     [](Personality& personality, const Value& value) {
       return set_vendor_number(personality.offer.vendor_id, "vendor_id", value);
     }},
    {"vendor_part_id", kInteger | kString,
     [](Personality& personality, const Value& value) {
       return set_vendor_number(personality.offer.vendor_part_id, "vendor_part_id", value);
     }},
    {"max_qps", kInteger, set_max_qps},
    {"max_qp_wr", kInteger,
     [](Personality& personality, const Value& value) {
       return set_limit(personality, "max_qp_wr", personality.offer.max_qp_wr, value, kLeastWr);
     }},
    {"max_sge", kInteger,
     [](Personality& personality, const Value& value) {
       return set_limit(personality, "max_sge", personality.offer.max_sge, value);
     }},
    {"max_inline_bytes", kInteger,
     [](Personality& personality, const Value& value) {
       return set_limit(personality, "max_inline_bytes", personality.offer.max_inline_bytes, value,
                        0);
     }},
    {"max_qp_rd_atom", kInteger,
     [](Personality& personality, const Value& value) {
       return set_limit(personality, "max_qp_rd_atom", personality.offer.max_qp_rd_atom, value);
     }},
    {"max_message_bytes", kInteger,
     [](Personality& personality, const Value& value) {
       return set_limit(personality, "max_message_bytes", personality.offer.max_message_bytes,
                        value);
     }},
    {"max_cqs", kInteger,
     [](Personality& personality, const Value& value) {
       return set_limit(personality, "max_cqs", personality.offer.max_cqs, value);
     }},
    {"max_cqe", kInteger,
     [](Personality& personality, const Value& value) {
       return set_limit(personality, "max_cqe", personality.offer.max_cqe, value, kLeastCqe);
     }},
    {"max_pds", kInteger,
     [](Personality& personality, const Value& value) {
       return set_limit(personality, "max_pds", personality.offer.max_pds, value);
     }},
    {"max_ahs", kInteger,
     [](Personality& personality, const Value& value) {
       return set_limit(personality, "max_ahs", personality.offer.max_ahs, value);
     }},
    {"max_srqs", kInteger,
     [](Personality& personality, const Value& value) {
       return set_limit(personality, "max_srqs", personality.offer.max_srqs, value);
     }},
    {"max_srq_wr", kInteger,
     [](Personality& personality, const Value& value) {
       return set_limit(personality, "max_srq_wr", personality.offer.max_srq_wr, value);
     }},
    {"max_srq_sge", kInteger,
     [](Personality& personality, const Value& value) {
       return set_limit(personality, "max_srq_sge", personality.offer.max_srq_sge, value);
     }},
    {"local_ca_ack_delay", kInteger, set_ack_delay},
}};

}  // namespace

std::span<const Key<Personality>> personality_keys() { return kPersonalityKeys; }

}  // namespace hostnic::config
