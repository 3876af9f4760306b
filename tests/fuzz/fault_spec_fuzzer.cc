// SPDX-License-Identifier: BSD-3-Clause
// Any text is either a list of fault rules that print and parse again to themselves, or an error
// that points into the text.
#include <cstdint>
#include <cstdlib>
#include <string_view>

#include "protocol/faults/fault_spec.h"

namespace {

void require(bool condition) {
  if (!condition) std::abort();
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace hostnic::faults;
  const std::string_view text(reinterpret_cast<const char*>(data), size);
  const auto faults = parse_faults(text);
  if (!faults) {
    require(faults.error().column >= 1 && faults.error().column <= size + 1);
    require(!faults.error().found.empty() && !faults.error().expected.empty());
    return 0;
  }
  for (const FaultRule& fault : *faults) {
    const std::string printed = to_string(fault);
    require(printed.size() <= kMaxFaultBytes);
    const auto again = parse_faults(printed);
    require(again.has_value() && again->size() == 1 && again->front() == fault);
  }
  return 0;
}
