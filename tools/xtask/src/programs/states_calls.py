"""The calls of states.py: good and bad arguments for a socket, and what each call gave.

A place is a socket in some state (`fd`, `end`), its family and host, and a listener (`goal`).
"""
import ctypes
import errno
import os
import select
import signal
import socket
import stat
import struct
import tempfile

libc = ctypes.CDLL(None, use_errno=True)
for name in ("send", "sendto", "sendmsg", "recv", "recvfrom", "recvmsg", "read", "write", "readv",
             "writev", "sendfile", "splice", "lseek", "pread", "pwrite"):
    getattr(libc, name).restype = ctypes.c_ssize_t

HOSTS = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
BAD = ctypes.c_void_p(8)
WORST = ctypes.c_void_p(2**64 - 1)
MARK = 0xA5

pipes = []


def note_pipe(*_):
    pipes.append(1)


signal.signal(signal.SIGPIPE, note_pipe)


class Piece(ctypes.Structure):
    _fields_ = [("at", ctypes.c_void_p), ("len", ctypes.c_size_t)]


class Message(ctypes.Structure):
    _fields_ = [("name", ctypes.c_void_p), ("namelen", ctypes.c_uint),
                ("pieces", ctypes.c_void_p), ("count", ctypes.c_size_t),
                ("control", ctypes.c_void_p), ("controllen", ctypes.c_size_t),
                ("flags", ctypes.c_int)]


class Messages(ctypes.Structure):
    _fields_ = [("header", Message), ("len", ctypes.c_uint)]


def room(size=64):
    return (ctypes.c_ubyte * size)(*[MARK] * size)


def touched(buffer):
    """What a call wrote into a room, up to the last byte that it changed."""
    return bytes(buffer).rstrip(bytes([MARK]))


def of(value):
    """A signed number of C's as Python has it."""
    return value if value >= 0 else errno.errorcode.get(ctypes.get_errno(), ctypes.get_errno())


def c(name, *args):
    ctypes.set_errno(0)
    return of(getattr(libc, name)(*args))


def size(number):
    return ctypes.c_size_t(number)


def in_bytes(family, host, port):
    if family == socket.AF_INET:
        return struct.pack("=H", family) + struct.pack(">H4s8x", port, socket.inet_aton(host))
    return struct.pack("=H", family) + struct.pack(
        ">HI16sI", port, 0, socket.inet_pton(family, host), 0)


def told_address(raw, length):
    """An address without the number of its port."""
    if len(raw) <= 4:
        return raw[:2], length
    port = struct.unpack(">H", raw[2:4])[0]
    return raw[:2], bool(port), raw[4:], length


# The calls. Each takes a place and returns the call's results.

def addresses(place, port=0):
    """Addresses with their lengths, by name."""
    family, other = place.family, socket.AF_INET
    if family == socket.AF_INET:
        other = socket.AF_INET6
    good = in_bytes(family, place.host, port)
    padded = good + bytes(128)
    yield "good", good, len(good)
    yield "null", None, 16
    yield "null, 0", None, 0
    yield "bad", BAD, 16
    yield "worst", WORST, 16
    yield "bad, 0", BAD, 0
    yield "of one byte", good, 1
    yield "of two bytes", good, 2
    yield "of 15 bytes", good, 15
    yield "of 16 bytes", good, 16
    yield "of 24 bytes", padded, 24
    yield "of 128 bytes", padded, 128
    yield "of 129 bytes", padded, 129
    yield "of -1 bytes", good, -1
    yield "other family", in_bytes(other, HOSTS[other], 0), 28
    yield "unspecified family", bytes(28), 28
    yield "unspecified family, short", bytes(28), 2
    yield "family 1", b"\1\0" + bytes(30), 28
    yield "family 77", b"M\0" + bytes(30), 28


def binds(place):
    for name, at, length in addresses(place):
        yield f"bind {name}", lambda at=at, length=length: c("bind", place.fd, at, length)


def connects(place):
    goal = place.goal.getsockname()[1]
    for name, at, length in addresses(place, goal):
        yield f"connect {name}", lambda at=at, length=length: c("connect", place.fd, at, length)


def listens(place):
    for backlog in (-1, 0, 5):
        yield f"listen {backlog}", lambda backlog=backlog: c("listen", place.fd, backlog)


def rooms_for_addresses():
    for name, at, length in [("room", 1, 128), ("room of 4", 1, 4), ("room of 0", 1, 0),
                             ("room of -1", 1, -1), ("null of 0", None, 0),
                             ("null of 16", None, 16), ("no length", 1, None),
                             ("bad length", 1, BAD), ("bad room", BAD, 128),
                             ("bad room of 0", BAD, 0), ("worst room", WORST, 128),
                             ("null and no length", None, None)]:
        yield name, at, length


def with_address(call, at, length):
    """Makes a call that writes an address; says what it wrote."""
    space, count = room(160), ctypes.c_int(-7 if length is None else 0)
    given = space if at == 1 else at
    by = length
    if isinstance(length, int):
        count.value = length
        by = ctypes.byref(count)
    got = call(given, by)
    # Whether a failed call has written the length depends on the kernel's version.
    is_good = got == 0 or isinstance(got, int) or got[0] == "accepted"
    return got, told_address(touched(space), count.value if is_good else None)


def names(place):
    for call in ("getsockname", "getpeername"):
        for name, at, length in rooms_for_addresses():
            def made(call=call, at=at, length=length):
                return with_address(lambda at, by: c(call, place.fd, at, by), at, length)
            yield f"{call} {name}", made


def accepts(place):
    def one(at, by, flags):
        before = lowest()
        got = c("accept4", place.fd, at, by, flags)
        if isinstance(got, int):
            said = fcntl_(got, 1), fcntl_(got, 3) & 0o4000
            os.close(got)
            return "accepted", said
        # A failed call must not keep a number.
        return got, lowest() == before

    for name, at, length in rooms_for_addresses():
        def made(at=at, length=length):
            return with_address(lambda at, by: one(at, by, 0), at, length)
        yield f"accept {name}", made
    for flags in (1, 0o4000, 0o2000000, 0o2004000, -1):
        yield f"accept4 {flags:o}", lambda flags=flags: one(None, None, flags)


def shutdowns(place):
    for how in (0, 1, 2, 3, -1):
        yield f"shutdown {how}", lambda how=how: c("shutdown", place.fd, how)


FLAGS = [0, socket.MSG_PEEK, socket.MSG_TRUNC, socket.MSG_OOB, socket.MSG_OOB | socket.MSG_PEEK,
         socket.MSG_OOB | socket.MSG_TRUNC, socket.MSG_WAITALL, socket.MSG_ERRQUEUE,
         socket.MSG_NOSIGNAL, socket.MSG_EOR, socket.MSG_MORE, socket.MSG_DONTROUTE, 0x800, 0x80,
         socket.MSG_PEEK | socket.MSG_TRUNC, socket.MSG_PEEK | socket.MSG_WAITALL, 0x10000,
         0x8000, 0x40000, 0x200000, 0x10000000, 0x4000000, -1]
NOW = socket.MSG_DONTWAIT


def receives(place):
    for flags in FLAGS:
        for length in (0, 3, 20):
            def made(flags=flags, length=length):
                space = room()
                got = c("recv", place.fd, space, size(length), flags | NOW)
                return got, touched(space)
            yield f"recv {length} {flags:x}", made
    for name, at, length in [("null", None, 3), ("null of 0", None, 0), ("bad", BAD, 3),
                             ("worst", WORST, 3), ("bad of 0", BAD, 0)]:
        for flags in (0, socket.MSG_TRUNC, socket.MSG_PEEK, socket.MSG_PEEK | socket.MSG_TRUNC):
            def made(at=at, length=length, flags=flags):
                return c("recv", place.fd, at, size(length), flags | NOW)
            yield f"recv {name} {flags:x}", made
        yield f"read {name}", lambda at=at, length=length: c("read", place.fd, at, size(length))
    yield "recv huge", lambda: c("recv", place.fd, room(), size(2**63), NOW | 2)
    for name, at, length in rooms_for_addresses():
        def made(at=at, length=length):
            space = room()
            return with_address(lambda at, by: c("recvfrom", place.fd, space, size(2), NOW, at,
                                                 by), at, length), touched(space)
        yield f"recvfrom {name}", made


def sends(place):
    for flags in FLAGS:
        for length in (0, 3):
            def made(flags=flags, length=length):
                return c("send", place.fd, b"xyz", size(length), flags | NOW)
            if flags != -1 and not flags & 0x4000000:
                yield f"send {length} {flags:x}", made
    for name, at, length in [("null", None, 3), ("null of 0", None, 0), ("bad", BAD, 3),
                             ("worst", WORST, 3), ("bad of 0", BAD, 0)]:
        yield f"send {name}", lambda at=at, n=length: c("send", place.fd, at, size(n), NOW)
        yield f"write {name}", lambda at=at, n=length: c("write", place.fd, at, size(n))
    for name, at, length in addresses(place):
        def made(at=at, length=length):
            return c("sendto", place.fd, b"xyz", size(3), NOW, at, length)
        yield f"sendto {name}", made


def pieces(*all_):
    array = (Piece * max(len(all_), 1))()
    for n, (at, length) in enumerate(all_):
        array[n].at = ctypes.cast(at, ctypes.c_void_p).value if at is not None else None
        array[n].len = length
    return array


def vectors():
    """Arrays of pieces with their counts, by name; and what they keep alive."""
    one, two = room(8), room(8)
    yield "two", pieces((one, 2), (two, 3)), 2, (one, two)
    yield "none", pieces(), 0, ()
    yield "null of 0", None, 0, ()
    yield "null of 1", None, 1, ()
    yield "bad of 0", BAD, 0, ()
    yield "bad of 1", BAD, 1, ()
    yield "worst of 1", WORST, 1, ()
    yield "-1", pieces((one, 2)), -1, (one,)
    yield "1024", pieces(*[(one, 0)] * 1023, (one, 2)), 1024, (one,)
    yield "1025", pieces(*[(one, 0)] * 1025), 1025, (one,)
    yield "empty", pieces((None, 0), (one, 0)), 2, (one,)
    yield "null piece", pieces((None, 3)), 1, ()
    yield "bad piece", pieces((BAD, 3)), 1, ()
    yield "worst piece", pieces((WORST, 3)), 1, ()
    yield "bad piece second", pieces((one, 2), (BAD, 3)), 2, (one,)
    yield "negative piece", pieces((one, 2**64 - 1)), 1, (one,)
    yield "negative piece second", pieces((one, 2), (two, 2**63)), 2, (one, two)
    yield "empty bad piece", pieces((BAD, 0), (one, 2)), 2, (one,)


def moved_by_vectors(place):
    for name, array, count, kept in vectors():
        def read(array=array, count=count, kept=kept):
            got = c("readv", place.fd, array, count)
            return got, [touched(one) for one in kept]

        def write(array=array, count=count):
            return c("writev", place.fd, array, count)

        def receive(array=array, count=count, kept=kept):
            message = message_of(array, count)
            got = c("recvmsg", place.fd, ctypes.byref(message), NOW)
            return got, [touched(one) for one in kept], told_message(message)

        def send(array=array, count=count):
            return c("sendmsg", place.fd, ctypes.byref(message_of(array, count)), NOW)

        yield f"readv {name}", read
        yield f"writev {name}", write
        yield f"recvmsg {name}", receive
        yield f"sendmsg {name}", send


def message_of(array, count, address=None, control=None):
    message = Message()
    message.pieces = ctypes.cast(array, ctypes.c_void_p).value if array is not None else None
    message.count = count % 2**64
    message.flags = 0x77
    if address is not None:
        at, length = address
        message.name, message.namelen = place_of(at), length % 2**32
    if control is not None:
        at, length = control
        message.control, message.controllen = place_of(at), length % 2**64
    return message


def place_of(at):
    return None if at is None else ctypes.cast(at, ctypes.c_void_p).value


def told_message(message):
    return message.namelen, message.controllen, message.flags


def control(level, kind, data, length=None):
    length = 16 + len(data) if length is None else length
    return struct.pack("=Qii", length % 2**64, level, kind) + data + bytes(-len(data) % 8)


def messages(place):
    for name, at in [("null", None), ("bad", BAD), ("worst", WORST)]:
        yield f"recvmsg {name}", lambda at=at: c("recvmsg", place.fd, at, NOW)
        yield f"sendmsg {name}", lambda at=at: c("sendmsg", place.fd, at, NOW)
    spaces = [("null of 16", None, 16), ("null of -1", None, -1), ("room of 0", 1, 0),
              ("room of 28", 1, 28), ("room of 200", 1, 200), ("room of -1", 1, -1),
              ("bad of 16", BAD, 16), ("bad of 0", BAD, 0)]
    for name, at, length in spaces:
        def receive(at=at, length=length):
            data, space = room(8), room(256)
            given = (space if at == 1 else at, length)
            message = message_of(pieces((data, 2)), 1, given)
            got = c("recvmsg", place.fd, ctypes.byref(message), NOW)
            return got, touched(data), touched(space), told_message(message)

        def send(at=at, length=length):
            good = ctypes.create_string_buffer(in_bytes(place.family, place.host, 9), 256)
            given = (good if at == 1 else at, length)
            message = message_of(pieces((ctypes.create_string_buffer(b"xy", 2), 2)), 1, given)
            return c("sendmsg", place.fd, ctypes.byref(message), NOW)

        def receive_control(at=at, length=length):
            data, space = room(8), room(256)
            given = (space if at == 1 else at, length)
            message = message_of(pieces((data, 2)), 1, None, given)
            got = c("recvmsg", place.fd, ctypes.byref(message), NOW)
            return got, touched(data), touched(space), told_message(message)

        yield f"recvmsg name {name}", receive
        yield f"sendmsg name {name}", send
        if length != -1:
            yield f"recvmsg control {name}", receive_control
    fd = os.dup(2)
    os.close(fd)
    controls = [
        ("short", control(1, 1, b"")[:8], 8), ("nothing", b"", 0),
        ("with a long length", control(1, 1, bytes(4), 100), 24),
        ("with a short length", control(1, 1, bytes(4), 8), 24),
        ("with length 0", control(1, 1, bytes(4), 0), 24),
        ("of rights", control(1, 1, struct.pack("i", 2)), 24),
        ("of credentials", control(1, 2, bytes(12)), 32),
        ("of a time stamp", control(1, 37, struct.pack("i", 0)), 24),
        ("of a wrong time stamp", control(1, 37, bytes(2)), 24),
        ("of another kind", control(1, 99, bytes(4)), 24),
        ("of IP_TTL", control(0, 2, struct.pack("i", 9)), 24),
        ("of IP_TOS", control(0, 1, struct.pack("i", 0)), 24),
        ("of another level", control(77, 1, bytes(4)), 24),
        ("of TCP", control(6, 1, bytes(4)), 24),
        ("bad", BAD, 24), ("worst", WORST, 24), ("null", None, 24), ("bad of 0", BAD, 0),
        ("huge", control(1, 37, struct.pack("i", 0)) + bytes(64), 2**40),
        ("negative", control(1, 37, struct.pack("i", 0)), -1),
    ]
    for name, at, length in controls:
        def made(at=at, length=length):
            held = ctypes.create_string_buffer(at, 128) if isinstance(at, bytes) else at
            data = pieces((ctypes.create_string_buffer(b"xy", 2), 2))
            message = message_of(data, 1, None, (held, length))
            return c("sendmsg", place.fd, ctypes.byref(message), NOW)
        yield f"sendmsg control {name}", made


def many_messages(place):
    def two():
        array = (Messages * 2)()
        for one in array:
            one.data = ctypes.create_string_buffer(b"xy", 2)
            one.held = pieces((one.data, 2))
            one.header = message_of(one.held, 1)
            one.len = 99
        return array

    for call in ("sendmmsg", "recvmmsg"):
        rest = (None,) if call == "recvmmsg" else ()
        for count in (0, 1, 2):
            def made(call=call, count=count, rest=rest):
                array = two()
                held = [pieces((ctypes.create_string_buffer(b"xy", 2), 2)) for _ in array]
                for one, its in zip(array, held):
                    one.header = message_of(its, 1)
                got = c(call, place.fd, array, count, NOW, *rest)
                return got, [one.len for one in array]
            yield f"{call} {count}", made
        for name, at in [("null", None), ("bad", BAD), ("worst", WORST)]:
            for count in (0, 1):
                yield (f"{call} {name} {count}", lambda call=call, at=at, count=count, rest=rest:
                       c(call, place.fd, at, count, NOW, *rest))
    for name, seconds, nanos in [("negative time", -1, 0), ("long time", 0, 10**9),
                                 ("no time", 0, 0)]:
        def made(seconds=seconds, nanos=nanos):
            time = ctypes.create_string_buffer(struct.pack("qq", seconds, nanos), 16)
            array, its = (Messages * 1)(), pieces((room(4), 2))
            array[0].header = message_of(its, 1)
            return c("recvmmsg", place.fd, array, 1, NOW, time)
        yield f"recvmmsg {name}", made
    yield "recvmmsg bad time", lambda: c("recvmmsg", place.fd, two(), 0, NOW, BAD)


OPTIONS = [("SO_TYPE", 1, 3), ("SO_ERROR", 1, 4), ("SO_ACCEPTCONN", 1, 30), ("SO_DOMAIN", 1, 39),
           ("SO_REUSEADDR", 1, 2), ("SO_KEEPALIVE", 1, 9), ("SO_LINGER", 1, 13),
           ("SO_RCVTIMEO", 1, 20), ("SO_PEERNAME", 1, 28), ("SO_PEERCRED", 1, 17),
           ("SO_RCVLOWAT", 1, 18), ("SO_NETNS_COOKIE", 1, 71), ("SO_BINDTODEVICE", 1, 25),
           ("TCP_NODELAY", 6, 1), ("TCP_CORK", 6, 3), ("TCP_KEEPIDLE", 6, 4),
           ("TCP_DEFER_ACCEPT", 6, 9), ("TCP_USER_TIMEOUT", 6, 18),
           ("IP_TOS", 0, 1), ("IP_TTL", 0, 2), ("IPV6_V6ONLY", 41, 26), ("IPV6_ADDRFORM", 41, 1),
           ("MCAST_LEAVE_GROUP", 0, 45), ("an unknown option", 1, 999),
           ("an unknown TCP option", 6, 999), ("an unknown level", 99, 1), ("UDP's level", 17, 1)]
HIDDEN = {"SO_NETNS_COOKIE", "SO_PEERCRED"}


def options(place):
    for option, level, name in OPTIONS:
        for said, at, length in [("room", 1, 256), ("room of 4", 1, 4), ("room of 8", 1, 8),
                                 ("room of 1", 1, 1), ("room of 0", 1, 0), ("room of -1", 1, -1),
                                 ("null", None, 4), ("bad room", BAD, 4), ("no length", 1, None),
                                 ("bad length", 1, BAD)]:
            def get(option=option, level=level, name=name, at=at, length=length):
                space, count = room(256), ctypes.c_int(0)
                by = length
                if isinstance(length, int):
                    count.value = length
                    by = ctypes.byref(count)
                got = c("getsockopt", place.fd, level, name, space if at == 1 else at, by)
                value = touched(space)
                if option in HIDDEN:
                    value = len(value)
                elif option == "SO_PEERNAME":
                    value = told_address(value, 0)
                return got, value, count.value
            yield f"getsockopt {option} {said}", get
        one = struct.pack("i", 1)
        group = struct.pack("=IIH", 0, 0, 2) + bytes(2) + bytes([224, 0, 0, 9]) + bytes(120)
        for said, at, length in [("1", one, 4), ("short", one, 2), ("empty", one, 0),
                                 ("long", one + bytes(12), 16), ("of -1 bytes", one, -1),
                                 ("null", None, 4), ("null of 0", None, 0), ("bad", BAD, 4),
                                 ("worst", WORST, 4), ("group", group, 136),
                                 ("AF_INET", struct.pack("i", 2), 4),
                                 ("negative", struct.pack("i", -1), 4)]:
            if option == "MCAST_LEAVE_GROUP" and said != "group":
                # Lengths are checked before addresses.
                continue

            def put(level=level, name=name, at=at, length=length):
                return c("setsockopt", place.fd, level, name, at, length)
            yield f"setsockopt {option} {said}", put


def fcntl_(fd, command, argument=0):
    return c("fcntl", fd, command, ctypes.c_long(argument))


def controls(place):
    requests = [("FIONREAD", 0x541B), ("SIOCOUTQ", 0x5411), ("SIOCOUTQNSD", 0x894B),
                ("SIOCATMARK", 0x8905), ("FIONBIO", 0x5421), ("SIOCGPGRP", 0x8904),
                ("FIOGETOWN", 0x8903), ("TCGETS", 0x5401), ("TIOCGWINSZ", 0x5413),
                ("an unknown request", 0x1234), ("SIOCGIFINDEX", 0x8933),
                ("SIOCGIFNAME", 0x8910), ("SIOCGIFCONF", 0x8912), ("SIOCGIFFLAGS", 0x8913),
                ("SIOCGIFADDR", 0x8915), ("SIOCGIFMTU", 0x8921), ("SIOCGIFHWADDR", 0x8927),
                ("SIOCETHTOOL", 0x8946), ("SIOCGSTAMP", 0x8906), ("SIOCDEVPRIVATE", 0x89F0),
                ("SIOCPROTOPRIVATE", 0x89E0), ("FIGETBSZ", 2), ("FS_IOC_FIEMAP", 0xC020660B),
                ("FIOQSIZE", 0x5460), ("SIOCGARP", 0x8954),
                ("SIOCGIFBR", 0x8940), ("SIOCGIFVLAN", 0x8982), ("SIOCINQ by 64 bits", 0x541B)]
    for name, request in requests:
        def made(name=name, request=request):
            space = room(64)
            start = b"lo" + bytes(62) if name.startswith("SIOC") else bytes(64)
            if name == "SIOCGIFNAME":
                start = bytes(16) + struct.pack("i", 1) + bytes(44)
            if name == "SIOCGIFCONF":
                start = bytes(64)
            if request in (0x541B, 0x5411, 0x894B, 0x8905, 0x8904, 0x8903):
                start = b"\xA5" * 64
            ctypes.memmove(space, start, 64)
            got = c("ioctl", place.fd, ctypes.c_ulong(request), space)
            if name == "SIOCGIFCONF":
                # The two sides run on hosts with different interfaces.
                return got
            return got, bytes(space).hex() if "IF" in name else bytes(space)[:8]
        yield f"ioctl {name}", made
        yield (f"ioctl {name} null", lambda request=request:
               c("ioctl", place.fd, ctypes.c_ulong(request), None))
        yield (f"ioctl {name} bad", lambda request=request:
               c("ioctl", place.fd, ctypes.c_ulong(request), BAD))
    for name, request in [("FIOCLEX", 0x5451), ("FIONCLEX", 0x5450)]:
        def made(request=request):
            return (c("ioctl", place.fd, ctypes.c_ulong(request), 0), fcntl_(place.fd, 1))
        yield f"ioctl {name}", made


def flags(place):
    for command, arguments in [(1, [0]), (2, [0, 1, 2]), (3, [0]),
                               (4, [0, 0o4000, 0o2000, 0o40000, 0o1000000, 0o100, -1 & ~0o20000]),
                               (9, [0]), (11, [0]), (5, [8]), (1024, [0]), (1032, [0]),
                               (1033, [1]), (1034, [0]), (9999, [0]), (-1, [0]), (1025, [0]),
                               (1026, [0]), (1035, [0])]:
        for argument in arguments:
            def made(command=command, argument=argument):
                return fcntl_(place.fd, command, argument), fcntl_(place.fd, 3), fcntl_(place.fd, 1)
            yield f"fcntl {command} {argument:o}", made
    for command in (0, 1030):
        for argument in (-1, 150, 1 << 20, 1 << 40):
            def made(command=command, argument=argument):
                got = fcntl_(place.fd, command, argument)
                if isinstance(got, int):
                    os.close(got)
                    return got >= argument % 2**32
                return got
            yield f"fcntl copy {command} {argument}", made


def copies(place):
    def by_dup3(to, flags):
        got = c("dup3", place.fd, to, flags)
        said = got, alive(place.fd)
        if isinstance(got, int) and got != place.fd:
            said += (alive(got),)
            os.close(got)
        return said

    for to, name in [(150, "free"), (-1, "negative"), (1 << 20, "large"), (None, "itself")]:
        for bits in (0, 0o2000000, 1):
            yield (f"dup3 {name} {bits:o}", lambda to=to, bits=bits:
                   by_dup3(place.fd if to is None else to, bits))
    def onto(bits):
        file = os.dup(2)
        got = c("dup3", file, place.fd, bits)
        os.close(file)
        return got == place.fd or got, alive(place.fd), stat.S_ISSOCK(os.fstat(place.fd).st_mode)
    yield "dup3 onto it", lambda: onto(0)
    yield "dup3 onto it, wrong flags", lambda: onto(1)
    yield "dup2 of none onto it", lambda: (c("dup2", 199, place.fd), alive(place.fd))
    yield "dup2 onto itself", lambda: c("dup2", place.fd, place.fd) == place.fd

    def closes():
        got = c("close", place.fd)
        return got, c("close", place.fd), c("read", place.fd, room(), size(1))
    yield "close", closes


def alive(fd):
    return fcntl_(fd, 1) != "EBADF"


def lowest():
    fd = os.dup(2)
    os.close(fd)
    return fd


def files(place):
    fd = place.fd
    yield "lseek", lambda: c("lseek", fd, ctypes.c_long(0), 1)
    yield "pread", lambda: c("pread", fd, room(), size(1), ctypes.c_long(0))
    yield "pread of 0", lambda: c("pread", fd, room(), size(0), ctypes.c_long(0))
    yield "pread at -1", lambda: c("pread", fd, room(), size(1), ctypes.c_long(-1))
    yield "pwrite", lambda: c("pwrite", fd, room(), size(1), ctypes.c_long(0))
    yield "pwrite at -1", lambda: c("pwrite", fd, room(), size(1), ctypes.c_long(-1))
    yield "preadv", lambda: c("preadv", fd, pieces((room(), 1)), 1, ctypes.c_long(0))
    yield "pwritev", lambda: c("pwritev", fd, pieces((room(), 1)), 1, ctypes.c_long(0))
    yield "ftruncate", lambda: c("ftruncate", fd, ctypes.c_long(0))
    yield "fsync", lambda: c("fsync", fd)
    yield "fdatasync", lambda: c("fdatasync", fd)
    yield "isatty", lambda: (libc.isatty(fd), ctypes.get_errno())
    yield "fchdir", lambda: c("fchdir", fd)
    yield "fstat", lambda: stat.S_IFMT(os.fstat(fd).st_mode)
    yield "fallocate", lambda: c("fallocate", fd, 0, ctypes.c_long(0), ctypes.c_long(1))
    yield "posix_fadvise", lambda: libc.posix_fadvise(fd, ctypes.c_long(0), ctypes.c_long(0), 0)
    yield "sync_file_range", lambda: c("sync_file_range", fd, ctypes.c_long(0), ctypes.c_long(0), 0)
    yield "readahead", lambda: c("readahead", fd, ctypes.c_long(0), size(1))
    yield "syncfs", lambda: c("syncfs", fd)
    yield "flock", lambda: c("flock", fd, 2)
    yield "getdents", lambda: c("getdents64", fd, room(), size(64))


def sent_files(place):
    fd = place.fd

    def send(source, offset, count):
        pipes.clear()
        got = c("sendfile", fd, source, offset, size(count))
        at = os.lseek(file, 0, os.SEEK_CUR)
        os.lseek(file, 2, os.SEEK_SET)
        return got, at, offset.value if isinstance(offset, ctypes.c_long) else None, len(pipes)

    def number(value):
        return ctypes.c_long(value)

    yield "sendfile", lambda: send(file, None, 3)
    yield "sendfile of 0", lambda: send(file, None, 0)
    yield "sendfile of too much", lambda: send(file, None, 100)
    yield "sendfile huge", lambda: send(file, None, 2**63)
    yield "sendfile at the end", lambda: send(file, number(1000), 5)
    for at in (0, 4, -1):
        def made(at=at):
            offset = number(at)
            pipes.clear()
            got = c("sendfile", fd, file, ctypes.byref(offset), size(3))
            return got, offset.value, os.lseek(file, 0, os.SEEK_CUR), len(pipes)
        yield f"sendfile at {at}", made
    yield "sendfile at bad", lambda: send(file, BAD, 3)
    yield "sendfile of none", lambda: send(199, None, 3)
    yield "sendfile of none, 0", lambda: send(199, None, 0)
    yield "sendfile of none at 0", lambda: send(199, ctypes.byref(number(0)), 3)
    yield "sendfile of -1", lambda: send(-1, None, 3)
    yield "sendfile of a directory", lambda: send(directory, None, 3)
    yield "sendfile of a directory, 0", lambda: send(directory, None, 0)
    yield "sendfile of a directory at 0", lambda: send(directory, ctypes.byref(number(0)), 3)
    yield "sendfile of an empty pipe", lambda: send(empty_pipe, None, 3)
    yield "sendfile of a pipe at 0", lambda: send(empty_pipe, ctypes.byref(number(0)), 3)
    yield "sendfile of a file for writing", lambda: send(written, None, 3)
    yield "sendfile of itself", lambda: send(fd, None, 3)
    yield "sendfile of a UNIX socket", lambda: send(unix.fileno(), None, 3)
    yield "sendfile to a file", lambda: c("sendfile", written, fd, None, size(3))
    yield "sendfile to none", lambda: c("sendfile", 199, fd, None, size(3))


def broken(place):
    """What a write without a reader says, and whether a signal came."""
    def by(call):
        pipes.clear()
        return call(), len(pipes)

    fd = place.fd
    yield "write and signal", lambda: by(lambda: c("write", fd, b"x", size(1)))
    yield "send and signal", lambda: by(lambda: c("send", fd, b"x", size(1), NOW))
    yield "send quietly", lambda: by(lambda: c("send", fd, b"x", size(1),
                                               NOW | socket.MSG_NOSIGNAL))
    yield "writev and signal", lambda: by(lambda: c("writev", fd, pieces((room(), 1)), 1))
    yield "sendmsg and signal", lambda: by(lambda: c(
        "sendmsg", fd, ctypes.byref(message_of(pieces((room(), 1)), 1)), NOW))
    yield "write of 0", lambda: by(lambda: c("write", fd, b"x", size(0)))
    yield "writev of 0", lambda: by(lambda: c("writev", fd, pieces((room(), 0)), 1))
    yield "send of 0", lambda: by(lambda: c("send", fd, b"x", size(0), NOW))


def polled(place, *fds):
    entries = struct.pack("ihh", place.fd, 0x3FFF & ~0x1000, 0)
    space = ctypes.create_string_buffer(entries, 8)
    return c("poll", space, 1, 0), struct.unpack("ihh", space.raw)[2]


def waits(place):
    fd = place.fd
    yield "poll", lambda: polled(place)
    for name, at in [("null", None), ("bad", BAD), ("worst", WORST)]:
        for count in (0, 1):
            yield f"poll {name} {count}", lambda at=at, n=count: c("poll", at, size(n), 0)
            yield (f"ppoll {name} {count}", lambda at=at, n=count:
                   c("ppoll", at, size(n), bytes(16), None))
    entry = struct.pack("ihh", fd, 1, 0)
    yield "poll of too many", lambda: c("poll", entry * 3, size(2**32), 0)
    for name, time in [("negative", struct.pack("qq", -1, 0)),
                       ("long", struct.pack("qq", 0, 10**9)),
                       ("negative nanos", struct.pack("qq", 0, -1))]:
        yield f"ppoll {name} time", lambda time=time: c("ppoll", bytearray_of(entry), size(1), time,
                                                       None)
    yield "ppoll bad mask", lambda: c("ppoll", bytearray_of(entry), size(1), bytes(16), BAD)
    yield "select", lambda: selected(place, fd + 1, 0, 0)
    for name, seconds, micros in [("negative", -1, 0), ("negative micros", 0, -1),
                                  ("a million micros", 0, 10**6), ("two million", 0, 2 * 10**6)]:
        # A pipe is ready to read.
        yield f"select {name}", lambda s=seconds, u=micros: selected(place, fd + 1, s, u, True)
    yield "select below it", lambda: selected(place, fd, 0, 0)
    yield "select -1", lambda: selected(place, -1, 0, 0)
    yield "select beyond the table", lambda: selected(place, 100_000, 0, 0)
    for at in range(3):
        for bad in (BAD, WORST):
            sets = [bits(fd)] * 3
            sets[at] = bad
            yield (f"select bad set {at} {bad.value}", lambda sets=sets:
                   c("select", fd + 1, *sets, bytes(16)))
            yield (f"pselect bad set {at} {bad.value}", lambda sets=sets:
                   c("pselect", fd + 1, *sets, bytes(16), None))
    yield "select of none", lambda: c("select", 200, bits(199), bits(fd), None, bytes(16))
    for name, seconds, nanos in [("negative", -1, 0), ("long", 0, 10**9), ("none", 0, 0)]:
        yield (f"pselect {name} time", lambda s=seconds, n=nanos:
               c("pselect", fd + 1, bits(fd), None, None, struct.pack("qq", s, n), None))
    yield "pselect bad mask", lambda: c("pselect", fd + 1, bits(fd), None, None, bytes(16), BAD)


def bytearray_of(entry):
    return ctypes.create_string_buffer(entry, len(entry))


def bits(*fds):
    value = 0
    for fd in fds:
        value |= 1 << fd
    return ctypes.create_string_buffer(value.to_bytes(128, "little"), 128)


def selected(place, count, seconds, micros, with_pipe=False):
    fds = (place.fd, full_pipe) if with_pipe else (place.fd,)
    sets = [bits(*fds), bits(place.fd), bits(place.fd)]
    if count > 1024:
        sets = [ctypes.create_string_buffer(one.raw + bytes([0xFF]) * 1024, 4096) for one in sets]
    time = ctypes.create_string_buffer(struct.pack("qq", seconds, micros), 16)
    got = c("select", max(fds) + 1 if with_pipe else count, *sets, time)
    said = [one.raw[place.fd // 8] >> place.fd % 8 & 1 for one in sets]
    return got, said, [one.raw[900:] == (bytes([0xFF]) * 1024 + bytes(4096))[772:][:3196]
                       for one in sets] if count > 1024 else None


def watched(place):
    fd = place.fd

    def with_epoll(call):
        epoll = select.epoll()
        try:
            return call(epoll.fileno())
        finally:
            epoll.close()

    def event(mask, data=7):
        return ctypes.create_string_buffer(struct.pack("=IQ", mask, data), 12)

    def add(epfd, mask):
        got = c("epoll_ctl", epfd, 1, fd, event(mask))
        space = room(24)
        return got, c("epoll_wait", epfd, space, 2, 0), touched(space)

    for mask in (0x3FFF, 1, 4, 0x2000, 1 << 31 | 0x3FFF, 1 << 30 | 1, 1 << 28 | 1, 1 << 29 | 1, 0):
        yield f"epoll {mask:x}", lambda mask=mask: with_epoll(lambda epfd: add(epfd, mask))
    for op in (0, 1, 2, 3, 4, -1):
        yield f"epoll_ctl {op}", lambda op=op: with_epoll(lambda e: c("epoll_ctl", e, op, fd,
                                                                      event(1)))
        for name, at in [("null", None), ("bad", BAD), ("worst", WORST)]:
            yield (f"epoll_ctl {op} {name}", lambda op=op, at=at:
                   with_epoll(lambda e: c("epoll_ctl", e, op, fd, at)))

    def twice(epfd, op):
        first = c("epoll_ctl", epfd, 1, fd, event(1))
        return first, c("epoll_ctl", epfd, op, fd, event(5)), c("epoll_ctl", epfd, op, fd, None)
    for op in (1, 2, 3):
        yield f"epoll_ctl twice {op}", lambda op=op: with_epoll(lambda e: twice(e, op))
    yield "epoll_ctl of no epoll", lambda: c("epoll_ctl", 2, 1, fd, event(1))
    yield "epoll_ctl of none", lambda: c("epoll_ctl", 199, 1, fd, event(1))
    yield "epoll_ctl of itself", lambda: c("epoll_ctl", fd, 1, fd, event(1))
    yield "epoll_ctl of a socket", lambda: c("epoll_ctl", fd, 1, full_pipe, event(1))
    yield "epoll_wait of a socket", lambda: c("epoll_wait", fd, room(24), 1, 0)

    def wait(epfd, at, count):
        c("epoll_ctl", epfd, 1, fd, event(0x3FFF))
        return c("epoll_wait", epfd, at, count, 0)
    for name, at in [("room", room(24)), ("null", None), ("bad", BAD), ("worst", WORST)]:
        for count in (1, 0, -1, 2**31 - 1):
            yield (f"epoll_wait {name} {count}", lambda at=at, n=count:
                   with_epoll(lambda e: wait(e, at, n)))

    def equal(epfd):
        c("epoll_ctl", epfd, 1, fd, event(5, 0))
        c("epoll_ctl", epfd, 1, full_pipe, event(1, 0))
        return c("epoll_wait", epfd, room(64), 4, 0)
    yield "epoll with equal data", lambda: with_epoll(equal)

    def timed(epfd, time):
        c("epoll_ctl", epfd, 1, fd, event(0))
        return c("epoll_pwait2", epfd, room(24), 1, time, None)
    for name, time in [("negative", struct.pack("qq", -1, 0)),
                       ("long", struct.pack("qq", 0, 10**9)),
                       ("bad", BAD)]:
        yield f"epoll_pwait2 {name}", lambda time=time: with_epoll(lambda e: timed(e, time))


def splices(place):
    fd = place.fd

    def splice(*args):
        pipes.clear()
        return c("splice", *args), len(pipes)
    zero = ctypes.c_long(0)
    yield "splice to a file", lambda: splice(fd, None, written, None, size(3), 2)
    yield "splice of an empty pipe", lambda: splice(empty_pipe, None, fd, None, size(3), 2)
    yield "splice to a pipe", lambda: splice(fd, None, free_pipe, None, size(3), 2)
    yield "splice of nothing", lambda: splice(fd, None, free_pipe, None, size(0), 2)
    yield "splice with flags", lambda: splice(fd, None, free_pipe, None, size(3), 64)
    yield "splice at a place", lambda: splice(fd, ctypes.byref(zero), free_pipe, None, size(3), 2)
    yield "splice of none", lambda: splice(199, None, fd, None, size(3), 2)
    yield "splice to none", lambda: splice(fd, None, 199, None, size(3), 2)
    yield "splice to the pipe's end", lambda: splice(fd, None, empty_pipe, None, size(3), 2)
    yield "splice to itself", lambda: splice(fd, None, fd, None, size(3), 2)
    yield "tee", lambda: c("tee", fd, free_pipe, size(3), 2)
    yield "vmsplice", lambda: c("vmsplice", fd, pieces((room(), 1)), size(1), 2)


GROUPS = [binds, connects, listens, names, accepts, shutdowns, receives, sends, moved_by_vectors,
          messages, many_messages, options, controls, flags, copies, files, sent_files, broken,
          waits, watched, splices]

directory = os.open("/", os.O_RDONLY | os.O_DIRECTORY)
empty_pipe, kept_open = os.pipe2(os.O_NONBLOCK)
full_pipe, into_full = os.pipe2(os.O_NONBLOCK)
os.write(into_full, b"full")
out_of_free, free_pipe = os.pipe2(os.O_NONBLOCK)
unix, unix_peer = socket.socketpair()
unix.setblocking(False)
temporary = tempfile.TemporaryFile()
temporary.write(b"0123456789")
temporary.flush()
file = temporary.fileno()
os.lseek(file, 2, os.SEEK_SET)
with tempfile.NamedTemporaryFile() as named:
    written = os.open(named.name, os.O_WRONLY)
