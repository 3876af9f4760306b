// SPDX-License-Identifier: BSD-3-Clause
// Preloaded into perftest's programs: a gettimeofday that counts the time-stamp counter on from one
// system call. A UML guest has no vDSO clock, and its system calls take microseconds and vary; so
// perftest, which calibrates itself by gettimeofday, would often find no frequency and print "inf".
// The frequency is in the environment: rxe-init exports rxe_mhz.
#include <stdint.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <unistd.h>
#include <x86intrin.h>

int gettimeofday(struct timeval* now, void* zone) {
  static struct timeval base;
  static uint64_t base_tsc;
  static double mhz;
  uint64_t us;

  if (!base_tsc) {
    const char* text = getenv("rxe_mhz");
    mhz = text ? atof(text) : 0;
    syscall(SYS_gettimeofday, &base, zone);
    base_tsc = __rdtsc();
  }
  if (mhz <= 0) return (int)syscall(SYS_gettimeofday, now, zone);
  us = (uint64_t)base.tv_usec + (uint64_t)((double)(__rdtsc() - base_tsc) / mhz);
  now->tv_sec = base.tv_sec + (time_t)(us / 1000000u);
  now->tv_usec = (suseconds_t)(us % 1000000u);
  return 0;
}
