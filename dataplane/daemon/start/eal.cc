// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/daemon/start/eal.h"

#include <fmt/format.h>
#include <fmt/ranges.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <optional>
#include <system_error>

#include "dataplane/daemon/log.h"
#include "dataplane/daemon/ports/pci_adapter.h"
#include "dataplane/daemon/start/eal_needs.h"
#include "dataplane/nic/client/client_channel.h"

namespace hostnic {
namespace {

bool given(const std::vector<std::string>& arguments, std::initializer_list<const char*> names) {
  return std::any_of(arguments.begin(), arguments.end(), [&](const std::string& argument) {
    return std::any_of(names.begin(), names.end(), [&](const char* name) {
      const bool short_name = name[1] != '-';
      return short_name ? argument.starts_with(name)
                        : argument == name || argument.starts_with(std::string(name) + "=");
    });
  });
}

std::vector<uint32_t> allowed_cpus() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::vector<uint32_t> cpus;
  for (uint32_t cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus.push_back(cpu);
  return cpus;
}

// EAL's map of lcores to CPUs; lcore 0 is the control thread. Without pinning all lcores float over
// all CPUs: on a machine with fewer cores than busy threads a pinned one would share its core with
// a client for good.
std::string lcore_map(const DaemonPlan& plan, const std::vector<uint32_t>& cpus) {
  const std::string all = fmt::format("({})", fmt::join(cpus, ","));
  std::string map = "0@" + all;
  for (uint32_t i = 0; i < plan.lcores; ++i)
    map += fmt::format(",{}@{}", i + 1,
                       plan.pinned_cpus.empty() ? all : fmt::format("{}", plan.pinned_cpus[i]));
  return map;
}

// The megabytes of the largest segment that a client can ask for.
uint64_t segment_megabytes(const DaemonPlan& plan) {
  uint64_t bytes = 0;
  for (const NicPlan& nic : plan.nics)
    bytes = std::max(bytes, ClientChannel::huge_bytes_for(nic.settings.max_qps));
  return bytes >> 20;
}

// Only a port such as 0000:01:00.0 needs the PCI bus; scanning it costs start-up time. EAL takes
// hold of all adapters there that it can drive unless it is told which: others may be somebody
// else's.
void add_bus_arguments(const DaemonPlan& plan, std::vector<std::string>& arguments) {
  bool any = false;
  for (const NicPlan& nic : plan.nics)
    if (PciAdapter::named_in(nic.port)) {
      arguments.insert(arguments.end(), {"-a", nic.port});
      any = true;
    }
  if (!any) arguments.emplace_back("--no-pci");
}

// Says which adapter can't do without huge pages, for a line that refuses; empty: none. Of one that
// is not bound as DPDK wants it the port says so.
std::string needing_huge_pages(const DaemonPlan& plan) {
  for (const NicPlan& nic : plan.nics) {
    const auto adapter = PciAdapter::named_in(nic.port);
    if (adapter && adapter->what_is_amiss().empty() && adapter->needs_huge_pages())
      return fmt::format("{}: port {} needs huge pages, as no IOMMU translates addresses for {}",
                         nic.settings.name, adapter->address(), adapter->kernel_driver());
  }
  return {};
}

Expected<void, std::string> add_memory_arguments(const DaemonPlan& plan,
                                                 std::vector<std::string>& arguments) {
  const uint32_t needed = memory_megabytes(plan);
  if (!given(plan.eal, {"-m", "--socket-mem"}))
    arguments.insert(arguments.end(), {"-m", fmt::format("{}", needed)});
  const std::string needing = needing_huge_pages(plan);
  if (!needing.empty() && given(plan.eal, {"--no-huge"}))
    return Unexpected(needing + ": start hostnicd without --no-huge");
  if (given(plan.eal, {"--no-huge", "--in-memory", "--huge-dir", "--huge-unlink"})) return {};
  const uint64_t free_megabytes = free_huge_megabytes();
  const bool enough = free_megabytes >= needed && can_have_huge_megabytes(needed);
  // The requirement includes the first client's rings.
  const uint64_t required = needed + segment_megabytes(plan);
  if (plan.huge == config::HugePages::kRequire && free_megabytes < required)
    return Unexpected(
        fmt::format("huge pages are required: {} MB needed, {} MB free (`sudo sysctl "
                    "vm.nr_hugepages={}` grants them; huge = \"auto\" does without)",
                    required, free_megabytes, (required + 1) / 2));
  if (plan.huge != config::HugePages::kNever && enough) {
    arguments.push_back("--in-memory");
  } else if (!needing.empty()) {
    return Unexpected(fmt::format(
        "{}: {} MB needed, {} MB free (`sudo sysctl vm.nr_hugepages={}` grants them{})", needing,
        required, free_megabytes, (required + 1) / 2,
        plan.huge == config::HugePages::kNever ? "; huge = \"never\" is in the way" : ""));
  } else {
    // The option is not given beside --in-memory, which EAL refuses together with --no-huge.
    arguments.push_back("--no-huge");
    if (!given(plan.eal, {"--no-shconf"})) arguments.push_back("--no-shconf");
  }
  return {};
}

// EAL's threads beside lcores: interrupts, telemetry.
constexpr uint32_t kEalThreads = 2;

// EAL's descriptors, those of each lcore, and of each NIC on the virtual wire and on another port;
// and what the first client costs.
constexpr uint32_t kEalDescriptors = 8, kLcoreDescriptors = 4;
constexpr uint32_t kWireDescriptors = 2, kPortDescriptors = 6;
constexpr uint32_t kClientDescriptors = 12;

uint32_t descriptors_needed(const DaemonPlan& plan) {
  uint32_t count = kEalDescriptors + kLcoreDescriptors * plan.lcores + kClientDescriptors;
  for (const NicPlan& nic : plan.nics)
    count += nic.port.empty() ? kWireDescriptors : kPortDescriptors;
  return count;
}

}  // namespace

uint32_t memory_megabytes(const DaemonPlan& plan) {
  double megabytes = 64;
  for (uint32_t lcore = 0; lcore < plan.lcores; ++lcore) {
    uint32_t served = 0, mtu_bytes = 256;
    for (size_t i = lcore; i < plan.nics.size(); i += plan.lcores) {
      const uint32_t mtu = plan.nics[i].settings.mtu_bytes;
      mtu_bytes = std::max(mtu_bytes, mtu == 0 ? 4096 : mtu);
      ++served;
    }
    megabytes += mbuf_scale(served) * 160 * (mtu_bytes + 1024) / (4096 + 1024);
  }
  for (const NicPlan& nic : plan.nics)
    if (!nic.port.empty()) megabytes += 96;  // an Ethernet port's own receive buffers
  return static_cast<uint32_t>(megabytes);
}

Expected<std::vector<std::string>, std::string> eal_arguments(const DaemonPlan& plan,
                                                              const std::vector<uint32_t>& cpus) {
  for (const uint32_t cpu : plan.pinned_cpus)
    if (std::find(cpus.begin(), cpus.end(), cpu) == cpus.end())
      return Unexpected(fmt::format("--lcores: CPU {} is none of those we may use ({})", cpu,
                                    fmt::join(cpus, ",")));
  std::vector<std::string> arguments = {"hostnicd"};
  if (!given(plan.eal, {"-l", "-c", "--lcores"}))
    arguments.insert(arguments.end(), {"--lcores", lcore_map(plan, cpus)});
  if (!given(plan.eal, {"--file-prefix"}))
    arguments.push_back(fmt::format("--file-prefix=hostnic-{}", getpid()));
  // The ICRC's AVX-512 path (33 GB/s against 3 to 13) is only used if it is asked for.
  if (!given(plan.eal, {"--force-max-simd-bitwidth"}))
    arguments.emplace_back("--force-max-simd-bitwidth=512");
  if (!given(plan.eal, {"--log-level"})) arguments.emplace_back("--log-level=error");
  if (!given(plan.eal, {"--no-pci", "-a", "--allow", "-b", "--block"}))
    add_bus_arguments(plan, arguments);
  if (auto added = add_memory_arguments(plan, arguments); !added) return Unexpected(added.error());
  arguments.insert(arguments.end(), plan.eal.begin(), plan.eal.end());
  return arguments;
}

// RUNTIME_DIRECTORY, which systemd sets for services, goes before all else with EAL.
Expected<void, std::string> Eal::choose_directory() {
  const char* given = getenv("RUNTIME_DIRECTORY");
  const char* users = getenv("XDG_RUNTIME_DIR");
  const char* usual = given != nullptr ? given : geteuid() == 0 ? "/var/run" : users;
  auto chosen = choose_runtime_directory(usual, users);
  if (!chosen) return Unexpected(chosen.error());
  if (chosen->is_ours) private_runtime_dir_ = chosen->path;
  setenv("RUNTIME_DIRECTORY", chosen->path.c_str(), 1);
  return {};
}

Expected<void, std::string> Eal::start(const DaemonPlan& plan) {
  if (auto tried = try_threads(plan.lcores + kEalThreads); !tried) return tried;
  if (auto tried = try_descriptors(descriptors_needed(plan)); !tried) return tried;
  if (auto chosen = choose_directory(); !chosen) return chosen;
  // From counting huge pages until they are taken. Where there are too few there is nothing to
  // take.
  std::optional<HugePageTurn> turn;
  if (plan.huge != config::HugePages::kNever && free_huge_megabytes() >= memory_megabytes(plan))
    turn.emplace();
  auto arguments = eal_arguments(plan, allowed_cpus());
  if (!arguments) return Unexpected(arguments.error());
  std::vector<char*> argv;
  for (std::string& argument : *arguments) argv.push_back(argument.data());
  if (rte_eal_init(static_cast<int>(argv.size()), argv.data()) < 0) {
    lacked_huge_pages_ = plan.huge == config::HugePages::kAuto &&
                         std::ranges::find(*arguments, "--in-memory") != arguments->end() &&
                         !given(plan.eal, {"--in-memory"});
    return Unexpected(fmt::format("DPDK doesn't start ({}){}; its arguments were: {}",
                                  rte_strerror(rte_errno), limit_of_addresses(),
                                  fmt::join(arguments->begin() + 1, arguments->end(), " ")));
  }
  started_ = true;
  return {};
}

Eal::~Eal() {
  std::error_code ignored;
  if (started_) {
    const std::string directory = rte_eal_get_runtime_dir();
    rte_eal_cleanup();
    if (directory.find("/hostnic-") != std::string::npos)
      std::filesystem::remove_all(directory, ignored);
  }
  if (!private_runtime_dir_.empty()) std::filesystem::remove_all(private_runtime_dir_, ignored);
}

}  // namespace hostnic
