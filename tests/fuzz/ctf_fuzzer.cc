// SPDX-License-Identifier: BSD-3-Clause
// A directory that `hostnic report` is given may hold anything: the input is its metadata, a zero
// byte, and a stream. What is read of it lies inside of the stream, and becomes a table, or an
// error of one line.
#include <algorithm>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "dataplane/cli/message_report.h"
#include "tests/fuzz/input.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hostnic::cli;
  using hostnic::fuzz::require;
  const uint8_t* const zero = std::find(data, data + size, uint8_t{0});
  const std::string_view text(reinterpret_cast<const char*>(data),
                              static_cast<size_t>(zero - data));
  const size_t begin = std::min(size, text.size() + 1);
  const std::span stream(reinterpret_cast<const std::byte*>(data) + begin, size - begin);
  const auto metadata = CtfMetadata::parse(text);
  if (!metadata) {
    require(!metadata.error().empty() && metadata.error().find('\n') == std::string::npos);
    return 0;
  }
  CtfStream events(*metadata, stream);
  for (size_t count = 0;; ++count) {
    const auto event = events.next();
    if (!event || !*event) break;
    require(count <= stream.size() / 8);  // no event is shorter
    const std::span<const std::byte> payload = (*event)->payload;
    require(payload.empty() || (payload.data() >= stream.data() &&
                                payload.data() + payload.size() <= stream.data() + stream.size()));
  }
  MessageTimes times(metadata->frequency_hz);
  if (auto added = add_stream(*metadata, 0, stream, times); !added) {
    require(!added.error().empty() && added.error().find('\n') == std::string::npos);
    return 0;
  }
  times.finish(metadata->missed);
  const MessageTimes::Counts& counts = times.counts();
  require(counts.complete <= counts.messages && counts.in_order <= counts.complete);
  require(!times.to_text().empty() && !times.to_json().empty());
  return 0;
}
