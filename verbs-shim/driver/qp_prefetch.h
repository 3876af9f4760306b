// SPDX-License-Identifier: BSD-3-Clause
// What queue pairs ask the cache for before their turn (see driver.cc): with thousands of them each
// turn finds another one's state in no cache near. With the driver lock held.
#pragma once

#include "verbs-shim/driver/qp.h"

namespace hostnic::driver {

struct QpPrefetch {
  // What on_report() looks at; a timer that is not due; issue().
  static void report(const Qp& qp);
  static void timer(const Qp& qp);
  static void issue(const Qp& qp);
  // The requests that issue() hands over next.
  static void waiting(const Qp& qp);
  // A post, and, when that has come, what it fills in.
  static void post(const Qp& qp);
  static void slots(const Qp& qp);
};

}  // namespace hostnic::driver
