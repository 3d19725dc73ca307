"""Ports of servers that end and start again: below those that the system gives to whoever asks for any, so that nobody else has them meanwhile."""

import pathlib
import random
import socket

ANY_FROM = int(pathlib.Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
RANGE = range(10_000, max(ANY_FROM, 11_000) - 100)


def free_port(beside=(0,)):
    """A port that is free, and so are those `beside` it, so much higher each."""
    while True:
        port = random.choice(RANGE)
        if all(is_free(port + offset) for offset in beside):
            return port


def is_free(port):
    try:
        socket.create_server(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True
