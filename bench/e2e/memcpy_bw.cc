// SPDX-License-Identifier: BSD-3-Clause
// memcpy-bw SECONDS SIZE...: how fast one thread copies messages of each size between two
// buffers that look like perftest's, as "SIZE BYTES_PER_SECOND" lines.
//
// Like ib_write_bw, a message as large as a page always has the same address; smaller ones walk
// through a page, a cache line apart.
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string_view>
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

template <class Number>
bool parse(std::string_view text, Number min, Number max, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size() && value >= min && value <= max;
}

}  // namespace

int main(int argc, char** argv) {
  double seconds = 0;
  std::vector<size_t> sizes(argc > 2 ? static_cast<size_t>(argc) - 2 : 0);
  bool good = !sizes.empty() && parse(argv[1], 1e-6, 60.0, seconds);
  for (size_t i = 0; i < sizes.size(); ++i)
    good = parse(argv[2 + i], size_t{1}, kMaxBytes, sizes[i]) && good;
  if (!good) {
    fmt::print(stderr,
               "usage: memcpy-bw SECONDS SIZE...  (time per size, 60 at most; bytes, 1 to {})\n",
               kMaxBytes);
    return 2;
  }
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
