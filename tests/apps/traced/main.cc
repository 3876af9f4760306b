// SPDX-License-Identifier: BSD-3-Clause
// hostnic-traced: makes calls of verbs, each kind a known number of times, for what `hostnic trace`
// says of them: from several threads at once, in a forked child, after all descriptors were closed,
// refused, and in a child that is killed while it polls. A plain verbs program.
#include <infiniband/verbs.h>
#include <signal.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <thread>
#include <vector>

namespace {

constexpr int kThreads = 4;
constexpr int kRegistrations = 200;
constexpr int kPolls = 3000;
constexpr int kChildPolls = 700;
constexpr int kPollEntries = 16;

[[noreturn]] void fail(const char* what) {
  fprintf(stderr, "hostnic-traced: %s (errno %d)\n", what, errno);
  exit(1);
}

ibv_context* open_first() {
  int count = 0;
  ibv_device** list = ibv_get_device_list(&count);
  if (list == nullptr || count == 0) fail("no device");
  ibv_context* context = ibv_open_device(list[0]);
  ibv_free_device_list(list);
  if (context == nullptr) fail("ibv_open_device");
  return context;
}

void poll(ibv_cq* cq, int times) {
  ibv_wc completions[kPollEntries];
  for (int i = 0; i < times; ++i)
    if (ibv_poll_cq(cq, kPollEntries, completions) != 0) fail("ibv_poll_cq");
}

void work(ibv_context* context, ibv_pd* pd) {
  ibv_cq* cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
  if (cq == nullptr) fail("ibv_create_cq");
  std::vector<char> buffer(4096);
  for (int i = 0; i < kRegistrations; ++i) {
    ibv_mr* mr = ibv_reg_mr(pd, buffer.data(), buffer.size(), IBV_ACCESS_LOCAL_WRITE);
    if (mr == nullptr || ibv_dereg_mr(mr) != 0) fail("ibv_reg_mr");
  }
  poll(cq, kPolls);
  if (ibv_destroy_cq(cq) != 0) fail("ibv_destroy_cq");
}

// The child opens the device anew, as children do, and is killed before it has said that it polled.
void child(int ready) {
  ibv_context* context = open_first();
  ibv_cq* cq = ibv_create_cq(context, 16, nullptr, nullptr, 0);
  if (cq == nullptr) fail("ibv_create_cq in the child");
  poll(cq, kChildPolls);
  if (write(ready, "x", 1) != 1) fail("write");
  for (;;) pause();
}

void fork_and_kill() {
  int ready[2];
  if (pipe(ready) != 0) fail("pipe");
  const pid_t pid = fork();
  if (pid < 0) fail("fork");
  if (pid == 0) child(ready[1]);
  close(ready[1]);
  char byte;
  if (read(ready[0], &byte, 1) != 1) fail("the child ended");
  kill(pid, SIGKILL);
  waitpid(pid, nullptr, 0);
  close(ready[0]);
}

}  // namespace

int main() {
  // What is not known is closed before anything is opened, as daemons do. (Sanitizers' and verbs'
  // own descriptors come later.)
  syscall(SYS_close_range, 3u, ~0u, 0u);
  ibv_context* context = open_first();
  ibv_pd* pd = ibv_alloc_pd(context);
  if (pd == nullptr) fail("ibv_alloc_pd");
  if (ibv_create_cq(context, -1, nullptr, nullptr, 0) != nullptr || errno != EINVAL)
    fail("a queue of -1 entries");
  std::vector<std::thread> threads;
  for (int i = 0; i < kThreads; ++i) threads.emplace_back(work, context, pd);
  for (std::thread& thread : threads) thread.join();
  fork_and_kill();
  if (ibv_dealloc_pd(pd) != 0 || ibv_close_device(context) != 0) fail("the end");
  puts("hostnic-traced: ok");
  return 0;
}
