// SPDX-License-Identifier: BSD-3-Clause
// Precompiled: what every part of the NIC includes. No source relies on it; each includes what it
// uses.
#include "dataplane/nic/nic_core.h"
