// SPDX-License-Identifier: BSD-3-Clause
#include "tests/hostile/fuse_file.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <linux/fuse.h>
#include <poll.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <new>
#include <vector>

namespace hostnic::hostile {
namespace {

constexpr size_t kRequestBytes = 1 << 17;
// The root of the file system is the file: no directory is looked up.
constexpr uint32_t kMode = S_IFREG | 0666;

// What a signal closes: our file's close, with the process, waits for the server's end.
int end_of_server = -1;

template <class T>
void answer(int device, uint64_t unique, const T& body) {
  struct {
    fuse_out_header header;
    T body;
  } out{};
  out.header = {sizeof(out.header) + sizeof(T), 0, unique};
  out.body = body;
  (void)!write(device, &out, out.header.len);
}

void answer_error(int device, uint64_t unique, int error) {
  const fuse_out_header out{sizeof(out), -error, unique};
  (void)!write(device, &out, sizeof(out));
}

}  // namespace

std::unique_ptr<FuseFile> FuseFile::create(const std::string& directory) {
  if (unshare(CLONE_NEWNS) != 0 || mount("none", "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0)
    return nullptr;
  UniqueFd device(open("/dev/fuse", O_RDWR | O_CLOEXEC));
  if (!device) return nullptr;
  const std::string point = directory + "/never-read";
  close(open(point.c_str(), O_CREAT | O_RDWR | O_CLOEXEC, 0666));
  const std::string options = fmt::format("fd={},rootmode={:o},user_id={},group_id={},allow_other",
                                          device.get(), kMode, getuid(), getgid());
  if (mount("hostnic-hostile", point.c_str(), "fuse", MS_NOSUID | MS_NODEV, options.c_str()) != 0)
    return nullptr;
  auto fuse = std::make_unique<FuseFile>();
  void* shared = mmap(nullptr, sizeof(std::atomic<unsigned>), PROT_READ | PROT_WRITE,
                      MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  fuse->waiting_ = new (shared) std::atomic<unsigned>(0);
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return nullptr;
  fuse->server_ = fork();
  if (fuse->server_ == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    close(ends[1]);
    fuse->serve(device.get(), ends[0]);
    _exit(0);
  }
  close(ends[0]);
  fuse->end_ = UniqueFd(ends[1]);
  end_of_server = ends[1];
  signal(SIGTERM, [](int) {
    close(end_of_server);
    _exit(0);
  });
  device.reset();
  fuse->file_ = UniqueFd(open(point.c_str(), O_RDWR | O_CLOEXEC));
  // The kernel asks for the file's size only when somebody wants to know.
  struct stat status {};
  const bool good = fuse->file_ && fstat(fuse->file_.get(), &status) == 0 &&
                    status.st_size == static_cast<off_t>(kBytes);
  return good ? std::move(fuse) : nullptr;
}

FuseFile::~FuseFile() {
  if (server_ <= 0) return;
  end_.reset();  // another user by now, we may not kill it
  waitpid(server_, nullptr, 0);
}

void FuseFile::serve(int device, int end) {
  std::vector<std::byte> request(kRequestBytes);
  for (;;) {
    pollfd watched[2] = {{device, POLLIN, 0}, {end, POLLIN, 0}};
    poll(watched, 2, -1);
    if (watched[1].revents != 0) return;
    const ssize_t bytes = read(device, request.data(), request.size());
    if (bytes < 0 && (errno == EINTR || errno == ENOENT)) continue;
    if (bytes < static_cast<ssize_t>(sizeof(fuse_in_header))) return;
    fuse_in_header in;
    std::memcpy(&in, request.data(), sizeof(in));
    fuse_attr attributes{};
    attributes.ino = 1;
    attributes.size = kBytes;
    attributes.mode = kMode;
    attributes.nlink = 1;
    switch (in.opcode) {
      case FUSE_INIT: {
        fuse_init_out out{};
        out.major = FUSE_KERNEL_VERSION;
        out.minor = FUSE_KERNEL_MINOR_VERSION;
        out.max_write = 65536;
        answer(device, in.unique, out);
        break;
      }
      case FUSE_GETATTR:
        answer(device, in.unique, fuse_attr_out{3600, 0, 0, attributes});
        break;
      case FUSE_OPEN:
        answer(device, in.unique, fuse_open_out{});
        break;
      case FUSE_READ:
      case FUSE_FLUSH:
      case FUSE_STATFS:
        ++*waiting_;
        break;
      case FUSE_RELEASE:
      case FUSE_FORGET:
      case FUSE_INTERRUPT:
        break;
      default:
        answer_error(device, in.unique, ENOSYS);
    }
  }
}

}  // namespace hostnic::hostile
