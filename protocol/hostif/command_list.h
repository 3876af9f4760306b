// SPDX-License-Identifier: BSD-3-Clause
// The commands of hostnicd as people have to know them: their words, what follows, what they do.
// For hostnicd, which runs them, and for `hostnic ctl`, which completes them and has their help
// without a hostnicd.
#pragma once

#include <span>
#include <string>
#include <string_view>

namespace hostnic {

struct CommandInfo {
  const char* words;       // the words that name it: "show nic"
  const char* usage;       // what may follow: "[hnicK]"
  const char* help;        // one line
  bool is_owners = false;  // it changes something: nobody but the owner gives it
};

// In the order in which `help` lists them.
inline constexpr CommandInfo kCommandInfos[] = {
    {"show nic", "[hnicK]", "address, MTU, port, GIDs, lcore and its longest turn"},
    {"show qp", "[hnicK]", "queue pairs, one a line: state, peer, what is outstanding, sent, lost"},
    {"show peers", "[hnicK]", "what is known of what hosts speak", true},
    {"show client", "", "programs that have a device open"},
    {"show cm", "", "rdma_cm ids of programs: addresses, ports, state"},
    {"show counters", "[hnicK] [all|help]",
     "counters that are not 0 (all: every one; help: and what it counts)"},
    {"show impair", "[hnicK]",
     "what is done to packets on purpose, and was, since the last change"},
    {"show switch", "[hnicK]",
     "the switch that NICs hang on: what its ports and paths have passed on, dropped, marked"},
    {"show mrc", "[hnicK]",
     "NICs that speak MRC: ports, and which entropy values of queue pairs are good"},
    {"show dead", "", "the last 64 queue pairs that went, of each NIC"},
    {"show errors", "", "each kind of error once: how often, when, the newest line", true},
    {"show metrics", "[prometheus]",
     "all that is measured, as OpenMetrics or in Prometheus' older format"},
    {"explain", "QPN|last|PID", "a queue pair in sentences, or those of a program"},
    {"probe", "ADDRESS [hnicK]", "what a host is, and whether large packets pass on the way to it"},
    {"mrc probe", "hnicK ADDRESS [VALUE]",
     "how long a host takes to answer by each plane, or by one entropy value of MRC", true},
    {"set impair", "hnicK|all rx|tx SPEC",
     "drop, duplicate, reorder, delay, corrupt, mark or limit packets; none ends it", true},
    {"set mrc", "hnicK port N up|down | hnicK value N good|denied",
     "take a port of MRC up or down, which peers are told; allow or deny an entropy value", true},
    {"trace points", "[on|off|save DIRECTORY]",
     "record when messages are posted, sent, placed, polled; write that for `hostnic report`",
     true},
    {"clear counters", "[hnicK]", "set counters and the longest turn to 0", true},
    {"start", "", "let the NICs handle packets again", true},
    {"stop", "", "stop the NICs: packets and work wait until `start`", true},
    {"help", "", "this list"},
    {"quit", "", "end hostnicd; open devices become fatal", true},
};

// That of these words, which is in the list; otherwise this does not compile.
consteval const CommandInfo& command_info(std::string_view words) {
  for (const CommandInfo& info : kCommandInfos)
    if (words == info.words) return info;
  throw "no such command";
}

// Lines for commands, as `help` shows them.
std::string commands_help(std::span<const CommandInfo> commands);
// All commands, and the grammar of impairments.
std::string commands_help();

}  // namespace hostnic
