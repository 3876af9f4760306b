// SPDX-License-Identifier: BSD-3-Clause
// What the kinds share, and the first two: opening at once, registering around each message.
#include "tests/apps/stress/kinds.h"

#include <fmt/format.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <barrier>
#include <cstdlib>
#include <cstring>

#include "tests/support/verbs_pair.h"

namespace hostnic::stress {
namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ;

// Memory as programs get it: of the heap, large or small, or mapped.
struct Buffer {
  Buffer(size_t length_bytes, Rng& rng) : bytes(length_bytes) {
    if (rng.percent(50)) {
      mapped_bytes = (bytes + 4095) / 4096 * 4096;
      void* at =
          mmap(nullptr, mapped_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      if (at == MAP_FAILED) die_of_errno("mmap");
      base = data = static_cast<std::byte*>(at);
      data += rng.below(mapped_bytes - bytes + 1);
    } else {
      base = data = static_cast<std::byte*>(must(std::malloc(bytes), "malloc"));
    }
  }
  ~Buffer() {
    if (mapped_bytes != 0)
      munmap(base, mapped_bytes);
    else
      std::free(base);
  }
  Buffer(const Buffer&) = delete;
  Buffer& operator=(const Buffer&) = delete;

  const size_t bytes;
  std::byte* base = nullptr;
  std::byte* data = nullptr;
  size_t mapped_bytes = 0;
};

ibv_sge sge_of(const Buffer& buffer, const ibv_mr* mr) {
  return {reinterpret_cast<uint64_t>(buffer.data), static_cast<uint32_t>(buffer.bytes), mr->lkey};
}

// One message, with regions that exist for it alone, and memory that is somebody else's at once.
void one_message(Link& link, Rng& rng, uint64_t stream) {
  const size_t bytes = rng.percent(20) ? rng.between(1, 300'000) : rng.between(1, 20'000);
  Buffer from(bytes, rng), to(bytes, rng);
  fill(from.data, bytes, stream);
  std::memset(to.data, 0, bytes);
  ibv_mr* near = must(ibv_reg_mr(link.near.pd, from.data, bytes, kAccess), "ibv_reg_mr");
  ibv_mr* far = must(ibv_reg_mr(link.far.pd, to.data, bytes, kAccess), "ibv_reg_mr");
  count(tally().mrs, 2);
  if (rng.percent(50))
    link.send(sge_of(from, near), sge_of(to, far));
  else
    link.write(sge_of(from, near), reinterpret_cast<uint64_t>(to.data), far->rkey);
  must(ibv_dereg_mr(near), "ibv_dereg_mr");
  must(ibv_dereg_mr(far), "ibv_dereg_mr");
  check(to.data, bytes, stream, "a message with regions of its own");
  check(from.data, bytes, stream, "the source of such a message");
  count(tally().operations);
  count(tally().bytes, bytes);
}

// Opens both devices together with others, and moves a page each way.
void open_and_use(const Options& options, std::barrier<>& together, uint64_t stream) {
  together.arrive_and_wait();
  const Contexts contexts(options);
  Link link(contexts);
  Rng rng(stream);
  constexpr size_t kWholePages = 16 * 4096;
  for (const size_t bytes : {kWholePages, size_t{100}}) {
    Buffer from(bytes, rng), to(bytes, rng);
    fill(from.data, bytes, stream);
    ibv_mr* near = must(ibv_reg_mr(link.near.pd, from.data, bytes, kAccess),
                        "ibv_reg_mr after opening devices at once");
    ibv_mr* far = must(ibv_reg_mr(link.far.pd, to.data, bytes, kAccess),
                       "ibv_reg_mr after opening devices at once");
    link.send(sge_of(from, near), sge_of(to, far));
    check(to.data, bytes, stream, "a message after opening devices at once");
    must(ibv_dereg_mr(near), "ibv_dereg_mr");
    must(ibv_dereg_mr(far), "ibv_dereg_mr");
  }
}

// This program anew, with --open-once.
void run_opener(const Options& options, uint64_t seed) {
  std::string arguments[] = {"hostnic-stress", "--open-once", "--device", options.near,
                             "--peer-device",  options.far,   "--seed",   fmt::format("{}", seed)};
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  argv.push_back(nullptr);
  pid_t child = 0;
  must(posix_spawn(&child, "/proc/self/exe", nullptr, nullptr, argv.data(), environ),
       "posix_spawn");
  int status = 0;
  if (waitpid(child, &status, 0) != child) die_of_errno("waitpid");
  if (status != 0)
    die(fmt::format(
        "a process whose threads open devices at once ended with status {:#x} (seed {})", status,
        seed));
}

}  // namespace

ibv_context* open_one(const std::string& name) {
  ibv_context* context = verbs::open_device(name);
  if (context == nullptr) die(fmt::format("device {} can't be opened", name));
  return context;
}

Contexts::Contexts(const Options& options)
    : near(open_one(options.near)), far(open_one(options.far)) {}

Contexts::~Contexts() {
  must(ibv_close_device(near), "ibv_close_device");
  must(ibv_close_device(far), "ibv_close_device");
}

Link::Link(const Contexts& contexts) {
  open(contexts.near, near);
  open(contexts.far, far);
  connect(near, far, contexts.far);
  connect(far, near, contexts.near);
  count(tally().qps, 2);
}

Link::~Link() {
  for (const Side& side : {near, far}) {
    must(ibv_destroy_qp(side.qp), "ibv_destroy_qp");
    must(ibv_destroy_cq(side.cq), "ibv_destroy_cq");
    must(ibv_dealloc_pd(side.pd), "ibv_dealloc_pd");
  }
}

void Link::open(ibv_context* context, Side& side) {
  side.pd = must(ibv_alloc_pd(context), "ibv_alloc_pd");
  side.cq = must(ibv_create_cq(context, 64, nullptr, nullptr, 0), "ibv_create_cq");
  ibv_qp_init_attr init{};
  init.send_cq = init.recv_cq = side.cq;
  init.cap = {16, 16, 1, 1, 0};
  init.qp_type = IBV_QPT_RC;
  init.sq_sig_all = 1;
  side.qp = must(ibv_create_qp(side.pd, &init), "ibv_create_qp");
  side.psn = side.qp->qp_num & 0xffff;
}

void Link::connect(Side& side, const Side& peer, ibv_context* other) {
  const verbs::ConnectOptions how{.access = kAccess, .min_rnr_timer = 1, .rd_atomic = 4};
  verbs::QpAddress address{peer.qp->qp_num, peer.psn};
  must(ibv_query_gid(other, 1, 0, &address.gid), "ibv_query_gid");
  must(verbs::to_init(side.qp, how), "INIT");
  must(verbs::to_rtr(side.qp, how, address), "RTR");
  must(verbs::to_rts(side.qp, how, side.psn), "RTS");
}

void Link::wait_for_one(ibv_cq* cq, const char* what) {
  ibv_wc wc{};
  for (;;) {
    const int taken = ibv_poll_cq(cq, 1, &wc);
    if (taken < 0) die("ibv_poll_cq");
    if (taken == 1) break;
    sched_yield();
  }
  if (wc.status != IBV_WC_SUCCESS)
    die(fmt::format("{}: {} (vendor {})", what, ibv_wc_status_str(wc.status), wc.vendor_err));
}

void Link::send(const ibv_sge& from, const ibv_sge& to) {
  ibv_recv_wr recv{};
  ibv_recv_wr* bad_recv = nullptr;
  recv.sg_list = const_cast<ibv_sge*>(&to);
  recv.num_sge = 1;
  must(ibv_post_recv(far.qp, &recv, &bad_recv), "ibv_post_recv");
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  wr.opcode = IBV_WR_SEND;
  wr.sg_list = const_cast<ibv_sge*>(&from);
  wr.num_sge = 1;
  must(ibv_post_send(near.qp, &wr, &bad), "ibv_post_send");
  wait_for_one(near.cq, "SEND");
  wait_for_one(far.cq, "receive");
}

void Link::write(const ibv_sge& from, uint64_t to, uint32_t rkey) {
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.sg_list = const_cast<ibv_sge*>(&from);
  wr.num_sge = 1;
  wr.wr.rdma.remote_addr = to;
  wr.wr.rdma.rkey = rkey;
  must(ibv_post_send(near.qp, &wr, &bad), "ibv_post_send");
  wait_for_one(near.cq, "WRITE");
}

namespace {

std::byte content_at(uint64_t stream, size_t at) {
  uint64_t x = (stream + 1) * 0x9e3779b97f4a7c15 + at * 0xbf58476d1ce4e5b9;
  x ^= x >> 29;
  return static_cast<std::byte>(x * 0x94d049bb133111eb >> 56);
}

}  // namespace

void fill(std::byte* data, size_t bytes, uint64_t stream) {
  for (size_t i = 0; i < bytes; ++i) data[i] = content_at(stream, i);
}

void check(const std::byte* data, size_t bytes, uint64_t stream, const char* what) {
  for (size_t i = 0; i < bytes; ++i) {
    if (data[i] != content_at(stream, i))
      die(fmt::format("{}: byte {} of {} is {:#x}, not {:#x}", what, i, bytes,
                      static_cast<unsigned>(data[i]),
                      static_cast<unsigned>(content_at(stream, i))));
  }
}

void start_registering(const Options& options, KindThreads& threads) {
  const auto contexts = std::make_shared<Contexts>(options);
  for (unsigned i = 0; i < options.kind_threads; ++i) {
    auto& one = *threads.emplace_back(std::make_unique<KindThread>());
    one.kind = "register";
    one.thread =
        std::jthread([&one, contexts, seed = options.seed * 7919 + i](const std::stop_token& stop) {
          Rng rng(seed);
          Link link(*contexts);
          for (uint64_t n = 0; !stop.stop_requested(); ++n) {
            one.note("a message with regions of its own");
            one_message(link, rng, seed << 32 | n);
          }
        });
  }
}

void open_at_once(const Options& options) {
  constexpr unsigned kThreads = 6;
  std::barrier together(kThreads);
  std::vector<std::jthread> threads;
  for (unsigned i = 0; i < kThreads; ++i)
    threads.emplace_back([&, i] { open_and_use(options, together, options.seed * 64 + i); });
}

void start_opening(const Options& options, KindThreads& threads) {
  auto& one = *threads.emplace_back(std::make_unique<KindThread>());
  one.kind = "open";
  one.thread = std::jthread([&one, options](const std::stop_token& stop) {
    for (uint64_t n = 0; !stop.stop_requested(); ++n) {
      one.note("a process whose threads open devices at once");
      run_opener(options, options.seed * 1'000'000 + n);
      one.note("threads of this process that do");
      open_at_once(options);
    }
  });
}

void run_kinds(const Options& options, uint64_t end_ns) {
  KindThreads threads;
  if (options.has_kind("open")) start_opening(options, threads);
  if (options.has_kind("register")) start_registering(options, threads);
  if (options.has_kind("cancel")) start_cancelling(options, threads);
  if (options.has_kind("syscalls")) start_system_calls(options, threads);
  std::vector<std::pair<uint64_t, uint64_t>> seen(threads.size(), {0, now_ns()});  // steps, since
  const auto look = [&] {
    for (size_t i = 0; i < threads.size(); ++i) {
      const uint64_t steps = threads[i]->steps, now = now_ns();
      if (steps == UINT64_MAX) continue;  // over
      if (steps != seen[i].first)
        seen[i] = {steps, now};
      else if (now - seen[i].second > options.patience_seconds * 1'000'000'000ULL)
        die(fmt::format("no progress for {} s: kind {}: {}", options.patience_seconds,
                        threads[i]->kind, threads[i]->doing.load()));
    }
    usleep(50'000);
  };
  while (now_ns() < end_ns) look();
  for (auto& thread : threads) thread->thread.request_stop();
  // The watchdog of the end: what hangs now is named, too.
  std::jthread watch([&](const std::stop_token& stop) {
    while (!stop.stop_requested()) look();
  });
  for (auto& thread : threads) {
    thread->thread.join();
    thread->steps = UINT64_MAX;
  }
}

}  // namespace hostnic::stress
