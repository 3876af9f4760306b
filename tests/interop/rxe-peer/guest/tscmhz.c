// SPDX-License-Identifier: BSD-3-Clause
// Prints the frequency of the time-stamp counter in MHz. start.sh runs it on the host: the guest
// runs natively, so its counter is the same one, but its clock is too slow to read to measure by.
#include <stdint.h>
#include <stdio.h>
#include <time.h>
#include <x86intrin.h>

static uint64_t now_ns(void) {
  struct timespec t;
  clock_gettime(CLOCK_MONOTONIC, &t);
  return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

int main(void) {
  uint64_t start_ns = now_ns(), start_tsc = __rdtsc(), end_ns;
  do {
    end_ns = now_ns();
  } while (end_ns - start_ns < 100000000u);
  printf("%.3f\n", (double)(__rdtsc() - start_tsc) * 1000.0 / (double)(end_ns - start_ns));
  return 0;
}
