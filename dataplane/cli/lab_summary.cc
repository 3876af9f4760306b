// SPDX-License-Identifier: BSD-3-Clause
#include "dataplane/cli/lab_summary.h"

#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <sstream>
#include <utility>

#include "protocol/json_writer.h"

namespace hostnic::cli {
namespace {

constexpr size_t kMostQps = 8;

// Counters of impairments, by both directions, and what they say.
constexpr std::pair<const char*, const char*> kImpaired[] = {
    {"dropped", "dropped"},
    {"rate_dropped", "dropped by the rate"},
    {"queue_dropped", "dropped by the queue"},
    {"duplicated", "duplicated"},
    {"reordered", "reordered"},
    {"delayed", "delayed"},
    {"corrupted", "corrupted"},
    {"marked", "marked"}};

uint64_t impaired_by(const LabSummary& summary, const char* action) {
  return summary.sum(fmt::format("impair_rx_{}", action)) +
         summary.sum(fmt::format("impair_tx_{}", action));
}

void add_counters(const LabAnswers& answers, std::vector<LabSummary::Nic>& nics) {
  std::istringstream lines{answers.counters};
  std::string nic, name;
  uint64_t value = 0;
  while (lines >> nic >> name >> value) {
    auto found = std::ranges::find_if(nics, [&](const LabSummary::Nic& each) {
      return each.host == answers.host && each.name == nic;
    });
    if (found == nics.end()) found = nics.insert(nics.end(), {answers.host, nic, {}});
    found->counters[name] += value;
  }
}

double seconds_of(uint64_t duration_ns) { return static_cast<double>(duration_ns) / 1e9; }

// XML 1.0 has no characters below space but these, not even escaped.
std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    switch (c) {
      case '<':
        out += "&lt;";
        break;
      case '>':
        out += "&gt;";
        break;
      case '&':
        out += "&amp;";
        break;
      case '"':
        out += "&quot;";
        break;
      default: {
        const auto byte = static_cast<unsigned char>(c);
        const bool fits = (byte >= ' ' && byte <= '~') || c == '\n' || c == '\t';
        out += fits ? c : '?';
      }
    }
  }
  return out;
}

struct TestCase {
  const char* name;
  uint64_t duration_ns = 0;
  std::string failure, details;  // no failure: it passed
  std::string skipped;           // why it says nothing
};

std::string element_of(const TestCase& test) {
  std::string text =
      fmt::format("    <testcase classname=\"hostnic.lab\" name=\"{}\" time=\"{:.3f}\"", test.name,
                  seconds_of(test.duration_ns));
  if (!test.failure.empty())
    return text + fmt::format(">\n      <failure message=\"{}\">{}</failure>\n    </testcase>\n",
                              escaped(test.failure), escaped(test.details));
  if (!test.skipped.empty())
    return text + fmt::format(">\n      <skipped message=\"{}\"/>\n    </testcase>\n",
                              escaped(test.skipped));
  return text + "/>\n";
}

std::vector<TestCase> tests_of(const LabSummary& summary) {
  std::vector<TestCase> tests;
  TestCase command{"command", summary.duration_ns, {}, summary.command, {}};
  if (summary.exit_code != 0) command.failure = fmt::format("exit code {}", summary.exit_code);
  tests.push_back(command);
  TestCase requests{"requests", 0, {}, {}, {}};
  const uint64_t refused = summary.sum("nak_sent");
  if (refused != 0 || !summary.bad_queue_pairs.empty()) {
    requests.failure = fmt::format("{} requests refused", refused);
    for (const std::string& line : summary.bad_queue_pairs) requests.details += line + "\n";
  }
  tests.push_back(requests);
  TestCase daemon{"hostnicd", 0, {}, {}, {}};
  if (!summary.all_answered) daemon.failure = "it ended before the command, or did not answer";
  tests.push_back(daemon);
  if (summary.impaired) {
    TestCase impairments{"impairments", 0, {}, {}, {}};
    if (summary.impaired_packets() == 0) impairments.skipped = "the impairment hit nothing";
    tests.push_back(impairments);
  }
  return tests;
}

std::vector<std::pair<std::string, uint64_t>> numbers_of(const LabSummary& summary) {
  std::vector<std::pair<std::string, uint64_t>> numbers = {
      {"packets", summary.sum("tx_packets")},
      {"retransmitted_packets", summary.sum("retransmitted_packets")},
      {"receiver_not_ready", summary.sum("rnr_nak_sent")},
      {"requests_refused", summary.sum("nak_sent")}};
  for (const auto& [action, words] : kImpaired)
    numbers.emplace_back(fmt::format("impaired_{}_packets", action), impaired_by(summary, action));
  return numbers;
}

}  // namespace

uint64_t LabSummary::sum(std::string_view counter) const {
  uint64_t total = 0;
  for (const Nic& nic : nics) {
    const auto found = nic.counters.find(std::string(counter));
    if (found != nic.counters.end()) total += found->second;
  }
  return total;
}

uint64_t LabSummary::impaired_packets() const {
  uint64_t total = 0;
  for (const auto& [action, words] : kImpaired) total += impaired_by(*this, action);
  return total;
}

LabSummary summarize(const std::vector<LabAnswers>& answers, bool impaired) {
  LabSummary summary;
  summary.impaired = impaired;
  for (const LabAnswers& each : answers) {
    add_counters(each, summary.nics);
    // The queue pairs that ended badly: those in ERR that had refused a request of their peer.
    std::istringstream lines{each.dead};
    for (std::string line; std::getline(lines, line);) {
      if (line.find("had refused") == std::string::npos) continue;
      summary.bad_queue_pairs.push_back(each.host.empty() ? line : each.host + ": " + line);
    }
  }
  return summary;
}

std::string text_of(const LabSummary& summary) {
  const auto sum = [&](const char* name) { return summary.sum(name); };
  // A lab in which nothing was sent has no summary.
  if (sum("tx_packets") == 0 && sum("nak_sent") == 0 && !summary.impaired) return {};
  std::string text = fmt::format("hostnic lab: {} packets", sum("tx_packets"));
  std::string what;
  for (const auto& [action, words] : kImpaired) {
    if (const uint64_t count = impaired_by(summary, action); count != 0)
      what += fmt::format("{}{} {}", what.empty() ? "" : ", ", count, words);
  }
  if (!what.empty()) text += "; on purpose: " + what;
  if (summary.impaired && what.empty()) text += "; the impairment hit nothing";
  text += fmt::format("; {} sent again", sum("retransmitted_packets"));
  if (sum("rnr_nak_sent") != 0)
    text += fmt::format("; {} times no receive was posted", sum("rnr_nak_sent"));
  if (sum("nak_sent") != 0) text += fmt::format("; {} requests refused", sum("nak_sent"));
  text += '\n';
  if (summary.use.queue_pairs != 0)
    text += fmt::format("hostnic lab: RDMA: {}\n", text_of(summary.use));
  const size_t told = std::min(summary.bad_queue_pairs.size(), kMostQps);
  for (size_t i = 0; i < told; ++i) text += "hostnic lab: " + summary.bad_queue_pairs[i] + '\n';
  if (summary.bad_queue_pairs.size() > told)
    text += fmt::format("hostnic lab: and {} more\n", summary.bad_queue_pairs.size() - told);
  return text;
}

std::string json_of(const LabSummary& summary) {
  JsonWriter json;
  json.begin_object()
      .member("command", summary.command)
      .member("exit_code", summary.exit_code)
      .member("duration_ns", summary.duration_ns)
      .member("all_answered", summary.all_answered)
      .member("impaired", summary.impaired)
      .member("rdma_bytes", summary.use.bytes())
      .member("rdma_messages", summary.use.messages())
      .member("rdma_queue_pairs", summary.use.queue_pairs);
  for (const auto& [name, value] : numbers_of(summary)) json.member(name, value);
  json.member("impairment_hit_nothing", summary.impaired && summary.impaired_packets() == 0);
  json.key("bad_queue_pairs").begin_array();
  for (const std::string& line : summary.bad_queue_pairs) json.value(line);
  json.end_array().key("nics").begin_array();
  for (const LabSummary::Nic& nic : summary.nics) {
    json.begin_object().member("host", nic.host).member("nic", nic.name).key("counters");
    json.begin_object();
    for (const auto& [name, value] : nic.counters) json.member(name, value);
    json.end_object().end_object();
  }
  return json.end_array().end_object().line().take();
}

std::string junit_of(const LabSummary& summary) {
  const std::vector<TestCase> tests = tests_of(summary);
  const auto failures =
      std::ranges::count_if(tests, [](const TestCase& test) { return !test.failure.empty(); });
  const auto skipped =
      std::ranges::count_if(tests, [](const TestCase& test) { return !test.skipped.empty(); });
  std::string text = fmt::format(
      "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n"
      "  <testsuite name=\"hostnic lab\" tests=\"{}\" failures=\"{}\" errors=\"0\" skipped=\"{}\" "
      "time=\"{:.3f}\">\n    <properties>\n",
      tests.size(), failures, skipped, seconds_of(summary.duration_ns));
  for (const auto& [name, value] : numbers_of(summary))
    text += fmt::format("      <property name=\"{}\" value=\"{}\"/>\n", name, value);
  text += "    </properties>\n";
  for (const TestCase& test : tests) text += element_of(test);
  return text + fmt::format("    <system-out>{}</system-out>\n  </testsuite>\n</testsuites>\n",
                            escaped(text_of(summary)));
}

bool is_summary_file(std::string_view file) {
  return file.ends_with(".xml") || file.ends_with(".json");
}

std::string content_for(std::string_view file, const LabSummary& summary) {
  return file.ends_with(".xml") ? junit_of(summary) : json_of(summary);
}

}  // namespace hostnic::cli
