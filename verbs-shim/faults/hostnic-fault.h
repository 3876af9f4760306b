/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * hostnic-fault.h: arms faults of verbs from within a test program, and tells whether they fired.
 * For C and C++; nothing is linked: the functions are those of the library that `hostnic fault
 * --api` (or `hostnic lab --fault`, `hostnic run --fault`) preloads. Without it they return
 * -ENOSYS, so that a test can skip.
 *
 * A rule is one line of docs/faults.md, such as "fault create_cq nth 1 errno ENOMEM". It is in
 * force for this process from then on, behind those of the command line. Any thread may call these.
 */
#ifndef HOSTNIC_FAULT_H
#define HOSTNIC_FAULT_H

#include <dlfcn.h>
#include <errno.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Arms a rule. Returns its number, from 0, or -EINVAL: it is no rule or can never fire; -ENOSPC: 16
 * are armed; -ENOSYS: no faults are here. Rules of events count from the opening of a device: arm
 * them before. */
static inline int hostnic_fault_arm(const char* rule) {
  int (*arm)(const char*) = (int (*)(const char*))dlsym(RTLD_DEFAULT, "hostnic_fault_library_arm");
  return arm != 0 ? arm(rule) : -ENOSYS;
}

/* How often it has fired in this process; -EINVAL: there is no such rule. */
static inline long hostnic_fault_fired(int number) {
  long (*fired)(int) = (long (*)(int))dlsym(RTLD_DEFAULT, "hostnic_fault_library_fired");
  return fired != 0 ? fired(number) : -ENOSYS;
}

/* It does not fire any more; its number stays taken. Returns 0, or -EINVAL. */
static inline int hostnic_fault_disarm(int number) {
  int (*disarm)(int) = (int (*)(int))dlsym(RTLD_DEFAULT, "hostnic_fault_library_disarm");
  return disarm != 0 ? disarm(number) : -ENOSYS;
}

#ifdef __cplusplus
}
#endif

#endif
