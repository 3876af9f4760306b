#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks that manuals, completion and packages agree with the programs: options with `--help`, keys of
the configuration and commands with the sources, versions with meson.build. A part of lint; by itself it
checks nothing else."""

import argparse
import re
import shutil
import subprocess
import sys
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
MANUALS = TOP / "packaging" / "man"
COMPLETION = TOP / "packaging" / "completion" / "hostnic.bash"
SUBCOMMANDS = ("lab", "run", "on", "ctl", "capture", "report", "explain", "doctor", "top", "trace", "fault", "check",
               "simulate", "metrics", "mrc", "errors", "devices", "like", "libdir")
HELP_OPTION = re.compile(r"^  ((?:-\w,)?--?[\w-]+)", re.MULTILINE)
# As config/*_keys.cc and the files of dataplane/daemon/control/commands declare them.
KEY_TABLE = re.compile(r"std::array<Key<(\w+)>.*?\n\}\};", re.DOTALL)
KEY = re.compile(r'^    \{"(\w+)", k', re.MULTILINE)
COMMAND = re.compile(r'const PromptCommand \w+ = \{\s*command_info\("([a-z ]+)"\)')
KEY_SECTIONS = {"HostnicdConfig": "The table [hostnicd]", "Limits": "The table [hostnicd.limits]",
                "NicDraft": "The tables [[nic]]", "Personality": "The table [personality]"}
# What bash-completion would bring: the words as they were typed, and nothing for files and commands.
COMPLETE = r"""
_init_completion() { words=("${COMP_WORDS[@]}"); cword=$COMP_CWORD; cur=${words[cword]}; prev=${words[cword-1]}; }
_filedir() { :; }
_command_offset() { COMPREPLY=(a-command); }
source "$1"
shift
COMP_WORDS=("$@")
COMP_CWORD=$(($# - 1))
"_$1"
printf '%s\n' "${COMPREPLY[@]}"
"""


class Mismatch(Exception):
    pass


def output_of(command):
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise Mismatch(f"{' '.join(map(str, command))}: exit status {done.returncode}: {done.stderr.strip()}")
    return done.stdout


def compare(what, actual, expected):
    """Both are sets; `expected` is the programs'."""
    missing, unknown = sorted(expected - actual), sorted(actual - expected)
    if missing:
        raise Mismatch(f"{what}: {', '.join(missing)} missing")
    if unknown:
        raise Mismatch(f"{what}: {', '.join(unknown)} not the program's")


def options_of(*command):
    """The options that --help lists, short and long."""
    found = set()
    for names in HELP_OPTION.findall(output_of([*command, "--help"]).split("\nImpairments:")[0]):
        found.update(names.split(","))
    return found


def manual_items(page, section):
    """Lines `.It ...` of a section (.Sh) or subsection (.Ss) of a manual, without the macro."""
    text = (MANUALS / page).read_text()
    heading = re.search(rf"^\.(S[hs]) {re.escape(section)}$", text, re.MULTILINE)
    if heading is None:
        raise Mismatch(f"packaging/man/{page} has no section {section}")
    text = text[heading.end():]
    end = re.search(r"^\.Sh " if heading.group(1) == "Sh" else r"^\.S[hs] ", text, re.MULTILINE)
    text = text[:end.start()] if end is not None else text
    return [line[len(".It "):] for line in text.splitlines() if line.startswith(".It ")]


def manual_options(items):
    found = set()
    for item in items:
        words = item.split()
        if words[0] != "Fl":
            continue
        for word in words[1:]:
            if word in ("Ar", "Cm"):
                break
            if word != ",":
                found.add("-" + word)
    return found


def check_options(build):
    hostnic, hostnicd = build / "hostnic", build / "hostnicd"
    help_options = {"-h", "--help"}
    compare("packaging/man/hostnic.1, lab's options",
            manual_options(manual_items("hostnic.1", "Options of lab")),
            options_of(hostnic, "lab") - help_options)
    compare("packaging/man/hostnic.1, simulate's options",
            manual_options(manual_items("hostnic.1", "Options of simulate")),
            options_of(hostnic, "simulate") - help_options)
    compare("packaging/man/hostnic.1, other options",
            manual_options(manual_items("hostnic.1", "Options of the other commands")),
            set().union(*(options_of(hostnic, name) for name in SUBCOMMANDS if name not in ("lab", "simulate"))) -
            help_options)
    compare("packaging/man/hostnicd.8, options", manual_options(manual_items("hostnicd.8", "DESCRIPTION")),
            options_of(hostnicd))


def sources_keys():
    """Table -> keys, as config/ declares them."""
    tables = {}
    for path in sorted((TOP / "config").glob("*_keys.cc")):
        for table in KEY_TABLE.finditer(path.read_text()):
            tables[table.group(1)] = set(KEY.findall(table.group(0)))
    return tables


def check_keys():
    tables = sources_keys()
    compare("tables of keys in config/", set(tables), set(KEY_SECTIONS))
    for table, section in KEY_SECTIONS.items():
        named = set()
        for item in manual_items("hostnic.toml.5", section):
            named.update(word for word in item.split()[1:] if word != ",")
        compare(f"packaging/man/hostnic.toml.5, {section}", named, tables[table])


def source_commands():
    text = "".join(path.read_text() for path in sorted((TOP / "dataplane/daemon/control/commands").glob("*.cc")))
    found = set(COMMAND.findall(text))
    if not found:
        raise Mismatch("dataplane/daemon/control/commands: no command found")
    return found


def check_commands():
    named = {re.match(r"Cm ((?:[a-z]+ ?)+)", item).group(1).strip()
             for item in manual_items("hostnicd.8", "COMMANDS")}
    compare("packaging/man/hostnicd.8, commands", named, source_commands())


def completions(*words):
    done = subprocess.run(["bash", "-c", COMPLETE, "bash", str(COMPLETION), *words], capture_output=True,
                          text=True, check=False, env={"PATH": "/usr/bin:/bin"})
    if done.returncode != 0 or done.stderr:
        raise Mismatch(f"completion of `{' '.join(words)}`: {done.stderr.strip()}")
    return set(done.stdout.split())


def check_completion(build):
    hostnic = build / "hostnic"
    compare("completion of hostnic", completions("hostnic", ""),
            set(SUBCOMMANDS) | options_of(hostnic))
    for name in SUBCOMMANDS:
        divider = {"--"} if name in ("lab", "run", "on", "doctor", "trace", "fault", "check") else set()
        compare(f"completion of hostnic {name}", completions("hostnic", name, "-"),
                options_of(hostnic, name) | divider)
    compare("completion of hostnicd", completions("hostnicd", "-"),
            options_of(build / "hostnicd") | {"--"})
    compare("completion of a lab's command", completions("hostnic", "lab", "--", ""), {"a-command"})
    offered = set()
    for first in completions("hostnic", "ctl", ""):
        seconds = completions("hostnic", "ctl", first, "")
        offered.update(f"{first} {second}" for second in seconds) if seconds else offered.add(first)
    compare("completion of hostnic ctl", offered, source_commands())


def check_manuals():
    for page in sorted(MANUALS.iterdir()):
        if shutil.which("mandoc") is None:
            raise Mismatch("mandoc is not installed: ./run setup")
        done = subprocess.run(["mandoc", "-T", "lint", "-W", "warning", str(page)], capture_output=True,
                              text=True, check=False)
        if done.returncode != 0:
            raise Mismatch(done.stdout.strip() or done.stderr.strip())


def check_versions():
    version = re.search(r"version: '([\d.]+)'", (TOP / "meson.build").read_text()).group(1)
    package = re.match(r"hostnic \(([^)]+)\)", (TOP / "debian/changelog").read_text()).group(1)
    if package != version:
        raise Mismatch(f"debian/changelog is of {package}, meson.build of {version}")


def check_packaging(build):
    checks = {"options": lambda: check_options(build), "keys": check_keys, "commands": check_commands,
              "completion": lambda: check_completion(build), "manuals": check_manuals,
              "versions": check_versions}
    good = True
    for name, check in checks.items():
        try:
            check()
        except Mismatch as mismatch:
            print(f"FAIL packaging, {name}: {mismatch}")
            good = False
    if good:
        print("ok   manuals, completion and packages agree with the programs")
    return good


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", type=Path, default=TOP / "build")
    sys.exit(0 if check_packaging(parser.parse_args().build.resolve()) else 1)
