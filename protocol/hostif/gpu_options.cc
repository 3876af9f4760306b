// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/hostif/gpu_options.h"

#include <charconv>

namespace hostnic {
namespace {

bool parse_number(std::string_view text, uint64_t& number) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  return error == std::errc{} && end == text.data() + text.size();
}

bool parse_size(std::string_view text, uint64_t& bytes) {
  uint64_t unit = 1;
  if (text.ends_with('M')) unit = uint64_t{1} << 20;
  if (text.ends_with('G')) unit = uint64_t{1} << 30;
  if (unit != 1) text.remove_suffix(1);
  uint64_t number = 0;
  return parse_number(text, number) && number != 0 && !__builtin_mul_overflow(number, unit, &bytes);
}

bool take_word(std::string_view word, GpuOptions& options) {
  constexpr std::string_view kMemory = "memory=";
  uint64_t count = 0;
  if (parse_number(word, count)) {
    options.count = static_cast<uint32_t>(count);
    return count >= 1 && count <= GpuOptions::kMaxGpus;
  }
  if (word.starts_with(kMemory))
    return parse_size(word.substr(kMemory.size()), options.memory_bytes);
  if (word == "loads") return options.loads = true;
  if (word == "nopeer") return !(options.peers = false);
  return false;
}

}  // namespace

Expected<GpuOptions, std::string> parse_gpu_options(std::string_view text) {
  GpuOptions options;
  while (!text.empty()) {
    const size_t end = std::min(text.find(','), text.size());
    const std::string_view word = text.substr(0, end);
    if (!take_word(word, options))
      return Unexpected("\"" + std::string(word) +
                        "\": use 1 to 16 GPUs, and loads, nopeer, memory=BYTES (as 512M, 8G), "
                        "with commas between them");
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return options;
}

}  // namespace hostnic
