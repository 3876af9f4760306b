#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Tries what docs/ci.md offers, as an ordinary user, with a bundle of this build's programs (which is none for other
machines: ./run bundle makes those):

  ci_checks.py page BUILD               the page's commands, beside the bundle
  ci_checks.py action BUILD             the steps of packaging/ci/action.yml, as GitHub's runner has them
  ci_checks.py gitlab BUILD             the script of packaging/ci/gitlab.yml, as GitLab's runner has it
  ci_checks.py place BUILD [OPTION...]  the five lines in a place like a container's (container_like.py's options)
  ci_checks.py hosts BUILD [OPTION...]  what `hostnic lab --hosts` says there
  ci_checks.py wheel BUILD              the wheel, installed by pip from the file, without a network
  ci_checks.py files BUILD              packaging/ci: its YAML can be read, and RDMA is required in each file
"""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import ordinary_user
from harness import HERE, REPOSITORY, Ports

CI = REPOSITORY / "packaging" / "ci"
VERSION = re.search(r"version: '([\d.]+)'", (REPOSITORY / "meson.build").read_text()).group(1)
NAME = f"hostnic-{VERSION}-x86_64"
# A real bundle has the last three in lib/hostnic, where programs look that were built as a bundle. Built as these are,
# they look beside themselves.
PROGRAMS = ("hostnic", "hostnicd", "hostnic-simulate", "libhostnic-verbs.so", "libhostnic-calls.so")
# Somebody's test of verbs: two programs, of which each has to end well.
TEST = ("hostnic run --device hnic0 -- ib_write_bw -F -n 200 -p {port} > /dev/null & "
        "hostnic run --device hnic1 -- ib_write_bw -F -n 200 -p {port} 127.0.0.1; client=$?; wait $! && exit $client")
MOVED = re.compile(r"^hostnic lab: RDMA: [\d.]+ [kMG]?B in ", re.MULTILINE)
NOT_MOVED = "hostnic lab: --require-rdma 1: no program has opened one of hostnic's devices"
NOT_MOVED_STATUS = 97


def make_bundle(build, directory):
    """NAME.tar.gz in a directory, without debug information: that is most of it."""
    root = Path(directory) / NAME
    (root / "bin").mkdir(parents=True)
    for program in PROGRAMS:
        subprocess.run(["strip", "-g", "-o", root / "bin" / program, build / program], check=True)
    path = Path(directory) / f"{NAME}.tar.gz"
    with tarfile.open(path, "w:gz", compresslevel=1) as archive:
        archive.add(root, NAME)
    shutil.rmtree(root)
    return path


class Place:
    """A directory of the ordinary user's with the bundle, and how to run something there."""

    def __init__(self, build, directory):
        self.home = Path(directory)
        self.bundle = make_bundle(build, self.home)
        self.port = Ports().next()
        self.around = []
        ordinary_user.give_away(self.home)

    def run(self, script, shell=("sh", "-e"), **variables):
        """(exit status, what it printed)."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HOSTNIC_")}
        home = {**ordinary_user.environment(self.home), "PATH": "/usr/local/bin:/usr/bin:/bin"}
        done = subprocess.run([*self.around, *ordinary_user.prefix(), *shell, "-c", script], cwd=self.home, check=False,
                              text=True, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                              env={**kept, **home, **variables})
        print(done.stdout)
        return done.returncode, done.stdout

    def good(self, script, **more):
        status, text = self.run(script, **more)
        assert status == 0, f"exit status {status}"
        assert MOVED.search(text), "it does not say that RDMA was used"

    def without_rdma(self, script, **more):
        status, text = self.run(script, **more)
        assert status == NOT_MOVED_STATUS, f"exit status {status} where no RDMA was used"
        assert NOT_MOVED in text, "it does not say that no RDMA was used"

    def test(self):
        return TEST.format(port=self.port)


def read_yaml(path):
    # Not everybody's Python has it, and only these checks need it.
    import yaml  # pylint: disable=import-outside-toplevel
    return list(yaml.safe_load_all(path.read_text()))


def check_action(place):
    action, = read_yaml(CI / "action.yml")
    assert action["inputs"]["require-rdma"]["default"] == "1", action["inputs"]
    step, = action["runs"]["steps"]
    assert step["shell"] == "bash" and action["runs"]["using"] == "composite", action["runs"]
    values = {"bundle": place.bundle.name, "options": "--loss 1% --seed 7",
              "require-rdma": action["inputs"]["require-rdma"]["default"]}
    for run, check in ((place.test(), place.good), ("true", place.without_rdma)):
        values["run"] = run
        variables = {name: re.sub(r"\$\{\{ inputs\.([\w-]+) \}\}", lambda found: values[found.group(1)], text)
                     for name, text in step["env"].items()}
        check(step["run"], shell=("bash", "--noprofile", "--norc", "-eo", "pipefail"), RUNNER_TEMP=str(place.home),
              **variables)


def check_gitlab(place):
    template, = read_yaml(CI / "gitlab.yml")
    job = template[".hostnic"]
    for command, check in ((place.test(), place.good), ("true", place.without_rdma)):
        check("\n".join(job["script"]), CI_PROJECT_DIR=str(place.home),
              **{**job["variables"], "HOSTNIC_COMMAND": command})
        report = (place.home / job["artifacts"]["reports"]["junit"]).read_text()
        assert report.startswith("<?xml"), report


def check_place(place, *options):
    """The five lines of docs/ci.md, with the test in the place of the reader's."""
    lines = five_lines()
    assert len(lines) == 5 and lines[0] == f"tar -xzf {NAME}.tar.gz" and all("--require-rdma 1" in line for line in lines[2:])
    place.around = ["/usr/bin/python3", str(HERE / "container_like.py"), *options]
    test = place.home / "my-verbs-test"
    test.write_text(f"#!/bin/sh\n{place.test()}\n")
    ordinary_user.give_away(place.home)
    place.good("\n".join(lines))
    place.without_rdma("\n".join(lines[:3]).replace("./my-verbs-test", "true"))


def five_lines():
    page = (REPOSITORY / "docs" / "ci.md").read_text()
    return re.search(r"^```\n(tar .*?)^```$", page, re.MULTILINE | re.DOTALL).group(1).splitlines()


def check_hosts(place, *options):
    place.around = ["/usr/bin/python3", str(HERE / "container_like.py"), *options]
    status, text = place.run(f"tar -xzf {NAME}.tar.gz; exec {NAME}/bin/hostnic lab --hosts 2 -- true")
    assert status == 1, f"exit status {status}"
    assert re.search(r"^hostnic lab: --hosts needs namespaces, and may make none here", text, re.MULTILINE), text


def check_wheel(place):
    subprocess.run([sys.executable, REPOSITORY / "packaging" / "build_wheel.py", place.bundle, place.home / "dist"], check=True)
    ordinary_user.give_away(place.home)
    wheel, = (place.home / "dist").iterdir()
    status, _ = place.run(f"/usr/bin/python3 -m venv venv && venv/bin/pip install --no-index --quiet {wheel}",
                          PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_CACHE_DIR="1")
    assert status == 0, f"pip ended with status {status}"
    # Beside nothing else: not the bundle, not the build.
    place.bundle.unlink()
    shutil.rmtree(place.home / "dist")
    lab = "venv/bin/hostnic lab --require-rdma 1 --"
    place.good(f"{lab} sh -c '{place.test()}'")
    place.without_rdma(f"{lab} true")
    status, text = place.run("venv/bin/hostnicd --version")
    assert status == 0 and VERSION in text, text
    status, text = place.run("venv/bin/pip uninstall --yes --quiet hostnic; find venv -name '*hostnic*'")
    assert status == 0 and not text.strip(), f"left: {text}"


def check_files():
    names = sorted(path.name for path in CI.iterdir())
    assert names == ["Containerfile", "action.yml", "cdi.yaml", "daemonset.yaml", "gitlab.yml"], names
    for name in names:
        path = CI / name
        if name != "Containerfile":
            document, = read_yaml(path)
            assert isinstance(document, dict), name
        assert re.search(r"--require-rdma\"?[ ,]+\"?(?:1|\$HOSTNIC_REQUIRE_RDMA)\b", path.read_text()), \
            f"{name}: RDMA is not required"
    cdi, = read_yaml(CI / "cdi.yaml")
    assert cdi["kind"].count("/") == 1 and cdi["devices"][0]["containerEdits"]["mounts"], cdi
    for name in ("cdi.yaml", "daemonset.yaml"):
        assert "\n# NOT TRIED." in (CI / name).read_text(), name
    daemon_set, = read_yaml(CI / "daemonset.yaml")
    template = daemon_set["spec"]["template"]
    volumes = {volume["name"] for volume in template["spec"]["volumes"]}
    for container in template["spec"]["initContainers"] + template["spec"]["containers"]:
        assert {mount["name"] for mount in container["volumeMounts"]} <= volumes, container
    assert template["metadata"]["labels"] == daemon_set["spec"]["selector"]["matchLabels"], daemon_set
    image = (CI / "Containerfile").read_text()
    assert 'ENTRYPOINT ["hostnic", "lab", "--require-rdma", "1", "--"]' in image, image


def check_page(build, directory):
    bundle = make_bundle(build, directory)
    done = subprocess.run([sys.executable, HERE / "page_commands.py", "--build", build, "--file", bundle,
                           REPOSITORY / "docs" / "ci.md"], check=False)
    assert done.returncode == 0, "the page is not true"


def main():
    what, build, *options = sys.argv[1:]
    build = Path(build).resolve()
    # Below /tmp, which another user can reach, whoever's TMPDIR this is.
    with tempfile.TemporaryDirectory(prefix="hostnic-ci-", dir="/tmp") as directory:
        try:
            if what == "files":
                check_files()
            elif what == "page":
                check_page(build, directory)
            else:
                {"action": check_action, "gitlab": check_gitlab, "place": check_place, "hosts": check_hosts,
                 "wheel": check_wheel}[what](Place(build, directory), *options)
        except AssertionError as error:
            print(f"ci_checks.py {what}: {error}", file=sys.stderr)
            return 1
    print(f"ci: {what} is fine")
    return 0


if __name__ == "__main__":
    sys.exit(main())
