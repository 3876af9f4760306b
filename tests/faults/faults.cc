// SPDX-License-Identifier: BSD-3-Clause
#include "tests/faults/faults.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace hostnic {
namespace {

struct NamedFault {
  const char* name;
  const char* what;
};
constexpr NamedFault kFaults[] = {{"none", "nothing is wrong"},
#define HOSTNIC_FAULT_NAME(name, what) {#name, what},
                                  HOSTNIC_FAULTS(HOSTNIC_FAULT_NAME)
#undef HOSTNIC_FAULT_NAME
};

// Chooses the fault before main(), so that every test program has it. A misspelt name must not look
// like a fault that nobody notices.
Fault choose() {
  const char* wanted = std::getenv("HOSTNIC_TEST_FAULT");
  if (wanted == nullptr) return Fault::none;
  const bool list = std::strcmp(wanted, "list") == 0;
  uint8_t index = 0;
  for (const NamedFault& fault : kFaults) {
    if (list && index != 0) std::printf("%s\t%s\n", fault.name, fault.what);
    if (std::strcmp(wanted, fault.name) == 0) return Fault{index};
    ++index;
  }
  if (!list) std::fprintf(stderr, "HOSTNIC_TEST_FAULT=%s: no such fault\n", wanted);
  std::exit(list ? 0 : 2);
}

}  // namespace

const Fault chosen_fault = choose();

}  // namespace hostnic
