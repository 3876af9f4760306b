# SPDX-License-Identifier: BSD-3-Clause
"""docs/gpu-memory.md: hostnic-gpu-memory, which makes perftest's calls of CUDA, in labs; what the processor may touch;
and refusals of --gpu."""

from command_cases import output_has
from harness import Case, may_leak, no_trouble, quoted

WAYS = {"dmabuf": "dma-buf", "peer": "its address"}


def says(pattern):
    def check(output):
        return no_trouble(output) or output_has(pattern)(output)
    return check


def gpu_cases(maker):
    program = maker.apps / "tests/apps/hostnic-gpu-memory"

    def case(name, gpus, what, way, pattern, network=(), quick=False):
        return Case(f"GPU memory: {name}, by {WAYS[way]}", maker.lab(["--gpu", gpus, *network], [program, what, way]), 60, quick,
                    says(pattern))

    for way in WAYS:
        for name, network in (("clean", []), ("loss 1%", ["--loss", "1%"])):
            yield case(f"data and bandwidth, {name}", "2", "data", way, r"gpu-memory: data ok", network,
                       quick=not network)
        yield case("freed while a peer uses it", "2", "revoke", way,
                   r"\d requests were good, then: remote access error\n(.*\n)*gpu-memory: revocation ok", quick=True)
    yield case("the processor can't touch it", "2", "touch", "dmabuf", r"gpu-memory: not to be touched")
    yield case("the processor may touch it", "2,loads", "touch", "dmabuf", r"gpu-memory: touched")
    yield case("data and bandwidth where the processor may touch it", "2,loads", "data", "peer", r"gpu-memory: data ok")
    hostnic = maker.build / "hostnic"
    fails = " ".join(quoted(may_leak([program])))
    refused = f"{hostnic} lab -q --gpu 2,nopeer -- {fails} touch peer; test $? -eq 1"
    yield Case("GPU memory: none of a peer's", ["sh", "-c", refused], 60, False, output_has(r"ibv_reg_mr \(errno: Bad address\)"))
    yield Case("GPU memory: run --gpu", maker.lab([], [hostnic, "run", "--gpu", "2", "--", program, "data", "dmabuf"]), 60, False,
               says(r"gpu-memory: data ok\n(.*\n)*.*memory only: a stand-in for 2 GPU"))
    yield Case("GPU memory: as many GPUs as are wanted",
               ["sh", "-c", f"{hostnic} lab -q --gpu 1 -- {fails} data dmabuf; test $? -eq 1"], 60, False,
               output_has(r"cuDeviceGet: CUDA error 101"))
    yield Case("GPU memory: words that --gpu has not", ["sh", "-c", f"{hostnic} lab --gpu fast -- true; test $? -eq 2"], 30, False,
               output_has(r'"fast": use 1 to 16 GPUs'))
