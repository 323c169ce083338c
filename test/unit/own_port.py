# SPDX-License-Identifier: BSD-3-Clause
"""A port for the daemons of one run of a test: two runs side by side, or a daemon left over, are not in each other's way."""

import os
import socket

# A bound socket keeps its port from the other runs for as long as this process lives. No test has an NI on this address.
KEEPER = "127.255.255.254"
FIRST, COUNT = 10000, 20000     # below the ports that the kernel gives out by itself

_kept = []


def _bound(address, port):
    """A bound socket, None where the port is taken."""
    s = socket.socket()
    try:
        s.bind((address, port))
    except OSError:
        s.close()
        return None
    return s


def own_port(*addresses):
    """A port that no other run has and that is free on each of the addresses."""
    for i in range(COUNT):
        port = FIRST + (os.getpid() + i) % COUNT
        keeper = _bound(KEEPER, port)
        if keeper is None:
            continue
        probes = [_bound(address, port) for address in addresses]
        free = all(probes)
        for s in filter(None, probes):
            s.close()
        if free:
            _kept.append(keeper)
            return port
        keeper.close()
    raise AssertionError(f"no port is free on {addresses}")
