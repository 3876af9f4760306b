// SPDX-License-Identifier: BSD-3-Clause
// Replaces the libc functions that take a path, for the few paths of path_map.h. Compiled without
// sanitizers: sanitizer runtimes call these before they are ready.
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/stat.h>
#include <sys/types.h>

#include <atomic>
#include <cerrno>
#include <cstdarg>
#include <cstdio>
#include <cstring>
#include <new>
#include <string>

#include "verbs-shim/base/cancellation.h"
#include "verbs-shim/cm/device.h"
#include "verbs-shim/elf/next_function.h"
#include "verbs-shim/hooks/path_map.h"

namespace hostnic::hooks {
namespace {

// The path to use instead of `original`; converts to it.
class MappedPath {
 public:
  explicit MappedPath(const char* original) : path_(original) {
    if (!may_be_mapped(original)) return;
    const int saved_errno = errno;
    const CancellationOff cancellation_off;  // the hooked function itself may be a cancellation
                                             // point
    try {
      mapped_ = map_path(original);
      if (!mapped_.empty()) path_ = mapped_.c_str();
    } catch (const std::bad_alloc&) {
      // Without memory the path is used as it is and leads nowhere; that is an answer, too.
    }
    errno = saved_errno;
  }
  MappedPath(const MappedPath&) = delete;
  MappedPath& operator=(const MappedPath&) = delete;
  operator const char*() const { return path_; }

 private:
  std::string mapped_;
  const char* path_;
};

// Opens the rdma_cm device, if the path is its and it is ours: returns the descriptor, or -1, as
// for a device that can't be opened. Returns -2 if the path is another.
int open_device(const char* path, int flags) {
  if (!may_be_mapped(path)) return -2;
  if (path == cm_device::kPath) return cm_device::open_device(flags);
  const CancellationOff cancellation_off;
  return refuse_verbs_device(path) ? -1 : -2;
}

// Replaces a path into the tree, which is longer than what it stands for.
char* as_shown(char* path) {
  if (path == nullptr || strstr(path, "/hostnic-sysfs.") == nullptr) return path;
  const int saved_errno = errno;
  const CancellationOff cancellation_off;
  try {
    const std::string known = unmap_path(path);
    if (!known.empty() && known.size() <= strlen(path)) strcpy(path, known.c_str());
  } catch (const std::bad_alloc&) {
    // Without memory the path is left as it is; it leads to the same place.
  }
  errno = saved_errno;
  return path;
}

bool has_mode(int flags) { return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE; }

}  // namespace

}  // namespace hostnic::hooks

using hostnic::elf::next_function;
using hostnic::hooks::as_shown;
using hostnic::hooks::has_mode;
using hostnic::hooks::MappedPath;
using hostnic::hooks::open_device;

// Defines the exported function `name`. It has another name in C++, so that it need not repeat the
// attributes of libc's declaration. Structures behind pointers don't matter here, so they are
// void*.
#define HOSTNIC_HOOK(result, name, parameters)                                                    \
  extern "C" [[gnu::visibility("default")]] result hostnic_hook_##name parameters __asm__(#name); \
  result hostnic_hook_##name parameters

// Defines a hook that passes its arguments on, with `path` replaced by `mapped`.
#define HOSTNIC_PATH_HOOK(result, name, parameters, arguments) \
  HOSTNIC_HOOK(result, name, parameters) {                     \
    static std::atomic<result(*) parameters> known;            \
    const auto next = next_function(known, #name);             \
    const MappedPath mapped(path);                             \
    return next arguments;                                     \
  }

// Defines a hook that answers with a path, in a buffer of the caller's or in one that it allocates;
// what programs see is never longer than where it lies.
#define HOSTNIC_NAMING_HOOK(name, mapping, parameters, arguments) \
  HOSTNIC_HOOK(char*, name, parameters) {                         \
    static std::atomic<char*(*)parameters> known;                 \
    const auto next = next_function(known, #name);                \
    mapping;                                                      \
    return as_shown(next arguments);                              \
  }

// Defines a hook with a mode that is there only for some flags.
#define HOSTNIC_OPEN_HOOK(name, parameters, next_parameters, arguments) \
  HOSTNIC_HOOK(int, name, parameters) {                                 \
    static std::atomic<int(*) next_parameters> known;                   \
    const auto next = next_function(known, #name);                      \
    mode_t mode = 0;                                                    \
    if (has_mode(flags)) {                                              \
      va_list rest;                                                     \
      va_start(rest, flags);                                            \
      mode = va_arg(rest, mode_t);                                      \
      va_end(rest);                                                     \
    }                                                                   \
    const int device = open_device(path, flags);                        \
    if (device != -2) return device;                                    \
    const MappedPath mapped(path);                                      \
    return next arguments;                                              \
  }

// Defines a hook that never has a mode.
#define HOSTNIC_OPEN_2_HOOK(name, parameters, arguments) \
  HOSTNIC_HOOK(int, name, parameters) {                  \
    static std::atomic<int(*) parameters> known;         \
    const auto next = next_function(known, #name);       \
    const int device = open_device(path, flags);         \
    if (device != -2) return device;                     \
    const MappedPath mapped(path);                       \
    return next arguments;                               \
  }

using Filter = int (*)(const void*);
using Compare = int (*)(const void*, const void*);

// clang-format off
HOSTNIC_OPEN_HOOK(open, (const char* path, int flags, ...), (const char*, int, ...), (static_cast<const char*>(mapped), flags, mode))
HOSTNIC_OPEN_HOOK(open64, (const char* path, int flags, ...), (const char*, int, ...), (static_cast<const char*>(mapped), flags, mode))
HOSTNIC_OPEN_HOOK(openat, (int dir, const char* path, int flags, ...), (int, const char*, int, ...), (dir, static_cast<const char*>(mapped), flags, mode))
HOSTNIC_OPEN_HOOK(openat64, (int dir, const char* path, int flags, ...), (int, const char*, int, ...), (dir, static_cast<const char*>(mapped), flags, mode))
// These are what _FORTIFY_SOURCE makes of open without a mode.
HOSTNIC_OPEN_2_HOOK(__open_2, (const char* path, int flags), (mapped, flags))
HOSTNIC_OPEN_2_HOOK(__open64_2, (const char* path, int flags), (mapped, flags))
HOSTNIC_OPEN_2_HOOK(__openat_2, (int dir, const char* path, int flags), (dir, mapped, flags))
HOSTNIC_OPEN_2_HOOK(__openat64_2, (int dir, const char* path, int flags), (dir, mapped, flags))

HOSTNIC_PATH_HOOK(FILE*, fopen, (const char* path, const char* mode), (mapped, mode))
HOSTNIC_PATH_HOOK(FILE*, fopen64, (const char* path, const char* mode), (mapped, mode))

HOSTNIC_PATH_HOOK(int, stat, (const char* path, void* status), (mapped, status))
HOSTNIC_PATH_HOOK(int, stat64, (const char* path, void* status), (mapped, status))
HOSTNIC_PATH_HOOK(int, lstat, (const char* path, void* status), (mapped, status))
HOSTNIC_PATH_HOOK(int, lstat64, (const char* path, void* status), (mapped, status))
HOSTNIC_PATH_HOOK(int, fstatat, (int dir, const char* path, void* status, int flags), (dir, mapped, status, flags))
HOSTNIC_PATH_HOOK(int, fstatat64, (int dir, const char* path, void* status, int flags), (dir, mapped, status, flags))
HOSTNIC_PATH_HOOK(int, statx, (int dir, const char* path, int flags, unsigned int mask, void* status), (dir, mapped, flags, mask, status))
// These are what programs built before glibc 2.33 call for them.
HOSTNIC_PATH_HOOK(int, __xstat, (int version, const char* path, void* status), (version, mapped, status))
HOSTNIC_PATH_HOOK(int, __xstat64, (int version, const char* path, void* status), (version, mapped, status))
HOSTNIC_PATH_HOOK(int, __lxstat, (int version, const char* path, void* status), (version, mapped, status))
HOSTNIC_PATH_HOOK(int, __lxstat64, (int version, const char* path, void* status), (version, mapped, status))
HOSTNIC_PATH_HOOK(int, __fxstatat, (int version, int dir, const char* path, void* status, int flags), (version, dir, mapped, status, flags))
HOSTNIC_PATH_HOOK(int, __fxstatat64, (int version, int dir, const char* path, void* status, int flags), (version, dir, mapped, status, flags))

HOSTNIC_PATH_HOOK(int, access, (const char* path, int mode), (mapped, mode))
HOSTNIC_PATH_HOOK(int, eaccess, (const char* path, int mode), (mapped, mode))
HOSTNIC_PATH_HOOK(int, euidaccess, (const char* path, int mode), (mapped, mode))
HOSTNIC_PATH_HOOK(int, faccessat, (int dir, const char* path, int mode, int flags), (dir, mapped, mode, flags))

HOSTNIC_PATH_HOOK(ssize_t, readlink, (const char* path, char* buffer, size_t size), (mapped, buffer, size))
HOSTNIC_PATH_HOOK(ssize_t, readlinkat, (int dir, const char* path, char* buffer, size_t size), (dir, mapped, buffer, size))
HOSTNIC_PATH_HOOK(ssize_t, __readlink_chk, (const char* path, char* buffer, size_t size, size_t room), (mapped, buffer, size, room))
// A path that leads into the tree is shown as what it stands for.
HOSTNIC_NAMING_HOOK(realpath, const MappedPath mapped(path), (const char* path, char* resolved), (mapped, resolved))
HOSTNIC_NAMING_HOOK(__realpath_chk, const MappedPath mapped(path), (const char* path, char* resolved, size_t room), (mapped, resolved, room))
HOSTNIC_NAMING_HOOK(canonicalize_file_name, const MappedPath mapped(path), (const char* path), (mapped))
HOSTNIC_NAMING_HOOK(getcwd, , (char* buffer, size_t size), (buffer, size))
HOSTNIC_NAMING_HOOK(__getcwd_chk, , (char* buffer, size_t size, size_t room), (buffer, size, room))
HOSTNIC_NAMING_HOOK(get_current_dir_name, , (void), ())
HOSTNIC_PATH_HOOK(int, chdir, (const char* path), (mapped))

// These are hooked because ls -l asks for ACLs.
HOSTNIC_PATH_HOOK(ssize_t, getxattr, (const char* path, const char* name, void* value, size_t size), (mapped, name, value, size))
HOSTNIC_PATH_HOOK(ssize_t, lgetxattr, (const char* path, const char* name, void* value, size_t size), (mapped, name, value, size))

HOSTNIC_PATH_HOOK(DIR*, opendir, (const char* path), (mapped))
// These are hooked because scandir opens the directory without going through opendir's symbol.
HOSTNIC_PATH_HOOK(int, scandir, (const char* path, void* list, Filter filter, Compare compare), (mapped, list, filter, compare))
HOSTNIC_PATH_HOOK(int, scandir64, (const char* path, void* list, Filter filter, Compare compare), (mapped, list, filter, compare))
// clang-format on

// Runs glob by our hooks: within libc it would list the real directories.
template <typename Glob, typename Next>
static int glob_by_hooks(const char* pattern, int flags, int (*on_error)(const char*, int),
                         Glob* result, Next next) {
  if (!hostnic::hooks::may_be_mapped(pattern) || (flags & GLOB_ALTDIRFUNC) != 0)
    return next(pattern, flags, on_error, result);
  result->gl_closedir = [](void* directory) { closedir(static_cast<DIR*>(directory)); };
  result->gl_readdir = [](void* directory) { return readdir(static_cast<DIR*>(directory)); };
  result->gl_opendir = [](const char* path) -> void* { return opendir(path); };
  result->gl_lstat = lstat;
  result->gl_stat = stat;
  const int answer = next(pattern, flags | GLOB_ALTDIRFUNC, on_error, result);
  result->gl_flags &= ~GLOB_ALTDIRFUNC;
  return answer;
}

HOSTNIC_HOOK(int, glob,
             (const char* pattern, int flags, int (*on_error)(const char*, int), glob_t* result)) {
  static std::atomic<int (*)(const char*, int, int (*)(const char*, int), glob_t*)> known;
  const auto next = next_function(known, "glob");
  return glob_by_hooks(pattern, flags, on_error, result, next);
}

// This is the same structure and function on 64-bit machines.
HOSTNIC_HOOK(int, glob64,
             (const char* pattern, int flags, int (*on_error)(const char*, int), glob_t* result)) {
  static std::atomic<int (*)(const char*, int, int (*)(const char*, int), glob_t*)> known;
  const auto next = next_function(known, "glob64");
  return glob_by_hooks(pattern, flags, on_error, result, next);
}
