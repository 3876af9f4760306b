# SPDX-License-Identifier: BSD-3-Clause
"""The end-to-end benchmarks: what `./run bench` measures beside the parts of the data path."""
