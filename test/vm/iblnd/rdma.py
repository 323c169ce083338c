# SPDX-License-Identifier: BSD-3-Clause
"""RDMA for personas: test/vm/ibnode.c through ctypes."""

import ctypes
import mmap
import os
from ctypes import POINTER, Structure, byref, c_char, c_int, c_int32, c_size_t, c_uint8, c_uint32, c_uint64, c_void_p

# rdma_cm_event_type
ADDR_RESOLVED, ADDR_ERROR, ROUTE_RESOLVED, ROUTE_ERROR, CONNECT_REQUEST, CONNECT_RESPONSE, CONNECT_ERROR, UNREACHABLE, \
    REJECTED, ESTABLISHED, DISCONNECTED, DEVICE_REMOVAL, _, _, ADDR_CHANGE, TIMEWAIT_EXIT = range(16)
EVENT_NAMES = ("ADDR_RESOLVED", "ADDR_ERROR", "ROUTE_RESOLVED", "ROUTE_ERROR", "CONNECT_REQUEST", "CONNECT_RESPONSE",
               "CONNECT_ERROR", "UNREACHABLE", "REJECTED", "ESTABLISHED", "DISCONNECTED", "DEVICE_REMOVAL", "?", "?",
               "ADDR_CHANGE", "TIMEWAIT_EXIT")
WC_SUCCESS, WC_FLUSHED, WC_RECV = 0, 5, 128


class Event(Structure):
    _fields_ = [("id", c_void_p), ("listen", c_void_p), ("type", c_int32), ("status", c_int32), ("from_", c_uint32),
                ("port", c_uint32), ("priv_len", c_uint32), ("priv", c_uint8 * 256)]


class Sge(Structure):
    _fields_ = [("addr", c_uint64), ("len", c_uint32), ("lkey", c_uint32)]


class Send(Structure):
    _fields_ = [("wr_id", c_uint64), ("remote", c_uint64), ("rkey", c_uint32), ("write", c_uint32),
                ("signalled", c_uint32), ("nsges", c_uint32), ("sge", Sge * 4)]


class Wc(Structure):
    _fields_ = [("wr_id", c_uint64), ("status", c_int32), ("opcode", c_int32), ("len", c_uint32), ("pad", c_uint32)]


_SIGNATURES = {
    "ibn_open": (c_void_p, []), "ibn_close": (None, [c_void_p]), "ibn_fd": (c_int, [c_void_p]),
    "ibn_new": (c_void_p, [c_void_p, c_uint32, c_uint32, POINTER(c_int)]),
    "ibn_listen": (c_int, [c_void_p]), "ibn_resolve": (c_int, [c_void_p, c_uint32, c_uint32, c_int]),
    "ibn_resolve_route": (c_int, [c_void_p, c_int]), "ibn_event": (c_int, [c_void_p, POINTER(Event)]),
    "ibn_pd": (c_void_p, [c_void_p]), "ibn_dereg": (c_int, [c_void_p]), "ibn_dealloc": (c_int, [c_void_p]),
    "ibn_reg": (c_void_p, [c_void_p, c_void_p, c_size_t, POINTER(c_uint32), POINTER(c_uint32)]),
    "ibn_qp": (c_int, [c_void_p, c_void_p, c_uint32, c_uint32, c_uint32]), "ibn_cq_fd": (c_int, [c_void_p]),
    "ibn_qpn": (c_uint32, [c_void_p]), "ibn_connect": (c_int, [c_void_p, c_void_p, c_uint32, c_uint32]),
    "ibn_accept": (c_int, [c_void_p, c_void_p, c_uint32]),
    "ibn_reject": (c_int, [c_void_p, c_void_p, c_uint32]), "ibn_disconnect": (c_int, [c_void_p]),
    "ibn_break": (c_int, [c_void_p]), "ibn_destroy": (None, [c_void_p]),
    "ibn_recv": (c_int, [c_void_p, c_uint64, c_uint64, c_uint32, c_uint32]),
    "ibn_send": (c_int, [c_void_p, POINTER(Send), c_uint32]), "ibn_poll": (c_int, [c_void_p, POINTER(Wc), c_int]),
    "ibn_rearm": (c_int, [c_void_p]),
}
_state = {}


def load(build):
    """The library that the build made."""
    so = ctypes.CDLL(os.path.join(build, "test/vm/libibnode.so"))
    for name, (result, arguments) in _SIGNATURES.items():
        f = getattr(so, name)
        f.restype, f.argtypes = result, arguments
    _state["so"] = so


def so():
    return _state["so"]


def ip_word(ip):
    a, b, c, d = map(int, ip.split("."))
    return a << 24 | b << 16 | c << 8 | d


def need(status, what):
    if status < 0:
        raise OSError(-status, f"{what}: {os.strerror(-status)}")
    return status


class Memory:
    """Registered memory: readable and writable here, and by whoever has its key."""

    def __init__(self, pd, size):
        self.size = size
        self.map = mmap.mmap(-1, size)
        self._first = c_char.from_buffer(self.map)
        self.addr = ctypes.addressof(self._first)
        lkey, rkey = c_uint32(), c_uint32()
        self.mr = so().ibn_reg(pd, self.addr, size, byref(lkey), byref(rkey))
        if not self.mr:
            raise OSError(f"{size} bytes could not be registered")
        self.lkey, self.rkey = lkey.value, rkey.value

    def close(self):
        need(so().ibn_dereg(self.mr), "deregistration")
        del self._first
        self.map.close()
