// SPDX-License-Identifier: BSD-3-Clause
// Lines whose cause comes later: said once, with the cause when it comes, without it in the end.
#include "verbs-shim/runtime/owed_lines.h"

#include <gtest/gtest.h>

#include <map>

namespace hostnic::runtime {
namespace {

using driver::OwedLine;
using driver::Why;

struct OwedLinesTest : testing::Test {
  OwedLine line(uint32_t ticket) {
    OwedLine made{.before = "line " + std::to_string(ticket), .fallback = "nobody knows"};
    made.request.ticket = ticket;
    return made;
  }
  std::optional<Why> ask(const ExplainRequest& request) {
    ++questions;
    if (is_busy) return std::nullopt;
    const auto known = causes.find(request.ticket);
    return known == causes.end() ? Why{"", request.ticket} : Why{known->second, 0};
  }
  void settle(TimeNs now_ns) { lines.settle(now_ns); }

  std::vector<std::string> said;
  std::map<uint32_t, std::string> causes;
  bool is_busy = false;
  int questions = 0;
  OwedLines lines{[this](const ExplainRequest& request) { return ask(request); },
                  [this](const OwedLine& line, const std::string& cause) {
                    said.push_back(line.before + ": " + (cause.empty() ? line.fallback : cause));
                  }};
};

TEST_F(OwedLinesTest, ALineIsSaidWhenItsCauseHasCome) {
  lines.add(line(1), 1000);
  lines.add(line(2), 1000);
  settle(2000);
  EXPECT_TRUE(said.empty());
  causes[2] = "the peer is in RESET";
  settle(3000);
  EXPECT_EQ(said, std::vector<std::string>{"line 2: the peer is in RESET"});
  EXPECT_TRUE(lines.any());
  causes[1] = "";
  settle(4000);
  EXPECT_EQ(said.back(), "line 1: nobody knows");
  EXPECT_FALSE(lines.any());
  questions = 0;
  settle(5000);
  EXPECT_EQ(questions, 0);
}

TEST_F(OwedLinesTest, OneWhoseCauseNeverComesIsSaidAfterTheLimit) {
  lines.add(line(1), 1000);
  is_busy = true;
  settle(1000 + OwedLines::kLimitNs - 1);
  EXPECT_TRUE(said.empty());
  settle(1000 + OwedLines::kLimitNs);
  EXPECT_EQ(said, std::vector<std::string>{"line 1: nobody knows"});
  EXPECT_FALSE(lines.any());
}

// A line about a wait has no ticket before hostnicd has been asked, which is busy at first.
TEST_F(OwedLinesTest, ACauseIsAskedForWithTheTicketThatTheFirstQuestionGot) {
  OwedLine about_wait{.before = "line 0", .fallback = "nobody knows"};
  std::vector<uint32_t> tickets;
  OwedLines owed(
      [&](const ExplainRequest& request) -> std::optional<Why> {
        tickets.push_back(request.ticket);
        if (tickets.size() == 1) return std::nullopt;
        return tickets.size() < 4 ? Why{"", 7} : Why{"known", 0};
      },
      [this](const OwedLine&, const std::string& cause) { said.push_back(cause); });
  owed.add(about_wait, 1000);
  for (TimeNs now_ns = 2000; owed.settle(now_ns) && now_ns < 9000;) now_ns += 1000;
  EXPECT_EQ(tickets, (std::vector<uint32_t>{0, 0, 7, 7}));
  EXPECT_EQ(said, std::vector<std::string>{"known"});
}

TEST_F(OwedLinesTest, OneTooManyIsSaidAtOnce) {
  for (uint32_t i = 1; i <= OwedLines::kMost; ++i) lines.add(line(i), 1000);
  EXPECT_TRUE(said.empty());
  lines.add(line(100), 1000);
  EXPECT_EQ(said, std::vector<std::string>{"line 100: nobody knows"});
  for (uint32_t i = 1; i <= OwedLines::kMost; ++i) causes[i] = "known";
}

}  // namespace
}  // namespace hostnic::runtime
