// SPDX-License-Identifier: BSD-3-Clause
// What a lab says at its end: what its NICs carried, what was done to packets on purpose, what was
// repaired, and which queue pairs ended badly. Pure: made of what hostnicd's commands show.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "dataplane/cli/rdma_use.h"

namespace hostnic::cli {

// The answers of one hostnicd, or of a host's view of it.
struct LabAnswers {
  std::string host;      // "host1"; empty in a lab without hosts
  std::string counters;  // what `show counters` shows
  std::string dead;      // what `show dead` does
};

struct LabSummary {
  struct Nic {
    std::string host, name;
    std::map<std::string, uint64_t> counters;  // that are not 0
  };
  std::vector<Nic> nics;
  bool impaired = false;     // packets were to be impaired
  bool all_answered = true;  // otherwise a hostnicd had ended before, and its numbers are missing
  // Lines about queue pairs that had refused a request of their peer.
  std::vector<std::string> bad_queue_pairs;
  RdmaUse use;  // of the programs
  std::string command;
  int exit_code = 0;
  uint64_t duration_ns = 0;  // of the command

  uint64_t sum(std::string_view counter) const;
  // Packets that impairments did something to.
  uint64_t impaired_packets() const;
};

// The part that hostnicd's answers say.
LabSummary summarize(const std::vector<LabAnswers>& answers, bool impaired);

// Lines for people, each with its newline; nothing where nothing was sent.
std::string text_of(const LabSummary& summary);
std::string json_of(const LabSummary& summary);
// As CI systems read it: test cases `command`, `requests`, `hostnicd`, and, where packets were to
// be impaired, `impairments`.
std::string junit_of(const LabSummary& summary);

// Whether a summary can be written to a file of this name: as JUnit (.xml) or JSON (.json).
bool is_summary_file(std::string_view file);
// The content for such a file.
std::string content_for(std::string_view file, const LabSummary& summary);

}  // namespace hostnic::cli
