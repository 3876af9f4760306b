// SPDX-License-Identifier: BSD-3-Clause
// `hostnic report`: a page of HTML about a capture, that needs nothing else: no network, no other
// file. Of a directory, which is a trace of messages, a table (message_report.h).
#pragma once

#include <string>

#include "protocol/expected.h"

namespace hostnic::cli {

struct ReportOptions {
  std::string input;   // a pcapng file of `hostnic capture`, or a directory of `trace points save`
  std::string output;  // empty: the input's name with .html; "-": stdout
  bool json = false;   // the page's data instead of the page
  std::string title;   // empty: the input's name
  // A trace of messages of the same run (`trace points save`): the page has a part about it then.
  std::string trace_points;
  std::string programs;  // JSON of `show dead`; empty: nothing is known
  std::string errors;    // JSON of `show errors`; empty: nothing is known
};

// Reads the capture and writes the page. An error is one line.
Expected<void, std::string> write_report(const ReportOptions& options);
// Does the same as a subcommand; returns its exit code.
int run_report(const ReportOptions& options);

}  // namespace hostnic::cli
