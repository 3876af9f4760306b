#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes what our libibverbs.so.1 or librdmacm.so.1 is made of: assembly with a jump for each function that leads
elsewhere (forward_entry.inc has what a jump consists of), and the linker's list of versions.

    make_forwards.py SYMBOLS ASSEMBLY MAP [--ours hostnic-verbs.map]

SYMBOLS has lines `VERSION KIND: NAME NAME ...`; a line that begins with a blank goes on. KIND is `here` for functions
that the library defines in C++, else where functions lead (`verbs`, `rdmacm`: the machine's library) and what they return
where there is none: `verbs errno`, `rdmacm minus-one`, ... `data` is a byte that is 0. All that --ours lists leads to
libhostnic-verbs.so. A name that has a newer version, too, or a version that is one of several for the same names
(`IBVERBS_PRIVATE_34,57`), is no default: programs that are linked anew get the other one."""

import re
import sys
from pathlib import Path

TO = {"ours": 0, "verbs": 1, "rdmacm": 2}
FAILURE = {"errno": 0, "minus-one": 1, "nothing": 2, "text": 3}
NODE = re.compile(r"^(\w[\w.]*) \{(.*?)\n?\};", re.MULTILINE | re.DOTALL)


def entries_of(symbols):
    """(name, version, kind, may be a default) of each line's names."""
    text = re.sub(r"\n[ \t]+", " ", re.sub(r"#.*", "", symbols.read_text()))
    for line in filter(None, map(str.strip, text.splitlines())):
        head, _, names = line.partition(":")
        version, _, kind = head.partition(" ")
        first, *others = version.split(",")
        for each in [first, *(re.sub(r"\d+$", other, first) for other in others)]:
            for name in names.split():
                yield name.replace("@", each.rpartition("_")[2]), each, kind.strip(), "PRIVATE" not in each


def ours_of(version_map):
    text = re.sub(r"/\*.*?\*/", "", version_map.read_text(), flags=re.DOTALL)
    for version, body in NODE.findall(text):
        if not version.startswith("IBVERBS_"):
            continue
        body = body.partition("local:")[0]
        for name in re.findall(r"(\w+);", body.replace("global:", "")):
            yield name, version, "ours errno", "PRIVATE" not in version


def versions_in_order(entries):
    return sorted({entry[1] for entry in entries}, key=lambda v: [int(n) if n.isdigit() else n for n in
                                                                  re.split(r"(\d+)", v)])


def assembly_of(entries, defaults):
    code, data, table, targets = [], [], [], []
    for name, version, kind, _ in entries:
        if kind == "here":
            continue
        symbol = name if (name, version) in defaults else f"hostnic_{name}_in_{version.replace('.', '_')}"
        if kind == "data":
            data += [f"        .globl  {symbol}", f"        .type   {symbol}, @object", f"        .size   {symbol}, 1",
                     f"{symbol}: .zero 1"]
        else:
            index = len(table) // 2
            to, failure = kind.split()
            code.append(f"        forward {symbol}, {index}")
            table += [f".Lname{index}: .string \"{name}\"\n.Lversion{index}: .string \"{version}\"",
                      f"        .quad   .Lname{index}, .Lversion{index}\n"
                      f"        .long   {TO[to]}, {FAILURE[failure]}"]
            targets.append(f"        .quad   .Lfirst{index}")
        if symbol != name:
            code.append(f"        .symver {symbol}, {name}@{version}")
    return "\n".join([
        "#include \"verbs-shim/libraries/forward_entry.inc\"", "        .text", *code,
        "        .section .rodata.str1.1, \"aMS\", @progbits, 1", *table[::2],
        "        .section .data.rel.ro.local, \"aw\"", "        .balign 8", "        .globl  hostnic_forwards",
        "        .hidden hostnic_forwards", "hostnic_forwards:", *table[1::2],
        "        .data", "        .balign 8", "        .globl  hostnic_targets", "        .hidden hostnic_targets",
        "hostnic_targets:", *targets,
        "        .bss", *data, "        .section .note.GNU-stack, \"\", @progbits", ""])


def map_of(entries, defaults):
    """The version of a symbol that is no default is in the assembly, and would be hidden by a `local` of its version."""
    lines = []
    versions = versions_in_order(entries)
    hiding = next(each for each in versions if all((name, each) in defaults for name, v, *_ in entries if v == each))
    for version in versions:
        names = sorted(name for name, each in defaults if each == version)
        lines += [f"{version} {{", *(["  global:"] if names else []), *(f"    {name};" for name in names),
                  *(["  local: *;"] if version == hiding else []), "};"]
    return "\n".join(lines) + "\n"


def main():
    symbols, assembly, version_map, *rest = sys.argv[1:]
    entries = list(entries_of(Path(symbols)))
    if rest:
        entries += ours_of(Path(rest[1]))
    newest = {}
    for name, version, _, may_be_default in entries:
        older = newest.get(name)
        if may_be_default and (older is None or versions_in_order([(0, older), (0, version)])[-1] == version):
            newest[name] = version
    defaults = set(newest.items())
    Path(assembly).write_text(assembly_of(entries, defaults))
    Path(version_map).write_text(map_of(entries, defaults))


if __name__ == "__main__":
    main()
