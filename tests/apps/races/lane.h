// SPDX-License-Identifier: BSD-3-Clause
// A way for WRITEs: a queue pair of a device and its peer, which is another one of the same device,
// so that the program needs no second host. Plain verbs; a call that fails ends the program.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

namespace hostnic::races {

inline constexpr int kExitWrong = 1, kExitBroken = 3;

struct Options {
  bool fixed = false;                  // without the mistake
  std::array<std::string, 2> devices;  // empty: the first two of the machine
  uint8_t gid_index = 0;
};

class Lane {
 public:
  // `device`: of the options. The peer may write to `target`, and nobody to `source`.
  Lane(const Options& options, size_t device, std::span<uint8_t> source, std::span<uint8_t> target);
  ~Lane();
  Lane(const Lane&) = delete;
  Lane& operator=(const Lane&) = delete;

  // WRITEs bytes of the source to some place of the target, signalled; an immediate takes one of
  // kReceives receives.
  void write(std::span<const uint8_t> bytes, size_t target_offset, uint64_t id,
             std::optional<uint32_t> immediate = std::nullopt);
  // The next completion of a WRITE, or of what it took at the peer; nothing: there is none yet.
  std::optional<uint64_t> written() { return next(sent_, /*is_receive=*/false); }
  std::optional<uint64_t> arrived() { return next(received_, /*is_receive=*/true); }
  // Waits for the completion of this WRITE of ours.
  void wait_for(uint64_t id);

  static constexpr uint32_t kReceives = 128;

 private:
  ibv_qp* create_qp(ibv_cq* cq);
  void connect(uint8_t gid_index);
  std::optional<uint64_t> next(ibv_cq* cq, bool is_receive);

  ibv_context* context_ = nullptr;
  ibv_pd* pd_ = nullptr;
  ibv_cq *sent_ = nullptr, *received_ = nullptr;
  ibv_qp *from_ = nullptr, *to_ = nullptr;
  ibv_mr *source_ = nullptr, *target_ = nullptr;
};

[[noreturn]] void broken(const char* what);
// The program does something else, as it would.
void work_a_while();
// What each message, of its own number, has in each place.
uint8_t content(size_t message, size_t place);

// The exit status.
int run_rails(const Options& options);
int run_drain(const Options& options);
int run_flag(const Options& options);

}  // namespace hostnic::races
