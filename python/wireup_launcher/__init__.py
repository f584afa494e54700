# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Groups, collectives and messages between the processes of a job: libwireup for Python.

    import wireup_launcher as wireup

    with wireup.open() as job:
        world = job.world()
        addresses = world.allgather(b"my address")
        node = job.node()
        total = node.allreduce([world.rank])[0]

Start it with ``wireup run --pmi simple -n 4 python3 program.py``, or under any launcher that serves PMI-2. Calls wait for their result and
release Python's lock meanwhile. The library is the file that the environment variable ``WIREUP_LIBRARY`` names, or else ``libwireup.so.0``
of this Python environment, or else that of the system. All members of a group call the same functions in the same order.
"""

import ctypes
import os
import site
import socket
import sys
from ctypes import POINTER, byref, c_char_p, c_int, c_int64, c_size_t, c_uint32, c_uint64, c_ubyte, c_void_p

__all__ = ["Context", "Group", "Error", "NameTaken", "PeerLost", "open"]

_API = 1
_OK, _PEER_LOST, _TRUNCATED, _NOT_FOUND, _EXISTS = 0, -6, -10, -11, -13
_ENGINES = {"auto": 0, "agents": 1, "peers": 2}
_TRANSPORTS = {"tcp": 1, "udp": 2, "fabric": 3}
_OPS = {"sum": 0, "min": 1, "max": 2, "and": 3, "or": 4, "xor": 5}


class Error(Exception):
    """A call has failed: ``status`` is the code of ``wireup.h``."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


class NameTaken(Error):
    """The name is published already."""


class PeerLost(Error):
    """A rank of the group is gone: ``rank`` tells which."""

    def __init__(self, status, text, rank):
        super().__init__(status, text)
        self.rank = rank


class _OpenParams(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("field_mask", c_uint64), ("engine", c_int), ("start", c_int), ("transport", c_int),
                ("connections_max", c_uint32), ("name", c_char_p)]


class _GroupInfo(ctypes.Structure):
    _fields_ = [("struct_size", c_size_t), ("rank", c_uint32), ("size", c_uint32), ("engine", c_int), ("connections", c_uint32)]


class _Rows(ctypes.Structure):
    _fields_ = [("count", c_size_t), ("bytes", POINTER(c_ubyte)), ("offsets", POINTER(c_uint64))]


def _library():
    name = "libwireup.so.0"
    ours = (os.path.join(prefix, "lib", name) for prefix in (sys.prefix, site.getuserbase()))
    return os.environ.get("WIREUP_LIBRARY") or next(filter(os.path.exists, ours), name)


def _load():
    library = ctypes.CDLL(_library())
    handle, out, length = c_void_p, POINTER(c_void_p), c_size_t
    reduction = [handle, c_void_p, c_void_p, length, c_int, c_int, c_void_p]
    signatures = {
        "wu_open": [c_uint32, POINTER(_OpenParams), out],
        "wu_close": [handle],
        "wu_group_world": [handle, out],
        "wu_group_node": [handle, out],
        "wu_group_leaders": [handle, out],
        "wu_group_split": [handle, c_int, c_int64, out, c_void_p],
        "wu_group_split_str": [handle, c_char_p, length, c_int64, out, c_void_p],
        "wu_group_dup": [handle, out],
        "wu_group_create": [handle, POINTER(c_uint32), c_uint32, c_char_p, out, c_void_p],
        "wu_group_info": [handle, POINTER(_GroupInfo)],
        "wu_group_free": [handle],
        "wu_barrier": [handle, c_void_p],
        "wu_bcast": [handle, c_void_p, length, c_uint32, c_void_p],
        "wu_allgatherv": [handle, c_char_p, length, POINTER(POINTER(_Rows)), c_void_p],
        "wu_alltoall": [handle, c_char_p, length, c_void_p, c_void_p],
        "wu_allreduce": reduction,
        "wu_scan": reduction,
        "wu_exscan": reduction,
        "wu_shift": [handle, c_char_p, length, c_void_p, c_void_p],
        "wu_send": [handle, c_uint32, c_uint32, c_char_p, length, c_void_p],
        "wu_recv": [handle, c_uint32, c_uint32, c_void_p, length, POINTER(length), c_void_p],
        "wu_put": [handle, c_char_p, c_char_p],
        "wu_fence": [handle],
        "wu_flush": [handle, c_int],
        "wu_get": [handle, c_char_p, c_char_p, length],
        "wu_publish": [handle, c_char_p, c_char_p],
        "wu_lookup": [handle, c_char_p, c_char_p, length],
        "wu_unpublish": [handle, c_char_p],
        "wu_addr_set": [handle, c_char_p, c_char_p, length],
        "wu_addr_get": [handle, c_char_p, c_uint32, c_void_p, length, POINTER(length), c_void_p],
        "wu_connect": [handle, c_uint32, POINTER(c_int), c_void_p],
    }
    for name, arguments in signatures.items():
        function = getattr(library, name)
        function.argtypes, function.restype = arguments, c_int
    library.wu_error.argtypes, library.wu_error.restype = [handle], c_char_p
    library.wu_lost_rank.argtypes, library.wu_lost_rank.restype = [handle], c_int64
    library.wu_rows_release.argtypes, library.wu_rows_release.restype = [POINTER(_Rows)], None
    return library


def open(engine="auto", transport="tcp", connections_max=0, thread=False, name=None):
    """Joins the job. ``engine``: who exchanges the collectives of all ranks: ``auto``, ``agents`` or ``peers``. ``transport``: what ranks
    exchange messages over, ``tcp``, ``udp`` or ``fabric`` (libfabric); the same on all ranks. ``connections_max``: unless over libfabric, if more are
    open, idle ones are closed; 0: never. ``thread``: a thread of the library answers other ranks while this one computes. ``name``: under wireup,
    the context is one of its own beside MPI and contexts of other names; those of one name on all ranks belong together."""
    return Context(engine, transport, connections_max, thread, name)


class Context:
    """A process's place in its job."""

    def __init__(self, engine="auto", transport="tcp", connections_max=0, thread=False, name=None):
        if engine not in _ENGINES:
            raise ValueError(f"engine is one of {', '.join(_ENGINES)}, not {engine!r}")
        self._library, self._handle = _load(), c_void_p()
        if transport not in _TRANSPORTS:
            raise ValueError(f"transport is one of {', '.join(_TRANSPORTS)}, not {transport!r}")
        mask = 1 | 4 | 8 | (16 if thread else 0) | (32 if name is not None else 0)
        params = _OpenParams(ctypes.sizeof(_OpenParams), mask, _ENGINES[engine], 0, _TRANSPORTS[transport], connections_max,
                             None if name is None else name.encode())
        status = self._library.wu_open(_API, byref(params), byref(self._handle))
        if status != _OK:
            text = self._library.wu_error(None).decode(errors="replace")
            raise Error(status, f"wu_open failed with {status}: {text}")

    def __enter__(self):
        return self

    def __exit__(self, kind, value, trace):
        self.close()

    def close(self):
        """Leaves the job."""
        if self._handle:
            handle, self._handle = self._handle, c_void_p()
            self._library.wu_close(handle)

    def _call(self, name, *arguments):
        if not self._handle:
            raise Error(-2, "the context is closed")
        status = getattr(self._library, name)(*arguments)
        if status == _OK:
            return
        text = self._library.wu_error(self._handle).decode(errors="replace") or f"{name} failed with {status}"
        if status == _PEER_LOST:
            raise PeerLost(status, text, self._library.wu_lost_rank(self._handle))
        raise Error(status, text)

    def _group(self, name, *arguments):
        handle = c_void_p()
        self._call(name, *arguments, byref(handle))
        return Group(self, handle)

    def world(self):
        """The group of all ranks."""
        return self._group("wu_group_world", self._handle)

    def node(self):
        """The ranks of this node. All ranks call it."""
        return self._group("wu_group_node", self._handle)

    def leaders(self):
        """The ranks with the same number on their nodes. All ranks call it."""
        return self._group("wu_group_leaders", self._handle)

    def put(self, key, value):
        """Puts a pair of text, which the next fence publishes."""
        self._call("wu_put", self._handle, key.encode(), value.encode())

    def fence(self):
        self._call("wu_fence", self._handle)

    def flush(self):
        """Waits until all that this rank has sent will arrive without further calls: before it does something else for long."""
        self._call("wu_flush", self._handle, -1)

    def get(self, key):
        """The value of a key; raises ``KeyError`` if there is none."""
        return self._text("wu_get", key)

    def publish(self, name, value):
        """Publishes a name with a value, for all jobs of the session; raises ``NameTaken`` if it is published."""
        try:
            self._call("wu_publish", self._handle, name.encode(), value.encode())
        except Error as error:
            if error.status == _EXISTS:
                raise NameTaken(error.status, f"the name is taken: {name}") from None
            raise

    def lookup(self, name):
        """The value of a published name; raises ``KeyError`` if there is none."""
        return self._text("wu_lookup", name)

    def unpublish(self, name):
        """Withdraws a name that this job has published; raises ``KeyError`` if there is none."""
        self._find("wu_unpublish", name)

    def set_address(self, network, address):
        """Tells where this rank is reached in a network of the program's own: at most 500 bytes, once for each network."""
        self._call("wu_addr_set", self._handle, network.encode(), address, len(address))

    def address(self, network, rank):
        """Where a rank can be reached. Under wireup this waits until the rank has set it; elsewhere a fence publishes it. Raises ``KeyError`` if
        there is none."""
        room, length = ctypes.create_string_buffer(500), c_size_t()
        self._find("wu_addr_get", network, rank, room, len(room), byref(length), None)
        return room.raw[:length.value]

    def connect(self, rank):
        """A socket of the program's own to another rank, which connects to this one too; it is not encrypted."""
        number = c_int()
        self._call("wu_connect", self._handle, rank, byref(number), None)
        return socket.socket(fileno=number.value)

    def _text(self, function, key):
        room = ctypes.create_string_buffer(1025)
        self._find(function, key, room, len(room))
        return room.value.decode()

    def _find(self, function, key, *arguments):
        try:
            self._call(function, self._handle, key.encode(), *arguments)
        except Error as error:
            if error.status == _NOT_FOUND:
                raise KeyError(key) from None
            raise


class Group:
    """Some ranks of the job, numbered from 0."""

    def __init__(self, context, handle):
        self._context, self._handle = context, handle
        info = self._info()
        self.rank, self.size = info.rank, info.size

    def _info(self):
        info = _GroupInfo(ctypes.sizeof(_GroupInfo))
        self._call("wu_group_info", byref(info))
        return info

    def _call(self, name, *arguments):
        self._context._call(name, self._handle, *arguments)

    def __repr__(self):
        return f"<member {self.rank} of {self.size}>"

    @property
    def engine(self):
        """Who exchanges the group's collectives: ``agents`` or ``peers``."""
        return {number: name for name, number in _ENGINES.items()}[self._info().engine]

    @property
    def connections(self):
        """Open connections of this process to others, for all groups."""
        return self._info().connections

    def split(self, colour, key=0):
        """Divides the group by a number or a text, ordered by key; with ``None`` this process is in no group and gets ``None``."""
        handle = c_void_p()
        if isinstance(colour, str):
            name = colour.encode()
            self._call("wu_group_split_str", name, len(name), key, byref(handle), None)
        else:
            self._call("wu_group_split", -1 if colour is None else colour, key, byref(handle), None)
        return Group(self._context, handle) if handle else None

    def dup(self):
        """The same members; messages of the two groups never meet."""
        return self._context._group("wu_group_dup", self._handle)

    def create(self, members, name):
        """A group of these members, in this order: only they call it, with the same list and name."""
        list_ = (c_uint32 * len(members))(*members)
        handle = c_void_p()
        self._call("wu_group_create", list_, len(members), name.encode(), byref(handle), None)
        return Group(self._context, handle)

    def free(self):
        self._call("wu_group_free")
        self._handle = c_void_p()

    def barrier(self):
        self._call("wu_barrier", None)

    def bcast(self, value, root=0):
        """The root's bytes. Other members pass ``None``."""
        length = self._first([len(value) if self.rank == root else 0], root)
        room = ctypes.create_string_buffer(value if self.rank == root else b"", max(length, 1))
        self._call("wu_bcast", room, length, root, None)
        return room.raw[:length]

    def _first(self, numbers, root):
        room = (c_uint64 * 1)(*numbers)
        self._call("wu_bcast", room, 8, root, None)
        return room[0]

    def allgather(self, value):
        """A list of all members' bytes, of any length up to 65,278."""
        rows = POINTER(_Rows)()
        self._call("wu_allgatherv", value, len(value), byref(rows), None)
        try:
            found = rows.contents
            ends = [found.offsets[at] for at in range(found.count + 1)]
            text = ctypes.string_at(found.bytes, ends[-1]) if ends[-1] else b""
            return [text[begin:end] for begin, end in zip(ends, ends[1:])]
        finally:
            self._context._library.wu_rows_release(rows)

    def alltoall(self, rows):
        """Sends row r to member r; the rows that the others sent to this one. All rows of all members have the same length."""
        length = len(rows[0])
        if len(rows) != self.size or any(len(row) != length for row in rows):
            raise ValueError(f"{self.size} rows of the same length are needed")
        room = ctypes.create_string_buffer(max(length * self.size, 1))
        self._call("wu_alltoall", b"".join(rows), length, room, None)
        return [room.raw[at * length:][:length] for at in range(self.size)]

    def allreduce(self, numbers, op="sum"):
        """Combines the lists of all members, number by number: ``sum``, ``min``, ``max``; of integers also ``and``, ``or``, ``xor``."""
        return self._reduce("wu_allreduce", numbers, op)

    def scan(self, numbers, op="sum"):
        """As ``allreduce``, of the members up to this one."""
        return self._reduce("wu_scan", numbers, op)

    def exscan(self, numbers, op="sum"):
        """As ``allreduce``, of the members before this one; member 0 gets its own numbers back."""
        return self._reduce("wu_exscan", numbers, op)

    def _reduce(self, name, numbers, op):
        if op not in _OPS:
            raise ValueError(f"op is one of {', '.join(_OPS)}, not {op!r}")
        kind, number = (ctypes.c_double, 2) if any(isinstance(one, float) for one in numbers) else (c_int64, 1)
        own = (kind * len(numbers))(*numbers)
        result = (kind * len(numbers))(*numbers)
        self._call(name, own, result, len(numbers), number, _OPS[op], None)
        return list(result)

    def shift(self, value):
        """Passes bytes to the right neighbour; those of the left one, which have the same length."""
        room = ctypes.create_string_buffer(max(len(value), 1))
        self._call("wu_shift", value, len(value), room, None)
        return room.raw[:len(value)]

    def send(self, to, value, tag=0):
        """Sends bytes to a member."""
        self._call("wu_send", to, tag, value, len(value), None)

    def recv(self, source, tag=0, room=65536):
        """The next bytes that a member has sent with this tag; at most ``room``."""
        buffer, length = ctypes.create_string_buffer(room), c_size_t()
        self._call("wu_recv", source, tag, buffer, room, byref(length), None)
        return buffer.raw[:length.value]
