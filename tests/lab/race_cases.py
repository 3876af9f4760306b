# SPDX-License-Identifier: BSD-3-Clause
"""Mistakes with order that go well nearly always (hostnic-races): an undisturbed run passes, `--seeds` has a seed with
which it does not, `hostnic check` tells of it in one run, and neither finds anything where the mistake is mended."""

from command_cases import output_has, shell_quote
from fault_cases import has_all
from harness import Case

# The race, the rules by which it is looked for, and the rule that the line which repeats it has left. Of the late
# completions none matters to drain, which takes too little notice of them anyway.
LATE_COMPLETIONS = "wc 1% device hnic0 opcode RECV_WRITE_WITH_IMM delay 100ms"
LATE_REQUESTS = "post 2% opcode WRITE delay 100ms"
RACES = {
    "rails": ([LATE_COMPLETIONS], LATE_COMPLETIONS, "of its 4 parts were there"),
    "drain": ([LATE_COMPLETIONS.replace("RECV_WRITE_WITH_IMM", "WRITE"), LATE_REQUESTS], LATE_REQUESTS,
              r"round \d is wrong from byte \d+ on"),
}
STRICT = "a WRITE_WITH_IMM of 8 bytes on QP 0x\\w+ lies beside one of 1024 bytes"


def race_cases(maker):
    hostnic = maker.build / "hostnic"
    races = maker.apps / "tests/apps/hostnic-races"
    def case(name, line, limit_s, check, quick=True):
        return Case(f"races: {name}", ["sh", "-c", f"{line}; echo status $?"], limit_s, quick, check)
    for race, (rules, left, wrong) in RACES.items():
        faults = [word for rule in rules for word in ("--fault", rule)]
        yield case(f"{race} is right by luck", f"{hostnic} lab -q -- {races} {race}", 30, has_all("8 .*, 0 wrong", "status 0"))
        yield case(f"{race} is found by seeds", shell_quote([hostnic, "lab", "-q", "--seeds", "1..100", *faults, "--", races, race]), 200,
                   has_all(wrong, r"seed \d+ fails \(exit code 1\)",
                           rf"again: hostnic lab --seed \d+ -q --fault '{left}' -- ", "status 1"))
        yield case(f"{race}, mended, is not found by seeds",
                   shell_quote([hostnic, "lab", "-q", "--seeds", "1..12", *faults, "--", races, race, "--fixed"]), 200,
                   has_all("12 of 12 passed", "status 0"), quick=False)
        check = f"{hostnic} lab -q -- {hostnic} check"
        yield case(f"{race} is found by check", f"{check} -- {races} {race}", 30,
                   has_all("changed-buffer: .* changed between post and completion; QP 0x\\w+ has completed a later one meanwhile",
                           r"posted at .*\(lane.cc:\d+\)", "1 finding in 1 process", "status 96"))
        yield case(f"{race}, mended, is not found by check", f"{check} --strict -- {races} {race} --fixed", 30,
                   has_all("no findings in 1 process", "status 0"))
    yield case("flag is right by luck", f"{hostnic} lab -q -- {races} flag", 30, has_all("250 .*, 0 wrong", "status 0"))
    yield case("flag is found by the adversary", f"{hostnic} lab -q --ordering adversarial --seeds 1..20 -- {races} flag", 100,
               has_all("a flag was there before its data", r"seed \d+ fails \(exit code 1\)",
                       r"again: hostnic lab --seed \d+ -q --ordering adversarial -- ", "status 1"))
    yield case("flag, mended, is not found by the adversary",
               f"{hostnic} lab -q --ordering adversarial --seeds 1..5 -- {races} flag --fixed", 100,
               has_all("5 of 5 passed", "status 0"))
    yield case("hostnic-verify passes before the adversary", f"{hostnic} lab --ordering adversarial --seed 3 -- "
               f"{maker.apps / 'tests/apps/hostnic-verify'} --both --device hnic0 --peer-device hnic1 --seed 7 --no-fences",
               100,
               has_all("hostnic-verify: ok", r"on purpose: .* reordered", "times no receive was posted", "status 0"))
    yield case("an ordering that is none", f"{hostnic} lab -q --ordering hostile -- true", 20, has_all("--ordering", "status [1-9]"))
    yield case("data and flag on two devices", f"{hostnic} lab -q -- {hostnic} check --strict -- {races} rails", 30,
               has_all(f"write-race: .*{STRICT}", "data posted at", "status 96"))
    yield case("late requests, as a program sees them", f"{hostnic} lab -q --fault 'post delay 300ms' -- "
               f"{maker.apps / 'tests/apps/hostnic-faulted'} late", 30,
               output_has(r"completions: 1 2, status 0 0, late\nmemory: b, inline: a\nfull: ENOMEM, as created\n"
                          r"completions in order: all\nall is destroyed\nstatus 0\n"))
