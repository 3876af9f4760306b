// SPDX-License-Identifier: BSD-3-Clause
// Threads on shared objects, many contexts, and fork.
#include <pthread.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <functional>
#include <thread>

#include "tests/conformance/bench.h"

namespace hostnic::conformance {
namespace {

constexpr int kThreads = 8;

void in_threads(int count, const std::function<void(int)>& work) {
  std::vector<std::thread> threads;
  for (int i = 0; i < count; ++i) threads.emplace_back(work, i);
  for (std::thread& one : threads) one.join();
}

class Threads : public Conformance {
 protected:
  // Polls near's queue until `count` requests have completed; each must be a success.
  void collect(std::atomic<int>& left) const {
    const auto give_up = std::chrono::steady_clock::now() + kPatience;
    while (left.load() > 0 && std::chrono::steady_clock::now() < give_up) {
      ibv_wc wc{};
      if (ibv_poll_cq(near->cq, 1, &wc) == 0) {
        std::this_thread::yield();
        continue;
      }
      EXPECT_EQ(wc.status, IBV_WC_SUCCESS);
      left.fetch_sub(1);
    }
  }
};

TEST_F(Threads, PostToOneQueuePair) {
  ConnectOptions options;
  options.caps.max_send_wr = 1024;
  options.cq_entries = 1024;
  connect(options);
  std::atomic<int> left{kThreads * 100};
  in_threads(kThreads, [&](int) {
    ibv_sge sge = near_host->sge(8);
    for (uint64_t i = 0; i < 100; ++i)
      EXPECT_EQ(near->post(request(i, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  });
  collect(left);
  EXPECT_EQ(left.load(), 0);
  near->expect_nothing();
}

TEST_F(Threads, PollOneCompletionQueue) {
  ConnectOptions options;
  options.caps.max_send_wr = 1024;
  options.cq_entries = 1024;
  connect(options);
  ibv_sge sge = near_host->sge(8);
  for (uint64_t i = 0; i < 1000; ++i)
    ASSERT_EQ(near->post(request(i, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
  std::atomic<int> left{1000};
  in_threads(kThreads, [&](int) { collect(left); });
  EXPECT_EQ(left.load(), 0) << "each completion goes to one thread";
  near->expect_nothing();
}

TEST_F(Threads, CreateAndDestroyObjects) {
  in_threads(kThreads, [&](int) {
    for (int i = 0; i < 20; ++i) {
      Endpoint one(*near_host, {});
      EXPECT_TRUE(one.valid());
      ibv_mr* mr = ibv_reg_mr(near_host->pd, near_host->bytes().data(), 4096, kAllAccess);
      EXPECT_NE(mr, nullptr);
      if (one.valid()) {
        EXPECT_EQ(one.to_init(), 0);
      }
      if (mr != nullptr) {
        EXPECT_EQ(ibv_dereg_mr(mr), 0);
      }
    }
  });
}

TEST_F(Threads, WorkWhileOthersCreateAndDestroy) {
  connect();
  std::atomic<bool> done{false};
  std::thread other([&] {
    while (!done) Endpoint one(*near_host, {});
  });
  ibv_sge sge = near_host->sge(8);
  for (uint64_t i = 0; i < 1000; ++i) {
    EXPECT_EQ(near->post(request(i, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
    near->expect(i);
  }
  done = true;
  other.join();
}

TEST_F(Threads, EachWithAContextOfItsOwn) {
  in_threads(4, [&](int) {
    Host a("hnic0"), b("hnic1");
    ASSERT_TRUE(a.valid() && b.valid());
    Endpoint one(a, {}), two(b, {});
    ASSERT_TRUE(one.valid() && two.valid());
    for (Endpoint* end : {&one, &two}) {
      ASSERT_EQ(end->to_init(), 0);
      ASSERT_EQ(end->to_rtr(end == &one ? two : one), 0);
      ASSERT_EQ(end->to_rts(), 0);
    }
    ibv_sge sge = a.sge(5000);
    for (uint64_t i = 0; i < 50; ++i) {
      ASSERT_EQ(one.post(request(i, IBV_WR_RDMA_WRITE, &sge, b)), 0);
      one.expect(i);
    }
  });
}

TEST_F(Threads, ManyQueuePairsOnOneCompletionQueue) {
  connect();
  std::vector<ibv_qp*> qps;
  for (int i = 0; i < 100; ++i) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = near->cq;
    init.qp_type = IBV_QPT_RC;
    init.cap = {1, 1, 1, 1, 0};
    qps.push_back(ibv_create_qp(near_host->pd, &init));
    ASSERT_NE(qps.back(), nullptr) << i;
  }
  std::vector<uint32_t> numbers;
  for (ibv_qp* qp : qps) numbers.push_back(qp->qp_num);
  std::ranges::sort(numbers);
  EXPECT_EQ(std::ranges::adjacent_find(numbers), numbers.end()) << "each has its own number";
  for (ibv_qp* qp : qps) EXPECT_EQ(ibv_destroy_qp(qp), 0);
}

// ---- fork. Children report by exit status and never run a destructor of the test.

class Forks : public Conformance {
 protected:
  // What `work` returns in a child is its exit status.
  static int in_child(const std::function<int()>& work) {
    const pid_t child = fork();
    if (child == 0) _exit(work());
    int status = 0;
    if (child < 0 || waitpid(child, &status, 0) != child) return -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  void write_and_check(std::byte value) {
    near_host->bytes()[0] = value;
    ibv_sge sge = near_host->sge(8);
    ASSERT_EQ(near->post(request(1, IBV_WR_RDMA_WRITE, &sge, *far_host)), 0);
    near->expect(1);
    EXPECT_EQ(far_host->bytes()[0], value);
  }
};

TEST_F(Forks, ARegisteredParentGoesOn) {
  connect();
  write_and_check(std::byte{1});
  std::ranges::fill(far_host->bytes(), std::byte{9});
  EXPECT_EQ(in_child([&] {
              // A copy of its own: what it writes is not seen, what it has is as it was.
              const bool same = far_host->bytes()[100] == std::byte{9};
              std::ranges::fill(far_host->bytes(), std::byte{7});
              std::ranges::fill(near_host->bytes(), std::byte{7});
              return same ? 0 : 1;
            }),
            0);
  EXPECT_EQ(far_host->bytes()[100], std::byte{9});
  write_and_check(std::byte{2});
}

TEST_F(Forks, TheChildSeesNothingOfLaterWork) {
  connect();
  write_and_check(std::byte{1});
  int to_child[2];
  ASSERT_EQ(pipe(to_child), 0);
  const pid_t child = fork();
  if (child == 0) {
    char go = 0;
    _exit(read(to_child[0], &go, 1) == 1 && far_host->bytes()[0] == std::byte{1} ? 0 : 1);
  }
  write_and_check(std::byte{2});
  ASSERT_EQ(write(to_child[1], "x", 1), 1);
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0) << "the parent's WRITE has reached the child's memory";
  close(to_child[0]);
  close(to_child[1]);
}

TEST_F(Forks, TheParentsDevicesAreDeadInTheChild) {
  connect();
  EXPECT_EQ(in_child([&] {
              ibv_sge sge = near_host->sge(8);
              ibv_send_wr wr = request(1, IBV_WR_RDMA_WRITE, &sge, *far_host);
              ibv_send_wr* bad = nullptr;
              ibv_wc wc{};
              if (ibv_post_send(near->qp, &wr, &bad) == 0) return 1;
              if (ibv_poll_cq(near->cq, 1, &wc) > 0) return 2;
              return 0;
            }),
            0);
  write_and_check(std::byte{3});
}

TEST_F(Forks, AChildOpensTheDeviceAnew) {
  connect();
  EXPECT_EQ(in_child([] {
              Host host("hnic0");
              if (!host.valid()) return 1;
              Endpoint end(host, {});
              return end.valid() && end.to_init() == 0 ? 0 : 2;
            }),
            0);
  write_and_check(std::byte{3});
}

#if __GLIBC_PREREQ(2, 34)
// A fork without handlers (POSIX, for signal handlers).
TEST_F(Forks, AChildOfForkWithoutHandlersOpensTheDeviceAnew) {
  const pid_t child = _Fork();
  if (child == 0) {
    alarm(30);
    static_cast<void>(near_host.release());  // they are the parent's
    static_cast<void>(far_host.release());
    near_host = std::make_unique<Host>("hnic0");
    far_host = std::make_unique<Host>("hnic1");
    if (!near_host->valid() || !far_host->valid()) _exit(1);
    connect();
    write_and_check(std::byte{5});
    _exit(HasFailure() ? 2 : 0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}
#endif

// The library in it is its parent's, and reaches the parent's memory: an error, and no other bytes.
TEST_F(Forks, ABareForksChildGetsNoDeviceAndNoRegion) {
  connect();
  const auto child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
  if (child == 0) {
    alarm(30);
    int count = 0;
    ibv_device** devices = ibv_get_device_list(&count);
    if (devices == nullptr || count == 0) _exit(1);
    errno = 0;
    if (ibv_open_device(devices[0]) != nullptr || errno != EOPNOTSUPP) _exit(2);
    errno = 0;
    static char bytes[8192];
    const int access = IBV_ACCESS_LOCAL_WRITE;
    if (ibv_reg_mr(near_host->pd, bytes, sizeof bytes, access) != nullptr || errno != EOPNOTSUPP)
      _exit(3);
    _exit(0);
  }
  int status = -1;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  write_and_check(std::byte{3});
}

// Last: it holds for the rest of the process. Registered pages may be missing in the child, as
// ibv_fork_init(3) says; what else there is may be used, and the parent goes on.
TEST_F(Forks, WithIbvForkInit) {
  ASSERT_EQ(ibv_fork_init(), 0);
  EXPECT_NE(ibv_is_fork_initialized(), IBV_FORK_DISABLED);
  connect();
  write_and_check(std::byte{1});
  std::vector<std::byte> unregistered(100'000, std::byte{9});
  EXPECT_EQ(in_child([&] {
              const bool same = unregistered[50'000] == std::byte{9};
              std::ranges::fill(unregistered, std::byte{7});
              return same ? 0 : 1;
            }),
            0);
  EXPECT_EQ(unregistered[50'000], std::byte{9});
  write_and_check(std::byte{2});
}

// A program's lock that its fork handlers take, as a malloc has one. They are registered before any
// device is open.
pthread_mutex_t guarded = PTHREAD_MUTEX_INITIALIZER;
void lock_guarded() { pthread_mutex_lock(&guarded); }
void unlock_guarded() { pthread_mutex_unlock(&guarded); }
[[maybe_unused]] const int kHandled = pthread_atfork(lock_guarded, unlock_guarded, unlock_guarded);

// The lock may be held by who unmaps registered memory, and what it guards is whole in a child, in
// registered memory, too.
TEST_F(Threads, ForkWithALockOfTheProgramsOwn) {
  constexpr size_t kPages = 64, kBytes = kPages * 4096;
  auto* const words = static_cast<volatile uint64_t*>(mmap(
      nullptr, kBytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0));
  ASSERT_NE(static_cast<volatile void*>(words), MAP_FAILED);
  volatile uint64_t& first = words[0];
  volatile uint64_t& last = words[kBytes / sizeof(uint64_t) - 1];
  ibv_mr* const mr = ibv_reg_mr(near_host->pd, const_cast<uint64_t*>(words), kBytes, kAllAccess);
  ASSERT_NE(mr, nullptr);
  std::atomic<bool> over{false};
  std::thread other([&] {
    while (!over.load()) {
      lock_guarded();
      first = first + 1;
      void* const at =
          mmap(nullptr, 65536, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
      ibv_mr* const short_lived = ibv_reg_mr(near_host->pd, at, 65536, kAllAccess);
      EXPECT_NE(short_lived, nullptr);
      munmap(at, 65536);
      if (short_lived != nullptr) ibv_dereg_mr(short_lived);
      last = last + 1;
      unlock_guarded();
      std::this_thread::sleep_for(std::chrono::microseconds(100));
    }
  });
  int torn = 0;
  for (int i = 0; i < 100; ++i) {
    const pid_t child = fork();
    if (child == 0) _exit(first == last ? 0 : 1);
    int status = 0;
    EXPECT_EQ(waitpid(child, &status, 0), child);
    torn += status != 0 ? 1 : 0;
  }
  over = true;
  other.join();
  EXPECT_EQ(torn, 0);
  ibv_dereg_mr(mr);
  munmap(const_cast<uint64_t*>(words), kBytes);
}

}  // namespace
}  // namespace hostnic::conformance
