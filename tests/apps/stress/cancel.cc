// SPDX-License-Identifier: BSD-3-Clause
// Threads that are cancelled while they post, poll, register and create. Of the verbs only those
// that block are cancellation points: everywhere else the cancellation waits until the verb is
// over, and what the thread had goes on working in other threads' hands.
#include <fmt/format.h>
#include <pthread.h>
#include <unistd.h>

#include <cstring>
#include <utility>

#include "tests/apps/stress/kinds.h"

namespace hostnic::stress {
namespace {

constexpr size_t kBytes = 3 * 4096;
constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;

// What the victim works with, and whoever cancels it afterwards.
struct Stage {
  explicit Stage(const Contexts& of)
      : contexts(of), link(of), channel(must(ibv_create_comp_channel(of.near), "channel")) {
    from.resize(kBytes);
    to.resize(kBytes);
    near = must(ibv_reg_mr(link.near.pd, from.data(), kBytes, kAccess), "ibv_reg_mr");
    far = must(ibv_reg_mr(link.far.pd, to.data(), kBytes, kAccess), "ibv_reg_mr");
  }
  ~Stage() {
    must(ibv_dereg_mr(near), "ibv_dereg_mr");
    must(ibv_dereg_mr(far), "ibv_dereg_mr");
    must(ibv_destroy_comp_channel(channel), "ibv_destroy_comp_channel");
  }
  Stage(const Stage&) = delete;
  Stage& operator=(const Stage&) = delete;

  const Contexts& contexts;
  Link link;
  ibv_comp_channel* channel;
  std::vector<std::byte> from, to;
  ibv_mr* near;
  ibv_mr* far;
  // What the victim has made and not yet destroyed. Each verb's result is stored before anybody
  // can be cancelled.
  ibv_mr* extra_mr = nullptr;
  ibv_pd* extra_pd = nullptr;
  ibv_cq* extra_cq = nullptr;
  ibv_qp* extra_qp = nullptr;
  // Of the near side: posted, not completed.
  unsigned outstanding = 0;
  const char* in_verb = nullptr;
  uint64_t seed = 0;
};

// A verb that is no cancellation point.
template <typename Verb>
auto whole(Stage& stage, const char* name, Verb verb) {
  stage.in_verb = name;
  auto result = verb();
  stage.in_verb = nullptr;
  return result;
}

void poll_some(Stage& stage) {
  ibv_wc wc{};
  const int taken =
      whole(stage, "ibv_poll_cq", [&] { return ibv_poll_cq(stage.link.near.cq, 1, &wc); });
  if (taken == 1 && wc.status != IBV_WC_SUCCESS)
    die(fmt::format("a WRITE of a thread that is cancelled: {}", ibv_wc_status_str(wc.status)));
  if (taken == 1) --stage.outstanding;
}

void post_one(Stage& stage) {
  if (stage.outstanding == 8) return;
  ibv_sge sge{reinterpret_cast<uint64_t>(stage.from.data()), kBytes, stage.near->lkey};
  ibv_send_wr wr{};
  ibv_send_wr* bad = nullptr;
  wr.opcode = IBV_WR_RDMA_WRITE;
  wr.sg_list = &sge;
  wr.num_sge = 1;
  wr.wr.rdma.remote_addr = reinterpret_cast<uint64_t>(stage.to.data());
  wr.wr.rdma.rkey = stage.far->rkey;
  must(whole(stage, "ibv_post_send",
             [&] {
               const int error = ibv_post_send(stage.link.near.qp, &wr, &bad);
               if (error == 0) ++stage.outstanding;
               return error;
             }),
       "ibv_post_send");
}

void make_or_destroy(Stage& stage) {
  if (stage.extra_qp != nullptr) {
    must(whole(stage, "ibv_destroy_qp",
               [&] { return ibv_destroy_qp(std::exchange(stage.extra_qp, nullptr)); }),
         "ibv_destroy_qp");
  } else if (stage.extra_cq == nullptr) {
    whole(stage, "ibv_create_cq", [&] {
      return stage.extra_cq =
                 must(ibv_create_cq(stage.contexts.near, 16, nullptr, nullptr, 0), "ibv_create_cq");
    });
  } else if (stage.extra_pd == nullptr) {
    whole(stage, "ibv_alloc_pd",
          [&] { return stage.extra_pd = must(ibv_alloc_pd(stage.contexts.near), "ibv_alloc_pd"); });
  } else {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = stage.extra_cq;
    init.cap = {4, 4, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    whole(stage, "ibv_create_qp", [&] {
      return stage.extra_qp = must(ibv_create_qp(stage.extra_pd, &init), "ibv_create_qp");
    });
  }
}

void register_or_deregister(Stage& stage) {
  if (stage.extra_mr == nullptr) {
    whole(stage, "ibv_reg_mr", [&] {
      return stage.extra_mr =
                 must(ibv_reg_mr(stage.link.near.pd, stage.from.data() + 100, 8000, kAccess),
                      "ibv_reg_mr");
    });
  } else {
    must(whole(stage, "ibv_dereg_mr",
               [&] { return ibv_dereg_mr(std::exchange(stage.extra_mr, nullptr)); }),
         "ibv_dereg_mr");
  }
}

void* victim(void* argument) {
  Stage& stage = *static_cast<Stage*>(argument);
  Rng rng(stage.seed);
  const bool waits = rng.percent(15);
  for (;;) {
    pthread_testcancel();
    if (waits) {
      // Nobody arms anything: it waits until it is cancelled.
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      ibv_get_cq_event(stage.channel, &cq, &context);
      die("an event of nothing");
    }
    switch (rng.below(8)) {
      case 0:
        register_or_deregister(stage);
        break;
      case 1:
        make_or_destroy(stage);
        break;
      case 2:
      case 3:
        post_one(stage);
        break;
      default:
        poll_some(stage);
    }
  }
}

// The victim is gone: all that it had can be used, and destroyed.
void take_over(Stage& stage) {
  if (stage.in_verb != nullptr) die(fmt::format("a thread was cancelled inside {}", stage.in_verb));
  while (stage.outstanding != 0) poll_some(stage);
  fill(stage.from.data(), kBytes, stage.seed);
  const ibv_sge from{reinterpret_cast<uint64_t>(stage.from.data()), kBytes, stage.near->lkey};
  stage.link.write(from, reinterpret_cast<uint64_t>(stage.to.data()), stage.far->rkey);
  check(stage.to.data(), kBytes, stage.seed, "a WRITE after a thread was cancelled");
  if (stage.extra_qp != nullptr) must(ibv_destroy_qp(stage.extra_qp), "ibv_destroy_qp");
  if (stage.extra_mr != nullptr) must(ibv_dereg_mr(stage.extra_mr), "ibv_dereg_mr");
  if (stage.extra_cq != nullptr) must(ibv_destroy_cq(stage.extra_cq), "ibv_destroy_cq");
  if (stage.extra_pd != nullptr) must(ibv_dealloc_pd(stage.extra_pd), "ibv_dealloc_pd");
  stage.extra_qp = nullptr;
  stage.extra_mr = nullptr;
  stage.extra_cq = nullptr;
  stage.extra_pd = nullptr;
}

}  // namespace

void start_cancelling(const Options& options, KindThreads& threads) {
  const auto contexts = std::make_shared<Contexts>(options);
  for (unsigned i = 0; i < options.kind_threads; ++i) {
    auto& one = *threads.emplace_back(std::make_unique<KindThread>());
    one.kind = "cancel";
    one.thread = std::jthread(
        [&one, contexts, seed = options.seed * 104729 + i](const std::stop_token& stop) {
          Rng rng(seed);
          Stage stage(*contexts);
          while (!stop.stop_requested()) {
            stage.seed = rng.next();
            one.note("waiting for a thread that is cancelled");
            pthread_t thread{};
            must(pthread_create(&thread, nullptr, victim, &stage), "pthread_create");
            usleep(static_cast<useconds_t>(rng.below(rng.percent(50) ? 300 : 5000)));
            must(pthread_cancel(thread), "pthread_cancel");
            void* result = nullptr;
            must(pthread_join(thread, &result), "pthread_join");
            if (result != PTHREAD_CANCELED) die("a thread that was cancelled returned");
            one.note("using what a cancelled thread had");
            take_over(stage);
            count(tally().operations);
          }
        });
  }
}

}  // namespace hostnic::stress
