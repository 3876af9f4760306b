// SPDX-License-Identifier: BSD-3-Clause
// System calls of other threads into registered buffers, and into what lies beside them on the
// same pages, while regions come and go there. Registering memory is nobody else's business: each
// call moves all bytes that it was asked to, and they are the right ones.
#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>

#include "tests/apps/stress/kinds.h"

namespace hostnic::stress {
namespace {

constexpr int kAccess = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE;
// A block: a part that belongs to one thread's messages, in a region that also covers a part for
// others' system calls, and a part behind it that does not belong to the region. Parts begin and
// end anywhere in their pages.
constexpr size_t kMessageBytes = 9'000, kInsideBytes = 7'000, kBesideBytes = 6'000;
constexpr size_t kLead = 1'234;
constexpr size_t kBlockBytes = kLead + kMessageBytes + kInsideBytes + kBesideBytes;

struct Block {
  Block(bool heap) : mapped(!heap) {
    void* at = heap ? std::malloc(kBlockBytes)
                    : mmap(nullptr, kBlockBytes, PROT_READ | PROT_WRITE,
                           MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (at == nullptr || at == MAP_FAILED) die_of_errno("memory");
    data = static_cast<std::byte*>(at);
    std::memset(data, 0x5a, kBlockBytes);
  }
  ~Block() {
    if (mapped)
      munmap(data, kBlockBytes);
    else
      std::free(data);
  }
  Block(const Block&) = delete;
  Block& operator=(const Block&) = delete;

  std::byte* message() const { return data + kLead; }
  std::byte* inside() const { return message() + kMessageBytes; }
  std::byte* beside() const { return inside() + kInsideBytes; }

  const bool mapped;
  std::byte* data = nullptr;
};

void whole(ssize_t moved, size_t wanted, const char* what) {
  if (moved < 0) die_of_errno(what);
  if (static_cast<size_t>(moved) != wanted)
    die(fmt::format("{} moved {} bytes of {}", what, moved, wanted));
}

// One thread's descriptors and its part of a block.
class Caller {
 public:
  Caller(std::byte* part, size_t bytes, uint64_t seed) : part_(part), bytes_(bytes), rng_(seed) {
    if (pipe(pipe_) != 0 || socketpair(AF_UNIX, SOCK_DGRAM, 0, sockets_) != 0)
      die_of_errno("pipe, socketpair");
    file_ = memfd_create("stress", MFD_CLOEXEC);
    content_.resize(bytes);
    if (file_ < 0) die_of_errno("memfd_create");
  }
  ~Caller() {
    for (const int fd : {pipe_[0], pipe_[1], sockets_[0], sockets_[1], file_}) close(fd);
  }
  Caller(const Caller&) = delete;
  Caller& operator=(const Caller&) = delete;

  void call() {
    const size_t begin = rng_.below(bytes_), bytes = rng_.between(1, bytes_ - begin);
    std::byte* const at = part_ + begin;
    const uint64_t stream = rng_.next();
    switch (rng_.below(5)) {
      case 0:
        fill(content_.data(), bytes, stream);
        whole(write(pipe_[1], content_.data(), bytes), bytes, "write");
        whole(read(pipe_[0], at, bytes), bytes, "read of a pipe");
        break;
      case 1:
        fill(content_.data(), bytes, stream);
        whole(send(sockets_[1], content_.data(), bytes, 0), bytes, "send");
        whole(recv(sockets_[0], at, bytes, 0), bytes, "recv");
        break;
      case 2:
        fill(content_.data(), bytes, stream);
        whole(pwrite(file_, content_.data(), bytes, 0), bytes, "pwrite");
        whole(pread(file_, at, bytes, 0), bytes, "pread");
        break;
      case 3:
        fill(at, bytes, stream);
        whole(write(pipe_[1], at, bytes), bytes, "write out of registered memory");
        whole(read(pipe_[0], content_.data(), bytes), bytes, "read");
        check(content_.data(), bytes, stream, "what write() took");
        break;
      default:
        fill(at, bytes, stream);
        whole(send(sockets_[1], at, bytes, 0), bytes, "send out of registered memory");
        whole(recv(sockets_[0], content_.data(), bytes, 0), bytes, "recv");
        check(content_.data(), bytes, stream, "what send() took");
    }
    check(at, bytes, stream, "what a system call wrote beside a region that comes or goes");
  }

 private:
  std::byte* part_;
  size_t bytes_;
  Rng rng_;
  int pipe_[2], sockets_[2], file_;
  std::vector<std::byte> content_;
};

void run_caller(KindThread& one, std::byte* part, size_t bytes, uint64_t seed,
                const std::stop_token& stop) {
  Caller caller(part, bytes, seed);
  while (!stop.stop_requested()) {
    one.note("calling the system");
    caller.call();
    count(tally().operations);
  }
}

// Messages between two blocks, whose regions come and go.
void run_messages(KindThread& one, Link& link, Block& from, Block& to, uint64_t seed,
                  const std::stop_token& stop) {
  Rng rng(seed);
  for (uint64_t n = 0; !stop.stop_requested(); ++n) {
    one.note("messages between regions that come and go");
    constexpr size_t kRegion = kMessageBytes + kInsideBytes;
    fill(from.message(), kMessageBytes, seed + n);
    ibv_mr* near = must(ibv_reg_mr(link.near.pd, from.message(), kRegion, kAccess), "ibv_reg_mr");
    ibv_mr* far = must(ibv_reg_mr(link.far.pd, to.message(), kRegion, kAccess), "ibv_reg_mr");
    const auto address = [](const std::byte* at) { return reinterpret_cast<uint64_t>(at); };
    const ibv_sge source{address(from.message()), kMessageBytes, near->lkey};
    const ibv_sge place{address(to.message()), kMessageBytes, far->lkey};
    for (uint64_t i = rng.between(1, 4); i != 0; --i)
      rng.percent(50) ? link.send(source, place)
                      : link.write(source, address(to.message()), far->rkey);
    must(ibv_dereg_mr(near), "ibv_dereg_mr");
    must(ibv_dereg_mr(far), "ibv_dereg_mr");
    check(to.message(), kMessageBytes, seed + n, "a message beside system calls");
    count(tally().mrs, 2);
  }
}

}  // namespace

void start_system_calls(const Options& options, KindThreads& threads) {
  struct Scene {
    Scene(const Options& options, bool heap)
        : contexts(options), link(contexts), from(heap), to(heap) {}
    Contexts contexts;
    Link link;
    Block from, to;
  };
  const unsigned scenes = (options.kind_threads + 1) / 2;
  for (unsigned i = 0; i < scenes; ++i) {
    const auto scene = std::make_shared<Scene>(options, i % 2 == 1);
    uint64_t seed = options.seed * 15'485'863 + i * 16;
    const auto start = [&](auto work) {
      auto& one = *threads.emplace_back(std::make_unique<KindThread>());
      one.kind = "syscalls";
      one.thread = std::jthread([&one, scene, work, seed = ++seed](const std::stop_token& stop) {
        work(one, *scene, seed, stop);
      });
    };
    start([](KindThread& one, Scene& s, uint64_t n, const std::stop_token& stop) {
      run_messages(one, s.link, s.from, s.to, n, stop);
    });
    start([](KindThread& one, Scene& s, uint64_t n, const std::stop_token& stop) {
      run_caller(one, s.to.inside(), kInsideBytes, n, stop);
    });
    start([](KindThread& one, Scene& s, uint64_t n, const std::stop_token& stop) {
      run_caller(one, s.from.beside(), kBesideBytes, n, stop);
    });
  }
}

}  // namespace hostnic::stress
