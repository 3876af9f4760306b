"""Applications with RDMA as one of their ways."""

from row import LOST_ENDS_IT, SERVER, Row, through

APPLICATIONS = []
