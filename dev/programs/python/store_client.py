"""Every request to PyTorch's store in each of its three generations, byte by byte; needs no PyTorch."""
import os
import socket
import struct

MAGIC = struct.pack("<I", 0x3C85F7CE)
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
EVERYONE = range(SIZE)


def text(value):
    return struct.pack("<Q", len(value)) + value


def keys(*names):
    return struct.pack("<Q", len(names)) + b"".join(map(text, names))


class Client:
    def __init__(self, generation):
        self.generation = generation
        address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        self.socket = socket.create_connection(address, timeout=30)
        if generation == "newest":
            self.socket.sendall(b"\0" + MAGIC)

    def send(self, opcode, body=b""):
        if self.generation == "magic before each":
            self.socket.sendall(MAGIC)
        if self.generation == "magic before each" or (self.generation == "old" and opcode < 8):
            opcode -= 1
        self.socket.sendall(bytes([opcode]) + body)

    def read(self, length):
        data = b""
        while len(data) < length:
            more = self.socket.recv(length - len(data))
            assert more, "the connection is closed"
            data += more
        return data

    def number(self):
        return struct.unpack("<q", self.read(8))[0]

    def value(self):
        return self.read(self.number())

    def expect(self, found, wanted, what):
        assert found == wanted, f"{self.generation}: {what}: {found}, not {wanted}"


def old_requests(client, name):
    """The requests that all generations have."""
    own = lambda key: f"/{name}/{key}/{RANK}".encode()
    shared = lambda key: f"/{name}/{key}".encode()
    everyones = [f"/{name}/set/{rank}".encode() for rank in EVERYONE]
    client.send(5, keys(own("set")))
    client.expect(client.read(1), b"\1", "CHECK before SET")
    client.send(1, text(own("set")) + text(b"value %d" % RANK))
    client.send(6, keys(*everyones))
    client.expect(client.read(1), b"\0", "WAIT")
    for rank in EVERYONE:
        client.send(3, text(everyones[rank]))
        client.expect(client.value(), b"value %d" % rank, "GET")
    client.send(5, keys(*everyones))
    client.expect(client.read(1), b"\0", "CHECK")
    client.send(4, text(shared("count")) + struct.pack("<q", 1))
    own_sum = client.number()
    client.send(1, text(shared(f"sum/{own_sum}")) + text(b""))
    client.send(6, keys(*[shared(f"sum/{sum}") for sum in range(1, SIZE + 1)]))
    client.expect(client.read(1), b"\0", "WAIT for all sums, which are distinct")
    client.send(3, text(shared("count")))
    client.expect(client.value(), str(SIZE).encode(), "the counter as text")
    client.send(2, text(own("compare")) + text(b"") + text(b"new"))
    client.expect(client.value(), b"new", "COMPARE_SET of a missing key")
    client.send(2, text(own("compare")) + text(b"other") + text(b"newer"))
    client.expect(client.value(), b"new", "COMPARE_SET that does not match")
    client.send(2, text(own("no key")) + text(b"other") + text(b"newer"))
    client.expect(client.value(), b"other", "COMPARE_SET of a missing key with a value")
    client.send(9, text(own("append")) + text(b"ab"))
    client.send(9, text(own("append")) + text(b"cd"))
    client.send(10, keys(own("append"), own("compare")))
    client.expect(client.value() + client.value(), b"abcdnew", "APPEND, MULTI_GET")
    client.send(11, struct.pack("<Q", 2) + text(own("m1")) + text(b"1") + text(own("m2")) + text(b"2"))
    client.send(10, keys(own("m1"), own("m2")))
    client.expect(client.value() + client.value(), b"12", "MULTI_SET")
    client.send(8, text(own("m1")))
    client.expect(client.number(), 1, "DELETE_KEY")
    client.send(8, text(own("m1")))
    client.expect(client.number(), 0, "DELETE_KEY of a missing key")
    client.send(6, keys(own("never")))
    client.send(12)
    client.expect(client.read(1), b"\1", "CANCEL_WAIT")
    client.send(6, keys(own("never")))
    client.send(1, text(own("long")) + text(b"x" * 200000))
    client.send(3, text(own("long")))
    client.expect(client.value(), b"x" * 200000, "GET of what was set instead of a wait")
    client.send(7)
    assert client.number() >= SIZE, "GETNUMKEYS"


def new_requests(client):
    client.send(13, b"\1\2\3\4")
    client.expect(client.read(4), b"\1\2\3\4", "PING")
    queue = f"/queue/{(RANK + 1) % SIZE}".encode()
    own = f"/queue/{RANK}".encode()
    client.send(14, text(queue) + text(b"from %d" % RANK))
    client.send(6, keys(own))
    client.expect(client.read(1), b"\0", "WAIT for a queue")
    client.send(16, text(own))
    client.expect(client.number(), 1, "QUEUE_LEN")
    client.send(15, text(own))
    client.expect((client.number(), client.value()), (1, b"from %d" % ((RANK - 1) % SIZE)), "QUEUE_POP")
    client.send(15, text(own))
    client.expect(client.number(), 0, "QUEUE_POP of an empty queue")
    client.send(18, text(b"/barrier") + struct.pack("<q", SIZE))
    client.expect(client.read(1), b"\0", "BARRIER")
    client.send(17)
    names = [client.value() for _ in range(client.number())]
    assert b"/barrier" in names and len(names) == len(set(names)), "LIST_KEYS"


if __name__ == "__main__":
    for generation in ("old", "magic before each", "newest"):
        client = Client(generation)
        old_requests(client, generation)
        if generation == "newest":
            new_requests(client)
    print(f"rank {RANK}: all right", flush=True)
