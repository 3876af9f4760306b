#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks that what sources and documents name exists: files of the repository, headings of
documents, and rules of the transport. A part of lint; by itself it checks nothing else."""

import ast
import fnmatch
import io
import itertools
import os
import re
import subprocess
import sys
import tokenize
from pathlib import Path

TOP = Path(__file__).resolve().parents[2]
SUFFIXES = "md|h|cc|c|py|map|supp|csv|svg|toml|build|txt|yml"
# The name of a file, with {a,b} and * as a shell reads them.
NAME = re.compile(r"(?<![\w/.*{}$<~:-])((?:[\w.*{},-]+/)*[\w*{},-][\w.*{},-]*"
                  rf"\.(?:{SUFFIXES}))(?![\w/*-]|\.\w)")
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.*?)[ #]*$")
# A document and one of its headings, as in: docs/memory.md, "On demand".
SECTION = re.compile(r"([\w./-]+\.md)(?:\]\(([^)]*)\))?,? \"([^\"]+)\"")
RULES = re.compile(r"\b[Rr]ules? (\d+(?:(?:, and |, | and |\.\.)\d+)*)")
RULE_HEADING = re.compile(r"^### Rule (\d+): (.*)")
TRANSPORT = "docs/transport.md"
# The folders of headers that are not ours, and names of files that are not ours or an example's.
FOREIGN_FOLDERS = re.compile(r"(rdma|linux|sys|bits|infiniband|net|netinet|arpa|dpdk)/|rte_")
FOREIGN_NAMES = {"rdma_user_cm.h", "dpdk-devbind.py", "lab.toml"}


def tracked_files():
    """The paths of all files of the repository, from its top."""
    listed = subprocess.run(["git", "-C", str(TOP), "ls-files", "-z", "--cached", "--others",
                             "--exclude-standard"], capture_output=True, check=False)
    if listed.returncode == 0 and listed.stdout:
        names = listed.stdout.decode().split("\0")
        return sorted(name for name in names if name and (TOP / name).is_file())
    return sorted(walked_files())


def walked_files():
    """The same where there is no git: all but what builds, benchmarks and Python leave behind."""
    for folder, folders, names in os.walk(TOP):
        at_top = Path(folder) == TOP
        folders[:] = [name for name in folders if name not in (".git", "__pycache__") and not
                      (at_top and (name.startswith("build") or name == "bench-results"))]
        for name in names:
            path = str((Path(folder) / name).relative_to(TOP))
            if path != ".git" and not name.endswith(".swp"):
                yield path


def comments_behind(mark, text):
    """[(line number, comment)] of a language whose comments go from `mark` to the line's end."""
    pattern = re.compile(rf"(?:^|\s){mark}(.*)")
    return [(number, found.group(1)) for number, line in enumerate(text.splitlines(), 1)
            if (found := pattern.search(line)) is not None]


def python_comments(text):
    """The same of comments and documentation strings."""
    try:
        tree = ast.parse(text)
    except SyntaxError:  # lint says so itself
        return []
    found = [(token.start[0], token.string)
             for token in tokenize.generate_tokens(io.StringIO(text).readline)
             if token.type == tokenize.COMMENT]
    for node in ast.walk(tree):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and \
                ast.get_docstring(node, clean=False) is not None:
            first = node.body[0]
            found += enumerate(first.value.value.splitlines(), first.lineno)
    return sorted(found)


def prose(path):
    """[(line number, text)] of what a file says to people."""
    text = (TOP / path).read_text(encoding="utf-8", errors="replace")
    suffix = Path(path).suffix
    if suffix == ".md":
        return list(enumerate(text.splitlines(), 1))
    if suffix in (".h", ".cc", ".c"):
        return comments_behind("//", text)
    if suffix == ".py":
        return python_comments(text)
    if suffix in (".build", ".toml", ".supp", ".sh") or path in ("run", ".ci/run"):
        return comments_behind("#", text)
    return []


def paragraphs(lines):
    """[(line numbers, text)] of lines that follow each other, joined: names and numbers may be
    continued on the next line."""
    joined = []
    for number, text in lines:
        text = text.strip()
        if joined and joined[-1][0][-1] == number - 1 and text:
            joined[-1][0].append(number)
            joined[-1][1].append(text)
        elif text:
            joined.append(([number], [text]))
    return joined


def find_in(pattern, lines):
    """(line number, match) of each match, also of those that go on on the next line."""
    for numbers, texts in paragraphs(lines):
        starts = list(itertools.accumulate((len(text) + 1 for text in texts), initial=0))
        for match in pattern.finditer(" ".join(texts)):
            at = sum(1 for start in starts if start <= match.start()) - 1
            yield numbers[at], match


def cited_rules(lines):
    """(line number, rule) of each rule that is named; 5..8 are four of them."""
    for number, match in find_in(RULES, lines):
        for part in re.findall(r"\d+(?:\.\.\d+)?", match.group(1)):
            first, _, last = part.partition("..")
            for rule in range(int(first), int(last or first) + 1):
                yield number, rule


def spelled_out(name):
    """The names that a name with {...,...} stands for."""
    if (braces := re.search(r"\{([^{}]*)\}", name)) is None:
        return [name]
    return list(itertools.chain.from_iterable(
        spelled_out(name[:braces.start()] + part + name[braces.end():])
        for part in braces.group(1).split(",")))


def slug_of(heading):
    """The anchor that GitHub makes of a heading."""
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


class Repository:
    """What there is to name."""

    def __init__(self):
        self.files = tracked_files()
        # Every file by its path and by each end of that: nic/nic.h is dataplane/nic/nic.h.
        self.ends = {"/".join(parts[i:]) for path in self.files
                     for parts in [path.split("/")] for i in range(len(parts))}
        self.headings = {path: self.headings_of(path) for path in self.files
                         if path.endswith(".md")}
        self.rules = {int(found.group(1)): found.group(2) for _, line in prose(TRANSPORT)
                      if (found := RULE_HEADING.match(line)) is not None}

    @staticmethod
    def headings_of(path):
        in_code, found = False, []
        for _, line in prose(path):
            in_code ^= line.startswith("```")
            if not in_code and (heading := HEADING.match(line)) is not None:
                found.append(heading.group(1))
            found += re.findall(r"<a id=\"([^\"]+)\">", line)
        return found

    def has_anchor(self, path, anchor):
        seen = {}
        for heading in self.headings[path]:
            slug = slug_of(heading)
            count = seen.get(slug, 0)
            seen[slug] = count + 1
            if anchor in (f"{slug}-{count}" if count else slug, heading):
                return True
        return False

    def has(self, name):
        if FOREIGN_FOLDERS.match(name) or name in FOREIGN_NAMES:
            return True
        while name.startswith(("./", "../")):
            name = name.split("/", 1)[1]
        if "*" in name:
            return any(fnmatch.fnmatchcase(end, name) for end in self.ends)
        return name in self.ends

    def document(self, path, name):
        """The path of the document that `path` calls `name`."""
        beside = os.path.normpath(os.path.join(os.path.dirname(path), name))
        return beside if beside in self.headings else name if name in self.headings else None

    def check_link(self, path, target):
        """What is wrong with a link of a document, or None."""
        if re.match(r"[a-z]+:", target):
            return None
        name, _, anchor = target.partition("#")
        goal = os.path.normpath(os.path.join(os.path.dirname(path), name)) if name else path
        if not (TOP / goal).exists() or (goal not in self.files and not (TOP / goal).is_dir()):
            return f"the link to {target} leads nowhere"
        if anchor and not self.has_anchor(goal, anchor):
            return f"{goal} has no heading for #{anchor}"
        return None

    def check(self, path):
        """(line number, what is wrong) of one file."""
        lines = prose(path)
        is_document = path.endswith(".md")
        for number, text in lines:
            for match in NAME.finditer(text):
                for name in spelled_out(match.group(1)):
                    if not self.has(name):
                        yield number, f"there is no {name}"
            if is_document:
                for match in LINK.finditer(text):
                    if (wrong := self.check_link(path, match.group(1))) is not None:
                        yield number, wrong
        for number, match in find_in(SECTION, lines):
            name, link, heading = match.groups()
            document = self.document(path, link or name)
            if document is not None and heading not in self.headings[document]:
                yield number, f"{document} has no heading \"{heading}\""
        for number, rule in cited_rules(lines):
            if rule not in self.rules:
                yield number, f"{TRANSPORT} has no rule {rule}"


def check_references():
    """Whether all that is named is there."""
    repository = Repository()
    good = True
    for path in repository.files:
        for number, wrong in sorted(set(repository.check(path))):
            print(f"FAIL reference {path}:{number}: {wrong}")
            good = False
    if good:
        print(f"ok   references in {len(repository.files)} files")
    return good


if __name__ == "__main__":
    sys.exit(0 if check_references() else 1)
