// SPDX-License-Identifier: BSD-3-Clause
// hostnic: runs verbs programs on software NICs, and talks to hostnicd.
#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>

#include "dataplane/cli/capture.h"
#include "dataplane/cli/check.h"
#include "dataplane/cli/check_report.h"
#include "dataplane/cli/control_client.h"
#include "dataplane/cli/doctor.h"
#include "dataplane/cli/fault.h"
#include "dataplane/cli/gpu.h"
#include "dataplane/cli/hosts.h"
#include "dataplane/cli/lab.h"
#include "dataplane/cli/lab_summary.h"
#include "dataplane/cli/like.h"
#include "dataplane/cli/locate.h"
#include "dataplane/cli/process.h"
#include "dataplane/cli/prompt.h"
#include "dataplane/cli/prompt_words.h"
#include "dataplane/cli/quantities.h"
#include "dataplane/cli/report.h"
#include "dataplane/cli/run.h"
#include "dataplane/cli/seed_search.h"
#include "dataplane/cli/top.h"
#include "dataplane/cli/trace.h"
#include "protocol/faults/fault_spec.h"
#include "protocol/hostif/control_socket.h"
#include "protocol/hostif/standard_descriptors.h"
#include "protocol/hostif/vendor_error.h"
#include "protocol/hostif/version.h"

namespace hostnic::cli {
namespace {

constexpr const char* kExamples = R"(
Examples:
  hostnic lab -- ibv_devinfo
  hostnic lab --loss 1% -- sh -c 'ib_write_bw -d hnic0 & sleep 1; ib_write_bw -d hnic1 127.0.0.1'
  hostnic lab -- sh -c 'hostnic run --device hnic0 -- ib_write_bw &
                        hostnic run --device hnic1 -- ib_write_bw 127.0.0.1'
  hostnic lab --hosts 2 -- sh -c 'hostnic on 1 -- ib_write_bw &
                                  hostnic on 2 -- ib_write_bw host1'
  hostnic ctl 'show counters')";

struct Arguments {
  LabOptions lab;
  std::string socket_path = default_socket_path();
  std::string devices;
  CaptureOptions capture;
  ReportOptions report;
  TopOptions top;
  TraceOptions trace;
  FaultOptions fault;
  CheckOptions check;
  bool lab_checks = false;
  std::vector<std::string> words;
  int vendor_error = -1;
  std::string to;    // of `doctor`
  std::string gpus;  // of `lab` and `run`
  bool json = false, prometheus = false, list_faults = false, list_kinds = false, how = false;
  std::string lab_directory, host;   // of `on`
  std::vector<std::string> command;  // behind `--`
};

// Adds an option that hostnicd understands and checks: it is passed on as it is.
void pass_on(CLI::App* lab, Arguments& arguments, const std::string& name,
             const std::string& help) {
  lab->add_option_function<std::vector<std::string>>(
         name,
         [&arguments, name](const std::vector<std::string>& values) {
           for (const std::string& value : values)
             arguments.lab.daemon_arguments.push_back(fmt::format("{}={}", name, value));
         },
         help)
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

void pass_on_flag(CLI::App* lab, Arguments& arguments, const std::string& name,
                  const std::string& help) {
  lab->add_flag_callback(
      name, [&arguments, name] { arguments.lab.daemon_arguments.push_back(name); }, help);
}

void add_faults(CLI::App* subcommand, Arguments& arguments, const std::string& name) {
  subcommand
      ->add_option(name, arguments.fault.rules,
                   "RULE: a call, completion or event that fails; see `hostnic fault --help`; "
                   "repeatable")
      ->expected(1)
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false);
}

void add_requirement(CLI::App* subcommand, Arguments& arguments) {
  subcommand
      ->add_option("--require-rdma", arguments.lab.required_bytes,
                   "fail (exit code 97) if COMMAND has moved fewer bytes by RDMA: 1, 64K, 1G")
      ->check([](const std::string& bytes) {
        return parse_bytes(bytes) ? std::string() : bytes + ": use bytes, as 1, 64K, 8M, 1G";
      });
}

void add_gpus(CLI::App* subcommand, Arguments& arguments) {
  subcommand
      ->add_option(
          "--gpu", arguments.gpus,
          "GPU memory without a GPU: a stand-in for so many GPUs' memory calls (CUDA, HIP), "
          "as 2, or 2,loads,nopeer,memory=8G; nothing computes")
      ->check(check_gpus);
}

void declare_lab(CLI::App& app, Arguments& arguments) {
  CLI::App* lab = app.add_subcommand(
      "lab", "start private NICs hnic0, hnic1, ... run COMMAND on them, stop them");
  lab->footer("Usage: hostnic lab [OPTIONS] -- COMMAND [ARGUMENTS]");
  pass_on(lab, arguments, "--nics", "how many NICs (default 2)");
  lab->add_option("--hosts", arguments.lab.hosts,
                  "so many hosts, each with one NIC, hnic0, and its address; COMMAND runs outside "
                  "of them, `hostnic on K -- ...` inside");
  lab->add_option("--port", arguments.lab.port,
                  "how the NICs of hosts are joined: udp (default), af_packet, wire");
  pass_on(lab, arguments, "--addresses",
          "network of the NICs' addresses (default 127.77.0.0/24; of hosts 10.77.0.0/24)");
  pass_on(lab, arguments, "--mtu",
          "IB MTU: 256, 512, 1024, 2048 or 4096 (default); with --hosts the MTU of their "
          "interfaces (default 1500), from which the IB MTU follows");
  pass_on(lab, arguments, "--loss", "drop so many of the packets, e.g. 1%");
  pass_on(lab, arguments, "--impair", "[rx|tx] SPEC, see `hostnic ctl help`; repeatable");
  pass_on(lab, arguments, "--switch",
          "the switch that the NICs hang on: rate 10Gbit queue 128 ecn 64 paths 4 trim");
  pass_on(lab, arguments, "--seed", "seed of loss and impairments, or `random` (default 1)");
  pass_on(lab, arguments, "--ordering",
          "tail (default), relaxed, strict, or adversarial: the seed chooses among all outcomes "
          "that InfiniBand permits");
  pass_on(lab, arguments, "--paths",
          "how many paths (UDP source ports) queue pairs spray their packets over: native ones up "
          "to 16 (default 1), MRC's up to 256 (default 16)");
  pass_on_flag(lab, arguments, "--mrc", "all NICs speak MRC: transport = \"mrc\"");
  pass_on(lab, arguments, "--planes",
          "how many planes (networks of their own) MRC's queue pairs use evenly; without --switch "
          "one of 10 Gb/s has them");
  pass_on(lab, arguments, "--timescale",
          "timeouts and timers of queue pairs and rdma_cm pass N times as fast (default 1)");
  add_faults(lab, arguments, "--fault");
  add_requirement(lab, arguments);
  add_gpus(lab, arguments);
  lab->add_flag("--check", arguments.lab_checks,
                "tell mistakes in the programs' use of verbs, as `hostnic check` does");
  lab->add_option(
      "--seeds",
      "1..200: run COMMAND with one seed after the other, until it fails; then say with "
      "which rules it does, and how to repeat it");
  pass_on(lab, arguments, "--config", "TOML file with NICs and ports");
  pass_on(lab, arguments, "--nic",
          "one NIC as for hostnicd; repeatable. With --hosts: keys of every host's NIC");
  pass_on(lab, arguments, "--idle", "adaptive (default) or poll");
  pass_on(lab, arguments, "--segmentation", "auto (default) or off: every packet is one buffer");
  pass_on(lab, arguments, "--lid", "none (default), or from-address for programs without GIDs");
  pass_on(lab, arguments, "--like",
          "what programs see of the devices: mlx5, rxe, ... or a TOML file; see `hostnic like`");
  pass_on(lab, arguments, "--lcores", "how many lcores serve NICs (default 1)");
  pass_on(lab, arguments, "--socket-mode", "let others use the NICs: 0660, 0666 (default 0600)");
  pass_on(lab, arguments, "--socket-group", "group of the socket, by name or number");
  pass_on(lab, arguments, "--commands", "file of commands for hostnicd to run at start");
  lab->add_option("--capture", arguments.lab.capture,
                  "write the packets of all NICs to this file (pcapng), as `hostnic capture` does");
  lab->add_option("--report", arguments.lab.report,
                  "write a page of HTML about them to this file, as `hostnic report` does");
  lab->add_option("--trace-points", arguments.lab.trace_points,
                  "trace messages; write that into this directory, for `hostnic report`");
  lab->add_option("--summary", arguments.lab.summary,
                  "write the summary to this file, too: FILE.xml as JUnit, FILE.json as JSON")
      ->check([](const std::string& file) {
        return is_summary_file(file) ? std::string() : file + ": use FILE.xml or FILE.json";
      });
  lab->add_flag("--keep-log", arguments.lab.keep_log, "leave hostnicd's log behind, say where");
  lab->add_flag("-q,--quiet", arguments.lab.quiet, "no summary at the end");
  lab->add_flag("-v,--verbose", arguments.lab.verbose, "show hostnicd's log");
}

void add_socket(CLI::App* subcommand, Arguments& arguments) {
  subcommand->add_option("--socket", arguments.socket_path,
                         "hostnicd's socket (default: $HOSTNIC_SOCKET, else the user's)");
}

void declare_capture(CLI::App& app, Arguments& arguments) {
  CLI::App* capture = app.add_subcommand(
      "capture", "show a running hostnicd's packets, and what the NICs decided about them");
  capture->footer(
      "Usage: hostnic capture [OPTIONS] [NIC] [FILTER]\n"
      "FILTER: qp N, peer IP, opcode NAME, verdict WORD; all that are given must hold.\n"
      "Live in Wireshark's terminal: hostnic capture -w - | tshark -i -");
  CaptureOptions& options = arguments.capture;
  add_socket(capture, arguments);
  capture->add_option("-w,--write", options.file,
                      "write pcapng to this file (-: to stdout) instead of lines of text");
  capture->add_option("-c,--count", options.count, "end after so many packets");
  capture->add_option("--seconds", options.seconds, "end after this time: 10, 500ms, 2m");
  capture->add_option("--snaplen", options.snap_bytes, "keep so many bytes of each packet");
  capture->add_option(
      "--last", options.last,
      "keep the packets of so long in memory; write them on --dump, on SIGUSR1, when a program "
      "dies, and at the end");
  capture->add_flag("--dump", options.dump,
                    "have those that keep packets (--last) write them now, and say where");
  capture->add_option("--buffer", options.buffer, "the ring of each NIC (default 32M)");
  // These are a lab's.
  capture->add_option("--ready-fd", options.ready_fd, "")->group("");
  capture->add_option("--host", options.hosts, "")
      ->multi_option_policy(CLI::MultiOptionPolicy::TakeAll)
      ->allow_extra_args(false)
      ->group("");
  capture->add_option("WORDS", options.words, "NIC (default: all), then a filter");
}

void declare_check(CLI::App& app, Arguments& arguments) {
  CLI::App* check = app.add_subcommand(
      "check", "run COMMAND and tell mistakes in its use of verbs, on any device");
  check->footer(
      "Usage: hostnic check [OPTIONS] -- COMMAND [ARGUMENTS]\n"
      "On hostnic's devices: hostnic lab --check -- COMMAND, or hostnic run -- hostnic check -- "
      "...\n"
      "Exit code 96: there were findings, and COMMAND itself ended with 0.");
  CheckOptions& options = arguments.check;
  check->add_option("--json", options.json, "write the findings to this file, too");
  check->add_option("--suppress", options.suppressions,
                    "file of findings to leave out: lines KIND PATTERN");
  check->add_option("--exit-code", options.exit_code, "instead of 96; 0: the command's always")
      ->check(CLI::Range(0, 255));
  check->add_flag("--strict", options.is_strict,
                  "also what is a mistake in most programs, but not in all");
  check->add_flag("--full", options.is_full, "compare every request, with all its bytes");
  check->add_flag("--list", arguments.list_kinds, "all kinds of findings");
}

void declare_others(CLI::App& app, Arguments& arguments) {
  CLI::App* run = app.add_subcommand("run", "run COMMAND on a running hostnicd, or lab");
  run->footer("Usage: hostnic run [OPTIONS] -- COMMAND [ARGUMENTS]");
  add_socket(run, arguments);
  run->add_option("--device", arguments.devices, "show the program these only: hnic0[,hnic1]");
  run->add_flag("--how", arguments.how,
                "do not start COMMAND, but say which way it would get its devices");
  add_faults(run, arguments, "--fault");
  add_requirement(run, arguments);
  add_gpus(run, arguments);
  CLI::App* fault = app.add_subcommand(
      "fault", "run COMMAND, whose calls of verbs fail as rules say, on any device");
  fault->footer("Usage: hostnic fault [OPTIONS] -- COMMAND [ARGUMENTS]\n" +
                std::string(faults::fault_help()) +
                "At the end it says which rules have fired; exit code 98: one never did.");
  add_faults(fault, arguments, "--rule");
  fault->add_option("--rules", arguments.fault.file, "file of rules, a line for each");
  fault->add_option("--device", arguments.fault.device,
                    "the device that rules are for which name none (default: all)");
  fault->add_option("--seed", arguments.fault.seed, "seed of percentages (default 1)");
  fault->add_option("--seeds", "1..200: as that of `hostnic lab`");
  fault->add_flag("--api", arguments.fault.by_program,
                  "the program arms rules itself (hostnic-fault.h): none need be given");
  fault->add_flag("--list", arguments.list_faults, "all names that rules may have");
  declare_check(app, arguments);
  CLI::App* trace = app.add_subcommand(
      "trace", "run COMMAND and show its calls of verbs and librdmacm, on any device");
  trace->footer(
      "Usage: hostnic trace [OPTIONS] -- COMMAND [ARGUMENTS]\n"
      "On hostnic's devices: hostnic run -- hostnic trace -- COMMAND, or in a lab.");
  trace->add_option("-o,--output", arguments.trace.output, "write to this file, not to stderr");
  trace->add_flag("--summary", arguments.trace.summary,
                  "no lines; at the end calls, errors and time by call");
  CLI::App* on = app.add_subcommand("on", "run COMMAND in a host of a lab with --hosts");
  on->footer(
      "Usage: hostnic on [--lab DIRECTORY] HOST -- COMMAND [ARGUMENTS]\n"
      "       hostnic on HOST WORDS...    the words are a line for /bin/sh, as ssh has it, for\n"
      "                                   mpirun --mca plm_rsh_agent 'hostnic on'\n"
      "       hostnic on HOST             a shell");
  on->add_option("--lab", arguments.lab_directory, "the lab (default: $HOSTNIC_LAB_DIR)");
  on->add_option("HOST", arguments.host, "host2, or 2")->required();
  CLI::App* ctl =
      app.add_subcommand("ctl", "run one of hostnicd's commands, or without one open a prompt");
  add_socket(ctl, arguments);
  ctl->add_flag("--json", arguments.json, "the answer as JSON, of every `show`");
  ctl->add_option("command", arguments.words, "such as 'show counters'; try help");
  declare_capture(app, arguments);
  CLI::App* report =
      app.add_subcommand("report",
                         "make a page of HTML of a capture: what was sent, lost and repeated, and "
                         "how long it took; of "
                         "traced messages (`trace points save`) a table of where their time went");
  report->add_option("-o,--output", arguments.report.output,
                     "the page (default: FILE.html; -: stdout), or the table (default: stdout)");
  report->add_option("--trace-points", arguments.report.trace_points,
                     "a trace of the same run's messages, for the page to tell of, too");
  report->add_flag("--json", arguments.report.json, "the page's or table's data alone");
  report
      ->add_option("FILE", arguments.report.input,
                   "what `hostnic capture -w`, or `trace points save` has written")
      ->required();
  CLI::App* explain = app.add_subcommand(
      "explain", "say in sentences what a queue pair does, waits for, or went of");
  add_socket(explain, arguments);
  explain->add_option("QUEUE-PAIR", arguments.words,
                      "its number (0x12ab), `last` for the one that went last, or a program's PID");
  explain->add_option("--vendor-err", arguments.vendor_error,
                      "what this number in ibv_wc::vendor_err means");
  CLI::App* doctor =
      app.add_subcommand("doctor", "say whether this machine, and COMMAND, can use hostnic well");
  doctor->footer("Usage: hostnic doctor [OPTIONS] [-- COMMAND]    COMMAND is not started");
  add_socket(doctor, arguments);
  doctor->add_option("--to", arguments.to,
                     "try the way to this address, too: firewall, path MTU, what the host is");
  CLI::App* top = app.add_subcommand("top", "watch NICs and their busiest queue pairs");
  add_socket(top, arguments);
  top->add_flag("--once", arguments.top.once,
                "once, as plain text, as where stdout is no terminal");
  top->add_option("-c,--count", arguments.top.count, "end after so many seconds");
  app.add_subcommand(
      "simulate", "studies in virtual time: what loss, reordering and delay cost, for each policy");
  CLI::App* metrics = app.add_subcommand("metrics", "print all that is measured, as OpenMetrics");
  add_socket(metrics, arguments);
  metrics->add_flag("--prometheus", arguments.prometheus,
                    "in the older text format, for node_exporter's textfile collector");
  CLI::App* mrc = app.add_subcommand(
      "mrc", "what a controller of MRC sees and says: entropy values, ports, probes of paths");
  mrc->footer(
      "Usage: hostnic mrc [hnicK]                          ports, and states of entropy values\n"
      "       hostnic mrc port hnicK N up|down             takes a port up or down, tells peers\n"
      "       hostnic mrc value hnicK N good|denied        allows or denies an entropy value\n"
      "       hostnic mrc probe hnicK ADDRESS [VALUE]      asks a host by each plane, or value");
  add_socket(mrc, arguments);
  mrc->add_flag("--json", arguments.json, "as JSON");
  mrc->add_option("WORDS", arguments.words, "see below");
  CLI::App* errors = app.add_subcommand(
      "errors", "list each kind of error once: how often, when, the newest line");
  add_socket(errors, arguments);
  errors->add_flag("--json", arguments.json, "as JSON");
  app.add_subcommand("like", "list the personalities of --like, or show one")
      ->add_option("NAME", arguments.words, "one of them, or a TOML file");
  app.add_subcommand("libdir",
                     "print the directory of our libibverbs.so.1 and librdmacm.so.1, for "
                     "LD_LIBRARY_PATH");
  CLI::App* devices = app.add_subcommand("devices", "list a running hostnicd's NICs");
  add_socket(devices, arguments);
}

int control(const Arguments& arguments) {
  if (arguments.words.empty()) {
    if (arguments.json) return fail("ctl", "--json: of which command?");
    return run_prompt(arguments.socket_path);
  }
  std::string line;
  for (const std::string& word : arguments.words) line += (line.empty() ? "" : " ") + word;
  if (is_answered_here(line)) {
    if (arguments.json) return fail("ctl", fmt::format("`{}` has no --json", arguments.words[0]));
    return run_prompt_line(arguments.socket_path, line);
  }
  if (arguments.json) line += " --json";
  auto text = run_text(arguments.socket_path, line);
  if (!text) return fail("ctl", text.error());
  fputs(text->c_str(), stdout);
  return 0;
}

int explain_vendor_error(int code) {
  const VendorErrorInfo* const info = find_vendor_error(static_cast<uint32_t>(code));
  if (info == nullptr)
    return fail("explain", fmt::format("--vendor-err {}: no such code (0 to {})", code,
                                       vendor_errors().size() - 1));
  fmt::print("vendor err {}, {}: {}.\n", code, info->status, info->meaning);
  if (*info->remedy != '\0') fmt::print("Look at: {}.\n", info->remedy);
  fmt::print("An adapter says: {}.\n", info->adapter);
  return 0;
}

int explain(Arguments arguments) {
  if (arguments.vendor_error >= 0) return explain_vendor_error(arguments.vendor_error);
  if (arguments.words.size() != 1)
    return fail("explain", "usage: hostnic explain QPN|last|PID, or --vendor-err N");
  arguments.words.insert(arguments.words.begin(), "explain");
  return control(arguments);
}

// Runs one of hostnicd's commands that has a name of its own here.
int control(Arguments arguments, const char* line) {
  arguments.words = {line};
  return control(arguments);
}

// The command of hostnicd that `hostnic mrc WORDS` is.
std::string line_of_mrc(const std::vector<std::string>& words) {
  const std::string verb = words.empty() ? "" : words[0];
  const bool is_probe = verb == "probe";
  std::string line = is_probe ? "mrc probe" : "show mrc";
  size_t from = is_probe ? 1 : 0;
  if (verb == "port" || verb == "value") {
    // The NIC comes first there.
    line = fmt::format("set mrc {} {}", words.size() > 1 ? words[1] : "", verb);
    from = 2;
  }
  for (size_t i = from; i < words.size(); ++i) line += " " + words[i];
  return line;
}

int dispatch(const CLI::App& app, const Arguments& arguments) {
  const std::string name = app.get_subcommands().front()->get_name();
  if (name == "devices") return print_devices(arguments.socket_path);
  if (name == "libdir") return print_libdir();
  if (name == "like") return run_like(arguments.words);
  if (name == "ctl") return control(arguments);
  if (name == "capture") {
    CaptureOptions options = arguments.capture;
    options.socket_path = arguments.socket_path;
    return run_capture(options);
  }
  if (name == "top") {
    TopOptions options = arguments.top;
    options.socket_path = arguments.socket_path;
    return run_top(options);
  }
  if (name == "report") return run_report(arguments.report);
  if (name == "explain") return explain(arguments);
  if (name == "mrc") return control(arguments, line_of_mrc(arguments.words).c_str());
  if (name == "errors") return control(arguments, "show errors");
  if (name == "metrics")
    return control(arguments, arguments.prometheus ? "show metrics prometheus" : "show metrics");
  if (name == "doctor")
    return run_doctor(
        arguments.socket_path,
        arguments.socket_path != default_socket_path() || getenv("HOSTNIC_SOCKET") != nullptr,
        arguments.command, arguments.to);
  if (arguments.list_faults) {
    fputs(faults::fault_tables().c_str(), stdout);
    return 0;
  }
  if (arguments.list_kinds) {
    fputs(table_of_kinds().c_str(), stdout);
    return 0;
  }
  if (arguments.command.empty())
    return fail(name, fmt::format("no command (usage: hostnic {} -- COMMAND [ARGUMENTS])",
                                  name == "on" ? "on HOST" : name + " [OPTIONS]"));
  if (arguments.how) return print_way_to_devices(arguments.command);
  if (!arguments.gpus.empty())
    if (auto set = set_gpu_environment(arguments.gpus); !set) return fail(name, set.error());
  if (name == "on") return run_on_host(arguments.lab_directory, arguments.host, arguments.command);
  if (name == "trace") return run_trace(arguments.trace, arguments.command);
  if (name == "check") return run_check(arguments.check, arguments.command);
  FaultOptions fault = arguments.fault;
  take_fault_variable(fault);
  if (name == "fault") return run_fault(fault, arguments.command);
  for (const std::string& argument : arguments.lab.daemon_arguments)
    if (argument.starts_with("--seed=") && argument != "--seed=random")
      fault.seed = argument.substr(7);
  const std::vector<std::string> checked =
      arguments.lab_checks ? with_check(arguments.check, arguments.command) : arguments.command;
  const std::vector<std::string> command =
      fault.has_rules() ? with_faults(fault, checked) : checked;
  if (name == "run")
    return run_on_hostnicd(arguments.socket_path, arguments.devices, arguments.lab.required_bytes,
                           command);
  if (!arguments.lab.hosts.empty()) return run_hosts_lab(arguments.lab, command);
  if (!arguments.lab.port.empty()) return fail("lab", "--port: only with --hosts (see --nic)");
  return run_lab(arguments.lab, command);
}

// Takes the command from the words of `on`, where it begins behind the host, with or without `--`.
std::vector<std::string> take_command_on(std::vector<std::string>& words) {
  size_t host = 1;
  while (host < words.size() && words[host].starts_with("-") && words[host] != "--")
    host += words[host] == "--lab" ? 2 : 1;
  if (host >= words.size()) return {};
  const auto behind = words.begin() + static_cast<std::ptrdiff_t>(host) + 1;
  std::vector<std::string> command(behind, words.end());
  words.erase(behind, words.end());
  const char* shell = getenv("SHELL");
  if (command.empty()) return {shell != nullptr && *shell != 0 ? shell : "/bin/sh"};
  if (command[0] == "--") {
    command.erase(command.begin());
    return command;
  }
  std::string line;
  for (const std::string& word : command) line += (line.empty() ? "" : " ") + word;
  return {"/bin/sh", "-c", line};
}

std::vector<std::string> take_command(std::vector<std::string>& words) {
  if (!words.empty() && words[0] == "on") return take_command_on(words);
  const auto divider = std::find(words.begin(), words.end(), "--");
  if (divider == words.end()) return {};
  std::vector<std::string> command(divider + 1, words.end());
  words.erase(divider, words.end());
  return command;
}

// Another program does that, and has the options: DPDK is in it, and both halves of hostnic.
int simulate(const std::vector<std::string>& words) {
  auto program = find_simulate();
  if (!program) return fail("simulate", program.error());
  std::vector<std::string> command = words;
  command[0] = *program;
  return exec_command(command);
}

int run(std::vector<std::string> words) {
  if (!words.empty() && words[0] == "simulate") return simulate(words);
  Arguments arguments;
  if (const char* lab = getenv("HOSTNIC_LAB_DIR")) arguments.lab_directory = lab;
  arguments.command = take_command(words);
  if (!words.empty() && (words[0] == "lab" || words[0] == "fault"))
    if (const auto seeds = take_seeds(words)) return search_seeds(*seeds, words, arguments.command);
  CLI::App app("Software RDMA NICs for unmodified verbs programs", "hostnic");
  app.set_version_flag("--version", std::string("hostnic ") + HOSTNIC_VERSION);
  app.footer(kExamples);
  app.require_subcommand(1);
  declare_lab(app, arguments);
  declare_others(app, arguments);
  std::reverse(words.begin(), words.end());  // CLI11 pops from the back
  try {
    app.parse(words);
  } catch (const CLI::Success& success) {
    return app.exit(success);  // --help, --version
  } catch (const CLI::ParseError& error) {
    fmt::print(stderr, "hostnic: {} (`hostnic --help` explains)\n", error.what());
    return 2;
  }
  return dispatch(app, arguments);
}

}  // namespace
}  // namespace hostnic::cli

int main(int argc, char** argv) {
  hostnic::open_standard_descriptors();
  return hostnic::cli::run(std::vector<std::string>(argv + 1, argv + argc));
}
