// SPDX-License-Identifier: BSD-3-Clause
// hostnic-races: mistakes with the order of things that go well nearly always, for `--seeds` and
// `hostnic check` (docs/faults.md, docs/check.md). Plain verbs, for any devices.
//   hostnic lab -- hostnic-races rails|drain|flag [--fixed] [--devices NAME,NAME] [--gid-index N]
// Exit status: 0 all bytes are right, 1 they are not, 2 usage, 3 verbs that fail.
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <string_view>

#include "tests/apps/races/lane.h"

namespace {

int usage() {
  fprintf(
      stderr,
      "usage: hostnic-races rails|drain|flag [--fixed] [--devices NAME,NAME] [--gid-index N]\n");
  return 2;
}

}  // namespace

int main(int argc, char** argv) {
  using hostnic::races::Options;
  Options options;
  for (int i = 2; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word == "--fixed") {
      options.fixed = true;
    } else if (word == "--devices" && i + 1 < argc) {
      const std::string_view names = argv[++i];
      const size_t comma = names.find(',');
      options.devices[0] = names.substr(0, comma);
      if (comma != std::string_view::npos) options.devices[1] = names.substr(comma + 1);
    } else if (word == "--gid-index" && i + 1 < argc) {
      options.gid_index = static_cast<uint8_t>(atoi(argv[++i]));
    } else {
      return usage();
    }
  }
  constexpr unsigned kPatienceS = 60;
  alarm(kPatienceS);
  const std::string_view race = argc > 1 ? argv[1] : "";
  if (race == "rails") return hostnic::races::run_rails(options);
  if (race == "drain") return hostnic::races::run_drain(options);
  if (race == "flag") return hostnic::races::run_flag(options);
  return usage();
}
