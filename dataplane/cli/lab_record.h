// SPDX-License-Identifier: BSD-3-Clause
// What a running lab with hosts says of itself in its directory, for `hostnic on`.
#pragma once

#include <sys/types.h>

#include <set>
#include <string>
#include <vector>

#include "protocol/expected.h"
#include "protocol/hostif/unique_fd.h"

namespace hostnic::cli {

struct HostRecord {
  std::string name, address;
  // Descriptors of the guardian, which keep the host's namespaces.
  int network_fd = -1, mounts_fd = -1, names_fd = -1;
  int root_fd = -1;  // its root directory
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

// Opens what the guardian has open as `guardian_fd`; errno says why that is not possible.
UniqueFd open_of_guardian(const LabRecord& record, int guardian_fd);

// Whether that is the host's network. The guardian's process number may be another process's by
// now, which has something else open as that descriptor.
bool is_network_of(const HostRecord& host, const UniqueFd& network);

// The network namespaces of the hosts, kept by descriptors of our own. The kernel gives the number
// of a namespace to the next one as soon as nobody keeps it, and that may be another lab's: only
// while it is kept do processes with that number belong to this lab.
class HeldNetworks {
 public:
  HeldNetworks() = default;
  // Leaves out those that are no longer there.
  explicit HeldNetworks(const LabRecord& record);
  const std::set<ino_t>& ids() const { return ids_; }

 private:
  std::vector<UniqueFd> descriptors_;
  std::set<ino_t> ids_;
};

// The directory of a host's hostnicd within the lab's.
std::string host_directory(const std::string& directory, const std::string& host);

}  // namespace hostnic::cli
