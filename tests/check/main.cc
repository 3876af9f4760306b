// SPDX-License-Identifier: BSD-3-Clause
// hostnic-planted: mistakes in the use of verbs, one a run, for what `hostnic check` says of them.
//   hostnic-planted NAME
//   hostnic-planted --list
#include <cstdio>
#include <string_view>

#include "tests/check/stage.h"

int main(int argc, char** argv) {
  using namespace hostnic::planted;
  Table table;
  add_memory(table);
  add_queues(table);
  add_objects(table);
  add_builder(table);
  const std::string_view name = argc == 2 ? argv[1] : "";
  if (name == "--list") {
    for (const auto& [mistake, plant] : table) puts(mistake.c_str());
    return 0;
  }
  const auto found = table.find(std::string(name));
  if (found == table.end()) {
    fprintf(stderr, "usage: hostnic-planted NAME (--list)\n");
    return 2;
  }
  Stage stage;
  found->second(stage);
  stage.end();
  puts("done");
  return 0;
}
