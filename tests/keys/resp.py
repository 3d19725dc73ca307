"""A small client that gives replies as they are: errors as values, RESP2 or RESP3."""

import socket


class Refused(str):
    """An error reply."""


class Client:
    def __init__(self, port, protocol=2, host="127.0.0.1"):
        self.socket = socket.create_connection((host, port), timeout=30)
        self.reader = self.socket.makefile("rb")
        if protocol == 3:
            self.call("HELLO", "3")

    def send(self, *words):
        words = [word if isinstance(word, bytes) else str(word).encode() for word in words]
        parts = [b"*%d\r\n" % len(words)]
        parts += [b"$%d\r\n%s\r\n" % (len(word), word) for word in words]
        self.socket.sendall(b"".join(parts))

    def receive(self):
        line = self.reader.readline()
        if not line.endswith(b"\r\n"):
            raise ConnectionError("the server hung up")
        mark, rest = line[:1], line[1:-2]
        if mark == b"+":
            return rest.decode()
        if mark == b"-":
            return Refused(rest.decode())
        if mark == b":":
            return int(rest)
        if mark == b",":
            return float(rest)
        if mark == b"#":
            return rest == b"t"
        if mark == b"_":
            return None
        if mark in b"$=":
            length = int(rest)
            if length < 0:
                return None
            return self.reader.read(length + 2)[:-2]
        if mark in b"*~>":
            length = int(rest)
            return None if length < 0 else [self.receive() for _ in range(length)]
        if mark == b"%":
            return [(self.receive(), self.receive()) for _ in range(int(rest))]
        raise AssertionError(f"expected a reply, came {line!r}")

    def call(self, *words):
        self.send(*words)
        return self.receive()

    def close(self):
        self.reader.close()
        self.socket.close()
