// SPDX-License-Identifier: BSD-3-Clause
// hostnic-gloo: gloo's collectives over its ibverbs transport, with every result compared. Built
// where Debian's libgloo is installed; it knows nothing of hostnic.
#include <fmt/format.h>
#include <gloo/allreduce_halving_doubling.h>
#include <gloo/allreduce_ring.h>
#include <gloo/allreduce_ring_chunked.h>
#include <gloo/barrier_all_to_all.h>
#include <gloo/barrier_all_to_one.h>
#include <gloo/broadcast_one_to_all.h>
#include <gloo/rendezvous/context.h>
#include <gloo/rendezvous/file_store.h>
#include <gloo/rendezvous/prefix_store.h>
#include <gloo/transport/ibverbs/buffer.h>
#include <gloo/transport/ibverbs/device.h>

#include <cerrno>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/apps/collectives/ranks.h"
#include "tests/apps/verify/rng.h"

namespace hostnic::collectives {
namespace {

constexpr char kProgram[] = "hostnic-gloo";
constexpr int kUsageError = 2;

// Gloo's algorithms don't wait for the end of all that they sent, and its buffers abort the process
// if they go before. On any lossy network that end can come after all ranks have their results,
// so each algorithm tells here which buffers it sends from.
using gloo::transport::Buffer;
using Buffers = std::vector<Buffer*>;

struct SentFrom : gloo::transport::ibverbs::Buffer {
  static int pending(gloo::transport::Buffer& buffer) {
    auto& sent = dynamic_cast<gloo::transport::ibverbs::Buffer&>(buffer);
    return sent.*(&SentFrom::sendPending_);
  }
};

template <typename Container>
void add(Buffers& all, const Container& buffers) {
  for (const auto& buffer : buffers)
    if (buffer) all.push_back(buffer.get());
}

template <typename Algorithm>
struct Named : Algorithm {
  using Algorithm::Algorithm;
  Buffers sent_from() const;
};

using Ring = gloo::AllreduceRing<uint64_t>;
template <>
Buffers Named<Ring>::sent_from() const {
  return {sendDataBuf_.get(), sendNotificationBuf_.get()};
}

using RingChunked = gloo::AllreduceRingChunked<uint64_t>;
template <>
Buffers Named<RingChunked>::sent_from() const {
  return {sendDataBuf_[0].get(), sendDataBuf_[1].get(), sendNotificationBuf_.get()};
}

using HalvingDoubling = gloo::AllreduceHalvingDoubling<uint64_t>;
template <>
Buffers Named<HalvingDoubling>::sent_from() const {
  Buffers all;
  add(all, sendDataBufs_);
  add(all, sendNotificationBufs_);
  add(all, largerBlockSendDataBufs_);
  if (smallerBlockSendDataBuf_) all.push_back(smallerBlockSendDataBuf_.get());
  return all;
}

using Broadcast = gloo::BroadcastOneToAll<uint64_t>;
template <>
Buffers Named<Broadcast>::sent_from() const {
  Buffers all;
  for (const auto& sender : sender_)
    if (sender) all.push_back(sender->sendBuffer.get());
  if (receiver_) all.push_back(receiver_->clearToSendBuffer.get());
  return all;
}

template <>
Buffers Named<gloo::BarrierAllToAll>::sent_from() const {
  Buffers all;
  add(all, sendBuffers_);
  return all;
}

template <>
Buffers Named<gloo::BarrierAllToOne>::sent_from() const {
  Buffers all;
  add(all, sendBuffers_);
  return all;
}

using Memory = std::vector<uint64_t>;
using Expected = std::function<uint64_t(size_t)>;

class Rank {
 public:
  explicit Rank(Place& place) : place_(place), rank_(place.rank) {}

  void round(unsigned number, gloo::rendezvous::Store& store);

 private:
  uint64_t content(unsigned rank, size_t i) const {
    return verify::mix64(content_seed_ + (uint64_t{rank} << 40) + i);
  }
  uint64_t sum(size_t i) const {
    uint64_t all = 0;
    for (unsigned r = 0; r < place_.options.ranks; ++r) all += content(r, i);
    return all;
  }
  void compare(Doing what, const Memory& memory, const Expected& expected);
  template <typename Algorithm, typename... Arguments>
  void collective(Doing what, Memory& memory, const Expected& expected, Arguments&&... arguments);
  void all_kinds(const std::shared_ptr<gloo::Context>& context, size_t count, int root);

  Place& place_;
  const unsigned rank_;
  uint64_t content_seed_ = 0;
};

void Rank::compare(Doing what, const Memory& memory, const Expected& expected) {
  for (size_t i = 0; i < memory.size(); ++i)
    if (memory[i] != expected(i))
      die(fmt::format("rank {}: wrong result of {}: element {} of {} is {:#x}, not {:#x}", rank_,
                      name(what), i, memory.size(), memory[i], expected(i)));
  place_.shared.checked.fetch_add(1, std::memory_order_relaxed);
}

template <typename Algorithm, typename... Arguments>
void Rank::collective(Doing what, Memory& memory, const Expected& expected,
                      Arguments&&... arguments) {
  ++content_seed_;
  place_.progress().step.fetch_add(1, std::memory_order_relaxed);
  for (size_t i = 0; i < memory.size(); ++i) memory[i] = content(rank_, i);
  place_.doing(what);
  Named<Algorithm> algorithm(std::forward<Arguments>(arguments)...);
  algorithm.run();
  compare(what, memory, expected);
  place_.doing(Doing::kWaitSent);
  for (Buffer* buffer : algorithm.sent_from())
    while (SentFrom::pending(*buffer) != 0)
      std::this_thread::sleep_for(std::chrono::microseconds(200));
  place_.meet();
}

void Rank::all_kinds(const std::shared_ptr<gloo::Context>& context, size_t count, int root) {
  Memory memory(count);
  const std::vector<uint64_t*> pointers = {memory.data()};
  const int elements = static_cast<int>(count);
  const auto summed = [this](size_t i) { return sum(i); };
  const auto of_root = [&](size_t i) { return content(static_cast<unsigned>(root), i); };
  const auto unchanged = [this](size_t i) { return content(rank_, i); };
  collective<Ring>(Doing::kRing, memory, summed, context, pointers, elements);
  collective<RingChunked>(Doing::kRingChunked, memory, summed, context, pointers, elements);
  collective<HalvingDoubling>(Doing::kHalvingDoubling, memory, summed, context, pointers, elements);
  collective<Broadcast>(Doing::kBroadcast, memory, of_root, context, pointers, count, root);
  collective<gloo::BarrierAllToAll>(Doing::kBarrier, memory, unchanged, context);
  collective<gloo::BarrierAllToOne>(Doing::kBarrierToOne, memory, unchanged, context, root);
}

void Rank::round(unsigned number, gloo::rendezvous::Store& store) {
  const Options& options = place_.options;
  content_seed_ = verify::mix64(options.seed + number);
  verify::Rng choose(content_seed_);  // the same in all ranks
  gloo::transport::ibverbs::attr attributes;
  attributes.name = options.devices[rank_ % options.devices.size()];
  attributes.port = 1;
  attributes.index = 0;
  place_.doing(Doing::kOpen);
  auto device = gloo::transport::ibverbs::CreateDevice(attributes);
  place_.doing(Doing::kConnect);
  auto context = std::make_shared<gloo::rendezvous::Context>(static_cast<int>(rank_),
                                                             static_cast<int>(options.ranks));
  context->setTimeout(std::chrono::seconds(2 * options.patience_seconds));  // ours is shorter
  context->connectFullMesh(store, device);
  for (unsigned step = 0; step < options.steps; ++step) {
    constexpr unsigned kShort = 3;  // in one of so many steps, vectors of a few elements
    const size_t most = options.max_bytes / sizeof(uint64_t);
    const size_t bound =
        choose.below(kShort) == 0 ? std::min<size_t>(most, 2 * options.ranks) : most;
    const size_t count = 1 + choose.below(bound);
    all_kinds(context, count, static_cast<int>(choose.below(options.ranks)));
  }
  place_.doing(Doing::kClose);
  context->closeConnections();
  context.reset();
  device.reset();
  place_.meet();
}

// Where ranks leave their addresses for each other.
class Directory {
 public:
  Directory() {
    path_ = (std::filesystem::temp_directory_path() / "hostnic-gloo-XXXXXX").string();
    if (mkdtemp(path_.data()) == nullptr) die(fmt::format("mkdtemp: {}", strerror(errno)));
  }
  ~Directory() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  Directory(const Directory&) = delete;
  Directory& operator=(const Directory&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

void run_rank(Place& place, const std::string& directory) {
  gloo::rendezvous::FileStore files(directory);
  for (unsigned round = 0; round < place.options.rounds; ++round) {
    gloo::rendezvous::PrefixStore store(fmt::format("round-{}", round), files);
    Rank(place).round(round, store);
  }
}

}  // namespace
}  // namespace hostnic::collectives

int main(int argc, char** argv) {
  using namespace hostnic::collectives;
  const auto options = parse(kProgram, argc, argv);
  if (!options) return kUsageError;
  const Directory directory;
  run_ranks(kProgram, *options, [&](Place& place) { run_rank(place, directory.path()); });
  return 0;
}
