# SPDX-License-Identifier: BSD-3-Clause
"""The programs that are tried, in the order of docs/programs.md."""

from rows_applications import APPLICATIONS
from rows_memory import MEMORY
from rows_parallel import PARALLEL
from rows_rdma_cm import RDMA_CM
from rows_verbs import VERBS

NETWORKS = {"clean": [], "loss 1%": ["--loss", "1%"]}
ROWS = [*VERBS, *PARALLEL, *RDMA_CM, *APPLICATIONS, *MEMORY]
