// SPDX-License-Identifier: BSD-3-Clause
// What a running lab with hosts says of itself in its directory, for `hostnic on`.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "protocol/expected.h"

namespace hostnic::cli {

struct HostRecord {
  std::string name, address;
  // Descriptors of the guardian, which keep the host's namespaces.
  int network_fd = -1, mounts_fd = -1, names_fd = -1;
  ino_t network_id = 0;
};

struct LabRecord {
  pid_t guardian = 0;
  int user_fd = -1;  // its user namespace; -1: it has none of its own
  std::vector<HostRecord> hosts;
};

bool write_record(const std::string& directory, const LabRecord& record);
// From then on nobody finds the hosts.
void remove_record(const std::string& directory);
// An error is one line.
Expected<LabRecord, std::string> read_record(const std::string& directory);

// The directory of a host's hostnicd within the lab's.
std::string host_directory(const std::string& directory, const std::string& host);

}  // namespace hostnic::cli
