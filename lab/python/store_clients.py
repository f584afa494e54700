"""One of several processes that hold many clients of PyTorch's store between them. Each client sets a key, then waits
for the keys of all clients by one request. Arguments: clients of all processes, and the server's address and port (or
nothing: MASTER_ADDR and MASTER_PORT). Speaks the oldest generation of the wire, which all servers understand."""
import os
import selectors
import socket
import struct
import sys
import time

rank, size, clients = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), int(sys.argv[1])
address = sys.argv[2] if len(sys.argv) > 2 else os.environ["MASTER_ADDR"]
port = int(sys.argv[3] if len(sys.argv) > 3 else os.environ["MASTER_PORT"])
own = clients // size


def text(value):
    return struct.pack("<Q", len(value)) + value


def exactly(client, count):
    found = b""
    while len(found) < count:
        found += client.recv(count - len(found))
    return found


def barrier(client, name):
    client.sendall(b"\x03" + text(b"/arrived/" + name) + struct.pack("<q", 1))
    if struct.unpack("<q", exactly(client, 8))[0] == size:
        client.sendall(b"\0" + text(b"/done/" + name) + text(b"1"))
    client.sendall(b"\x05" + struct.pack("<Q", 1) + text(b"/done/" + name))
    assert exactly(client, 1) == b"\0"


keys = [text(b"/key/%06d" % i) for i in range(clients)]
wait = b"\x05" + struct.pack("<Q", clients) + b"".join(keys)
sockets = [socket.create_connection((address, port), timeout=60) for _ in range(own)]
for client in sockets:
    # As PyTorch's own clients do.
    client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
barrier(sockets[0], b"start")
began = time.time()
for i, client in enumerate(sockets):
    client.sendall(b"\0" + keys[rank * own + i] + text(b"a" * 64))
selector = selectors.DefaultSelector()
for client in sockets:
    client.setblocking(False)
    selector.register(client, selectors.EVENT_WRITE | selectors.EVENT_READ, [wait])
left = own
while left:
    for key, events in selector.select(60):
        client, unsent = key.fileobj, key.data
        if events & selectors.EVENT_WRITE:
            unsent[0] = unsent[0][client.send(unsent[0]):]
            if not unsent[0]:
                selector.modify(client, selectors.EVENT_READ, unsent)
        if events & selectors.EVENT_READ:
            assert client.recv(1) == b"\0"
            selector.unregister(client)
            left -= 1
sockets[0].setblocking(True)
barrier(sockets[0], b"end")
if rank == 0:
    print("TOOK", time.time() - began, flush=True)
