// SPDX-License-Identifier: BSD-3-Clause
// The commands there are; registry.cc lists them once more in the order of `help`.
#pragma once

#include "dataplane/daemon/control/command.h"

namespace hostnic {

extern const PromptCommand kClearCounters;
extern const PromptCommand kExplain;
extern const PromptCommand kHelp;
extern const PromptCommand kMrcProbe;
extern const PromptCommand kProbe;
extern const PromptCommand kQuit;
extern const PromptCommand kSetImpair;
extern const PromptCommand kSetMrc;
extern const PromptCommand kShowClient;
extern const PromptCommand kShowCm;
extern const PromptCommand kShowCounters;
extern const PromptCommand kShowDead;
extern const PromptCommand kShowErrors;
extern const PromptCommand kShowImpair;
extern const PromptCommand kShowMetrics;
extern const PromptCommand kShowMrc;
extern const PromptCommand kShowNic;
extern const PromptCommand kShowPeers;
extern const PromptCommand kShowQp;
extern const PromptCommand kShowSwitch;
extern const PromptCommand kStart;
extern const PromptCommand kStop;
extern const PromptCommand kTracePoints;

}  // namespace hostnic
