// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/doctor.h"

#include <gtest/gtest.h>

#include <algorithm>

namespace hostnic::cli {
namespace {

using Verdict = DoctorLine::Verdict;

DoctorFacts healthy() {
  DoctorFacts facts;
  facts.socket_path = "/run/hostnicd.sock";
  facts.descriptors = 1024;
  facts.kernel_major = 6;
  facts.kernel_minor = 1;
  facts.userfaultfd = true;
  facts.processors = 4;
  facts.huge_pages_free = 8;
  facts.raw_sockets = true;
  facts.memory_bytes = uint64_t{4} << 30;
  facts.program = "./prog";
  return facts;
}

DoctorLine line_of(const DoctorFacts& facts, const std::string& subject) {
  const auto lines = judge(facts);
  const auto found =
      std::ranges::find_if(lines, [&](const DoctorLine& line) { return line.subject == subject; });
  return found == lines.end() ? DoctorLine{Verdict::kNote, "", "no line"} : *found;
}

TEST(Doctor, AHealthyMachineIsFine) {
  for (const DoctorLine& line : judge(healthy()))
    EXPECT_EQ(line.verdict, Verdict::kFine) << line.subject << ": " << line.text;
}

TEST(Doctor, SaysWhatToDo) {
  DoctorFacts facts = healthy();
  facts.descriptors = 256;
  EXPECT_EQ(line_of(facts, "descriptors").text, "256 may be open: ulimit -n 1024");
  facts.userfaultfd = false;
  EXPECT_EQ(line_of(facts, "memory path").verdict, Verdict::kToDo);
  facts.file_bytes = 1000;
  EXPECT_EQ(line_of(facts, "file size").verdict, Verdict::kToDo);
  facts.preload_obstacle = "./prog is statically linked";
  EXPECT_EQ(line_of(facts, "program").verdict, Verdict::kToDo);
  EXPECT_NE(line_of(facts, "program").text.find("statically linked"), std::string::npos);
}

TEST(Doctor, AHostnicdIsMissedOnlyWhereOneWasNamed) {
  DoctorFacts facts = healthy();
  facts.socket_error = "no hostnicd listens";
  EXPECT_EQ(line_of(facts, "hostnicd").verdict, Verdict::kNote);
  facts.socket_named = true;
  EXPECT_EQ(line_of(facts, "hostnicd").verdict, Verdict::kToDo);
}

TEST(Doctor, AnotherSessionsHostnicdIsNamed) {
  DoctorFacts facts = healthy();
  facts.socket_error = "no hostnicd listens";
  facts.other_sockets = {"/run/user/7/hostnic/hostnicd.sock"};
  EXPECT_EQ(line_of(facts, "hostnicd").verdict, Verdict::kToDo);
  EXPECT_NE(line_of(facts, "hostnicd").text.find("/run/user/7/hostnic/hostnicd.sock: name it"),
            std::string::npos);
  facts.socket_owner = "root (uid 0), mode 0600";
  EXPECT_NE(line_of(facts, "hostnicd").text.find("is of root (uid 0), mode 0600"),
            std::string::npos);
}

TEST(Doctor, AFullSocketIsNamed) {
  DoctorFacts facts = healthy();
  EXPECT_EQ(line_of(facts, "UDP socket").text, "no line");
  facts.full_sockets = "hnic0: 812";
  EXPECT_EQ(line_of(facts, "UDP socket").verdict, Verdict::kToDo);
  EXPECT_NE(line_of(facts, "UDP socket").text.find("(hnic0: 812)"), std::string::npos);
}

}  // namespace
}  // namespace hostnic::cli
