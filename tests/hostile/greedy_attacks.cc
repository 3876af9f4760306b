// SPDX-License-Identifier: BSD-3-Clause
// Attacks by taking all there is.
#include <fmt/format.h>
#include <sys/mman.h>

#include <chrono>
#include <cstring>
#include <list>
#include <memory>
#include <thread>
#include <vector>

#include "tests/hostile/attacks.h"
#include "tests/hostile/raw_client.h"

namespace hostnic::hostile {
namespace {

void wait(const Target& target) {
  std::fflush(stdout);
  std::this_thread::sleep_for(std::chrono::seconds(target.seconds));
}

}  // namespace

void take_all_queue_pairs(const Target& target) {
  target.become();
  RawClient client(target.socket, target.device);
  need(client.error() == 0, client.message());
  uint32_t count = 0;
  while (count < client.map().max_qps() && client.create_qp(count, QpType::kRc, 0) != 0) ++count;
  fmt::print("took {} of {} queue pairs: {}\n", count, client.map().max_qps(),
             std::strerror(client.error()));
  wait(target);
}

void take_all_regions(const Target& target) {
  target.become();
  RawClient client(target.socket, target.device);
  need(client.error() == 0, client.message());
  void* memory = mmap(nullptr, 4096, PROT_READ | PROT_WRITE,
                      MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  uint32_t count = 0;
  while (count < client.device().max_mrs && client.register_memory(memory, 4096).lkey != 0) ++count;
  fmt::print("took {} of {} memory regions: {} ({})\n", count, client.device().max_mrs,
             client.message(), std::strerror(client.error()));
  wait(target);
}

void take_all_devices(const Target& target) {
  target.become();
  std::list<RawClient> clients;
  for (;;) {
    RawClient& client = clients.emplace_back(target.socket, target.device);
    if (client.error() == 0 && clients.size() < 4096) continue;
    fmt::print("opened {} devices: {} ({})\n", clients.size() - 1, client.message(),
               std::strerror(client.error()));
    break;
  }
  wait(target);
}

// Connections that ask for nothing: hostnicd keeps a descriptor for each.
void connect_for_ever(const Target& target) {
  target.become();
  std::vector<UniqueFd> connections;
  fmt::print("connects\n");
  std::fflush(stdout);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(target.seconds);
  while (std::chrono::steady_clock::now() < end) {
    if (connections.size() < 512)
      connections.push_back(connect_to(target.socket));
    else
      connections.erase(connections.begin(), connections.begin() + 256);
  }
}

}  // namespace hostnic::hostile
