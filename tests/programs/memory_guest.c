// SPDX-License-Identifier: BSD-3-Clause
// A guest in a real program, which it is preloaded into: a thread of ours registers memory, that of
// the program's allocator and mappings, and has a peer write and read it, while the program does
// what it always does. Children that the program forks look at what they have inherited. Every byte
// is compared. MEMORY_GUEST is the file that it reports to, MEMORY_GUEST_ROUNDS how long it works.
// Some memory is registered before the program's first thread begins, and stays so.
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

int exchange_open(void);
void* exchange_register(void* at, size_t bytes);
int exchange_deregister(void* region);
int exchange_peer_writes(void* region, size_t bytes, uint32_t seed);
int exchange_peer_reads(void* region, size_t bytes, uint32_t seed);
void exchange_fill(uint32_t seed, void* at, size_t bytes);
long exchange_find_wrong(uint32_t seed, const void* at, size_t bytes);

#define KEPT 3
#define SLOTS (KEPT + 1)
#define KIB ((size_t)1024)
#define MIB (1024 * KIB)

// Memory with a seed's bytes. Its bytes change where it is busy, and a child does not look at it.
struct slot {
  uint8_t* at;
  size_t bytes;
  uint32_t seed;
  int busy;
};

// A fork waits for the lock, and so sees slots as they are.
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static struct slot slots[SLOTS];
static void* regions[SLOTS];
static int report = -1;
static long rounds;
static uint32_t next_seed = 1;

static void say(const char* format, long a, long b) {
  char line[160];
  const int length = snprintf(line, sizeof(line), format, a, b);
  if (write(report, line, (size_t)length) != length) _exit(99);
}

static void fail(const char* what, long number) {
  char format[120];
  snprintf(format, sizeof(format), "wrong: %s, %%ld (process %%ld)\n", what);
  say(format, number, getpid());
  abort();
}

static void set(int index, uint8_t* at, size_t bytes, uint32_t seed, int busy) {
  pthread_mutex_lock(&lock);
  slots[index] = (struct slot){at, bytes, seed, busy};
  pthread_mutex_unlock(&lock);
}

// ---- the thread

// The program fills its memory, the peer reads it and writes to it.
static void exchange(int index, long number) {
  const struct slot slot = slots[index];
  const uint32_t seed = next_seed;
  next_seed += 4;
  set(index, slot.at, slot.bytes, 0, 1);
  exchange_fill(seed, slot.at, slot.bytes);
  set(index, slot.at, slot.bytes, seed, 0);
  if (exchange_peer_reads(regions[index], slot.bytes, seed)) fail("the peer reads", number);
  set(index, slot.at, slot.bytes, 0, 1);
  if (exchange_peer_writes(regions[index], slot.bytes, seed + 1)) fail("the peer writes", number);
  set(index, slot.at, slot.bytes, seed + 1, 0);
  usleep(2000);
  const long wrong = exchange_find_wrong(seed + 1, slot.at, slot.bytes);
  if (wrong >= 0) fail("bytes after the peer's WRITE", wrong);
}

static void take(int index, uint8_t* at, size_t bytes) {
  if (at == NULL || at == MAP_FAILED) fail("no memory", (long)bytes);
  set(index, at, bytes, 0, 1);
  regions[index] = exchange_register(at, bytes);
  if (regions[index] == NULL) fail("not registered", (long)bytes);
}

static uint8_t* map(size_t bytes) {
  return mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
}

// The memory grows while it is registered. What mremap moves the key leads to; an allocator may
// have freed the old block, and a key leads to that.
static void grow(int index, size_t bytes, int by_realloc) {
  const struct slot slot = slots[index];
  set(index, NULL, 0, 0, 1);
  uint8_t* at =
      by_realloc ? realloc(slot.at, bytes) : mremap(slot.at, slot.bytes, bytes, MREMAP_MAYMOVE);
  if (at == NULL || at == MAP_FAILED) fail("it does not grow", errno);
  const long wrong = exchange_find_wrong(slot.seed, at, slot.bytes);
  if (wrong >= 0) fail("bytes after it has grown", wrong);
  if (!by_realloc && exchange_peer_reads(regions[index], slot.bytes, slot.seed))
    fail("the peer reads what has moved", 0);
  set(index, at, slot.bytes, slot.seed, 0);
}

static void round_of(long number) {
  const int index = KEPT, kind = (int)(number % 4);
  unsigned random = (unsigned)number * 2654435761u;
  if (kind == 3) {
    exchange((int)(number / 4 % KEPT), number);
    return;
  }
  const int mapped = kind == 1;
  size_t bytes = kind == 0 ? 1 + rand_r(&random) % (300 * KIB) : MIB + rand_r(&random) % (3 * MIB);
  if (mapped) bytes = (bytes + 4095) & ~(size_t)4095;
  take(index, mapped ? map(bytes) : malloc(bytes), bytes);
  exchange(index, number);
  size_t end = bytes;
  if (mapped || kind == 2) grow(index, end = 2 * bytes, !mapped);
  const struct slot slot = slots[index];
  if (exchange_deregister(regions[index])) fail("not deregistered", number);
  const long wrong = exchange_find_wrong(slot.seed, slot.at, slot.bytes);
  if (wrong >= 0) fail("bytes when it was deregistered", wrong);
  set(index, NULL, 0, 0, 1);
  mapped ? (void)munmap(slot.at, end) : free(slot.at);
}

// A thread of ours takes none of the program's signals: their handlers expect the program's own.
static void start(void* (*body)(void*)) {
  sigset_t all, before;
  pthread_t thread;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  if (pthread_create(&thread, NULL, body, NULL)) fail("no thread", errno);
  pthread_detach(thread);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
}

static void* work(void* unused) {
  for (long number = 0; number < rounds; number++) {
    round_of(number);
    usleep(5000);
  }
  say("%ld rounds, no difference (process %ld)\n", rounds, getpid());
  return unused;
}

// ---- children

static void compare_in_child(const char* when) {
  for (int i = 0; i < SLOTS; i++) {
    if (slots[i].busy || slots[i].at == NULL) continue;
    const long wrong = exchange_find_wrong(slots[i].seed, slots[i].at, slots[i].bytes);
    if (wrong >= 0) fail(when, wrong);
  }
}

// The parent and its peer go on writing, and so does the child, of which neither sees anything.
static void* look_later(void* unused) {
  usleep(50 * 1000);
  compare_in_child("what a child had inherited, later");
  for (int i = 0; i < SLOTS; i++)
    if (!slots[i].busy && slots[i].at != NULL)
      exchange_fill(slots[i].seed += 1000, slots[i].at, slots[i].bytes);
  usleep(50 * 1000);
  compare_in_child("what a child has written");
  say("a child, %ld of %ld\n", getpid(), getppid());
  return unused;
}

static void before_fork(void) { pthread_mutex_lock(&lock); }
static void in_parent(void) { pthread_mutex_unlock(&lock); }
static void in_child(void) {
  pthread_mutex_unlock(&lock);
  compare_in_child("what a child has inherited");
  say("a fork, %ld of %ld\n", getpid(), getppid());
  start(look_later);
}

__attribute__((constructor)) static void begin(void) {
  const char *path = getenv("MEMORY_GUEST"), *count = getenv("MEMORY_GUEST_ROUNDS");
  if (path == NULL || count == NULL) return;
  report = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
  rounds = atol(count);
  if (report < 0 || exchange_open() != 0) _exit(98);
  // What a whole program starts is no business of ours.
  unsetenv("MEMORY_GUEST");
  const size_t sizes[KEPT] = {300 * KIB, 3 * MIB, 20 * MIB};
  for (int i = 0; i < KEPT; i++) {
    take(i, i == 0 ? malloc(sizes[i]) : map(sizes[i]), sizes[i]);
    exchange(i, -1);
  }
  pthread_atfork(before_fork, in_parent, in_child);
  start(work);
}
