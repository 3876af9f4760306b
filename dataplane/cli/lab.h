// SPDX-License-Identifier: BSD-3-Clause
// `hostnic lab`: a private hostnicd for the time of one command.
#pragma once

#include <string>
#include <vector>

namespace hostnic::cli {

struct LabOptions {
  std::string hosts;                          // how many; empty: a plain lab
  std::string port;                           // of the hosts' NICs
  std::vector<std::string> daemon_arguments;  // passed to hostnicd as they are: it checks them
  std::string capture;                        // pcapng of all NICs; empty: none
  std::string report;                         // page about these packets; empty: none
  std::string trace_points;                   // directory for traced messages; empty: none are
  std::string summary;                        // JUnit (.xml) or JSON of its end; empty: none
  std::string required_bytes;                 // that have to be moved by RDMA; empty: none
  bool keep_log = false;
  bool verbose = false;  // hostnicd's log goes to our stderr
  bool quiet = false;    // no summary at the end
};

// Whether other users may open the sockets; they must then reach them.
bool opened_to_others(const LabOptions& options);

// The file that packets are captured into; empty: none. Where they are wanted for the report alone
// it lies in the lab's directory.
std::string capture_file(const LabOptions& options, const std::string& directory);
// Writes the report of a lab whose capture is complete; the sockets are those of the hostnicds that
// are asked for what they know. Says on stderr what goes wrong.
void write_lab_report(const LabOptions& options, const std::string& directory,
                      const std::vector<std::string>& sockets,
                      const std::vector<std::string>& command);

// Returns the exit code: the command's, or 128 + signal, or hostnicd's when that doesn't start.
int run_lab(const LabOptions& options, const std::vector<std::string>& command);

}  // namespace hostnic::cli
