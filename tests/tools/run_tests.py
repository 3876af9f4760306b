#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""All tests of the project, part by part, and one line at the end that sums them up.

The parts: unit (GoogleTest programs), sim (both halves on virtual time), lab (verbs programs between
NICs of a private hostnicd, and the demo), conformance (verbs semantics, rule by rule, in a lab), pyverbs
(rdma-core's own Python tests in a lab), programs (UCX, MPI, rdma_cm and what is built on them; a
representative part of them with --all), hosts (two network namespaces; as root only), loss (these two, while they lose
their network), hostile (programs that attack hostnicd beside honest ones), sanitize (a build with AddressSanitizer and
UndefinedBehaviorSanitizer, with which unit, sim and a part of lab run again), clang (what is shipped, compiled by the
other compiler), fuzz (each fuzzer for a quarter of a minute), faults (a build whose transport can be broken on purpose:
the suite must notice each time), twin (programs of random operations on their address space, beside a model of pinned
pages; a hundred of them with --all), lint (format and clang-tidy), and, not with --all, tsan (hostnic-stress and the
driver half with ThreadSanitizer), interop (stock programs between hostnic and a genuine rdma_rxe), netem (two hosts
while a kernel loses packets) and mutants (libraries that are broken on purpose, which the twin must notice).

With --all, what is long runs as a third, which the commit's hash chooses; --third all runs everything."""

import argparse
import concurrent.futures
import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "lab"))
import huge_pages  # noqa: E402
import thirds  # noqa: E402
from harness import udp_nics  # noqa: E402
from results import Results, run_check, run_gtest, run_runner  # noqa: E402

TOP = Path(__file__).resolve().parents[2]
TESTS = TOP / "tests"
CPUS = len(os.sched_getaffinity(0))
PARTS = ["unit", "sim", "lab", "conformance", "pyverbs", "programs", "hosts", "loss", "hostile", "sanitize", "clang",
         "fuzz", "faults", "twin", "lint"]
# With --all these run in one third of the commits, so that a commit makes one or two builds more and not three. All
# others run always; lab, conformance and lint deal what is long in them out to the thirds (docs/testing.md, "Thirds"),
# and where the sanitizers run, unit tests, simulation and the lab's quick cases run with them only.
THIRD_OF = {"sanitize": 1, "pyverbs": 3, "faults": 2, "programs": 2, "loss": 2, "clang": 3, "fuzz": 3, "hosts": 3, "hostile": 3,
            "twin": 3}
# Of conformance, which wires belong to a third. The first of the list below always runs.
CONFORMANCE_THIRDS = {"IPv6": 1, "UDP sockets": 2, "the standard's RC": 3}
# Only when asked for: too long for CI, or with more than a machine usually has.
MORE_PARTS = ["tsan", "interop", "netem", "mutants"]
DEFAULT_PARTS = ["unit", "sim", "lab", "conformance", "pyverbs", "hosts", "loss", "hostile"]
# Instead of --third, for what calls .ci/run.
THIRD_VARIABLE = "HOSTNIC_TEST_THIRD"
# What the meson files declare besides GoogleTest programs: passed by exit status 0.
OTHER_SUITES = {"bench", "tools"}

PROGRAMS = ["hostnicd", "hostnic", "hostnic-simulate", "libhostnic-verbs.so", "libhostnic-calls.so"]
SANITIZE_BUILD = TOP / "build-sanitize"
TSAN_BUILD = TOP / "build-tsan"
# All of Clang's: what is shipped, and the fuzzers, which consist of most of it.
FUZZ_BUILD = TOP / "build-fuzz"
FAULTS_BUILD = TOP / "build-faults"
FAULTS_SOURCE = FAULTS_BUILD / "source"  # a copy in which they are planted
FAULTS_TESTS = ["tests/sim/sim-test", "tests/unit/protocol/unit-protocol",
                "tests/unit/driver/unit-driver", "tests/unit/nic/unit-nic"]
# Debian 12's; where that is not to be had, what there is.
CLANG = {"CC": "clang-14", "CXX": "clang++-14"} if shutil.which("clang++-14") else {"CC": "clang", "CXX": "clang++"}
# Each; as many at a time as there are CPUs.
FUZZ_S = 15
FUZZ_MAX_BYTES = 2048
# 65,536 registrations, about as long as all other cases together.
LONG_CONFORMANCE = "Limits.AllPromisedMemoryRegions"
# Nothing works afterwards: in a lab of its own.
LAST_CONFORMANCE = "DeviceFatal.*"
FUZZ_RSS_MB = 1024
SPARE_HUGE_PAGES = 32

# Nothing may hang for ever. About ten times what two idle cores take.
LIMIT_S = {"gtest": 900, "conformance": 1200, "lab": 7200, "demo": 600, "pyverbs": 900, "programs": 7200, "hosts": 1800,
           "hostile": 1800, "twin": 7200, "mutants": 14400, "interop": 14400, "netem": 14400, "build": 3600, "lint": 2400, "faults": 2400, "tsan": 1200}
TSAN_STRESS = ["--threads", 8, "--qps", 40, "--seconds", 40, "--patience", 120]
SANITIZER_SLOWDOWN = 2

SANITIZER_ENVIRONMENT = {
    "ASAN_OPTIONS": "detect_leaks=1:abort_on_error=1:handle_segv=1:strict_string_checks=1",
    "LSAN_OPTIONS": f"suppressions={TESTS / 'tools' / 'leaks_of_others.txt'}:print_suppressions=0",
    "UBSAN_OPTIONS": "halt_on_error=1:abort_on_error=1:print_stacktrace=1",
}


def gtest_programs(build):
    """(name, suites, command, environment) of what the meson files declare with test()."""
    listed = subprocess.run(["meson", "introspect", "--tests", str(build)], check=True,
                            capture_output=True, text=True)
    return [(test["name"], [suite.split(":")[-1] for suite in test["suite"]], test["cmd"],
             test["env"]) for test in json.loads(listed.stdout)]


@contextlib.contextmanager
def spare_huge_pages():
    """Some for the tests that use them, where we may and the machine can; else these tests skip."""
    with contextlib.ExitStack() as stack:
        if huge_pages.may_reserve():
            try:
                stack.enter_context(huge_pages.reserved(SPARE_HUGE_PAGES))
            except (huge_pages.NotGranted, OSError) as error:
                print(f"   no huge pages for tests: {error}", flush=True)
        yield


def targets_without_gtests(build):
    """What ninja is to build where unit tests and simulation run with sanitizers only: all but these."""
    listed = subprocess.run(["meson", "introspect", "--targets", str(build)], check=True, capture_output=True, text=True)
    return [str(Path(path).relative_to(build)) for target in json.loads(listed.stdout)
            if target["build_by_default"] and not Path(target["defined_in"]).is_relative_to(TESTS / "unit")
            and not Path(target["defined_in"]).is_relative_to(TESTS / "sim") for path in target["filename"]]


class Runner:
    def __init__(self, options):
        self.options = options
        self.results = Results()
        # Of each step, the seconds that it took; building comes before this program begins.
        self.durations = [(step, float(seconds)) for step, seconds in options.before]

    def part(self, title, work):
        print(f"\n== {title}", flush=True)
        start = time.monotonic()
        work()
        self.durations.append((title, time.monotonic() - start))

    def gtests(self, build, sim, prefix="", slowdown=1, more_environment=None):
        # The test programs' own tests are no tests of the product, and not built with sanitizers.
        plain = build == self.options.build
        passed_over = OTHER_SUITES if plain else {*OTHER_SUITES, "integration"}
        programs = [p for p in gtest_programs(build)
                    if ("sim" in p[1]) == sim and not passed_over.intersection(p[1]) and
                    ("integration" in p[1] or not (plain and self.options.quick_with_sanitizers))]
        if not programs:
            self.results.fail(f"{prefix}{'sim' if sim else 'unit'}", "no program in the build")
        limit_s = LIMIT_S["gtest"] * slowdown
        more_environment = more_environment or {}

        def run_one(program):
            name, _, command, environment = program
            results = Results()
            run_gtest(results, prefix + name, command, limit_s,
                      {**environment, **more_environment})
            return results

        if not sim:
            self.side_by_side(run_one, programs)
            return
        for name, _, command, environment in programs:
            self.simulation(prefix + name, [*command, *self.options.sim_arguments(slowdown)],
                            limit_s, {**environment, **more_environment})

    def simulation(self, name, command, limit_s, environment):
        """One thread each: GoogleTest deals the tests out to as many programs as there are CPUs."""
        def shard(number):
            results = Results()
            run_gtest(results, f"{name} {number + 1}/{CPUS}", command, limit_s,
                      {**environment, "GTEST_TOTAL_SHARDS": str(CPUS),
                       "GTEST_SHARD_INDEX": str(number)})
            return results
        self.side_by_side(shard, range(CPUS))

    def side_by_side(self, work, items):
        """Each item's own Results, added up."""
        with concurrent.futures.ThreadPoolExecutor(max_workers=CPUS) as pool:
            for results in pool.map(work, items):
                self.results.add(results)

    def benchmarks(self):
        """That they run, and that what they measure is done right. The runners' own tests beside them."""
        for name, suites, command, environment in gtest_programs(self.options.build):
            if OTHER_SUITES.intersection(suites):
                run_check(self.results, name, command, LIMIT_S["gtest"], environment)

    def of_third(self):
        """For the runners that deal out: which third is wanted of them."""
        return [] if self.options.third is None else ["--third", self.options.third]

    def runner(self, name, script, build, selection, limit_s, environment=None, more=()):
        command = [sys.executable, TESTS / script, "--build", build, selection, *more]
        run_runner(self.results, name, command, limit_s, environment)

    def unit(self):
        with spare_huge_pages():
            self.part("Unit tests", lambda: self.gtests(self.options.build, sim=False))
        self.part("Benchmarks, once, and the runners' own tests", self.benchmarks)

    def sim(self):
        if not self.options.quick_with_sanitizers:
            self.part("Simulation", lambda: self.gtests(self.options.build, sim=True))

    def lab(self):
        # In the third of the sanitizers the quick cases run with them, and plainly in the others.
        selection = "--ci-without-quick" if self.options.quick_with_sanitizers else self.options.selection
        self.part("Verbs programs in a lab", lambda: self.runner(
            "lab", "lab/run_lab_tests.py", self.options.build, selection, LIMIT_S["lab"], more=self.of_third()))

        # What README begins with.
        self.part("Demo", lambda: run_check(
            self.results, "demo", [sys.executable, TESTS / "tools/demo.py", "--build", self.options.build],
            LIMIT_S["demo"]))

    def conformance(self):
        build = self.options.build
        left_out = [LAST_CONFORMANCE] + ([] if self.options.selection == "--full" else [LONG_CONFORMANCE])

        some = "-" + ":".join({*left_out, LONG_CONFORMANCE})

        def run():
            for wire, nics, tests in (
                    ("", [], "-" + ":".join(left_out)),
                    ("UDP sockets", udp_nics(), some),
                    ("IPv6", ["--nic", "ip=fd77::1/64,gids=mlx5", "--nic", "ip=fd77::2/64,gids=mlx5"], some),
                    ("the standard's RC", ["--nic", "transport=roce", "--nic", "transport=roce"], some),
                    ("the end of the device", [], LAST_CONFORMANCE)):
                if self.options.third not in (None, CONFORMANCE_THIRDS.get(wire, self.options.third)):
                    continue
                run_gtest(self.results, "conformance" + (f": {wire}" if wire else ""),
                          [build / "hostnic", "lab", *nics, "--",
                           build / "tests/conformance/conformance-test", f"--gtest_filter={tests}"],
                          LIMIT_S["conformance"])

        self.part("Verbs semantics in a lab", run)

    def pyverbs(self):
        self.part("rdma-core's own tests in a lab", lambda: self.runner(
            "pyverbs", "lab/run_pyverbs_tests.py", self.options.build, self.options.selection,
            LIMIT_S["pyverbs"]))

    def programs(self):
        self.part("Programs that people use, in a lab", lambda: self.runner(
            "programs", "programs/run_programs.py", self.options.build, self.options.selection,
            LIMIT_S["programs"]))

    def hosts(self):
        self.part("Two hosts over a veth pair", lambda: self.runner(
            "hosts", "hosts/run_hosts_tests.py", self.options.build, self.options.selection,
            LIMIT_S["hosts"]))

    def loss(self):
        self.part("Two hosts that lose their network", lambda: self.runner(
            "hosts: loss", "hosts/run_loss_tests.py", self.options.build, self.options.selection,
            LIMIT_S["hosts"]))

    def interop(self):
        self.part("hostnic and a Linux kernel's rdma_rxe", lambda: self.runner(
            "interop", "interop/run_interop_tests.py", self.options.build, self.options.selection,
            LIMIT_S["interop"]))

    def netem(self):
        self.part("Two hosts while the kernel loses packets", lambda: self.runner(
            "netem", "hosts/run_netem_tests.py", self.options.build, self.options.selection,
            LIMIT_S["netem"]))

    def hostile(self):
        self.part("Hostile programs beside honest ones", lambda: self.runner(
            "hostile", "hostile/run_hostile_tests.py", self.options.build, self.options.selection,
            LIMIT_S["hostile"]))

    def twin(self):
        self.part("Address spaces beside a model of pinned pages", lambda: self.runner(
            "twin", "lab/run_twin_tests.py", self.options.build, self.options.selection,
            LIMIT_S["twin"]))

    def mutants(self):
        self.part("Libraries that are broken on purpose", lambda: self.runner(
            "mutants", "lab/run_mutant_tests.py", self.options.build, self.options.selection,
            LIMIT_S["mutants"]))

    def configure(self, name, directory, *options, environment=None):
        return (directory / "build.ninja").exists() or run_check(
            self.results, f"{name}: configuration", ["meson", "setup", directory, *options],
            LIMIT_S["build"], environment)

    def build_in(self, name, directory, targets):
        return run_check(self.results, f"{name}: build", ["ninja", "-C", directory, *targets],
                         LIMIT_S["build"])

    def build_sanitized(self):
        """Whether there is something to run."""
        if not self.configure(
                "sanitize", SANITIZE_BUILD, "-Db_sanitize=address,undefined", "-Db_lundef=false",
                # Half the compile time; lines are still known.
                "-Doptimization=1", "-Ddebug=false", "-Dcpp_args=-g1 -fno-var-tracking",
                "-Dc_args=-g1", "-Dgrouped=true",
                # g++ 12 warns about what the instrumentation makes of correct code.
                "-Dwerror=false"):
            return False
        tests = [Path(command[0]).relative_to(SANITIZE_BUILD)
                 for _, suites, command, _ in gtest_programs(SANITIZE_BUILD)
                 if not {*OTHER_SUITES, "integration"}.intersection(suites)]
        return self.build_in("sanitize", SANITIZE_BUILD, [*PROGRAMS, "gpu", *tests])

    def sanitize(self):
        built = False

        def build():
            nonlocal built
            built = self.build_sanitized()

        self.part("Build with sanitizers", build)
        if not built:
            return
        for title, sim in (("Unit tests", False), ("Simulation", True)):
            self.part(f"{title} with sanitizers", lambda sim=sim: self.gtests(
                SANITIZE_BUILD, sim, "sanitize ", SANITIZER_SLOWDOWN, SANITIZER_ENVIRONMENT))
        self.part("Verbs programs in a lab with sanitizers", lambda: self.runner(
            "sanitize lab", "lab/run_lab_tests.py", SANITIZE_BUILD, "--quick",
            LIMIT_S["lab"] * SANITIZER_SLOWDOWN, SANITIZER_ENVIRONMENT,
            ["--apps", self.options.build]))
        self.part("Hostile programs with sanitizers", lambda: self.runner(
            "sanitize hostile", "hostile/run_hostile_tests.py", SANITIZE_BUILD, "--quick",
            LIMIT_S["hostile"] * SANITIZER_SLOWDOWN, SANITIZER_ENVIRONMENT,
            ["--apps", self.options.build]))

    def tsan(self):
        """The driver half with its program; hostnicd's half is another process, and ordinary."""
        def work():
            if not (self.configure(
                    "tsan", TSAN_BUILD, "-Db_sanitize=thread", "-Db_lundef=false",
                    "-Doptimization=1", "-Ddebug=false", "-Dcpp_args=-g1 -fno-var-tracking",
                    "-Dc_args=-g1", "-Dwerror=false", "-Dgrouped=true") and
                    self.build_in("tsan", TSAN_BUILD,
                                  ["libhostnic-verbs.so", "tests/apps/hostnic-stress"])):
                return
            lab = TSAN_BUILD / "lab"
            lab.mkdir(exist_ok=True)
            for program in ("hostnic", "hostnicd"):
                shutil.copy2(self.options.build / program, lab)
            (lab / "libhostnic-verbs.so").unlink(missing_ok=True)
            (lab / "libhostnic-verbs.so").symlink_to(TSAN_BUILD / "libhostnic-verbs.so")
            run_check(self.results, "tsan: hostnic-stress",
                      [lab / "hostnic", "lab", "--seed", 1, "--loss", "0.5%", "--",
                       TSAN_BUILD / "tests/apps/hostnic-stress", *TSAN_STRESS], LIMIT_S["tsan"],
                      {"TSAN_OPTIONS": f"suppressions={TESTS / 'tools' / 'tsan.supp'}:"
                                       "second_deadlock_stack=1"})
        self.part("Threads under ThreadSanitizer", work)

    def configure_clang(self):
        return self.configure("clang", FUZZ_BUILD, "-Dfuzz=true", "-Db_sanitize=address,undefined",
                              "-Db_lundef=false", "-Doptimization=1", "-Ddebug=false",
                              "-Dcpp_args=-g1 -fsanitize=fuzzer-no-link", environment=CLANG)

    def clang(self):
        """Its warnings are errors, as g++'s are. Nothing of it runs: the fuzzers do."""
        def work():
            if self.configure_clang():
                self.build_in("clang", FUZZ_BUILD, PROGRAMS)
        self.part("Build with Clang", work)

    def fuzz(self):
        def work():
            if not (self.configure_clang() and self.build_in("fuzz", FUZZ_BUILD, ["fuzzers"])):
                return
            fuzzers = sorted((FUZZ_BUILD / "tests" / "fuzz").glob("*_fuzzer"))
            print(f"   {FUZZ_S} s each; new inputs go to {FUZZ_BUILD}/corpus/, those that fail to "
                  f"{FUZZ_BUILD}/", flush=True)
            self.side_by_side(self.fuzz_one, fuzzers)
            if not fuzzers:
                self.results.fail("fuzz", "no program in the build")
        self.part("Fuzzers", work)

    @staticmethod
    def fuzz_one(fuzzer):
        results = Results()
        found = FUZZ_BUILD / "corpus" / fuzzer.name
        found.mkdir(parents=True, exist_ok=True)
        run_check(results, f"fuzz: {fuzzer.name}",
                  [fuzzer, f"-max_total_time={FUZZ_S}", f"-max_len={FUZZ_MAX_BYTES}", "-timeout=10",
                   f"-rss_limit_mb={FUZZ_RSS_MB}", "-print_final_stats=1",
                   f"-artifact_prefix={FUZZ_BUILD}/{fuzzer.name}-", found,
                   TESTS / "fuzz" / "corpus" / fuzzer.name], FUZZ_S * 20, SANITIZER_ENVIRONMENT)
        return results

    def faults(self):
        def work():
            if not FAULTS_SOURCE.exists():
                shutil.rmtree(FAULTS_BUILD, ignore_errors=True)  # made of other sources
            if run_check(self.results, "faults: planting",
                         [sys.executable, TESTS / "faults/plant.py", FAULTS_SOURCE], LIMIT_S["faults"]) and \
                    self.configure("faults", FAULTS_BUILD, FAULTS_SOURCE, "-Dtest_faults=true", "-Doptimization=1",
                                   "-Ddebug=false") and \
                    self.build_in("faults", FAULTS_BUILD, FAULTS_TESTS):
                run_runner(self.results, "faults",
                           [sys.executable, TESTS / "tools" / "run_faults.py",
                            "--build", FAULTS_BUILD, "--programs", self.options.build],
                           LIMIT_S["faults"])
        self.part("Broken transports", work)

    def lint(self):
        script = TESTS / "tools" / "lint.py"
        self.part("Format and clang-tidy", lambda: run_runner(
            self.results, "lint", [sys.executable, script, "--build", self.options.build, "--product", *self.of_third()],
            LIMIT_S["lint"]))

    def finish(self):
        """The exit status."""
        print("\n== Summary\n\n   minutes  part")
        for title, seconds in [*self.durations, ("together", sum(seconds for _, seconds in self.durations))]:
            print(f"   {seconds / 60:7.1f}  {title}")
        if self.options.third is not None:
            print(f"   third {self.options.third} of {thirds.COUNT}, chosen by {self.options.chosen_by}; in others: "
                  f"{', '.join(part for part in PARTS if part not in self.options.parts)}, and the rest of the long "
                  f"cases of lab, conformance and lint. --third all runs everything")
        self.results.show_failures()
        print(self.results.summary(), flush=True)
        return 1 if self.results.failures or self.results.passed == 0 else 0


def choose_third(options):
    """Sets `third` to a number, or None for everything, and `chosen_by` to why."""
    wanted = options.third or os.environ.get(THIRD_VARIABLE) or ("commit" if options.all else "all")
    options.third, options.chosen_by = None, ""
    if wanted == "commit":
        third, chosen_by = thirds.of_tree(TOP)
        options.third, options.chosen_by = third, f"commit {chosen_by[:12]}" if thirds.commit_of(TOP) else "the sources"
    elif wanted in map(str, thirds.THIRDS):
        options.third, options.chosen_by = int(wanted), "request"
    elif wanted != "all":
        return f"no third '{wanted}': {', '.join(map(str, thirds.THIRDS))}, all, or commit"
    return None


def parse():
    parser = argparse.ArgumentParser(
        prog="./run test", description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=Path, default=TOP / "build", help=argparse.SUPPRESS)
    what = parser.add_mutually_exclusive_group()
    what.add_argument("--all", action="store_true",
                      help="every part, as CI does; lab and hosts without long cases that resemble "
                           "others")
    what.add_argument("--only", metavar="PART,...", help=f"only these of {','.join(PARTS + MORE_PARTS)}")
    parser.add_argument("--quick", action="store_true",
                        help="a representative part of lab and hosts")
    parser.add_argument("--third", metavar="N|all|commit",
                        help="of what is long, this third; commit: the one that the commit's hash chooses (with --all, "
                        f"if nothing else is said); all: everything (otherwise). {THIRD_VARIABLE} says the same")
    parser.add_argument("--targets", action="store_true", help=argparse.SUPPRESS)  # print what is to be built; none: all
    parser.add_argument("--before", nargs=2, action="append", default=[], metavar=("STEP", "SECONDS"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    problem = choose_third(options)
    if problem is not None:
        parser.error(problem)
    options.selection = "--quick" if options.quick else "--ci" if options.all else "--full"
    # A sanitizer takes several times as long: fewer seeds, and one exhaustive pattern in so many.
    options.sim_arguments = lambda slowdown: (
        [] if slowdown == 1 else ["--seeds", 20, "--sample", 7])
    options.parts = DEFAULT_PARTS
    if options.all:
        options.parts = [part for part in PARTS if options.third in (None, THIRD_OF.get(part, options.third))]
    if options.only is not None:
        options.parts = options.only.split(",")
        for part in options.parts:
            if part not in PARTS + MORE_PARTS:
                parser.error(f"no part '{part}' (there are: {', '.join(PARTS + MORE_PARTS)})")
    options.quick_with_sanitizers = (options.all and not options.quick and options.third is not None and
                                     "sanitize" in options.parts)
    options.build = options.build.resolve()
    return options


def main():
    options = parse()
    if options.targets:
        if options.quick_with_sanitizers:
            print("\n".join(targets_without_gtests(options.build)))
        return 0
    runner = Runner(options)
    for part in options.parts:
        getattr(runner, part)()
    return runner.finish()


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("interrupted")
