// SPDX-License-Identifier: BSD-3-Clause
// READs of memory that changes while they are under way, on bad networks: what they say must be
// what in-order execution could have said (docs/transport.md rule 18).
#include <gtest/gtest.h>

#include <cstring>
#include <deque>

#include "tests/sim/options.h"
#include "tests/sim/pair.h"

namespace hostnic::sim {
namespace {

constexpr uint32_t kMtu = 1024;
constexpr uint32_t kCells = 64;  // one in each packet's worth of memory
constexpr uint32_t kMostCells = 40, kDepth = 16, kLandings = 32;

// The memory, one value a cell, and all that it has been.
class Changes final : public World::Program {
 public:
  Changes(World& world, uint64_t seed)
      : world_(world),
        random_(seed),
        memory_(uint64_t{kCells} * kMtu),
        values_(random_.percent(70) ? 2 : 200),
        most_cells_(random_.percent(50) ? 3 : kCells),
        pause_ns_(random_.between(1, 40) * kMicrosecond),
        history_(1) {
    next_ns_ = world.now();
  }

  bool turn(TimeNs now_ns) override {
    if (now_ns < next_ns_) return false;
    next_ns_ = now_ns + random_.between(1, pause_ns_);
    State state = history_.back();
    for (uint64_t n = random_.between(1, most_cells_); n != 0; --n) {
      const uint64_t cell = random_.below(kCells);
      state[cell] = static_cast<uint8_t>((state[cell] + 1) % values_);
      // All of a packet's bytes change, or the last of the cell's alone.
      std::memset(memory_.data() + cell * kMtu, state[cell], kCellBytes);
    }
    history_.push_back(state);
    return true;
  }
  TimeNs next_ns() const override { return next_ns_; }

  const Memory& memory() const { return memory_; }
  size_t newest() const { return history_.size() - 1; }
  // The first state at or after `from` in which a cell has a value; the number of states: none.
  size_t first_with(size_t from, uint64_t cell, uint8_t value) const {
    while (from < history_.size() && history_[from][cell] != value) ++from;
    return from;
  }
  static constexpr uint32_t kCellBytes = 64;

 private:
  using State = std::array<uint8_t, kCells>;
  World& world_;
  Random random_;
  Memory memory_;
  uint32_t values_;
  uint64_t most_cells_, pause_ns_;
  std::vector<State> history_;
  TimeNs next_ns_;
};

// READs of it, many at a time. Each is checked when it completes: there must be an order of reading
// that is the order of the READs and in which each cell had the value that was read.
class Reader final : public World::Program {
 public:
  Reader(World& world, Endpoint& near, Endpoint& far, const Changes& changes, Reach reach,
         uint32_t reads, uint64_t seed)
      : world_(world),
        near_(near),
        changes_(changes),
        random_(seed),
        landing_(uint64_t{kLandings} * kMostCells * kMtu),
        lkey_(near.host->add_mr(landing_)),
        rkey_(far.host->add_mr(changes.memory(), kAllAccess, reach)),
        wanted_(reads) {}

  bool turn(TimeNs /*now_ns*/) override {
    bool did = false;
    for (const driver::Completion& c : near_.poll(*near_.send_cq)) {
      did = true;
      if (c.status != WcStatus::kSuccess) world_.fail(fmt::format("READ {} fails", c.wr_id));
      check(outstanding_.front());
      outstanding_.pop_front();
      ++done_;
    }
    while (posted_ != wanted_ && outstanding_.size() < kDepth && !world_.failed()) {
      post();
      did = true;
    }
    return did;
  }
  TimeNs next_ns() const override { return UINT64_MAX; }
  bool finished() const { return done_ == wanted_; }

 private:
  struct Read {
    uint32_t number, first_cell, cells;
    size_t state;  // when it was posted
  };

  uint8_t* place_of(const Read& read) const {
    return landing_.data() + uint64_t{read.number % kLandings} * kMostCells * kMtu;
  }

  void post() {
    const auto cells = static_cast<uint32_t>(random_.percent(60) ? random_.between(1, 3)
                                                                 : random_.between(1, kMostCells));
    const auto first = static_cast<uint32_t>(random_.below(kCells - cells + 1));
    const Read read{posted_, first, cells, changes_.newest()};
    const uint32_t bytes = (cells - 1) * kMtu + Changes::kCellBytes;
    std::memset(place_of(read), 0xEE, bytes);
    const Sge sge{landing_.address(static_cast<uint64_t>(place_of(read) - landing_.data())), bytes,
                  lkey_};
    const auto request = Pair::request(SendOp::kRead, posted_, sge,
                                       changes_.memory().address(uint64_t{first} * kMtu), rkey_);
    if (near_.post_send(request) != 0) world_.fail("post_send");
    outstanding_.push_back(read);
    ++posted_;
  }

  void check(const Read& read) {
    read_at_ = std::max(read_at_, read.state);
    size_t last = read_at_;
    for (uint32_t i = 0; i < read.cells; ++i) {
      const uint8_t value = place_of(read)[uint64_t{i} * kMtu];
      const size_t state = changes_.first_with(read_at_, read.first_cell + i, value);
      if (state > changes_.newest()) {
        world_.fail(fmt::format("READ {}: cell {} had value {} at no time from state {} on",
                                read.number, read.first_cell + i, value, read_at_));
        return;
      }
      last = std::max(last, state);
    }
    read_at_ = last;
  }

  World& world_;
  Endpoint& near_;
  const Changes& changes_;
  Random random_;
  Memory landing_;
  uint32_t lkey_, rkey_;
  uint32_t wanted_, posted_ = 0, done_ = 0;
  std::deque<Read> outstanding_;
  size_t read_at_ = 0;  // the earliest state by which all that has completed can have been read
};

const std::vector<const char*> kImpairments = {
    "drop 0.5%",
    "drop 3%",
    "drop 10%",
    "drop 20% kind read-response",
    "drop 15% kind read-request",
    "drop burst p 1% r 20%",
    "duplicate 20%; drop 3%",
    "duplicate 30% kind read-request; drop 5% kind read-response",
    "reorder 10% delay 30us jitter 25us; drop 2%",
    "reorder 20% distance 8 kind read-request; drop 5% kind read-response",
    "drop 3%; duplicate 5%; corrupt 1%; reorder 5% distance 16; delay 5us jitter 4us exponential",
};

struct Totals {
  uint64_t repeated = 0, refused = 0;
};

void run(uint64_t seed, Totals& totals) {
  Random random(seed);
  WorldSettings settings;
  settings.mtu_bytes = kMtu;
  const uint64_t wire = random.below(4);
  settings.segmentation = wire == 0;
  settings.link.is_wire = wire != 3;
  settings.always_icrc = wire == 2;
  settings.link.delay_ns = random.percent(50) ? 10 * kMicrosecond : kMicrosecond / 2;
  settings.windows = {random.percent(30) ? 64u : 1024u};
  World world(settings);
  QpSettings qp;
  qp.timeout = 20;
  auto near = world.make_endpoint(0, qp), far = world.make_endpoint(1, qp);
  world.connect(*near, *far);
  const std::string spec = kImpairments[random.below(kImpairments.size())];
  const std::string direction = random.percent(60) ? "rx " : "tx ";
  for (uint32_t host = 0; host < 2; ++host) world.impair(host, direction + spec, random.next());
  Changes changes(world, random.next());
  Reader reader(world, *near, *far, changes, static_cast<Reach>(random.below(4)), 300,
                random.next());
  world.add(changes);
  world.add(reader);
  if (!world.run_until([&] { return reader.finished(); }, 20 * kSecond))
    world.fail("the READs don't finish");
  if (world.failed())
    ADD_FAILURE() << "seed " << seed << ": " << direction << spec << "\n" << world.report();
  totals.repeated += world.sum(Counter::read_answers_repeated);
  totals.refused += world.sum(Counter::read_pulls_refused);
}

TEST(ReadOrder, ReadsSayWhatInOrderExecutionCouldHaveSaid) {
  Totals totals;
  const uint32_t seeds = std::max(40u, options().seeds / 4);
  for (uint32_t i = 0; i < seeds && !HasFailure(); ++i) run(options().first_seed + i, totals);
  EXPECT_GT(totals.repeated, 100u);
  EXPECT_GT(totals.refused, 100u);
}

}  // namespace
}  // namespace hostnic::sim
