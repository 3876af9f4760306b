"""Stock programs on rdma_cm, under the unmodified librdmacm: connections, datagrams, multicast,
rsockets. The client may start first: a lab holds its request until the server listens."""

import re

from harness import no_trouble

SERVER_IP = "127.77.0.1"
CLIENT_IP = "127.77.0.2"


def says(*patterns):
    """A check: each pattern is in the output, and no trouble."""

    def check(output):
        for pattern in patterns:
            if not re.search(pattern, output):
                return f"the output does not match {pattern!r}"
        return no_trouble(output)

    return check


# Name, server, client, check, in the quick run, whether it stands losses (of RC alone; a lost
# datagram ends the others).
CM = [
    ("rping", ["rping", "-s", "-a", SERVER_IP, "-C", "100", "-V"],
     ["rping", "-c", "-a", SERVER_IP, "-C", "100", "-v", "-V"], says(r"rdma-ping-99: "), True, True),
    ("rping, port 0.0.0.0", ["rping", "-s", "-C", "10"], ["rping", "-c", "-a", SERVER_IP, "-C", "10", "-v"],
     says(r"rdma-ping-9: "), False, True),
    ("ucmatose", ["ucmatose", "-b", SERVER_IP, "-c", "10", "-C", "20"],
     ["ucmatose", "-s", SERVER_IP, "-c", "10", "-C", "20"], says(r"return status 0(.|\n)*return status 0"),
     False, True),
    ("ucmatose, migrated ids", ["ucmatose", "-b", SERVER_IP, "-m"], ["ucmatose", "-s", SERVER_IP, "-m"],
     says(r"migrating(.|\n)*return status 0(.|\n)*return status 0"), True, True),
    ("udaddy", ["udaddy", "-b", SERVER_IP], ["udaddy", "-s", SERVER_IP],
     says(r"return status 0(.|\n)*return status 0"), True, False),
    ("mckey", ["mckey", "-m", "239.1.2.3", "-b", SERVER_IP],
     ["sh", "-c", f"sleep 2; exec mckey -m 239.1.2.3 -b {CLIENT_IP} -s"],
     says(r"return status 0(.|\n)*return status 0"), False, False),
    ("rdma_server, rdma_client", ["rdma_server"], ["rdma_client", "-s", SERVER_IP],
     says(r"rdma_server: end 0(.|\n)*rdma_client: end 0"), True, True),
    ("rstream", ["rstream", "-T", "v"], ["rstream", "-s", SERVER_IP, "-T", "v"], says(r"1m_bw"), False, True),
    ("ib_write_bw -R", ["ib_write_bw", "-R", "-F", "-n", "500"],
     ["ib_write_bw", "-R", "-F", "-n", "500", SERVER_IP], says(r"65536 +500"), True, True),
    ("ib_send_lat -R", ["ib_send_lat", "-R", "-F", "-n", "200"],
     ["ib_send_lat", "-R", "-F", "-n", "200", SERVER_IP], says(r"\n *2 +200"), False, True),
]
