# SPDX-License-Identifier: BSD-3-Clause
"""Stock programs on rdma_cm, under the unmodified librdmacm: connections, datagrams, multicast,
rsockets. The client may start first: a lab holds its request until the server listens. Many
connections at once, of which none may be lost and nothing may stay."""

import re

from harness import Case, no_trouble

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

# Servers and clients at a time, and the connections of each.
PAIRS = 4
EACH = 2500
# cmtime's server serves for ever. Its clients leave with 0 when each connection was made and taken down.
MANY_CONNECTIONS = f"""
for k in $(seq {PAIRS}); do
  HOSTNIC_DEVICE=hnic0 cmtime -b {SERVER_IP} -p 620$k & servers="$servers $!"
done
for k in $(seq {PAIRS}); do
  HOSTNIC_DEVICE=hnic1 cmtime -s {SERVER_IP} -b {CLIENT_IP} -p 620$k -c {EACH} > /dev/null & clients="$clients $!"
done
for client in $clients; do wait $client && echo connected {EACH}; done
kill $servers
wait
# For a while hostnicd answers repeated messages.
for i in $(seq 60); do hostnic ctl show cm | grep -q 'no rdma_cm ids' && break; sleep 0.5; done
hostnic ctl show cm
hostnic ctl show qp
hostnic ctl show client
"""


def connection_cases(maker):
    for network in ([], ["--loss", "1%"]):
        yield Case(f"{PAIRS * EACH} connections by {2 * PAIRS} processes [two NICs, {'loss 1%' if network else 'clean'}]",
                   maker.lab(network, ["sh", "-c", MANY_CONNECTIONS]), 300, False,
                   says(f"^(connected {EACH}\n){{{PAIRS}}}no rdma_cm ids\nno queue pairs\nno clients\n"), slow=not network)
