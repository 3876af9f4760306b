// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/memory/mirror.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statfs.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "protocol/hostif/memory_region.h"

namespace hostnic {
namespace {

constexpr int kWantedSeals = F_SEAL_SHRINK | F_SEAL_GROW;

}  // namespace

Expected<int, std::string> create_mirror() {
  const int fd = memfd_create("hostnic-mirror", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (fd < 0) return Unexpected(std::string("mirror: memfd_create: ") + std::strerror(errno));
  if (ftruncate(fd, static_cast<off_t>(kMirrorBytes)) != 0) {
    const int error = errno;
    close(fd);
    return Unexpected(std::string("mirror: cannot make a sparse file of 256 TiB: ") +
                      std::strerror(error) +
                      (error == EFBIG ? "; raise hostnicd's file size limit (ulimit -f)" : ""));
  }
  if (fcntl(fd, F_ADD_SEALS, kWantedSeals | F_SEAL_SEAL) != 0) {
    const int error = errno;
    close(fd);
    return Unexpected(std::string("mirror: sealing: ") + std::strerror(error));
  }
  return fd;
}

Expected<void, std::string> check_mirror(int fd) {
  const auto refuse = [](const char* why) {
    return Unexpected(std::string("mirror sent by the client: ") + why);
  };
  const int seals = fcntl(fd, F_GET_SEALS);
  if (seals < 0) return refuse("not a memfd");
  if ((seals & kWantedSeals) != kWantedSeals) return refuse("not sealed against truncation");
  if ((seals & (F_SEAL_WRITE | F_SEAL_FUTURE_WRITE)) != 0) return refuse("sealed against writing");
  struct stat file {};
  if (fstat(fd, &file) != 0 || static_cast<uint64_t>(file.st_size) != kMirrorBytes)
    return refuse("wrong size");
  struct statfs fs {};
  if (fstatfs(fd, &fs) != 0 || fs.f_type != TMPFS_MAGIC) return refuse("not on ordinary pages");
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || (flags & O_ACCMODE) != O_RDWR || (flags & O_PATH) != 0)
    return refuse("not opened for reading and writing");
  return {};
}

}  // namespace hostnic
