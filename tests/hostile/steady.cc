// SPDX-License-Identifier: BSD-3-Clause
// hostnic-steady: an honest program that writes a word to a peer's memory again and again, and says
// how long the longest of these WRITEs took. The time for which a thread that it needs waited for a
// processor is not counted: its own, and those of hostnicd that serve NICs. As hostnic-verify, an
// ordinary verbs program. It ends with its standard input.
//
//   hostnic-steady --hostnicd PID
#include <fcntl.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "tests/support/verbs_pair.h"

namespace hostnic {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::microseconds;

constexpr auto kBetweenWrites = std::chrono::milliseconds(1);

[[noreturn]] void die(const char* what) {
  fprintf(stderr, "hostnic-steady: %s: %s\n", what, strerror(errno));
  exit(1);
}
template <class T>
T* good(T* object, const char* what) {
  if (object == nullptr) die(what);
  return object;
}
void good(int error, const char* what) {
  if (error == 0) return;
  errno = error;
  die(what);
}

// The threads that a WRITE needs, by their files in /proc that say how long each has waited.
class Waits {
 public:
  explicit Waits(const std::string& hostnicd) {
    add("/proc/thread-self/schedstat");
    std::error_code gone;
    for (const auto& task :
         std::filesystem::directory_iterator("/proc/" + hostnicd + "/task", gone)) {
      std::string name;
      std::getline(std::ifstream(task.path() / "comm"), name);
      // The older name, and that of DPDK 23.03 and later.
      if (name.starts_with("rte-worker") || name.starts_with("dpdk-worker"))
        add(task.path() / "schedstat");
    }
    if (files_.size() < 2) die("no thread of hostnicd's that serves a NIC");
  }
  // All that they have waited since this was called last. The machine's own host may have taken
  // processors away as well.
  microseconds since_last() {
    uint64_t now_ns = stolen_ns();
    for (const int file : files_) now_ns += waited_ns(file);
    const uint64_t before_ns = std::exchange(seen_ns_, now_ns);
    return std::chrono::duration_cast<microseconds>(std::chrono::nanoseconds(now_ns - before_ns));
  }

 private:
  void add(const std::string& path) {
    const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (file < 0) die(path.c_str());
    files_.push_back(file);
  }
  // The second number of a schedstat.
  static uint64_t waited_ns(int file) {
    char text[128] = {};
    if (pread(file, text, sizeof(text) - 1, 0) <= 0) die("schedstat");
    const char* const space = strchr(text, ' ');
    return space == nullptr ? 0 : strtoull(space, nullptr, 10);
  }
  // The eighth number of the first line, in hundredths of a second.
  static uint64_t stolen_ns() {
    std::ifstream file("/proc/stat");
    std::string word;
    uint64_t ticks = 0;
    file >> word;
    for (int i = 0; i < 8; ++i) file >> ticks;
    return ticks * 10'000'000;
  }

  std::vector<int> files_;
  uint64_t seen_ns_ = 0;
};

struct Side {
  ibv_context* context;
  ibv_pd* pd;
  ibv_comp_channel* channel;
  ibv_cq* cq;
  ibv_qp* qp;
  ibv_mr* mr;
  uint64_t word = 0;
  verbs::QpAddress address;

  explicit Side(const char* device) {
    context = good(verbs::open_device(device), device);
    pd = good(ibv_alloc_pd(context), "ibv_alloc_pd");
    channel = good(ibv_create_comp_channel(context), "ibv_create_comp_channel");
    cq = good(ibv_create_cq(context, 16, nullptr, channel, 0), "ibv_create_cq");
    ibv_qp_init_attr wanted{};
    wanted.send_cq = wanted.recv_cq = cq;
    wanted.qp_type = IBV_QPT_RC;
    wanted.cap = {.max_send_wr = 4, .max_recv_wr = 1, .max_send_sge = 1, .max_recv_sge = 1};
    qp = good(ibv_create_qp(pd, &wanted), "ibv_create_qp");
    mr = good(ibv_reg_mr(pd, &word, sizeof(word), IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE),
              "ibv_reg_mr");
    address = {.qpn = qp->qp_num, .psn = 7};
    good(ibv_query_gid(context, 1, 0, &address.gid), "ibv_query_gid");
  }
  void connect(const Side& peer) {
    const verbs::ConnectOptions how;
    good(verbs::to_init(qp, how), "INIT");
    good(verbs::to_rtr(qp, how, peer.address), "RTR");
    good(verbs::to_rts(qp, how, address.psn), "RTS");
  }
};

// Writes `value` there, and returns when it has arrived. The thread sleeps meanwhile: one that
// polls waits for its processor while it waits for its completion, and what it waits for is not to
// be told.
void write(Side& here, Side& there, uint64_t value) {
  here.word = value;
  ibv_sge sge{reinterpret_cast<uint64_t>(&here.word), sizeof(here.word), here.mr->lkey};
  ibv_send_wr wr{}, *bad = nullptr;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.send_flags = IBV_SEND_SIGNALED;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.rdma = {reinterpret_cast<uint64_t>(&there.word), there.mr->rkey};
  good(ibv_req_notify_cq(here.cq, 0), "ibv_req_notify_cq");
  good(ibv_post_send(here.qp, &wr, &bad), "ibv_post_send");
  ibv_cq* cq = nullptr;
  void* context = nullptr;
  good(ibv_get_cq_event(here.channel, &cq, &context), "ibv_get_cq_event");
  ibv_ack_cq_events(cq, 1);
  ibv_wc completion{};
  if (ibv_poll_cq(here.cq, 1, &completion) != 1) die("no completion behind the event");
  if (completion.status != IBV_WC_SUCCESS) {
    fprintf(stderr, "hostnic-steady: %s\n", ibv_wc_status_str(completion.status));
    exit(1);
  }
  if (reinterpret_cast<volatile uint64_t&>(there.word) != value) {
    fprintf(stderr, "hostnic-steady: the word has not arrived\n");
    exit(1);
  }
}

bool input_ended() {
  pollfd input{STDIN_FILENO, POLLIN, 0};
  char byte = 0;
  return poll(&input, 1, 0) == 1 && read(STDIN_FILENO, &byte, 1) <= 0;
}

void run(const std::string& hostnicd) {
  Side here("hnic0"), there("hnic1");
  here.connect(there);
  there.connect(here);
  Waits waits(hostnicd);
  write(here, there, 1);
  printf("steady\n");
  fflush(stdout);
  microseconds longest{0};
  uint64_t count = 1;
  while (!input_ended()) {
    waits.since_last();
    const auto start = Clock::now();
    write(here, there, ++count);
    const auto took = std::chrono::duration_cast<microseconds>(Clock::now() - start);
    longest = std::max(longest, took - waits.since_last());
    std::this_thread::sleep_for(kBetweenWrites);
  }
  printf("%llu WRITEs, the longest %lld us\n", static_cast<unsigned long long>(count),
         static_cast<long long>(longest.count()));
}

}  // namespace
}  // namespace hostnic

int main(int argc, char** argv) {
  if (argc != 3 || std::string_view(argv[1]) != "--hostnicd") {
    fprintf(stderr, "usage: hostnic-steady --hostnicd PID, which ends with its standard input\n");
    return 2;
  }
  hostnic::run(argv[2]);
}
