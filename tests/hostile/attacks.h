// SPDX-License-Identifier: BSD-3-Clause
// What a program with the right to open the socket can try.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace hostnic::hostile {

struct Target {
  std::string socket;
  uint32_t device = 0;
  unsigned seconds = 3;            // how long an attack goes on that has no end of its own
  uint64_t megabytes = 256;        // how much registers_for_ever() registers
  bool registers_at_once = false;  // share_with_others() gets the processor when it registers
  std::string directory = "/tmp";  // for files that it makes
  std::function<void()> become;    // becomes the user that attacks; called once
};

// Commands with words that mean nothing.
void impossible_commands(const Target& target);
void impossible_state(const Target& target);
void never_connected(const Target& target);

// Memory that takes the NIC long, or for ever.
void many_pieces(const Target& target);
void memory_that_never_comes(const Target& target);
void files_that_never_close(const Target& target);
void late_memory(const Target& target);

// Pages that are taken away again and again, or never were there.
void punch_registered_memory(const Target& target);
void punch_and_end(const Target& target);
void punch_huge_registered_memory(const Target& target);
void punch_segment(const Target& target);
void punch_arena(const Target& target);
void declare_filled(const Target& target);

// Requests that keep whoever serves them.
void descriptors_that_linger(const Target& target);
void open_with_other_files(const Target& target);
void requests_that_wait(const Target& target);
void connections_that_wait(const Target& target);
void never_read(const Target& target);
void open_for_ever(const Target& target);

// All of something.
void take_all_mappings(const Target& target);
void take_all_queue_pairs(const Target& target);
void take_all_regions(const Target& target);
void take_all_devices(const Target& target);
void scatter_pages(const Target& target);
void scatter_queues(const Target& target);
void connect_for_ever(const Target& target);
void take_few_things(const Target& target);

// What costs hostnicd more than the client.
void die_with_everything(const Target& target);
void change_memory_for_ever(const Target& target);
void sleep_in_crowds(const Target& target);

// More than others have, among many programs; the first is one of those.
void share_with_others(const Target& target);
void flood(const Target& target);
void never_look(const Target& target);
void post_garbage(const Target& target);
void register_for_ever(const Target& target);

// The control socket's commands.
void ask_for_ever(const Target& target);
void commands_of_others(const Target& target);

}  // namespace hostnic::hostile
