// SPDX-License-Identifier: BSD-3-Clause
// Bytes that system calls, signal handlers and other processes move into and out of the memory.
#include <fcntl.h>
#include <linux/io_uring.h>
#include <linux/userfaultfd.h>
#include <sys/ioctl.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/uio.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstring>

#include "tests/apps/twin/executor.h"

namespace hostnic::twin {
namespace {

constexpr size_t kPipeBytes = 60'000;  // fit into a pipe and a socket
constexpr size_t kDirectBytes = 256 << 10;
constexpr suseconds_t kSignalUs = 300;

// Pages that the SIGSEGV handler opens, one at a time.
thread_local volatile uint64_t guard_begin = 0, guard_end = 0;
thread_local volatile unsigned guard_opened = 0;

std::atomic<uint64_t> signal_count{0};
std::atomic<uint64_t*> signal_word{nullptr};

void on_fault(int number, siginfo_t* what, void*) {
  const uint64_t at = as_address(what->si_addr);
  if (at >= guard_begin && at < guard_end &&
      mprotect(as_pointer(at & ~(kPage - 1)), kPage, PROT_READ | PROT_WRITE) == 0) {
    guard_opened = guard_opened + 1;
    return;
  }
  static const char message[] = "hostnic-twin: a fault that nobody expects\n";
  if (write(STDERR_FILENO, message, sizeof(message) - 1) < 0) _exit(3);
  signal(number, SIG_DFL);
}

void on_timer(int) {
  uint64_t* word = signal_word.load();
  if (word == nullptr) return;
  *word = ++signal_count;
}

struct Pair {
  explicit Pair(bool socket) {
    if (socket ? socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0 : pipe(ends) != 0) _exit(2);
    if (socket) std::swap(ends[0], ends[1]);
  }
  ~Pair() {
    close(ends[0]);
    close(ends[1]);
  }
  Pair(const Pair&) = delete;
  Pair& operator=(const Pair&) = delete;
  int out() const { return ends[0]; }
  int in() const { return ends[1]; }
  int ends[2];
};

int userfault_descriptor() {
  const long plain = syscall(SYS_userfaultfd, O_CLOEXEC);
  if (plain >= 0) return static_cast<int>(plain);
  return static_cast<int>(syscall(SYS_userfaultfd, O_CLOEXEC | UFFD_USER_MODE_ONLY));
}

// A ring with one entry, for one request.
class Ring {
 public:
  Ring() {
    io_uring_params params{};
    fd_ = static_cast<int>(syscall(SYS_io_uring_setup, 2, &params));
    if (fd_ < 0) return;
    const auto get = [&](size_t bytes, off_t offset) {
      return static_cast<uint8_t*>(
          mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, fd_, offset));
    };
    requests_bytes_ = params.sq_off.array + params.sq_entries * sizeof(uint32_t);
    results_bytes_ = params.cq_off.cqes + params.cq_entries * sizeof(io_uring_cqe);
    entries_bytes_ = params.sq_entries * sizeof(io_uring_sqe);
    requests_ = get(requests_bytes_, IORING_OFF_SQ_RING);
    results_ = get(results_bytes_, IORING_OFF_CQ_RING);
    entries_ = reinterpret_cast<io_uring_sqe*>(get(entries_bytes_, IORING_OFF_SQES));
    params_ = params;
  }
  ~Ring() {
    if (fd_ < 0) return;
    // The kernel lets go of the buffers of a ring that is only closed some time later, and until
    // then migrated memory does not move (docs/memory.md).
    syscall(SYS_io_uring_register, fd_, IORING_UNREGISTER_BUFFERS, nullptr, 0);
    munmap(requests_, requests_bytes_);
    munmap(results_, results_bytes_);
    munmap(entries_, entries_bytes_);
    close(fd_);
  }
  Ring(const Ring&) = delete;
  Ring& operator=(const Ring&) = delete;
  bool valid() const { return fd_ >= 0; }

  int add_buffer(uint64_t at, size_t length) const {
    iovec buffer{as_pointer(at), length};
    return static_cast<int>(
        syscall(SYS_io_uring_register, fd_, IORING_REGISTER_BUFFERS, &buffer, 1));
  }
  // The result of the request.
  int move(uint8_t opcode, int fd, uint64_t at, size_t length) {
    io_uring_sqe& entry = entries_[0];
    std::memset(&entry, 0, sizeof(entry));
    entry.opcode = opcode;
    entry.fd = fd;
    entry.addr = at;
    entry.len = static_cast<uint32_t>(length);
    auto* tail = reinterpret_cast<std::atomic<uint32_t>*>(requests_ + params_.sq_off.tail);
    const uint32_t mask = *reinterpret_cast<uint32_t*>(requests_ + params_.sq_off.ring_mask);
    reinterpret_cast<uint32_t*>(requests_ + params_.sq_off.array)[tail->load() & mask] = 0;
    tail->fetch_add(1);
    long entered = 0;
    do {
      entered = syscall(SYS_io_uring_enter, fd_, 1, 1, IORING_ENTER_GETEVENTS, nullptr, 0);
    } while (entered < 0 && errno == EINTR);
    auto* head = reinterpret_cast<std::atomic<uint32_t>*>(results_ + params_.cq_off.head);
    auto* end = reinterpret_cast<std::atomic<uint32_t>*>(results_ + params_.cq_off.tail);
    for (int turn = 0; head->load() == end->load() && turn < 50'000; ++turn) usleep(100);
    if (head->load() == end->load()) return -ETIMEDOUT;
    const uint32_t results_mask = *reinterpret_cast<uint32_t*>(results_ + params_.cq_off.ring_mask);
    const auto* all = reinterpret_cast<io_uring_cqe*>(results_ + params_.cq_off.cqes);
    const int result = all[head->load() & results_mask].res;
    head->fetch_add(1);
    return result;
  }

 private:
  int fd_ = -1;
  io_uring_params params_{};
  uint8_t *requests_ = nullptr, *results_ = nullptr;
  io_uring_sqe* entries_ = nullptr;
  size_t requests_bytes_ = 0, results_bytes_ = 0, entries_bytes_ = 0;
};

void put_all(int fd, const uint8_t* bytes, size_t length) {
  for (size_t done = 0; done < length;) {
    const ssize_t put = write(fd, bytes + done, length - done);
    if (put < 0 && errno == EINTR) continue;
    if (put <= 0) _exit(2);
    done += static_cast<size_t>(put);
  }
}

}  // namespace

void install_handlers() {
  struct sigaction fault {};
  fault.sa_sigaction = on_fault;
  fault.sa_flags = SA_SIGINFO | SA_NODEFER;
  sigaction(SIGSEGV, &fault, nullptr);
  struct sigaction timer {};
  timer.sa_handler = on_timer;
  timer.sa_flags = SA_RESTART;
  sigaction(SIGALRM, &timer, nullptr);
}

void start_signals(uint64_t word_address) {
  signal_word.store(reinterpret_cast<uint64_t*>(word_address));
  const itimerval every{{0, kSignalUs}, {0, kSignalUs}};
  setitimer(ITIMER_REAL, &every, nullptr);
}

void stop_signals() {
  const itimerval none{};
  setitimer(ITIMER_REAL, &none, nullptr);
  signal_word.store(nullptr);
}

uint64_t signals_seen() { return signal_count.load(); }

void Executor::read_into() {
  const auto place =
      pick_place([](const Page& page) { return page.can_write() && !is_busy(page); }, kPipeBytes);
  if (!place) return skip();
  const unsigned how = random(5) % 5;
  constexpr const char* kWays[] = {"read of a pipe", "recv", "readv", "pread", "recvmsg"};
  say(" {} {:#x}+{:#x}", kWays[how], place->address, place->length);
  const std::vector<uint8_t> bytes = content(place->length, random(4) | 1);
  const size_t half = place->length / 2;
  iovec parts[2] = {{as_pointer(place->address), half},
                    {as_pointer(place->address + half), place->length - half}};
  const Pair pair(how == 1 || how == 4);
  int file = -1;
  if (how == 3) {
    file = memfd_create("twin-read", MFD_CLOEXEC);
    if (pwrite(file, bytes.data(), bytes.size(), 0) < 0) _exit(2);
  } else {
    put_all(pair.in(), bytes.data(), bytes.size());
  }
  msghdr message{};
  message.msg_iov = parts;
  message.msg_iovlen = 2;
  const ssize_t got = timed([&]() -> ssize_t {
    switch (how) {
      case 0:
        return read(pair.out(), as_pointer(place->address), place->length);
      case 1:
        return recv(pair.out(), as_pointer(place->address), place->length, MSG_WAITALL);
      case 2:
        return readv(pair.out(), parts, 2);
      case 3:
        return pread(file, as_pointer(place->address), place->length, 0);
      default:
        return recvmsg(pair.out(), &message, MSG_WAITALL);
    }
  });
  if (file >= 0) close(file);
  expect(got >= 0, 0, kWays[how]);
  if (static_cast<size_t>(got) != place->length)
    fail(fmt::format("{} moved {} bytes of {}", kWays[how], got, place->length));
  wrote(*place, bytes.data());
  check_place(*place);
}

void Executor::write_from() {
  const auto place =
      pick_place([](const Page& page) { return page.can_read() && !is_busy(page); }, kPipeBytes);
  if (!place) return skip();
  const bool socket = random(5) % 2 == 0;
  say(" {} {:#x}+{:#x}", socket ? "send" : "write", place->address, place->length);
  const Pair pair(socket);
  const ssize_t put = timed([&] {
    return socket ? send(pair.in(), as_pointer(place->address), place->length, 0)
                  : write(pair.in(), as_pointer(place->address), place->length);
  });
  expect(put >= 0, 0, "write");
  if (static_cast<size_t>(put) != place->length)
    fail(fmt::format("write moved {} bytes of {}", put, place->length));
  std::vector<uint8_t> got(place->length);
  for (size_t done = 0; done < got.size();) {
    const ssize_t part = read(pair.out(), got.data() + done, got.size() - done);
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) fail("read of what write put");
    done += static_cast<size_t>(part);
  }
  const std::vector<uint8_t> wanted = expected(*place);
  if (got != wanted) differs(place->address, got.data(), wanted.data(), got.size());
}

void Executor::read_invalid() {
  const auto range = pick_pages(
      [](const Page& page) { return (page.prot & PROT_WRITE) == 0 && !page.beyond_end(); }, 4);
  if (!range) return skip();
  say(" {:#x}+{:#x}", range->address, range->length);
  const Pair pair(false);
  const std::vector<uint8_t> bytes = content(range->length, random(4) | 1);
  put_all(pair.in(), bytes.data(), bytes.size());
  const ssize_t got =
      timed([&] { return read(pair.out(), as_pointer(range->address), range->length); });
  expect(got >= 0, EFAULT, "read into what can't be written");
  check_range(range->address, range->length);
}

void Executor::direct() {
  const auto range =
      pick_pages([](const Page& page) { return page.can_write() && !is_busy(page) && !page.huge; },
                 kDirectBytes / kPage);
  if (!range) return skip();
  const char* directory = getenv("TMPDIR");
  std::string path =
      std::string(directory == nullptr ? "/tmp" : directory) + "/hostnic-twin-XXXXXX";
  const int plain = mkostemp(path.data(), O_CLOEXEC);
  if (plain < 0) return skip();
  const int file = open(path.c_str(), O_RDWR | O_DIRECT | O_CLOEXEC);
  unlink(path.c_str());
  if (file < 0) {
    close(plain);
    return skip();
  }
  const bool in = random(5) % 2 == 0;
  say(" {} {:#x}+{:#x}", in ? "in" : "out", range->address, range->length);
  const Place place{range->address, range->length, nullptr, 0};
  if (in) {
    const std::vector<uint8_t> bytes = content(range->length, random(4) | 1);
    put_all(plain, bytes.data(), bytes.size());
    const ssize_t got =
        timed([&] { return pread(file, as_pointer(range->address), range->length, 0); });
    expect(got == static_cast<ssize_t>(range->length), 0, "pread(O_DIRECT)");
    wrote(place, bytes.data());
    check_place(place);
  } else {
    const ssize_t put =
        timed([&] { return pwrite(file, as_pointer(range->address), range->length, 0); });
    expect(put == static_cast<ssize_t>(range->length), 0, "pwrite(O_DIRECT)");
    std::vector<uint8_t> got(range->length);
    if (pread(plain, got.data(), got.size(), 0) != put) fail("pread");
    const std::vector<uint8_t> wanted = expected(place);
    if (got != wanted) differs(range->address, got.data(), wanted.data(), got.size());
  }
  close(file);
  close(plain);
}

void Executor::ring() {
  const bool fixed = random(4) % 3 == 0;
  const auto range = pick_pages(
      [](const Page& page) {
        return page.can_write() && !is_busy(page) && !page.huge &&
               (page.object == nullptr || !page.object->immutable) &&
               (page.object == nullptr || !page.object->fixed_size || page.object->fd < 0);
      },
      kPipeBytes / kPage);
  if (!range) return skip();
  Ring ring;
  if (!ring.valid()) return skip();
  const bool in = random(5) % 2 == 0;
  say(" {}{} {:#x}+{:#x}", in ? "in" : "out", fixed ? " fixed" : "", range->address, range->length);
  if (fixed) {
    // The kernel does not note what it puts into a fixed buffer: of a file's page that nobody has
    // written to it may forget it (MADV_PAGEOUT, Linux 6.18).
    for (size_t i = 0; i < range->pages(); ++i) {
      auto* const byte = static_cast<volatile uint8_t*>(as_pointer(range->address + i * kPage));
      *byte = *byte;
    }
    const int added = timed([&] { return ring.add_buffer(range->address, range->length); });
    // As much as may be locked: an ordinary user has no more.
    if (added != 0 && errno == ENOMEM && !can_lock_all_) return say(": ENOMEM");
    expect(added == 0, 0, "IORING_REGISTER_BUFFERS");
    for (size_t i = 0; i < range->pages(); ++i)
      model.make_own(model.pages.at(range->first() + i), range->first() + i);
  }
  const Place place{range->address, range->length, nullptr, 0};
  const Pair pair(false);
  const auto length = static_cast<int>(range->length);
  if (in) {
    const std::vector<uint8_t> bytes = content(range->length, random(4) | 1);
    put_all(pair.in(), bytes.data(), bytes.size());
    const int got = timed([&] {
      return ring.move(fixed ? IORING_OP_READ_FIXED : IORING_OP_READ, pair.out(), range->address,
                       range->length);
    });
    if (got != length) fail(fmt::format("IORING_OP_READ: {} of {}", got, length));
    wrote(place, bytes.data());
    check_place(place);
    return;
  }
  const int put = timed([&] {
    return ring.move(fixed ? IORING_OP_WRITE_FIXED : IORING_OP_WRITE, pair.in(), range->address,
                     range->length);
  });
  if (put != length) fail(fmt::format("IORING_OP_WRITE: {} of {}", put, length));
  std::vector<uint8_t> got(range->length);
  for (size_t done = 0; done < got.size();) {
    const ssize_t part = read(pair.out(), got.data() + done, got.size() - done);
    if (part < 0 && errno == EINTR) continue;
    if (part <= 0) fail("read of what the ring put");
    done += static_cast<size_t>(part);
  }
  const std::vector<uint8_t> wanted = expected(place);
  if (got != wanted) differs(range->address, got.data(), wanted.data(), got.size());
}

// The peer's process_vm_writev and process_vm_readv, or /proc/PID/mem.
void Executor::peer_vm() {
  if (peer_ == nullptr || stream_) return skip();
  const bool in = random(5) % 2 == 0;
  const auto place = pick_place(
      [&](const Page& page) { return (in ? page.can_write() : page.can_read()) && !is_busy(page); },
      1 << 20);
  if (!place) return skip();
  say(" {} {:#x}+{:#x}", in ? "in" : "out", place->address, place->length);
  Command command;
  const bool by_file = random(5) % 3 == 0;  // /proc/PID/mem, as debuggers do
  command.order =
      by_file ? (in ? Order::kMemWrite : Order::kMemRead) : (in ? Order::kVmWrite : Order::kVmRead);
  command.a = static_cast<uint64_t>(getpid());
  command.address = place->address;
  command.length = place->length;
  command.seed = random(4) | 1;
  const Reply reply = timed([&] { return peer_->ask(command); });
  if (reply.status == EPERM || reply.status == EACCES) return say(": not allowed");
  if (reply.status != 0 || reply.value != place->length)
    fail(fmt::format("another process's {} of memory{}: {}, {} of {} bytes", in ? "write" : "read",
                     by_file ? " by /proc" : "", strerrorname_np(reply.status), reply.value,
                     place->length));
  if (in) {
    const std::vector<uint8_t> bytes = content(place->length, command.seed);
    wrote(*place, bytes.data());
    return check_place(*place);
  }
  const std::vector<uint8_t> wanted = expected(*place);
  if (std::memcmp(wanted.data(), peer_->bytes(true), wanted.size()) != 0)
    differs(place->address, peer_->bytes(true), wanted.data(), wanted.size());
}

// The pipe has the pages themselves until they are read.
void Executor::splice_pages() {
  const auto place =
      pick_place([](const Page& page) { return page.can_read() && !is_busy(page); }, 8 * kPage);
  if (!place) return skip();
  say(" {:#x}+{:#x}", place->address, place->length);
  const Pair pair(false), copy(false);
  const iovec part{as_pointer(place->address), place->length};
  const ssize_t put = timed([&] { return vmsplice(pair.in(), &part, 1, 0); });
  expect(put == static_cast<ssize_t>(place->length), 0, "vmsplice");
  const ssize_t copied = timed([&] { return tee(pair.out(), copy.in(), place->length, 0); });
  expect(copied == put, 0, "tee");
  const std::vector<uint8_t> wanted = expected(*place);
  for (const int from : {pair.out(), copy.out()}) {
    std::vector<uint8_t> got(place->length);
    for (size_t done = 0; done < got.size();) {
      const ssize_t more = read(from, got.data() + done, got.size() - done);
      if (more < 0 && errno == EINTR) continue;
      if (more <= 0) fail("read of what vmsplice put");
      done += static_cast<size_t>(more);
    }
    if (got != wanted) differs(place->address, got.data(), wanted.data(), got.size());
  }
}

// A userfaultfd of the program's own, which puts pages where there are none.
void Executor::user_fault() {
  const auto range = pick_pages(
      [](const Page& page) {
        return is_plain(page) && page.object == nullptr && page.can_write() && !page.locked &&
               !page.keep && !is_busy(page);
      },
      16);
  if (!range || lock_future_) return skip();
  const int fd = userfault_descriptor();
  if (fd < 0) return skip();
  say(" {:#x} ({:+}) {} pages", range->address, shown(range->first()), range->pages());
  uffdio_api api{};
  api.api = UFFD_API;
  expect(ioctl(fd, UFFDIO_API, &api) == 0, 0, "UFFDIO_API");
  uffdio_register known{};
  known.range = {range->address, range->length};
  known.mode = UFFDIO_REGISTER_MODE_MISSING;
  const int taken = timed([&] { return ioctl(fd, UFFDIO_REGISTER, &known); });
  // A page can have one userfaultfd, and what a key leads to, or has, may have hostnic's.
  if (taken != 0 && errno == EBUSY && !settings_.choice.dry) {
    close(fd);
    return say(": EBUSY");
  }
  expect(taken == 0, 0, "UFFDIO_REGISTER");
  const int emptied = call_madvise(operation_.raw, range->address, range->length, MADV_DONTNEED);
  expect(emptied == 0, 0, "madvise(MADV_DONTNEED) under a userfaultfd");
  const uint64_t seed = random(4) | 1;
  const std::vector<uint8_t> bytes = content(range->length, seed);
  for (size_t i = 0; i < range->pages(); ++i) {
    const uint64_t at = range->address + i * kPage;
    uffdio_copy copy{};
    copy.dst = at;
    copy.src = as_address(bytes.data() + i * kPage);
    copy.len = kPage;
    const int copied = ioctl(fd, UFFDIO_COPY, &copy);
    expect(copied == 0, 0, "UFFDIO_COPY");
    Page& page = model.pages.at(range->first() + i);
    model.discard(page, range->first() + i);
    page.own->set_page(seed, i);
  }
  check_range(range->address, range->length);
  uffdio_range gone{range->address, range->length};
  expect(ioctl(fd, UFFDIO_UNREGISTER, &gone) == 0, 0, "UFFDIO_UNREGISTER");
  close(fd);
  check_range(range->address, range->length);
}

// Pages that a SIGSEGV handler opens when they are written to.
void Executor::guard() {
  const auto range = pick_pages(
      [](const Page& page) {
        return is_plain(page) && page.can_write() && !page.keep && !is_busy(page);
      },
      3);
  if (!range) return skip();
  say(" {:#x} ({:+}) {} pages", range->address, shown(range->first()), range->pages());
  guard_begin = range->address;
  guard_end = range->end();
  guard_opened = 0;
  const int closed = timed(
      [&] { return call_mprotect(operation_.raw, range->address, range->length, PROT_NONE); });
  expect(closed == 0, 0, "mprotect");
  mark_split(*range);
  if (range->pages() > 1) model.split[model.pages.at(range->first()).mapping] = true;
  const std::vector<uint8_t> bytes = content(range->length, random(4) | 1);
  const Place place{range->address, range->length, nullptr, 0};
  std::memcpy(as_pointer(range->address), bytes.data(), bytes.size());
  wrote(place, bytes.data());
  guard_begin = 0;
  guard_end = 0;
  if (guard_opened != range->pages())
    fail(fmt::format("{} faults on {} pages", unsigned{guard_opened}, range->pages()));
  check_range(range->address, range->length);
}

// The page in which the handler counts is registered, or not any more.
void Executor::signals() {
  if (!profile_.signals || ends_ == nullptr) return skip();
  if (signal_page_ == 0) {
    signal_page_ =
        call_mmap(false, 0, 3 * kPage, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    expect(signal_page_ != kFailed, 0, "mmap");
    start_signals(signal_page_ + kPage + 128);
  }
  if (signal_mr_ != nullptr) {
    say(" deregistered");
    const int result = timed([&] { return ibv_dereg_mr(signal_mr_); });
    if (result != 0) fail(fmt::format("ibv_dereg_mr: {}", strerror(result)));
    signal_mr_ = nullptr;
    return;
  }
  say(" registered");
  signal_mr_ =
      timed([&] { return ibv_reg_mr(ends_->pd, as_pointer(signal_page_), 3 * kPage, kAllAccess); });
  if (signal_mr_ == nullptr && !(settings_.may_refuse && errno == EOPNOTSUPP))
    fail(fmt::format("ibv_reg_mr: {}", strerror(errno)));
}

void Executor::check_signals() {
  if (signal_page_ == 0) return;
  sigset_t alarm, before;
  sigemptyset(&alarm);
  sigaddset(&alarm, SIGALRM);
  pthread_sigmask(SIG_BLOCK, &alarm, &before);
  uint64_t word = 0;
  std::memcpy(&word, as_pointer(signal_page_ + kPage + 128), sizeof(word));
  if (word != signals_seen())
    fail(fmt::format("the signal handler has counted to {}, its word says {}", signals_seen(),
                     word));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

}  // namespace hostnic::twin
