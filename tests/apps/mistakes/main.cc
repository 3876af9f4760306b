// SPDX-License-Identifier: BSD-3-Clause
// hostnic-mistakes NAME: makes one mistake that developers make, in a lab of two NICs, and goes on
// as a program does that has no idea. What says why is the library, on stderr; tests/lab looks for
// it. Facts of the run (keys, addresses, QPNs) are on stdout.
#include <chrono>
#include <cstdio>
#include <string_view>
#include <thread>

#include "tests/apps/mistakes/stage.h"

int main(int argc, char** argv) {
  using namespace hostnic::mistakes;
  Table table;
  add_calls(table);
  add_accesses(table);
  add_waits(table);
  add_objects(table);
  add_silent(table);
  if (argc == 2 && std::string_view(argv[1]) != "--list") {
    const auto found = table.find(argv[1]);
    if (found != table.end()) {
      found->second();
      // Each end says what it has seen when it hears of it, which may be after the other one has.
      std::this_thread::sleep_for(std::chrono::milliseconds(300));
      return 0;
    }
  }
  FILE* const out = argc == 2 && std::string_view(argv[1]) == "--list" ? stdout : stderr;
  if (out == stderr) fprintf(out, "usage: hostnic-mistakes NAME | --list\n");
  for (const auto& [name, mistake] : table) fprintf(out, "%s\n", name.c_str());
  return out == stdout ? 0 : 2;
}
