// SPDX-License-Identifier: BSD-3-Clause
// What hostnicd is asked to be, after all options and files are read and checked. Everything that
// can be refused without starting DPDK has been.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "config/config.h"
#include "dataplane/daemon/lcore/lcore_loop.h"
#include "dataplane/daemon/observe/view.h"
#include "dataplane/nic/nic.h"
#include "protocol/impair/spec.h"
#include "protocol/impair/switch_spec.h"

namespace hostnic {

struct NicPlan {
  NicSettings settings;  // mtu_bytes 0: the largest that the port carries. ip: the daemon's
  Gid address{};
  std::string zone;  // interface of a link-local address; may be empty
  config::Gids gids = config::Gids::kAuto;
  bool gid_moves = false;  // its own GID has another index whenever the port has come back
  DeviceOffer offer;       // what programs see of the device
  std::string shown_name = "hnic0";  // in a view
  std::string port;                  // "udp" or devargs; empty: the virtual wire
  bool prefix_given = true;          // else the prefix is the interface's
  bool mac_given = false;            // else an Ethernet port keeps its own
  bool has_lid = false;              // made of the address
  impair::Spec rx, tx;
};

struct DaemonPlan {
  std::vector<NicPlan> nics;
  uint32_t lcores = 1;  // lcores that serve NICs: NIC k on lcore k mod lcores
  LcoreIdle idle;
  impair::SwitchSpec network_switch;  // that all NICs hang on
  uint64_t seed = 1;
  uint32_t timescale = 1;  // timeouts pass so many times as fast, up to kMostTimescale
  std::string socket_path;
  uint32_t socket_mode = 0600;
  std::string socket_group;   // empty: our own
  uint32_t max_mrs = 65536;   // of one client
  uint32_t all_mrs = 131072;  // of all clients together
  // These are limits of all clients of a user who is neither the one that runs hostnicd nor root.
  uint32_t user_clients = 512, user_qps = 16384, user_mrs = 65536;
  uint64_t user_registered_bytes = UINT64_MAX;
  uint64_t user_page_tables = 24'576;  // of 4 KiB each
  uint32_t max_clients = 1024;         // open devices
  bool lend_userfaultfd = false;
  config::HugePages huge = config::HugePages::kAuto;
  uint16_t metrics_port = 0;     // of 127.0.0.1, for HTTP; 0: none
  std::string errors_directory;  // where the book of errors is kept; empty: nowhere
  std::string sysfs_directory;   // where files of the NICs are kept; empty: nowhere
  std::vector<View> views;
  bool prompt = true;                 // when stdin is a terminal
  std::string commands_file;          // run at start; empty: none
  int ready_fd = -1;                  // one byte is written here when the socket listens
  std::vector<std::string> eal;       // the user's EAL arguments; none: made to fit
  std::vector<uint32_t> pinned_cpus;  // one per lcore; empty: they float
};

// The page tables of 4 KiB that a user's programs may take where nobody says how many: what all of
// the machine's memory would take twice, 96 MiB at least.
inline uint64_t usual_page_tables(uint64_t memory_bytes) {
  constexpr uint64_t kLeast = 24'576, kSpanBytes = uint64_t{2} << 20;
  const uint64_t once = memory_bytes / kSpanBytes;
  return 2 * once < kLeast ? kLeast : 2 * once;
}

// The number of packet buffers that an lcore wants which serves so many NICs, as create_mbuf_pools
// counts.
inline double mbuf_scale(uint32_t nics) { return nics <= 2 ? 1 : 0.5 + 0.25 * nics; }

}  // namespace hostnic
