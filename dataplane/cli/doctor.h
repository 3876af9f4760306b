// SPDX-License-Identifier: BSD-3-Clause
// `hostnic doctor`: whether this machine, this user and a program can use hostnic well; one line
// for each thing: fine, or what to do.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace hostnic::cli {

// What is looked at. Empty texts and nothing where it can't be found out.
struct DoctorFacts {
  std::string parts_missing;               // hostnicd or the library: why they are not found
  std::string socket_path;                 // hostnicd's
  std::string socket_error;                // why nobody answers there
  bool socket_named = false;               // somebody has asked for that socket
  std::string socket_owner;                // whose it is, where this user may not open it
  std::vector<std::string> other_sockets;  // of hostnicds that listen elsewhere
  std::string full_sockets;                // NICs whose UDP socket has been full, and how often
  uint64_t descriptors = 0;                // RLIMIT_NOFILE, soft
  uint64_t file_bytes = UINT64_MAX;        // RLIMIT_FSIZE
  uint32_t kernel_major = 0, kernel_minor = 0;
  bool userfaultfd = false;          // may be had, for kernel faults too
  std::string namespaces_forbidden;  // why a lab can have no hosts
  uint32_t processors = 0;           // that this process may use
  bool autogroup = false;            // the kernel shares processors between sessions
  std::optional<uint64_t> huge_pages_free;
  std::string huge_page_size = "2 MB";
  bool raw_sockets = false;      // CAP_NET_RAW here and now
  uint64_t memory_bytes = 0;     // MemAvailable
  std::string preload_obstacle;  // of the program
  std::string program;           // empty: none was given
};

struct DoctorLine {
  enum class Verdict : uint8_t { kFine, kNote, kToDo };
  Verdict verdict;
  std::string subject, text;
};

// What follows from the facts. Pure.
std::vector<DoctorLine> judge(const DoctorFacts& facts);

// Looks, prints, and returns the exit status: 0 if there is nothing to do, else 1. `command` is the
// program that is to use hostnic; it is not started. `to`, unless empty, is the address of a host
// that hostnicd's NICs are to reach: the way there is tried.
int run_doctor(const std::string& socket_path, bool socket_named,
               const std::vector<std::string>& command, const std::string& to);

}  // namespace hostnic::cli
