"""Calls on sockets in every state, with good and bad arguments; says what each gave.

The output must be the same on the kernel and under `mill run --lo`. The arguments are a seed; N, of
which one call in N is made on a socket of each state; the number of random courses of calls; and
states, without which all are tried.
"""
import os
import random
import socket
import stat
import struct
import sys

from states_calls import (GROUPS, HOSTS, NOW, alive, c, polled, room, size, touched)

SEED, ONE_IN, COURSES, *ONLY = sys.argv[1:]
RESET = struct.pack("ii", 1, 0)


# Functions that bring a socket into a state.

class Place:
    """A socket, and what else is open because of it."""

    def __init__(self, family):
        self.family = family
        self.host = HOSTS[family]
        self.others = []
        self.end = None

    def keep(self, other):
        self.others.append(other)
        return other

    def new(self):
        return socket.socket(self.family, socket.SOCK_STREAM)

    def listener(self):
        server = self.new()
        server.bind((self.host, 0))
        server.listen(5)
        return server

    def pair(self):
        server = self.keep(self.listener())
        near = self.new()
        near.connect(server.getsockname())
        far, _ = server.accept()
        return near, far

    def dead_port(self):
        with self.listener() as server:
            return server.getsockname()

    def close(self):
        for one in [self.end, *self.others]:
            try:
                one.close()
            except OSError:
                pass


def fresh(place):
    return place.new()


def bound(place):
    end = place.new()
    end.bind((place.host, 0))
    return end


def listening(place):
    return place.listener()


def called(place):
    server = place.listener()
    place.keep(place.new()).connect(server.getsockname())
    return server


def no_longer_listening(place):
    server = place.listener()
    server.shutdown(socket.SHUT_RDWR)
    return server


def refused(place):
    end = place.new()
    end.setblocking(False)
    end.connect_ex(place.dead_port())
    return end


def refused_by_us(place):
    """A refused connection whose socket was connected before."""
    end = connected(place)
    c("connect", end.fileno(), bytes(16), 16)
    end.setblocking(False)
    end.connect_ex(place.dead_port())
    return end


def connected(place):
    near, far = place.pair()
    place.keep(far)
    return near


def mapped(place):
    """An IPv6 socket that is connected to an IPv4 peer."""
    if place.family == socket.AF_INET:
        return connected(place)
    server = place.keep(socket.socket())
    server.bind(("127.0.0.1", 0))
    server.listen(5)
    near = place.new()
    near.connect(("::ffff:127.0.0.1", server.getsockname()[1]))
    place.keep(server.accept()[0])
    return near


def accepted(place):
    near, far = place.pair()
    place.keep(near)
    return far


def with_bytes(place):
    near, far = place.pair()
    place.keep(far).send(b"abcdefgh")
    return near


def with_urgent(place):
    near, far = place.pair()
    place.keep(far).send(b"abcdefgh", socket.MSG_OOB)
    return near


def at_end(place):
    near, far = place.pair()
    place.keep(far).send(b"abc")
    far.shutdown(socket.SHUT_WR)
    return near


def shut_write(place):
    end = connected(place)
    end.shutdown(socket.SHUT_WR)
    return end


def shut_read(place):
    end = connected(place)
    end.shutdown(socket.SHUT_RD)
    return end


def shut_both(place):
    end = connected(place)
    end.shutdown(socket.SHUT_RDWR)
    return end


def ended(place):
    """Both directions are closed, each by its own end."""
    near, far = place.pair()
    far.close()
    near.shutdown(socket.SHUT_WR)
    return near


def left(place):
    near, far = place.pair()
    far.close()
    return near


def reset(place):
    near, far = place.pair()
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    far.close()
    return near


def reset_with_bytes(place):
    near, far = place.pair()
    far.send(b"abc")
    far.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
    far.close()
    return near


def reset_and_told(place):
    near = reset(place)
    near.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
    return near


def reset_after_write(place):
    """The peer closed with unread bytes, and more came."""
    near, far = place.pair()
    near.send(b"x")
    far.close()
    return near


STATES = [fresh, bound, listening, called, no_longer_listening, refused, refused_by_us, connected,
          mapped, accepted, with_bytes, with_urgent, at_end, shut_write, shut_read, shut_both,
          ended, left, reset, reset_with_bytes, reset_and_told, reset_after_write]


def prepared(family, state):
    place = Place(family)
    place.goal = place.keep(place.listener())
    place.end = state(place)
    place.end.setblocking(False)
    place.fd = place.end.fileno()
    return place


def aftermath(place):
    """What a call left behind."""
    if not alive(place.fd) or not stat.S_ISSOCK(os.fstat(place.fd).st_mode):
        return None
    place.end.setblocking(False)
    first = polled(place)
    space = room()
    got = c("recv", place.fd, space, size(20), NOW)
    return first, got, touched(space), c("send", place.fd, b"x", size(1), NOW), polled(place)


# Excluded are differences named in docs/differences-preload.md, and results that depend on time or
# on the kernel's version.
OVER = (no_longer_listening, refused_by_us, ended, reset, reset_with_bytes, reset_and_told,
        reset_after_write)
UNSETTLED = {"ioctl SIOCOUTQ", "ioctl SIOCOUTQNSD"}


def is_known(family, state, name):
    words = name.split()
    is_v6 = family == socket.AF_INET6
    return (
        # A bad piece is an error before anything else is checked.
        "piece" in words and not {"empty", "negative"} & set(words)
        # A socket whose connection has ended cannot be bound again, and has no peer name.
        or state in OVER and {"bind", "SO_PEERNAME", "IPV6_V6ONLY"} & set(words)
        # Linux checks the lengths of IPv6's structures first, and some lengths not at all.
        or is_v6 and words[0] == "bind" and "family" in words
        or is_v6 and words[1:2] and words[1][:5] == "IPV6_" and words[-1] in ("-1", "null")
        # Readiness of a listener's two queues is reported together.
        or state in (called, no_longer_listening) and name == "epoll with equal data"
        or state not in (connected, accepted, with_bytes) and name in UNSETTLED
    )


def every_call(family, state):
    """Each call on a socket of its own."""
    for group in GROUPS:
        place = prepared(family, state)
        names = [name for name, _ in group(place)]
        place.close()
        for at, name in enumerate(names):
            title = f"{family.name} {state.__name__} | {name}"
            is_chosen = not random.Random(f"{SEED} {title}").randrange(int(ONE_IN))
            if not is_chosen or is_known(family, state, name):
                continue
            place = prepared(family, state)
            _, call = list(group(place))[at]
            print(title, "|", call(), "|", aftermath(place), flush=True)
            place.close()


def course(number):
    """Random calls on one socket."""
    chance = random.Random(f"{SEED}/{number}")
    family = chance.choice(list(HOSTS))
    state = chance.choice(STATES)
    place = prepared(family, state)
    print("course", number, family.name, state.__name__, flush=True)
    for _ in range(6):
        group = chance.choice(GROUPS)
        all_ = list(group(place))
        name, call = chance.choice(all_)
        if alive(place.fd) and not is_known(family, state, name) and name not in UNSETTLED:
            print("course", number, "|", name, "|", call(), "|", polled(place), flush=True)
    place.close()


for one_family in HOSTS:
    for one_state in STATES:
        if not ONLY or one_state.__name__ in ONLY:
            every_call(one_family, one_state)
for n in range(int(COURSES)):
    course(n)
