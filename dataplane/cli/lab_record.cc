// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/lab_record.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <utility>

namespace hostnic::cli {
namespace {

std::string record_path(const std::string& directory) { return directory + "/lab"; }

}  // namespace

bool write_record(const std::string& directory, const LabRecord& record) {
  std::ofstream file(record_path(directory));
  file << record.guardian << ' ' << record.user_fd << '\n';
  for (const HostRecord& host : record.hosts)
    file << host.name << ' ' << host.address << ' ' << host.network_fd << ' ' << host.mounts_fd
         << ' ' << host.names_fd << ' ' << host.root_fd << ' ' << host.network_id << '\n';
  return static_cast<bool>(file.flush());
}

Expected<LabRecord, std::string> read_record(const std::string& directory) {
  std::ifstream file(record_path(directory));
  LabRecord record;
  if (!(file >> record.guardian >> record.user_fd))
    return Unexpected(fmt::format("no lab with hosts runs in {}: it has ended", directory));
  for (HostRecord host; file >> host.name >> host.address >> host.network_fd >> host.mounts_fd >>
                        host.names_fd >> host.root_fd >> host.network_id;)
    record.hosts.push_back(host);
  return record;
}

void remove_record(const std::string& directory) { unlink(record_path(directory).c_str()); }

UniqueFd open_of_guardian(const LabRecord& record, int guardian_fd) {
  const std::string path = fmt::format("/proc/{}/fd/{}", record.guardian, guardian_fd);
  return UniqueFd(open(path.c_str(), O_RDONLY | O_CLOEXEC));
}

bool is_network_of(const HostRecord& host, const UniqueFd& network) {
  struct stat status {};
  return network && fstat(network.get(), &status) == 0 && status.st_ino == host.network_id;
}

HeldNetworks::HeldNetworks(const LabRecord& record) {
  for (const HostRecord& host : record.hosts) {
    UniqueFd network = open_of_guardian(record, host.network_fd);
    if (!is_network_of(host, network)) continue;
    ids_.insert(host.network_id);
    descriptors_.push_back(std::move(network));
  }
}

std::string host_directory(const std::string& directory, const std::string& host) {
  return directory + "/" + host;
}

}  // namespace hostnic::cli
