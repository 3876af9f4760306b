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

// 2.32. Messages say ENOMEM, not 12.
const char* strerrorname_np(int error) {
#define NAME(name) [name] = #name
  // clang-format off
  static const char* const names[] = {[0] = "0",
      NAME(EPERM), NAME(ENOENT), NAME(ESRCH), NAME(EINTR), NAME(EIO), NAME(ENXIO), NAME(E2BIG),
      NAME(ENOEXEC), NAME(EBADF), NAME(ECHILD), NAME(EAGAIN), NAME(ENOMEM), NAME(EACCES),
      NAME(EFAULT), NAME(ENOTBLK), NAME(EBUSY), NAME(EEXIST), NAME(EXDEV), NAME(ENODEV),
      NAME(ENOTDIR), NAME(EISDIR), NAME(EINVAL), NAME(ENFILE), NAME(EMFILE), NAME(ENOTTY),
      NAME(ETXTBSY), NAME(EFBIG), NAME(ENOSPC), NAME(ESPIPE), NAME(EROFS), NAME(EMLINK),
      NAME(EPIPE), NAME(EDOM), NAME(ERANGE), NAME(EDEADLK), NAME(ENAMETOOLONG), NAME(ENOLCK),
      NAME(ENOSYS), NAME(ENOTEMPTY), NAME(ELOOP), NAME(ENOMSG), NAME(EIDRM), NAME(ECHRNG),
      NAME(EL2NSYNC), NAME(EL3HLT), NAME(EL3RST), NAME(ELNRNG), NAME(EUNATCH), NAME(ENOCSI),
      NAME(EL2HLT), NAME(EBADE), NAME(EBADR), NAME(EXFULL), NAME(ENOANO), NAME(EBADRQC),
      NAME(EBADSLT), NAME(EBFONT), NAME(ENOSTR), NAME(ENODATA), NAME(ETIME), NAME(ENOSR),
      NAME(ENONET), NAME(ENOPKG), NAME(EREMOTE), NAME(ENOLINK), NAME(EADV), NAME(ESRMNT),
      NAME(ECOMM), NAME(EPROTO), NAME(EMULTIHOP), NAME(EDOTDOT), NAME(EBADMSG), NAME(EOVERFLOW),
      NAME(ENOTUNIQ), NAME(EBADFD), NAME(EREMCHG), NAME(ELIBACC), NAME(ELIBBAD), NAME(ELIBSCN),
      NAME(ELIBMAX), NAME(ELIBEXEC), NAME(EILSEQ), NAME(ERESTART), NAME(ESTRPIPE), NAME(EUSERS),
      NAME(ENOTSOCK), NAME(EDESTADDRREQ), NAME(EMSGSIZE), NAME(EPROTOTYPE), NAME(ENOPROTOOPT),
      NAME(EPROTONOSUPPORT), NAME(ESOCKTNOSUPPORT), NAME(EOPNOTSUPP), NAME(EPFNOSUPPORT),
      NAME(EAFNOSUPPORT), NAME(EADDRINUSE), NAME(EADDRNOTAVAIL), NAME(ENETDOWN),
      NAME(ENETUNREACH), NAME(ENETRESET), NAME(ECONNABORTED), NAME(ECONNRESET), NAME(ENOBUFS),
      NAME(EISCONN), NAME(ENOTCONN), NAME(ESHUTDOWN), NAME(ETOOMANYREFS), NAME(ETIMEDOUT),
      NAME(ECONNREFUSED), NAME(EHOSTDOWN), NAME(EHOSTUNREACH), NAME(EALREADY),
      NAME(EINPROGRESS), NAME(ESTALE), NAME(EUCLEAN), NAME(ENOTNAM), NAME(ENAVAIL),
      NAME(EISNAM), NAME(EREMOTEIO), NAME(EDQUOT), NAME(ENOMEDIUM), NAME(EMEDIUMTYPE),
      NAME(ECANCELED), NAME(ENOKEY), NAME(EKEYEXPIRED), NAME(EKEYREVOKED), NAME(EKEYREJECTED),
      NAME(EOWNERDEAD), NAME(ENOTRECOVERABLE), NAME(ERFKILL), NAME(EHWPOISON)};
  // clang-format on
#undef NAME
  return error >= 0 && (size_t)error < sizeof(names) / sizeof(names[0]) ? names[error] : NULL;
}

// 2.32. The words are the locale's here; programs that set none have the same.
const char* strerrordesc_np(int error) { return strerror(error); }

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
