// Which instructions move the middle of a copy is decided when the program starts.
#include "dataplane/nic/copy.h"

namespace hostnic::copy_detail {
namespace {

size_t leave_to_caller(std::byte*, const std::byte*, size_t) { return 0; }

#if defined(__x86_64__)

using Widest = long long __attribute__((vector_size(32), may_alias));
using UnalignedWidest = long long __attribute__((vector_size(32), may_alias, aligned(1)));

// `To` or `From` is volatile: the watched side, as in copy.h.
template <class To, class From>
__attribute__((target("avx2,tune=haswell"))) size_t move_avx2(std::byte* to, const std::byte* from,
                                                              size_t length_bytes) {
  const size_t moved = length_bytes & ~(kBlock - 1);
  for (const std::byte* end = from + moved; from != end; from += kBlock, to += kBlock) {
    auto* out = reinterpret_cast<To*>(to);
    auto* in = reinterpret_cast<From*>(from);
    const Widest a = in[0], b = in[1], c = in[2], d = in[3];
    out[0] = a;
    out[1] = b;
    out[2] = c;
    out[3] = d;
  }
  return moved;
}

bool has_avx2() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx2") != 0;
}

}  // namespace

const MoveBlocks store_blocks =
    has_avx2() ? move_avx2<volatile Widest, const UnalignedWidest> : leave_to_caller;
const MoveBlocks load_blocks =
    has_avx2() ? move_avx2<UnalignedWidest, const volatile Widest> : leave_to_caller;

#else

}  // namespace

const MoveBlocks store_blocks = leave_to_caller, load_blocks = leave_to_caller;

#endif

}  // namespace hostnic::copy_detail
