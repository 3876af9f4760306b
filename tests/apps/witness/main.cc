// SPDX-License-Identifier: BSD-3-Clause
// hostnic-witness: a verbs program that says what it sees of its network, one line each: the
// asynchronous events, what the port is like then, and how its connection fares. The side that
// connects writes blocks into the other's memory, reads them back and compares, over and over,
// until its standard input ends or a work request fails.
//
//   hostnic-witness --listen PORT | --connect HOST:PORT [--timeout T] [--retry-cnt R] [--bytes N]
#include <fmt/format.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <thread>
#include <vector>

#include "tests/apps/verify/channel.h"
#include "tests/apps/verify/content.h"
#include "tests/support/verbs_pair.h"

namespace hostnic {
namespace {

using Clock = std::chrono::steady_clock;
using verify::Channel;
using verify::Failure;

constexpr auto kBetweenRounds = std::chrono::milliseconds(2);
constexpr auto kBetweenReports = std::chrono::milliseconds(50);

struct Options {
  std::string listen, connect;
  uint8_t timeout = 14, retry_cnt = 7, gid_index = 0;
  uint32_t bytes = 64 * 1024;
};

// What the other side needs.
struct Place {
  verbs::QpAddress qp;
  uint64_t address = 0;
  uint32_t rkey = 0;
  ibv_mtu mtu{};
};

template <typename... Args>
void say(fmt::format_string<Args...> format, Args&&... args) {
  fmt::print("{}\n", fmt::format(format, std::forward<Args>(args)...));
  fflush(stdout);
}

template <class T>
T* must(T* made, const char* what) {
  if (made == nullptr) throw Failure{fmt::format("{}: {}", what, strerror(errno))};
  return made;
}

void must(int error, const char* what) {
  if (error != 0) throw Failure{fmt::format("{}: {}", what, strerror(error))};
}

bool input_ended() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  char byte = 0;
  return poll(&input, 1, 0) == 1 && read(STDIN_FILENO, &byte, 1) <= 0;
}

class Witness {
 public:
  explicit Witness(const Options& options) : options_(options), memory_(2 * size_t{options.bytes}) {
    context_ = must(verbs::open_device(size_t{0}), "ibv_open_device");
    pd_ = must(ibv_alloc_pd(context_), "ibv_alloc_pd");
    cq_ = must(ibv_create_cq(context_, 16, nullptr, nullptr, 0), "ibv_create_cq");
    mr_ =
        must(ibv_reg_mr(pd_, memory_.data(), memory_.size(),
                        IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ),
             "ibv_reg_mr");
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq_;
    init.qp_type = IBV_QPT_RC;
    init.cap = {4, 4, 1, 1, 0};
    qp_ = must(ibv_create_qp(pd_, &init), "ibv_create_qp");
    events_ = std::thread([this] { say_events(); });
  }

  // The program ends with what it has: destroying queue pairs is others' test.
  ~Witness() { events_.detach(); }
  Witness(const Witness&) = delete;
  Witness& operator=(const Witness&) = delete;

  void connect(Channel& channel) {
    verbs::ConnectOptions how;
    how.timeout = options_.timeout;
    how.retry_cnt = options_.retry_cnt;
    how.gid_index = options_.gid_index;
    Place own;
    own.qp = {.qpn = qp_->qp_num, .psn = 100};
    own.address = reinterpret_cast<uintptr_t>(memory_.data());
    own.rkey = mr_->rkey;
    own.mtu = port().active_mtu;
    must(ibv_query_gid(context_, 1, how.gid_index, &own.qp.gid), "ibv_query_gid");
    peer_ = channel.exchange(own);
    how.mtu = std::min(own.mtu, peer_.mtu);
    must(verbs::to_init(qp_, how), "INIT");
    must(verbs::to_rtr(qp_, how, peer_.qp), "RTR");
    must(verbs::to_rts(qp_, how, own.qp.psn), "RTS");
    channel.barrier(1);
    say("connected, path mtu {}", 128u << how.mtu);
  }

  // Returns the exit status.
  int run() {
    const std::span<std::byte> sent(memory_.data(), options_.bytes);
    const std::span<std::byte> back(memory_.data() + options_.bytes, options_.bytes);
    Clock::time_point reported{};
    for (uint64_t round = 1; !input_ended(); ++round) {
      verify::generate({.stream = round}, sent);
      if (!done(IBV_WR_RDMA_WRITE, sent) || !done(IBV_WR_RDMA_READ, back)) return 2;
      if (verify::first_difference(back, {.stream = round})) {
        say("wrong byte in round {}", round);
        return 3;
      }
      if (Clock::now() - reported > kBetweenReports) {
        say("round {}", round);
        reported = Clock::now();
      }
      std::this_thread::sleep_for(kBetweenRounds);
    }
    say("ok");
    return 0;
  }

 private:
  ibv_port_attr port() const {
    ibv_port_attr attr{};
    must(ibv_query_port(context_, 1, &attr), "ibv_query_port");
    return attr;
  }

  void say_events() {
    ibv_async_event event{};
    while (ibv_get_async_event(context_, &event) == 0) {
      ibv_port_attr attr{};
      const bool asked = ibv_query_port(context_, 1, &attr) == 0;
      ibv_gid_entry gids[64];
      say("event {}, port {}, mtu {}, {} gids", ibv_event_type_str(event.event_type),
          !asked                          ? "dead"
          : attr.state == IBV_PORT_ACTIVE ? "active"
                                          : "down",
          asked ? 128u << attr.active_mtu : 0, ibv_query_gid_table(context_, gids, 64, 0));
      ibv_ack_async_event(&event);
    }
  }

  // Whether a request between the bytes and the other side's memory succeeds.
  bool done(ibv_wr_opcode opcode, std::span<std::byte> bytes) {
    ibv_sge sge{reinterpret_cast<uintptr_t>(bytes.data()), static_cast<uint32_t>(bytes.size()),
                mr_->lkey};
    ibv_send_wr wr{}, *bad = nullptr;
    wr.opcode = opcode;
    wr.sg_list = &sge;
    wr.num_sge = 1;
    wr.send_flags = IBV_SEND_SIGNALED;
    wr.wr.rdma.remote_addr = peer_.address;
    wr.wr.rdma.rkey = peer_.rkey;
    const auto start = Clock::now();
    if (const int error = ibv_post_send(qp_, &wr, &bad)) {
      say("post refused: {}", strerror(error));
      return false;
    }
    ibv_wc wc{};
    int found = 0;
    while ((found = ibv_poll_cq(cq_, 1, &wc)) == 0)
      if (Clock::now() - start > std::chrono::milliseconds(10))
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const std::chrono::duration<double> took = Clock::now() - start;
    if (found == 1 && wc.status == IBV_WC_SUCCESS) return true;
    say("failed with status {} ({}), vendor {}, after {:.2f} s", static_cast<int>(wc.status),
        ibv_wc_status_str(wc.status), wc.vendor_err, took.count());
    return false;
  }

  const Options options_;
  std::vector<std::byte> memory_;
  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq* cq_ = nullptr;
  ibv_mr* mr_ = nullptr;
  ibv_qp* qp_ = nullptr;
  Place peer_;
  std::thread events_;
};

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i], value = argv[i + 1];
    if (name == "--listen")
      options.listen = value;
    else if (name == "--connect")
      options.connect = value;
    else if (name == "--timeout")
      options.timeout = static_cast<uint8_t>(atoi(value.c_str()));
    else if (name == "--retry-cnt")
      options.retry_cnt = static_cast<uint8_t>(atoi(value.c_str()));
    else if (name == "--gid-index")
      options.gid_index = static_cast<uint8_t>(atoi(value.c_str()));
    else if (name == "--bytes")
      options.bytes = static_cast<uint32_t>(atoi(value.c_str()));
    else
      throw Failure{fmt::format("{}: unknown option", name)};
  }
  if (options.listen.empty() == options.connect.empty())
    throw Failure{"one of --listen PORT and --connect HOST:PORT"};
  return options;
}

int run(int argc, char** argv) {
  const Options options = parse(argc, argv);
  Witness witness(options);
  const size_t colon = options.connect.rfind(':');
  Channel channel = options.connect.empty() ? Channel::listen(options.listen)
                                            : Channel::connect(options.connect.substr(0, colon),
                                                               options.connect.substr(colon + 1));
  witness.connect(channel);
  if (!options.connect.empty()) return witness.run();
  while (!input_ended()) std::this_thread::sleep_for(std::chrono::milliseconds(20));
  say("ok");
  return 0;
}

}  // namespace
}  // namespace hostnic

int main(int argc, char** argv) {
  int status = 1;
  try {
    status = hostnic::run(argc, argv);
  } catch (const hostnic::verify::Failure& failure) {
    fmt::print("hostnic-witness: {}\n", failure.text);
  }
  fflush(stdout);
  _exit(status);
}
