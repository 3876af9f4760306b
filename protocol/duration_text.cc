// SPDX-License-Identifier: BSD-3-Clause
#include "protocol/duration_text.h"

#include <cstdio>

namespace hostnic {

std::string duration_text(uint64_t duration_ns, int decimals) {
  struct Unit {
    uint64_t below_ns, ns;
    const char* name;
  };
  constexpr Unit kUnits[] = {
      {1'000'000, 1000, "us"}, {1'000'000'000, 1'000'000, "ms"}, {UINT64_MAX, 1'000'000'000, "s"}};
  if (duration_ns < 1000) return std::to_string(duration_ns) + " ns";
  const Unit* unit = kUnits;
  while (duration_ns >= unit->below_ns && unit->below_ns != UINT64_MAX) ++unit;
  char text[40];
  snprintf(text, sizeof text, "%.*f %s", decimals,
           static_cast<double>(duration_ns) / static_cast<double>(unit->ns), unit->name);
  return text;
}

}  // namespace hostnic
