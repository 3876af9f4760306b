// SPDX-License-Identifier: BSD-3-Clause
// What the bundle's programs and Debian 12's static libstdc++ and libgcc take from glibc 2.32 to
// 2.36, for hosts down to 2.31. Linked into each binary of the bundle and visible in it alone.
#include <dlfcn.h>
#include <errno.h>
#include <link.h>
#include <signal.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/random.h>
#include <sys/syscall.h>
#include <unistd.h>

// 2.32. libstdc++ then counts references without atomic instructions; 0 has it use them always.
char __libc_single_threaded = 0;

// 2.36, for std::random_device.
uint32_t arc4random(void) {
  uint32_t number = 0;
  while (getrandom(&number, sizeof(number), 0) != sizeof(number))
    if (errno != EINTR) abort();
  return number;
}

// 2.35. The size of the kernel's signal set is not that of sigset_t.
int epoll_pwait2(int epoll_fd, struct epoll_event* events, int most, const struct timespec* timeout,
                 const sigset_t* mask) {
  return (int)syscall(SYS_epoll_pwait2, epoll_fd, events, most, timeout, mask, _NSIG / 8);
}

struct Wanted {
  uintptr_t address;
  struct dl_find_object* found;
};

static int find_in_object(struct dl_phdr_info* object, size_t size, void* argument) {
  (void)size;
  const struct Wanted* wanted = argument;
  const ElfW(Phdr)* unwind_table = NULL;
  uintptr_t start = UINTPTR_MAX, end = 0;
  bool inside = false;
  for (unsigned i = 0; i < object->dlpi_phnum; ++i) {
    const ElfW(Phdr)* header = &object->dlpi_phdr[i];
    const uintptr_t from = object->dlpi_addr + header->p_vaddr;
    if (header->p_type == DLFO_EH_SEGMENT_TYPE) unwind_table = header;
    if (header->p_type != PT_LOAD) continue;
    if (from < start) start = from;
    if (from + header->p_memsz > end) end = from + header->p_memsz;
    inside = inside || (wanted->address >= from && wanted->address < from + header->p_memsz);
  }
  if (!inside || unwind_table == NULL) return 0;
  wanted->found->dlfo_map_start = (void*)start;
  wanted->found->dlfo_map_end = (void*)end;
  wanted->found->dlfo_eh_frame = (void*)(object->dlpi_addr + unwind_table->p_vaddr);
  return 1;
}

// 2.35: where an exception's tables are. libgcc looked for them in this way before.
int _dl_find_object(void* address, struct dl_find_object* result) {
  memset(result, 0, sizeof(*result));
  struct Wanted wanted = {(uintptr_t)address, result};
  return dl_iterate_phdr(find_in_object, &wanted) == 1 ? 0 : -1;
}
