// SPDX-License-Identifier: BSD-3-Clause
// A queue pair's attributes of MRC: which values there may be, when, and what they are to the
// driver. Pure, but for the lines that say what is refused.
#pragma once

#include <cstdint>
#include <cstring>

#include "verbs-shim/mrc/objects.h"

namespace hostnic::libmrc {

// The number in an enumeration's place in a program's structure, which may be none of its values.
template <typename Enum>
uint32_t number_in(const Enum& given) {
  uint32_t number = 0;
  static_assert(sizeof given == sizeof number);
  std::memcpy(&number, &given, sizeof number);
  return number;
}

// Attributes of verbs that MRC has not. OCP's example sets some of them: they are passed over.
inline constexpr uint32_t kIgnoredOfVerbs = IBV_QP_PORT | IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT |
                                            IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER |
                                            IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC;
// Attributes of verbs that are refused, because a program would miss them.
inline constexpr uint32_t kRefusedOfVerbs = IBV_QP_ALT_PATH | IBV_QP_PATH_MIG_STATE;

// One call that changes attributes: those of verbs beside them, and the bits of mrc_qp_attr_mask.
struct Step {
  const char* call;
  const ibv_qp_attr& verbs;
  uint32_t verbs_mask;
  uint32_t mask;
};

// The attributes of a new queue pair, for a program that sets none.
mrc_qp_attr first_attributes(const MrcDevice& device);
// Puts the attributes that the step names from `from` into `to`. Returns 0, or EINVAL, having said
// which is wrong.
int apply(const Step& step, const mrc_qp& qp, const mrc_qp_attr& from, mrc_qp_attr& to);
// What the driver has to know of them.
MrcQpLimits limits_of(const mrc_qp_attr& attr);

}  // namespace hostnic::libmrc
