// SPDX-License-Identifier: BSD-3-Clause
// Programs that attack hostnicd: one attack each, by its name. run_hostile_tests.py runs them
// beside honest ones. Exit status 0: the attack was carried out, whatever hostnicd made of it; a
// line on stdout says what that was.
//
//   hostnic-hostile ATTACK --socket PATH [--device N] [--uid N] [--seconds N] [--megabytes N]
//                   [--directory DIR] [--registers-at-once 1]
#include <fmt/format.h>
#include <grp.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <string>

#include "tests/hostile/attacks.h"
#include "tests/hostile/raw_client.h"

namespace hostnic::hostile {
namespace {

struct Attack {
  const char* name;
  void (*run)(const Target& target);
};

constexpr Attack kAttacks[] = {
    {"impossible-commands", impossible_commands},
    {"impossible-state", impossible_state},
    {"never-connected", never_connected},
    {"many-pieces", many_pieces},
    {"memory-that-never-comes", memory_that_never_comes},
    {"files-that-never-close", files_that_never_close},
    {"late-memory", late_memory},
    {"punches-registered-memory", punch_registered_memory},
    {"punches-and-ends", punch_and_end},
    {"punches-huge-registered-memory", punch_huge_registered_memory},
    {"punches-segment", punch_segment},
    {"punches-arena", punch_arena},
    {"declares-filled", declare_filled},
    {"descriptors-that-linger", descriptors_that_linger},
    {"opens-with-other-files", open_with_other_files},
    {"requests-that-wait", requests_that_wait},
    {"connections-that-wait", connections_that_wait},
    {"dies-with-everything", die_with_everything},
    {"changes-memory-for-ever", change_memory_for_ever},
    {"sleeps-in-crowds", sleep_in_crowds},
    {"takes-all-mappings", take_all_mappings},
    {"takes-all-queue-pairs", take_all_queue_pairs},
    {"takes-all-regions", take_all_regions},
    {"takes-all-devices", take_all_devices},
    {"takes-few-things", take_few_things},
    {"never-reads", never_read},
    {"opens-for-ever", open_for_ever},
    {"scatters-pages", scatter_pages},
    {"scatters-queues", scatter_queues},
    {"asks-for-ever", ask_for_ever},
    {"commands-of-others", commands_of_others},
    {"connects-for-ever", connect_for_ever},
    {"shares-with-others", share_with_others},
    {"floods", flood},
    {"never-looks", never_look},
    {"posts-garbage", post_garbage},
    {"registers-for-ever", register_for_ever},
};

// Another user's programs may attack as well; /proc/self/mem stays ours.
void become(uid_t uid) {
  need(setgroups(0, nullptr) == 0 && setgid(uid) == 0 && setuid(uid) == 0, "setuid");
  prctl(PR_SET_DUMPABLE, 1);
}

int run(int argc, char** argv) {
  Target target;
  const Attack* chosen = nullptr;
  for (const Attack& attack : kAttacks)
    if (argc > 1 && std::strcmp(argv[1], attack.name) == 0) chosen = &attack;
  uid_t uid = 0;
  for (int i = 2; i + 1 < argc; i += 2) {
    const std::string option = argv[i], value = argv[i + 1];
    if (option == "--socket")
      target.socket = value;
    else if (option == "--device")
      target.device = static_cast<uint32_t>(std::stoul(value));
    else if (option == "--seconds")
      target.seconds = static_cast<unsigned>(std::stoul(value));
    else if (option == "--megabytes")
      target.megabytes = std::stoul(value);
    else if (option == "--registers-at-once")
      target.registers_at_once = value == "1";
    else if (option == "--directory")
      target.directory = value;
    else if (option == "--uid")
      uid = static_cast<uid_t>(std::stoul(value));
    else
      give_up("unknown option " + option);
  }
  if (chosen == nullptr || target.socket.empty()) {
    fmt::print(stderr,
               "usage: hostnic-hostile ATTACK --socket PATH [--device N] [--seconds N] "
               "[--directory DIR] [--uid N] [--megabytes N] [--registers-at-once 1]\nattacks:");
    for (const Attack& attack : kAttacks) fmt::print(stderr, " {}", attack.name);
    fmt::print(stderr, "\n");
    return 2;
  }
  target.become = [uid] {
    if (uid != 0) become(uid);
  };
  chosen->run(target);
  std::fflush(stdout);
  _exit(0);  // destructors would wait for what this program itself withholds
}

}  // namespace
}  // namespace hostnic::hostile

int main(int argc, char** argv) { return hostnic::hostile::run(argc, argv); }
