// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/nic/answers/answer_lines.h"

namespace hostnic {

AnswerLines::AnswerLines(const QpDirectory& qps, ClientList& clients, uint32_t nic_qps)
    : qps_(qps), clients_(clients), places_(kReadJobs + nic_qps) {
  for (uint32_t i = 0; i < places_.size(); ++i) places_[i].next = i + 1;
}

void AnswerLines::forget(QpContext& qp) {
  if (qp.answers_in_line == 0) return;
  qp.answers_in_line = 0;
  AnswerLine& line = ClientList::state_of(*qp.client).answer_line;
  for (uint32_t left = line.count; left != 0; --left) {
    const uint32_t place = pop(line);
    if (places_[place].qpn == qp.qpn)
      release(line, place);
    else
      push(line, place);
  }
}

}  // namespace hostnic
