// SPDX-License-Identifier: BSD-3-Clause
// credit-channel: messages over RC that never meet a missing receive, and CQs that cannot overflow.
// Both ends of all channels are in this process, on two devices or on one. An ordinary verbs
// program: it knows nothing of hostnic. docs/credit-channel.md explains it.
#include <fmt/format.h>
#include <getopt.h>

#include <array>
#include <charconv>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>

#include "tests/apps/credit-channel/counters.h"
#include "tests/apps/credit-channel/endpoint.h"

namespace hostnic::credit {
namespace {

using Clock = std::chrono::steady_clock;
using verify::Failure;

constexpr int kUsageError = 2;
constexpr unsigned kMaxThreads = 512;

constexpr char kUsage[] =
    "usage: hostnic lab -- credit-channel [OPTIONS]\n"
    "  --depths D,I,R,W         the near ends' shares: data, immediates, READs, WRITEs (32,8,4,8;\n"
    "                           at least 1,3,1,1)\n"
    "  --peer-depths D,I,R,W    the far ends' (as --depths)\n"
    "  --tiny                   the smallest queues: 1,3,1,1 at both ends\n"
    "  --channels N             connections (4)\n"
    "  --senders N              threads at each end of each channel (1)\n"
    "  --messages N             from each thread (1000)\n"
    "  --transfers N            WRITEs that are read back, by each end (200)\n"
    "  --message-bytes N        of the longest message (4096)\n"
    "  --seed N                 of contents and lengths (1)\n"
    "  --patience N             seconds without progress until it counts as hung (60)\n"
    "  --device NAME, --peer-device NAME   (hnic0, hnic1)\n"
    "  --slow-receiver N        microseconds that an end takes for each message (0)\n"
    "  --without-credits        sends without asking for the peer's credit: fails with an RNR "
    "NAK\n";

struct Options {
  Depths near{32, 8, 4, 8}, far{32, 8, 4, 8};
  Load load;
  unsigned channels = 4;
  unsigned patience_seconds = 60;
  std::string device = "hnic0", peer_device = "hnic1";
  Channel::Trials trials;
  bool help = false;
};

template <typename T>
bool number(std::string_view text, T low, T high, T& out) {
  const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), out);
  return error == std::errc() && stop == text.data() + text.size() && out >= low && out <= high;
}

bool depths(std::string_view text, Depths& out) {
  for (uint16_t* share : {&out.data, &out.immediate, &out.read, &out.write}) {
    const size_t comma = text.find(',');
    if ((comma == std::string_view::npos) != (share == &out.write)) return false;
    if (!number<uint16_t>(text.substr(0, comma), 1, UINT16_MAX, *share)) return false;
    text.remove_prefix(comma == std::string_view::npos ? text.size() : comma + 1);
  }
  return out.valid();
}

// What --help lists, but the flags: false if the value is none.
bool set(char name, const char* value, Options& options, bool& peer_is_set) {
  Load& load = options.load;
  switch (name) {
    case 'd':
      if (!depths(value, options.near)) return false;
      if (!peer_is_set) options.far = options.near;
      return true;
    case 'D':
      peer_is_set = true;
      return depths(value, options.far);
    case 'c':
      return number(value, 1U, kMaxThreads, options.channels);
    case 's':
      return number(value, 1U, kMaxThreads, load.senders);
    case 'm':
      return number(value, 1U, 1'000'000'000U, load.messages);
    case 't':
      return number(value, 0U, 1'000'000'000U, load.transfers);
    case 'b':
      return number(value, 16U, 1U << 20, load.message_bytes);
    case 'r':
      return number(value, uint64_t{0}, ~uint64_t{0}, load.seed);
    case 'p':
      return number(value, 1U, 100'000U, options.patience_seconds);
    case 'l':
      return number(value, 0U, 1'000'000U, load.slow_receiver_us);
    case 'q':
      return number(value, 1, 1'000'000, options.trials.cq_entries);
    case 'e':
      options.device = value;
      return true;
    case 'E':
      options.peer_device = value;
      return true;
    default:
      return false;
  }
}

std::optional<Options> parse(int argc, char** argv) {
  const option known[] = {{"depths", 1, nullptr, 'd'},
                          {"peer-depths", 1, nullptr, 'D'},
                          {"channels", 1, nullptr, 'c'},
                          {"senders", 1, nullptr, 's'},
                          {"messages", 1, nullptr, 'm'},
                          {"transfers", 1, nullptr, 't'},
                          {"message-bytes", 1, nullptr, 'b'},
                          {"seed", 1, nullptr, 'r'},
                          {"patience", 1, nullptr, 'p'},
                          {"device", 1, nullptr, 'e'},
                          {"peer-device", 1, nullptr, 'E'},
                          {"slow-receiver", 1, nullptr, 'l'},
                          {"tiny", 0, nullptr, 'T'},
                          {"without-credits", 0, nullptr, 'w'},
                          {"cq-entries", 1, nullptr, 'q'},
                          {"help", 0, nullptr, 'h'},
                          {nullptr, 0, nullptr, 0}};
  Options options;
  bool peer_is_set = false;
  for (int c = 0; (c = getopt_long(argc, argv, "h", known, nullptr)) != -1;) {
    if (c == 'h')
      options.help = true;
    else if (c == 'T')
      set('d', "1,3,1,1", options, peer_is_set);
    else if (c == 'w')
      options.trials.ignore_credits = true;
    else if (!set(static_cast<char>(c), optarg, options, peer_is_set))
      return std::nullopt;
  }
  if (optind != argc || options.channels * options.load.senders > kMaxThreads) return std::nullopt;
  return options;
}

// Other threads may be anywhere, with locks held: the process ends without its destructors.
[[noreturn]] void die(const std::string& why) {
  fmt::print(stderr, "credit-channel: {}\n", why);
  std::fflush(stderr);
  std::_Exit(EXIT_FAILURE);
}

// What the first thread failed of, for the one that waits for all.
class FirstFailure {
 public:
  void set(const std::string& text) {
    const std::lock_guard lock(mutex_);
    if (text_.empty()) text_ = text;
  }
  std::string get() {
    const std::lock_guard lock(mutex_);
    return text_;
  }

 private:
  std::mutex mutex_;
  std::string text_;
};

// Both ends of a channel and their threads.
class Pair {
 public:
  Pair(const Options& options, const verify::Device& near, const verify::Device& far,
       uint64_t which)
      : near_(near, options.near, options.far, options.load, stream(options, which, 0),
              stream(options, which, 1), options.trials),
        far_(far, options.far, options.near, options.load, stream(options, which, 1),
             stream(options, which, 0), options.trials) {
    near_.channel().watch(far_.channel());
    far_.channel().watch(near_.channel());
    near_.channel().prepare(far_.channel().hello());
    far_.channel().prepare(near_.channel().hello());
    near_.channel().start();
    far_.channel().start();
  }

  void start(uint32_t senders, FirstFailure& failure) {
    for (Endpoint* end : {&near_, &far_})
      for (uint32_t sender = 0; sender < senders; ++sender)
        threads_.emplace_back([end, sender, &failure](const std::stop_token& stop) {
          try {
            end->run(sender, stop);
          } catch (const Failure& thrown) {
            failure.set(thrown.text);
          }
        });
  }

  uint64_t steps() const { return near_.steps() + far_.steps(); }

  // Everything has been sent, received and compared, and nothing is under way: acknowledgements
  // have come to an end. Both ends stand still while this looks.
  bool finished() {
    if (threads_.empty()) return true;
    {
      const std::scoped_lock both(near_.mutex(), far_.mutex());
      if (!near_.complete() || !far_.complete() || !all_arrived(near_, far_) ||
          !all_arrived(far_, near_))
        return false;
    }
    threads_.clear();
    check(near_, far_);
    check(far_, near_);
    return true;
  }

  std::string describe() {
    const std::scoped_lock both(near_.mutex(), far_.mutex());
    return near_.channel().describe() + "\n" + far_.channel().describe() + "\n";
  }

  std::array<Endpoint*, 2> ends() { return {&near_, &far_}; }

 private:
  static uint64_t stream(const Options& options, uint64_t which, uint64_t end) {
    constexpr unsigned kEndBits = 24, kSeedBits = 40;  // below an end's: its senders
    return options.load.seed << kSeedBits | (2 * which + end) << kEndBits;
  }

  static bool all_arrived(Endpoint& from, Endpoint& to) {
    return from.channel().totals().acks_sent == to.channel().totals().acks_received;
  }

  // The books of both ends agree.
  static void check(Endpoint& from, Endpoint& to) {
    const ChannelTotals &sent = from.channel().totals(), &got = to.channel().totals();
    const Acknowledgement rest = to.channel().ledger().uncounted();
    if (sent.data_sent != got.data_received || sent.data_sent != sent.data_counted + rest.data ||
        sent.acks_sent != sent.acks_counted + rest.acks)
      throw Failure{"the ends' counts differ: " + from.channel().describe() + "; " +
                    to.channel().describe()};
    const uint64_t of_acks =
        sent.acks_sent - sent.acks_for_data + got.acks_sent - got.acks_for_data;
    if (of_acks > sent.acks_for_data + got.acks_for_data)
      throw Failure{fmt::format("{} acknowledgements of acknowledgements, more than of data: {}",
                                of_acks, from.channel().describe())};
    from.check_exposed(to);
  }

  Endpoint near_, far_;
  std::vector<std::jthread> threads_;  // last: they use the ends
};

using Pairs = std::vector<std::unique_ptr<Pair>>;

// Returns when all is done. Ends the process when nothing moves any more.
void wait_for(Pairs& pairs, const Options& options, FirstFailure& failure,
              const verify::Device& near, const verify::Device& far) {
  uint64_t seen = 0;
  auto moved = Clock::now();
  for (bool finished = false; !finished;) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    finished = true;
    uint64_t steps = 0;
    for (const auto& pair : pairs) {
      finished &= pair->finished();
      steps += pair->steps();
    }
    // A CQ that overflows breaks its QP, too: what a thread found is looked up first, told last.
    const std::string found = failure.get();
    for (const verify::Device* device : {&near, &far})
      if (take_cq_overruns(device->context()) != 0) die("a CQ overflowed");
    if (!found.empty()) die(found);
    if (steps != seen) {
      seen = steps;
      moved = Clock::now();
    } else if (Clock::now() - moved > std::chrono::seconds(options.patience_seconds)) {
      std::string all = fmt::format("no progress for {} s:\n", options.patience_seconds);
      for (const auto& pair : pairs) all += pair->describe();
      die(all);
    }
  }
}

void print_sums(const Options& options, Pairs& pairs, const RnrCounters& rnr, double seconds) {
  uint64_t messages = 0, transfers = 0, acks = 0, of_acks = 0, waited = 0;
  for (const auto& pair : pairs) {
    for (Endpoint* end : pair->ends()) {
      const ChannelTotals& totals = end->channel().totals();
      messages += end->messages_verified();
      transfers += end->transfers_verified();
      acks += totals.acks_sent;
      of_acks += totals.acks_sent - totals.acks_for_data;
      waited += totals.waited;
    }
  }
  fmt::print(
      "credit-channel: ok: {} channels, {} threads, {} messages verified, {} WRITEs read back, {} "
      "acknowledgements, {} of them of acknowledgements, {} requests waited, rnr naks {} in {} "
      "counters, cq overruns 0, seed {}, {:.1f} s\n",
      options.channels, 2 * options.channels * options.load.senders, messages, transfers, acks,
      of_acks, waited, rnr.sum, rnr.counters, options.load.seed, seconds);
}

void check_limits(const verify::Device& device, const Depths& depths) {
  const ibv_device_attr& most = device.attributes();
  if (depths.max_send_wr() > static_cast<uint32_t>(most.max_qp_wr) ||
      depths.max_recv_wr() > static_cast<uint32_t>(most.max_qp_wr) ||
      depths.cq_entries() > static_cast<uint32_t>(most.max_cqe))
    throw Failure{fmt::format("{} has queues of {} requests and CQs of {} entries at most",
                              device.name(), most.max_qp_wr, most.max_cqe)};
}

RnrCounters rnr_of_both(const Options& options) {
  RnrCounters both = rnr_counters(options.device);
  if (options.peer_device == options.device) return both;
  const RnrCounters far = rnr_counters(options.peer_device);
  return {both.sum + far.sum, both.counters + far.counters};
}

void work(const Options& options) {
  const auto start = Clock::now();
  const verify::Device near(options.device, -1), far(options.peer_device, -1);
  check_limits(near, options.near);
  check_limits(far, options.far);
  const RnrCounters before = rnr_of_both(options);
  FirstFailure failure;
  Pairs pairs;  // after what its threads use
  for (unsigned i = 0; i < options.channels; ++i)
    pairs.push_back(std::make_unique<Pair>(options, near, far, i));
  for (const auto& pair : pairs) pair->start(options.load.senders, failure);
  wait_for(pairs, options, failure, near, far);
  RnrCounters rnr = rnr_of_both(options);
  rnr.sum -= before.sum;
  if (rnr.sum != 0) throw Failure{fmt::format("{} RNR NAKs", rnr.sum)};
  print_sums(options, pairs, rnr, std::chrono::duration<double>(Clock::now() - start).count());
}

int run(int argc, char** argv) {
  const auto options = parse(argc, argv);
  if (!options || options->help) {
    fmt::print(options ? stdout : stderr, "{}", kUsage);
    return options ? EXIT_SUCCESS : kUsageError;
  }
  try {
    work(*options);
  } catch (const Failure& failure) {
    die(failure.text);
  }
  return verify::destroy_failures() == 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}

}  // namespace
}  // namespace hostnic::credit

int main(int argc, char** argv) { return hostnic::credit::run(argc, argv); }
