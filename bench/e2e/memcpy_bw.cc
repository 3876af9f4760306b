// memcpy-bw [--seconds S] SIZE...: how fast one thread copies messages of each size between two
// buffers that look like perftest's, as "SIZE BYTES_PER_SECOND" lines.
//
// Like ib_write_bw, a message as large as a page always has the same address; smaller ones walk
// through a page, a cache line apart.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <exception>
#include <vector>

namespace {

constexpr size_t kPageBytes = 4096;
constexpr size_t kLineBytes = 64;
constexpr size_t kMaxBytes = size_t{1} << 30;

// Page aligned and touched.
std::byte* make_buffer(size_t bytes, int fill) {
  void* at = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) return nullptr;
  std::memset(at, fill, bytes);
  return static_cast<std::byte*>(at);
}

// Hides from the compiler what was copied, so that no copy is left out or merged with the next.
void keep(const void* at) { asm volatile("" : : "r"(at) : "memory"); }

// Bytes per second.
double measure(std::byte* to, const std::byte* from, size_t bytes, double seconds) {
  using Clock = std::chrono::steady_clock;
  const size_t step = (bytes + kLineBytes - 1) / kLineBytes * kLineBytes;
  const size_t places = std::max<size_t>(kPageBytes / step, 1);
  // The clock is read about every 256 KiB or 256 messages.
  const size_t batch = std::clamp<size_t>((256 << 10) / bytes, 1, 256);
  uint64_t copies = 0;
  const auto start = Clock::now();
  std::chrono::duration<double> elapsed{};
  do {
    for (size_t i = 0; i < batch; ++i) {
      const size_t at = copies++ % places * step;
      std::memcpy(to + at, from + at, bytes);
      keep(to);
    }
    elapsed = Clock::now() - start;
  } while (elapsed.count() < seconds);
  return static_cast<double>(copies) * static_cast<double>(bytes) / elapsed.count();
}

int run(int argc, char** argv) {
  CLI::App app("How fast one thread copies messages between two buffers.");
  double seconds = 0.2;
  std::vector<size_t> sizes;
  app.add_option("--seconds", seconds, "time per size")->check(CLI::PositiveNumber);
  app.add_option("SIZE", sizes, "message sizes in bytes")
      ->required()
      ->check(CLI::Range(size_t{1}, kMaxBytes));
  CLI11_PARSE(app, argc, argv);
  for (const size_t bytes : sizes) {
    const size_t room = std::max(bytes, kPageBytes);
    std::byte* from = make_buffer(room, 1);
    std::byte* to = make_buffer(room, 2);
    if (from == nullptr || to == nullptr) {
      fmt::print(stderr, "memcpy-bw: no memory for two buffers of {} bytes\n", room);
      return 1;
    }
    measure(to, from, bytes, seconds / 10);
    fmt::print("{} {:.0f}\n", bytes, measure(to, from, bytes, seconds));
    if (std::memcmp(from, to, bytes) != 0) {
      fmt::print(stderr, "memcpy-bw: the copy of {} bytes is wrong\n", bytes);
      return 1;
    }
    munmap(from, room);
    munmap(to, room);
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "memcpy-bw: %s\n", error.what());
    return 1;
  }
}
