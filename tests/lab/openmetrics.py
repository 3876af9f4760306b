# SPDX-License-Identifier: BSD-3-Clause
"""Reads metrics in both formats that hostnicd writes, OpenMetrics 1.0 and Prometheus' older text format (0.0.4),
strictly: whatever does not agree is an error."""

import re

NAME = r"[a-zA-Z_:][a-zA-Z0-9_:]*"
META = re.compile(rf"# (HELP|TYPE|UNIT) ({NAME}) (.*)")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\\n]|\\\\|\\"|\\n)*)"(,|$)')
SAMPLE = re.compile(rf"({NAME})(?:\{{(.*)\}})? (\S+)")
ENDINGS = {"counter": "_total", "info": "_info"}


class Bad(Exception):
    pass


def labels_in(text):
    labels = {}
    while text:
        label = LABEL.match(text)
        if label is None or label.group(1) in labels:
            raise Bad(f"labels {text!r}")
        value = re.sub(r"\\(.)", lambda escape: {"n": "\n"}.get(escape.group(1), escape.group(1)), label.group(2))
        labels[label.group(1)] = value
        text = text[label.end():]
    return labels


def read(text, is_open):
    """{name of the sample: {labels as a sorted tuple: value}}"""
    lines = text.split("\n")
    if lines.pop() != "":
        raise Bad("the last line has no end")
    if is_open and (not lines or lines.pop() != "# EOF"):
        raise Bad("there is no # EOF at the end")
    samples, types, helps, family = {}, {}, set(), None
    for line in lines:
        if meta := META.fullmatch(line):
            kind, name, rest = meta.groups()
            if kind == "HELP":
                if name in helps:
                    raise Bad(f"family {name} twice")
                helps.add(name)
                family = name
            elif kind == "TYPE":
                if name != family or name in types:
                    raise Bad(f"the type of {name} is not behind its help")
                if rest not in (("counter", "gauge", "info") if is_open else ("counter", "gauge")):
                    raise Bad(f"the type {rest}")
                if is_open and name.endswith(("_total", "_info")):
                    raise Bad(f"a family {name}")
                types[name] = rest
            continue
        sample = SAMPLE.fullmatch(line)
        if sample is None:
            raise Bad(f"the line {line!r}")
        name, labels, value = sample.groups()
        expected = family + ENDINGS.get(types[family], "") if is_open else family
        if name != expected:
            raise Bad(f"a sample {name} in the family {family}")
        if not is_open and types[family] == "counter" and not name.endswith("_total"):
            raise Bad(f"a counter {name}")
        key = tuple(sorted(labels_in(labels or "").items()))
        if key in samples.setdefault(name, {}):
            raise Bad(f"{name}{key} twice")
        samples[name][key] = float(value)
        if types[family] in ("counter", "info") and float(value) < 0:
            raise Bad(f"{name} is negative")
    if set(types) != helps:
        raise Bad(f"families without a type: {helps - set(types)}")
    return samples
