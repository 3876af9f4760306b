// SPDX-License-Identifier: BSD-3-Clause
// hostnic-allreduce: ring all-reduce, broadcast and barrier between several ranks in the way of
// gloo's ibverbs transport, with every result compared. An unmodified verbs program: it knows
// nothing of hostnic. Memory is registered for a collective, or a step of it, and given back at
// once.
#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "tests/apps/collectives/mesh.h"
#include "tests/apps/verify/rng.h"

namespace hostnic::collectives {
namespace {

constexpr char kProgram[] = "hostnic-allreduce";
constexpr int kUsageError = 2;
constexpr uint64_t kPoison = 0xdeadbeefdeadbeefULL;

// Registered as long as it is there.
class Region {
 public:
  Region(Mesh& mesh, uint64_t* data, size_t elements)
      // Regions have at least a byte, and a part of a short vector may have none.
      : region_(mesh.add(data, std::max<size_t>(elements, 1) * sizeof *data)) {}
  ~Region() { must(ibv_dereg_mr(region_), "ibv_dereg_mr"); }
  Region(const Region&) = delete;
  Region& operator=(const Region&) = delete;
  ibv_mr* operator->() const { return region_; }
  const ibv_mr* get() const { return region_; }

 private:
  ibv_mr* region_;
};

// With a guard on both sides, which no write may change, and room for one element more.
class Vector {
 public:
  explicit Vector(size_t elements)
      : elements_(elements), memory_(elements + 2 * kGuard + 1, kPoison) {}
  uint64_t* data() { return memory_.data() + kGuard; }
  size_t size() const { return elements_; }
  bool guards_are_whole() const {
    const auto whole = [](uint64_t word) { return word == kPoison; };
    return std::all_of(memory_.begin(), memory_.begin() + kGuard, whole) &&
           std::all_of(memory_.begin() + static_cast<long>(kGuard + elements_), memory_.end(),
                       whole);
  }

 private:
  static constexpr size_t kGuard = 16;
  const size_t elements_;
  std::vector<uint64_t> memory_;
};

class Collectives {
 public:
  Collectives(Place& place, uint64_t seed)
      : place_(place),
        rank_(place.rank),
        ranks_(place.options.ranks),
        choose_(seed),
        seed_(seed),
        mesh_(place) {}

  void run();

 private:
  void all_reduce(size_t elements, bool register_each_step);
  void broadcast(size_t elements, unsigned root);
  void barrier();
  void reduce_scatter(Vector& vector, bool register_each_step);
  void all_gather(Vector& vector, const Region& region);
  void start(Doing what);
  void compare(Vector& vector, const char* what, bool summed, unsigned root);
  uint64_t content(unsigned rank, size_t i) const {
    return verify::mix64(seed_ + (uint64_t{rank} << 40) + i);
  }
  void fill(Vector& vector) const {
    for (size_t i = 0; i < vector.size(); ++i) vector.data()[i] = content(rank_, i);
  }
  // Part `part` of a vector begins here. Parts differ by one element where ranks don't divide it.
  size_t begin(const Vector& vector, unsigned part) const { return vector.size() * part / ranks_; }
  size_t size(const Vector& vector, unsigned part) const {
    return begin(vector, part + 1) - begin(vector, part);
  }
  Peer& left() { return mesh_.peer((rank_ + ranks_ - 1) % ranks_); }
  Peer& right() { return mesh_.peer((rank_ + 1) % ranks_); }

  Place& place_;
  const unsigned rank_, ranks_;
  verify::Rng choose_;  // the same in all ranks
  uint64_t seed_;
  std::vector<uint64_t> notices_ = std::vector<uint64_t>(kMaxRanks);
  Mesh mesh_;
};

void Collectives::start(Doing what) {
  ++seed_;
  place_.progress().step.fetch_add(1, std::memory_order_relaxed);
  place_.doing(what);
}

void Collectives::compare(Vector& vector, const char* what, bool summed, unsigned root) {
  for (size_t i = 0; i < vector.size(); ++i) {
    uint64_t expected = summed ? 0 : content(root, i);
    for (unsigned r = 0; summed && r < ranks_; ++r) expected += content(r, i);
    if (vector.data()[i] != expected)
      die(fmt::format("rank {}: wrong result of {}: element {} of {} is {:#x}, not {:#x}", rank_,
                      what, i, vector.size(), vector.data()[i], expected));
  }
  if (!vector.guards_are_whole()) die(fmt::format("rank {}: {} wrote beside", rank_, what));
  place_.shared.checked.fetch_add(1, std::memory_order_relaxed);
}

// In step s each rank sends what it has summed of part rank - s to the right, and adds what comes
// from the left to part rank - s - 1. The buffer of the next step is announced before the data of
// this one is added, and each region goes as soon as its write is there.
void Collectives::reduce_scatter(Vector& vector, bool register_each_step) {
  const size_t largest = vector.size() / ranks_ + 1;
  Vector inboxes[2] = {Vector(largest), Vector(largest)};
  std::unique_ptr<Region> regions[2];
  uint64_t numbers[2] = {};
  const auto receives = [&](unsigned step) { return (rank_ + 2 * ranks_ - step - 1) % ranks_; };
  const auto announce = [&](unsigned step) {
    Vector& inbox = inboxes[step % 2];
    const size_t elements = size(vector, receives(step));
    auto& region = regions[step % 2];
    if (register_each_step || !region)
      region =
          std::make_unique<Region>(mesh_, inbox.data(), register_each_step ? elements : largest);
    numbers[step % 2] = left().announce(region->get(), inbox.data(), elements * sizeof(uint64_t));
  };
  announce(0);
  for (unsigned step = 0; step + 1 < ranks_; ++step) {
    if (step + 2 < ranks_) announce(step + 1);
    const unsigned part = (rank_ + ranks_ - step) % ranks_;
    uint64_t* from = vector.data() + begin(vector, part);
    {
      const Region region(mesh_, from, size(vector, part));
      right().write(region.get(), from, size(vector, part) * sizeof(uint64_t));
      left().wait_data(numbers[step % 2]);
      if (register_each_step) regions[step % 2].reset();
      right().wait_sent();
    }
    Vector& inbox = inboxes[step % 2];
    if (!inbox.guards_are_whole()) die(fmt::format("rank {}: a write went beside", rank_));
    const unsigned mine = receives(step);
    for (size_t i = 0; i < size(vector, mine); ++i) {
      vector.data()[begin(vector, mine) + i] += inbox.data()[i];
      inbox.data()[i] = kPoison;
    }
  }
}

// Each rank has the sum of part rank + 1, and passes on what it has got, straight into the result.
void Collectives::all_gather(Vector& vector, const Region& region) {
  for (unsigned step = 0; step + 1 < ranks_; ++step) {
    const unsigned get = (rank_ + ranks_ - step) % ranks_;
    const unsigned give = (rank_ + ranks_ - step + 1) % ranks_;
    uint64_t* to = vector.data() + begin(vector, get);
    uint64_t* from = vector.data() + begin(vector, give);
    const uint64_t number = left().announce(region.get(), to, size(vector, get) * sizeof(uint64_t));
    right().write(region.get(), from, size(vector, give) * sizeof(uint64_t));
    left().wait_data(number);
  }
  right().wait_sent();
}

void Collectives::all_reduce(size_t elements, bool register_each_step) {
  start(Doing::kRing);
  Vector vector(elements);
  fill(vector);
  reduce_scatter(vector, register_each_step);
  {
    const Region region(mesh_, vector.data(), vector.size());
    all_gather(vector, region);
  }
  compare(vector, "all-reduce", true, 0);
}

void Collectives::broadcast(size_t elements, unsigned root) {
  start(Doing::kBroadcast);
  Vector vector(elements);
  fill(vector);
  {
    const Region region(mesh_, vector.data(), vector.size());
    const uint64_t bytes = elements * sizeof(uint64_t);
    if (rank_ == root) {
      for (unsigned r = 0; r < ranks_; ++r)
        if (r != root) mesh_.peer(r).write(region.get(), vector.data(), bytes);
      mesh_.wait_sent();
    } else {
      Peer& peer = mesh_.peer(root);
      peer.wait_data(peer.announce(region.get(), vector.data(), bytes));
    }
  }
  compare(vector, "broadcast", false, root);
}

// To and from ranks at a distance of 1, 2, 4, ... No rank may leave before all have come.
void Collectives::barrier() {
  start(Doing::kBarrier);
  const uint64_t count = place_.progress().step.load();
  for (unsigned distance = 1; distance < ranks_; distance *= 2) {
    mesh_.peer((rank_ + distance) % ranks_).notify();
    const unsigned from = (rank_ + ranks_ - distance) % ranks_;
    mesh_.peer(from).wait_notice(++notices_[from]);
  }
  for (unsigned r = 0; r < ranks_; ++r)
    if (place_.shared.progress[r].step.load() < count)
      die(fmt::format("rank {} left a barrier before rank {} came", rank_, r));
  place_.shared.checked.fetch_add(1, std::memory_order_relaxed);
}

void Collectives::run() {
  constexpr unsigned kShort = 3;  // in one of so many steps, vectors of a few elements
  const size_t most = place_.options.max_bytes / sizeof(uint64_t);
  for (unsigned step = 0; step < place_.options.steps; ++step) {
    const size_t bound = choose_.below(kShort) == 0 ? std::min<size_t>(most, 2 * ranks_) : most;
    const size_t elements = 1 + choose_.below(bound);
    all_reduce(elements, choose_.percent(50));
    barrier();
    broadcast(elements, static_cast<unsigned>(choose_.below(ranks_)));
    if (choose_.percent(50)) all_reduce(1, true);
    barrier();
  }
}

void run_rank(Place& place) {
  for (unsigned round = 0; round < place.options.rounds; ++round)
    Collectives(place, verify::mix64(place.options.seed + round)).run();
}

}  // namespace
}  // namespace hostnic::collectives

int main(int argc, char** argv) {
  using namespace hostnic::collectives;
  const auto options = parse(kProgram, argc, argv);
  if (!options) return kUsageError;
  run_ranks(kProgram, *options, run_rank);
  return 0;
}
