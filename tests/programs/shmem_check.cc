// SPDX-License-Identifier: BSD-3-Clause
// Processing elements of OpenSHMEM put, get and count in each other's memory, and check each
// element.
#include <shmem.h>

#include <cstdio>
#include <cstdlib>

namespace {

constexpr int kMaxElements = 16;
constexpr int kPart = 1000;
constexpr int kBig = 100000;
constexpr int kTimes = 300;

// Symmetric objects are static: they have the same place everywhere.
long inbox[kMaxElements * kPart];
long big[kBig];
long fetched[kBig];
long counter;
long fetch_counter;

int own_number = 0;

long mark(int from, int to, long index) { return from * 1000003L + to * 7919L + index * 31; }

void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "element %d: wrong contents: %s\n", own_number, what);
  shmem_global_exit(1);
}

}  // namespace

int main() {
  shmem_init();
  own_number = shmem_my_pe();
  const int elements = shmem_n_pes();
  require(elements <= kMaxElements, "too many processing elements");
  for (int peer = 0; peer < elements; ++peer) {
    long part[kPart];
    for (int i = 0; i < kPart; ++i) part[i] = mark(own_number, peer, i);
    shmem_long_put(&inbox[own_number * kPart], part, kPart, peer);
  }
  for (long i = 0; i < kBig; ++i) big[i] = mark(own_number, 0, i);
  shmem_barrier_all();
  for (int peer = 0; peer < elements; ++peer)
    for (int i = 0; i < kPart; ++i)
      require(inbox[peer * kPart + i] == mark(peer, own_number, i), "put");
  const int next = (own_number + 1) % elements;
  shmem_long_get(fetched, big, kBig, next);
  for (long i = 0; i < kBig; ++i) require(fetched[i] == mark(next, 0, i), "get");
  for (int i = 0; i < kTimes; ++i) {
    shmem_long_atomic_inc(&counter, 0);
    require(shmem_long_atomic_fetch_add(&fetch_counter, 2, 0) % 2 == 0, "fetch and add");
  }
  shmem_barrier_all();
  if (own_number == 0)
    require(counter == static_cast<long>(kTimes) * elements && fetch_counter == 2 * counter,
            "sums of atomics");
  require(
      shmem_long_atomic_compare_swap(&counter, -1, 5, 0) == static_cast<long>(kTimes) * elements,
      "compare and swap");
  shmem_barrier_all();
  if (own_number == 0) std::printf("shmem_check: all contents are right, %d elements\n", elements);
  shmem_finalize();
  return 0;
}
