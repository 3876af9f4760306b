#include "tests/sim/resources.h"

#include <fmt/format.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>
#include <sched.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <compare>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <map>
#include <vector>

namespace hostnic::sim {
namespace {

constexpr size_t kPageBytes = 4096;

}  // namespace

// ---- memory

namespace {

constexpr uint8_t kSurroundings = 0xA5;

// Worlds come and go by the thousand, and fresh pages are what costs most about one.
std::multimap<size_t, uint8_t*>& unused_mappings() {
  static std::multimap<size_t, uint8_t*> mappings;
  return mappings;
}

uint8_t* take_mapping(size_t bytes) {
  auto& unused = unused_mappings();
  if (const auto it = unused.find(bytes); it != unused.end()) {
    uint8_t* mapping = it->second;
    unused.erase(it);
    return mapping;
  }
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  require(at != MAP_FAILED, "mmap of test memory");
  return static_cast<uint8_t*>(at);
}

bool all_equal(const uint8_t* bytes, size_t count, uint8_t value) {
  return count == 0 || (bytes[0] == value && std::memcmp(bytes, bytes + 1, count - 1) == 0);
}

}  // namespace

Memory::Memory(size_t bytes, uint8_t fill, size_t misalign)
    : mapping_bytes_((2 * kPageBytes + misalign + bytes + kPageBytes - 1) & ~(kPageBytes - 1)),
      bytes_(bytes) {
  mapping_ = take_mapping(mapping_bytes_);
  data_ = mapping_ + kPageBytes + misalign;
  std::memset(mapping_, kSurroundings, kPageBytes + misalign);
  std::memset(data_, fill, bytes_);
  uint8_t* const end = data_ + bytes_;
  std::memset(end, kSurroundings, static_cast<size_t>(mapping_ + mapping_bytes_ - end));
}
Memory::~Memory() { unused_mappings().emplace(mapping_bytes_, mapping_); }

bool Memory::surroundings_intact() const {
  const uint8_t* const end = data_ + bytes_;
  return all_equal(mapping_, static_cast<size_t>(data_ - mapping_), kSurroundings) &&
         all_equal(end, static_cast<size_t>(mapping_ + mapping_bytes_ - end), kSurroundings);
}

// ---- packet buffers

namespace {

// Creating pools takes longer than most simulations. They are kept by what makes them different;
// pools that did not get all their buffers back are not used again.
struct PoolKind {
  uint32_t mtu_bytes;
  double scale;
  auto operator<=>(const PoolKind&) const = default;
};
std::map<PoolKind, MbufPools>& unused_pools() {
  static std::map<PoolKind, MbufPools> pools;
  return pools;
}

}  // namespace

std::array<rte_mempool*, 5> all_of(const MbufPools& pools) {
  return {pools.header, pools.data, pools.external, pools.control, pools.hold};
}

MbufPools take_pools(uint32_t mtu_bytes, double scale) {
  static uint32_t number = 0;
  auto& unused = unused_pools();
  if (const auto it = unused.find({mtu_bytes, scale}); it != unused.end()) {
    const MbufPools pools = it->second;
    unused.erase(it);
    return pools;
  }
  return create_mbuf_pools(fmt::format("sim{}", number++), mtu_bytes, scale, SOCKET_ID_ANY);
}

void give_pools(uint32_t mtu_bytes, double scale, MbufPools& pools) {
  const auto all = all_of(pools);
  const bool whole = std::all_of(all.begin(), all.end(),
                                 [](const auto* pool) { return rte_mempool_full(pool) == 1; });
  if (!whole || !unused_pools().try_emplace({mtu_bytes, scale}, pools).second)
    free_mbuf_pools(pools);
}

// ---- EAL

namespace {

// EAL pins its lcores; ours floats over all CPUs we may use.
std::string floating_lcore() {
  cpu_set_t set;
  CPU_ZERO(&set);
  sched_getaffinity(0, sizeof(set), &set);
  std::string cpus;
  for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu)
    if (CPU_ISSET(cpu, &set)) cpus += fmt::format("{}{}", cpus.empty() ? "" : ",", cpu);
  return fmt::format("--lcores=0@({})", cpus);
}

}  // namespace

bool start_eal() {
  if (getenv("XDG_RUNTIME_DIR") == nullptr) setenv("XDG_RUNTIME_DIR", "/tmp", 0);
  const std::string prefix = fmt::format("--file-prefix=hostnic-sim-{}", getpid());
  const std::string lcores = floating_lcore();
  const char* arguments[] = {
      "sim", "--no-huge", "--no-shconf",       "--no-pci",     "--no-telemetry",
      "-m",  "512",       "--log-level=error", prefix.c_str(), lcores.c_str()};
  std::vector<char*> argv;
  for (const char* argument : arguments) argv.push_back(const_cast<char*>(argument));
  if (rte_eal_init(static_cast<int>(argv.size()), argv.data()) < 0) {
    fmt::print(stderr, "DPDK doesn't start: {}\n", rte_strerror(rte_errno));
    return false;
  }
  return true;
}

void stop_eal() {
  for (auto& [kind, pools] : unused_pools()) free_mbuf_pools(pools);
  unused_pools().clear();
  for (const auto& [bytes, mapping] : unused_mappings()) munmap(mapping, bytes);
  unused_mappings().clear();
  const std::string directory = rte_eal_get_runtime_dir();
  rte_eal_cleanup();
  std::error_code ignored;
  std::filesystem::remove_all(directory, ignored);
}

}  // namespace hostnic::sim
