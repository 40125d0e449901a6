"""Calls on descriptors, processes and waits beside TCP connections; says what each gave.

The output must be the same on the kernel and under `mill run`. The arguments are the peer's
address and port (calls_peer.py), and a port to listen on.
"""
import ctypes
import errno
import fcntl
import os
import select
import signal
import socket
import stat
import struct
import subprocess
import sys
import termios
import threading
import time

HOST, PORT, OWN_PORT = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
libc = ctypes.CDLL(None, use_errno=True)


def said(name, *values):
    print(name, *values, flush=True)


def outcome(call, *args):
    """The value, or the name of the errno."""
    try:
        return call(*args)
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))


def c(call, *args):
    """The value of a function of libc's, and the name of its errno."""
    ctypes.set_errno(0)
    value = call(*args)
    return value if value >= 0 else errno.errorcode[ctypes.get_errno()]


def peer():
    return socket.create_connection((HOST, PORT), 10)


def ask(fd, text=b"hello\n"):
    """Sends a line by a descriptor's number and returns the answer."""
    os.write(fd, text)
    got = b""
    while not got.endswith(b"\n"):
        more = os.read(fd, 100)
        if not more:
            break
        got += more
    return got


def closed_by_peer():
    """The end that a read sees, and the error of a later write. The reset may take its time."""
    with blocking(peer()) as end:
        end.sendall(b"close\n")
        got, wrong = end.recv(10), 1
        limit = time.monotonic() + 20
        while wrong == 1 and time.monotonic() < limit:
            wrong = outcome(end.send, b"x")
            time.sleep(0.01)
        return got, wrong


def blocking(end):
    end.settimeout(None)
    return end


def lowest():
    """The number that the next descriptor gets."""
    fd = os.dup(1)
    os.close(fd)
    return fd


def copies():
    end = blocking(peer())
    first = end.detach()
    copy = os.dup(first)
    said("dup", copy == first + 1, ask(copy))
    third = fcntl.fcntl(first, fcntl.F_DUPFD, 100)
    said("F_DUPFD", third, ask(third))
    fourth = fcntl.fcntl(first, fcntl.F_DUPFD_CLOEXEC, 100)
    said("F_DUPFD_CLOEXEC", fourth, fcntl.fcntl(fourth, fcntl.F_GETFD))
    said("dup2 itself", os.dup2(first, first))
    said("dup2", os.dup2(first, 110), ask(110), os.get_inheritable(110))
    said("dup3", c(libc.dup3, first, 111, os.O_CLOEXEC), os.get_inheritable(111))
    said("dup3 itself", c(libc.dup3, first, first, 0))
    os.set_inheritable(first, True)
    said("inheritable", os.get_inheritable(first))
    os.set_inheritable(first, False)
    said("not inheritable", os.get_inheritable(first))
    said("dup2 of none", c(libc.dup2, 900, 112), c(libc.dup2, first, -1))
    fcntl.fcntl(first, fcntl.F_SETFL, os.O_NONBLOCK)
    said("flags are shared", bool(fcntl.fcntl(copy, fcntl.F_GETFL) & os.O_NONBLOCK))
    said("nothing to read", outcome(os.read, copy, 10))
    fcntl.fcntl(copy, fcntl.F_SETFL, 0)
    os.close(first)
    said("closed", outcome(os.read, first, 1), outcome(os.write, first, b"x"))
    said("copy lives", ask(copy))
    other = blocking(peer()).detach()
    os.dup2(other, copy)
    said("replaced", ask(copy), ask(third))
    for fd in (copy, third, fourth, 110, 111, other):
        os.close(fd)
    said("all closed", lowest() == first)


def ranges():
    fds = [os.dup2(blocking(peer()).detach(), 200 + n) for n in range(5)]
    said("close_range", c(libc.close_range, 201, 202, 0))
    said("stay", [outcome(ask, fd) for fd in fds])
    said("close_range backwards", c(libc.close_range, 202, 201, 0))
    said("close_range flags", c(libc.close_range, 200, 200, 4), fcntl.fcntl(200, fcntl.F_GETFD))
    os.closerange(203, 204)
    libc.closefrom(200)
    said("closefrom", [outcome(os.read, fd, 1) for fd in fds])
    said("again", ask(blocking(peer()).detach()))
    libc.closefrom(3)


def by_number():
    end = blocking(peer())
    fd = end.fileno()
    room = ctypes.create_string_buffer(100)
    said("SYS_write", c(libc.syscall, 1, fd, b"by number\n", 10))
    said("SYS_read", c(libc.syscall, 0, fd, room, 100), room.value)
    copy = c(libc.syscall, 32, fd)
    said("SYS_dup", copy > fd, ask(copy))
    said("SYS_fcntl", c(libc.syscall, 72, copy, fcntl.F_GETFD, 0))
    said("SYS_close", c(libc.syscall, 3, copy), outcome(os.read, copy, 1))
    said("SYS_shutdown", c(libc.syscall, 48, fd, socket.SHUT_WR), end.recv(10))
    end.close()


def waits_by_number():
    end = blocking(peer())
    fd, room = end.fileno(), ctypes.create_string_buffer(100)
    end.sendall(b"line\n")
    entries = ctypes.create_string_buffer(struct.pack("ihh", fd, select.POLLIN, 0), 8)
    said("SYS_poll", c(libc.syscall, 7, entries, 1, 5000), struct.unpack("ihh", entries)[2])
    bits = ctypes.create_string_buffer((1 << fd).to_bytes(128, "little"), 128)
    said("SYS_select", c(libc.syscall, 23, fd + 1, bits, None, None, None), bits.raw[0] >> fd)
    none = struct.pack("qq", 0, 0)
    said("SYS_pselect6", c(libc.syscall, 270, fd + 1, bits, None, None, none, none))
    poll = select.epoll()
    poll.register(fd, select.EPOLLIN)
    said("SYS_epoll_wait", c(libc.syscall, 232, poll.fileno(), room, 1, 5000))
    said("SYS_epoll_pwait", c(libc.syscall, 281, poll.fileno(), room, 1, 5000, None, 8))
    said("SYS_epoll_pwait2", c(libc.syscall, 441, poll.fileno(), room, 1, none, None, 8))
    said("SYS_pread64", c(libc.syscall, 17, fd, room, 1, 0))
    said("SYS_dup2", c(libc.syscall, 33, fd, 90), os.read(90, 100))
    os.close(90)
    poll.close()
    end.close()


def splice(source, source_at, target, target_at, count, flags=0):
    return c(libc.splice, source, source_at, target, target_at, ctypes.c_size_t(count), flags)


def spliced():
    end = blocking(peer())
    fd, (out, into), at = end.fileno(), os.pipe(), ctypes.byref(ctypes.c_longlong(0))
    os.write(into, b"one\ntwo\n")
    said("pipe to socket", splice(out, None, fd, None, 4), end.recv(100))
    said("its rest", splice(out, None, fd, None, 100), end.recv(100))
    said("empty pipe", splice(out, None, fd, None, 100, 2))
    end.setblocking(False)
    said("nothing came", splice(fd, None, into, None, 100))
    end.setblocking(True)
    end.sendall(b"three\nfour\n")
    time.sleep(0.2)
    said("socket to pipe", splice(fd, None, into, None, 4), os.read(out, 100))
    said("its rest", splice(fd, None, into, None, 100), os.read(out, 100))
    os.set_blocking(into, False)
    while os.write(into, bytes(4096)) == 4096 and select.select([], [into], [], 0)[1]:
        pass
    end.sendall(b"five\n")
    time.sleep(0.2)
    said("full pipe", splice(fd, None, into, None, 100, 2), end.recv(100))
    said("full pipe first", splice(fd, None, into, None, 100, 2))
    other = blocking(peer())
    said("two sockets", splice(fd, None, other.fileno(), None, 1))
    with open(__file__, "rb") as file:
        said("file", splice(file.fileno(), None, fd, None, 1))
    said("positions", splice(out, at, fd, None, 1), splice(out, None, fd, at, 1),
         splice(fd, at, into, None, 1), splice(fd, None, into, at, 1))
    said("nothing, flags", splice(out, None, fd, None, 0), splice(out, None, fd, None, 1, 64))
    while select.select([out], [], [], 0)[0]:
        os.read(out, 65536)
    os.close(into)
    said("pipe at its end", splice(out, None, fd, None, 100))
    end.sendall(b"close\n")
    out, into = os.pipe()
    said("socket at its end", splice(fd, None, into, None, 100))
    os.close(out)
    said("nobody reads", splice(fd, None, into, None, 100))
    end.close()


def checked():
    end = blocking(peer())
    fd, room = end.fileno(), ctypes.create_string_buffer(100)
    end.sendall(b"zeroo\n")
    said("__read", c(libc.__read, fd, room, 50), room.value)
    end.sendall(b"one\n")
    said("__read_chk", c(libc.__read_chk, fd, room, 50, 100), room.value)
    end.sendall(b"twoo\n")
    said("__recv_chk", c(libc.__recv_chk, fd, room, 50, 100, 0), room.value)
    end.sendall(b"three\n")
    said("__recvfrom_chk", c(libc.__recvfrom_chk, fd, room, 50, 100, 0, None, None), room.value)
    entry = struct.pack("ihh", fd, select.POLLOUT, 0)
    entries = ctypes.create_string_buffer(entry, 8)
    said("__poll_chk", c(libc.__poll_chk, entries, 1, 1000, 8), struct.unpack("ihh", entries)[2])
    end.close()


def forms():
    end = blocking(peer())
    fd = end.fileno()
    said("fstat", stat.S_ISSOCK(os.fstat(fd).st_mode))
    said("lseek", outcome(os.lseek, fd, 0, 0), outcome(os.pread, fd, 1, 0))
    said("pwrite", outcome(os.pwrite, fd, b"x", 0))
    said("writev", os.writev(fd, [b"a", b"bc", b"\n"]))
    rooms = [bytearray(2), bytearray(10)]
    time.sleep(0.2)
    said("FIONREAD", struct.unpack("i", fcntl.ioctl(fd, termios.FIONREAD, b"\0" * 4))[0])
    said("peek", end.recv(2, socket.MSG_PEEK))
    said("readv", os.readv(fd, rooms), rooms[0], bytes(rooms[1][:2]))
    end.sendall(b"wait\nfor\nall\n")
    said("MSG_WAITALL", end.recv(13, socket.MSG_WAITALL))
    said("MSG_DONTWAIT", outcome(end.recv, 1, socket.MSG_DONTWAIT))
    with open(__file__, "rb") as source:
        want = source.readline()
        source.seek(0)
        said("sendfile", os.sendfile(fd, source.fileno(), 0, len(want)) == len(want))
    said("its answer", end.recv(1000) == want.upper())
    said("type", end.getsockopt(socket.SOL_SOCKET, socket.SO_TYPE) == socket.SOCK_STREAM)
    said("SO_ERROR", end.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR))
    said("SO_ACCEPTCONN", end.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    said("not listening", outcome(end.accept), outcome(end.connect, (HOST, PORT)))
    fcntl.ioctl(fd, 0x5421, struct.pack("i", 1))
    said("FIONBIO", outcome(os.read, fd, 1))
    end.close()


def timer(seconds):
    fd = libc.timerfd_create(time.CLOCK_MONOTONIC, os.O_CLOEXEC)
    whole, rest = int(seconds), int(seconds % 1 * 1e9)
    spec = struct.pack("qqqq", 0, 0, whole, rest)
    libc.timerfd_settime(fd, 0, ctypes.create_string_buffer(spec, 32), None)
    return fd


def mixed():
    end, quiet = blocking(peer()), blocking(peer())
    event, (pipe_out, pipe_in) = os.eventfd(0), os.pipe()
    clock = timer(0.05)
    names = {end.fileno(): "socket", quiet.fileno(): "quiet", event: "event",
             pipe_out: "pipe", clock: "timer"}
    poll = select.epoll()
    for fd in names:
        poll.register(fd, select.EPOLLIN)
    said("nothing yet", poll.poll(0))
    os.eventfd_write(event, 1)
    os.write(pipe_in, b"x")
    end.sendall(b"come\n")
    seen = {}
    while len(seen) < 4:
        for fd, events in poll.poll(5):
            seen[names[fd]] = events
    said("epoll", sorted(seen.items()))
    seen = set()
    while len(seen) < 4:
        ready, _, _ = select.select(list(names), [], [], 5)
        seen = {names[fd] for fd in ready}
    said("select", sorted(seen))
    both = select.poll()
    for fd in names:
        both.register(fd, select.POLLIN)
    said("poll", sorted((names[fd], events) for fd, events in both.poll(5000)))
    end.recv(100)
    poll.modify(end.fileno(), select.EPOLLIN | select.EPOLLOUT | select.EPOLLET)
    once = [events for fd, events in poll.poll(1) if fd == end.fileno()]
    said("edge", once, [events for fd, events in poll.poll(0) if fd == end.fileno()])
    poll.unregister(quiet.fileno())
    said("unregistered", outcome(poll.unregister, quiet.fileno()))
    said("registered twice", outcome(poll.register, event, select.EPOLLIN))
    nested = select.epoll()
    nested.register(poll.fileno(), select.EPOLLIN)
    said("nested", [events for _, events in nested.poll(1)])
    nested.close()
    poll.close()
    for fd in (event, pipe_out, pipe_in, clock):
        os.close(fd)
    end.close()
    quiet.close()


def processes():
    end = blocking(peer())
    fd = end.fileno()
    child = os.fork()
    if child == 0:
        os._exit(3)
    said("fork", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), ask(fd))
    said("system", os.waitstatus_to_exitcode(os.system("exit 4")), ask(fd))
    child = os.posix_spawn("/bin/sh", ["sh", "-c", "exit 5"], os.environ)
    said("posix_spawn", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), ask(fd))
    done = subprocess.run(["/bin/echo", "by vfork"], stdout=subprocess.PIPE, check=True)
    said("vfork", done.stdout, ask(fd))
    done = subprocess.run(["/bin/cat"], input=b"piped", stdout=subprocess.PIPE, check=True)
    said("pipes", done.stdout, ask(fd))
    child = os.fork()
    if child == 0:
        os.execv("/bin/sh", ["sh", "-c", "exit 6"])
    said("exec", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), ask(fd))
    end.close()


def signals():
    rung = []
    signal.signal(signal.SIGALRM, lambda *_: rung.append(1))
    end = blocking(peer())
    fd, room = end.fileno(), ctypes.create_string_buffer(100)
    signal.siginterrupt(signal.SIGALRM, True)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    said("recv is interrupted", c(libc.recv, fd, room, 100, 0))
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    entries = ctypes.create_string_buffer(struct.pack("ihh", fd, select.POLLIN, 0), 8)
    said("poll is interrupted", c(libc.poll, entries, 1, 5000))
    signal.siginterrupt(signal.SIGALRM, False)
    signal.setitimer(signal.ITIMER_REAL, 0.1)
    said("poll never restarts", c(libc.poll, entries, 1, 5000))
    second = timer(0.1)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    end.settimeout(0.3)
    said("recv with a timeout", outcome(end.recv, 10) == "ETIMEDOUT" or "timed out")
    said("handlers ran", len(rung))
    os.close(second)
    end.settimeout(None)
    end.close()
    # Each round waits in `recv`, then writes without waiting.
    said("broken pipe", [closed_by_peer() for _ in range(10)])


def handlers():
    """Each handler's own flags count, and its calls do not disturb the call that it interrupts."""
    end, other = blocking(peer()), blocking(peer())
    fd, room = end.fileno(), ctypes.create_string_buffer(100)
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, False)
    signal.signal(signal.SIGUSR1, lambda *_: None)
    signal.siginterrupt(signal.SIGUSR1, True)
    for name in (signal.SIGALRM, signal.SIGUSR1):
        clock = threading.Timer(0.1, signal.pthread_kill, (threading.get_ident(), name))
        later = threading.Timer(0.4, os.write, (fd, b"late\n"))
        clock.start()
        later.start()
        said(name.name, c(libc.recv, fd, room, 100, 0))
        later.join()
        if name == signal.SIGUSR1:
            said("then", end.recv(100))
    said("old handler", libc.signal(signal.SIGALRM, 0) not in (0, 1),
         libc.signal(signal.SIGALRM, 1), libc.signal(signal.SIGALRM, 0))
    said("no such signal", libc.signal(99, 0), libc.signal(signal.SIGKILL, 1))
    said("other", ask(other.fileno()))
    end.close()
    other.close()


def storm():
    """Signals in the middle of many calls: none is refused, and all handlers run."""
    end = blocking(peer())
    handler = ctypes.cast(libc.getppid, ctypes.c_void_p)
    libc.signal(signal.SIGALRM, handler)
    signal.setitimer(signal.ITIMER_REAL, 0.0002, 0.0002)
    answers = {ask(end.fileno(), b"%d\n" % at) == b"%d\n" % at for at in range(300)}
    signal.setitimer(signal.ITIMER_REAL, 0)
    libc.signal(signal.SIGALRM, 0)
    said("all answered", answers)
    end.close()


def watched_twice():
    """An epoll knows copies of a socket apart, until the last one is closed."""
    end = blocking(peer())
    fd = end.fileno()
    copy = os.dup(fd)
    poll = select.epoll()
    poll.register(fd, select.EPOLLIN)
    said("copy before", outcome(poll.modify, copy, select.EPOLLIN))
    said("copy", outcome(poll.register, copy, select.EPOLLIN | select.EPOLLOUT))
    said("again", outcome(poll.register, copy, select.EPOLLIN))
    end.sendall(b"come\n")
    select.select([fd], [], [], 5)
    said("both", [(one == fd, events) for one, events in sorted(poll.poll(5))])
    poll.unregister(fd)
    said("one is left", [(one == copy, events) for one, events in poll.poll(5)])
    poll.register(fd, select.EPOLLOUT)
    os.close(copy)
    said("closed copy is told of", len(poll.poll(5)))
    end.close()
    said("none", poll.poll(0))
    poll.close()


def streams():
    """libc's streams on a socket."""
    end = blocking(peer())
    fd, room = os.dup(end.fileno()), ctypes.create_string_buffer(100)
    libc.fdopen.restype = ctypes.c_void_p
    libc.fgets.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(libc.fdopen(fd, b"r+"))
    said("fileno", libc.fileno(stream) == fd)
    said("fputs", libc.fputs(b"by stdio\n", stream) >= 0, libc.fflush(stream))
    said("fgets", libc.fgets(room, 100, stream) is not None, room.value)
    said("fseek", c(libc.fseek, stream, ctypes.c_long(0), 0))
    os.write(fd, b"left\n")
    said("one of its characters", libc.fgetc(stream))
    said("fclose", libc.fclose(stream), outcome(os.read, fd, 1))
    said("copy lives", ask(end.fileno()))
    end.close()


def numbers():
    """A thread that sleeps takes no descriptors that the program sees."""
    end = blocking(peer())
    before = lowest()
    thread = threading.Thread(target=end.recv, args=(100,))
    thread.start()
    time.sleep(0.2)
    said("while a thread sleeps", lowest() == before)
    end.sendall(b"wake\n")
    thread.join()
    end.close()


def low_water():
    """A `recv` that waits wants SO_RCVLOWAT bytes."""
    end = blocking(peer())
    end.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, 8)
    end.sendall(b"abc\n")
    later = threading.Timer(0.3, end.sendall, (b"defghij\n",))
    later.start()
    said("both lines", end.recv(100))
    later.join()
    end.close()


def interrupted_writes():
    """Signals end a write that waits; its value counts the bytes that were taken."""
    signal.signal(signal.SIGALRM, lambda *_: None)
    signal.siginterrupt(signal.SIGALRM, True)
    end = blocking(peer())
    signal.setitimer(signal.ITIMER_REAL, 0.01, 0.01)
    end.sendall(b"count 8000000\n" + b"x" * 8_000_000)
    signal.setitimer(signal.ITIMER_REAL, 0)
    said("all bytes once", ask(end.fileno(), b""), ask(end.fileno(), b"next\n"))
    end.close()


def listening():
    listener = socket.socket()
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(("0.0.0.0", OWN_PORT))
    listener.listen(5)
    said("SO_ACCEPTCONN", listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN))
    second = socket.socket()
    said("in use", outcome(second.bind, ("0.0.0.0", OWN_PORT)))
    listener.setblocking(False)
    said("nobody", outcome(listener.accept))
    control = blocking(peer())
    control.sendall(b"call %d\n" % OWN_PORT)
    poll = select.epoll()
    poll.register(listener.fileno(), select.EPOLLIN)
    said("caller", [events for _, events in poll.poll(5)])
    end, address = listener.accept()
    said("accepted", address[0] == HOST, end.getsockname()[1] == OWN_PORT)
    said("its line", blocking(end).recv(100))
    copy = listener.dup()
    listener.close()
    end.sendall(b"done\n")
    control.sendall(b"call %d\n" % OWN_PORT)
    copy.settimeout(5)
    again, _ = copy.accept()
    said("by the copy", blocking(again).recv(100))
    again.sendall(b"done\n")
    for one in (again, copy, end, control, second):
        one.close()
    poll.close()


for part in (copies, ranges, by_number, waits_by_number, spliced, checked, forms, mixed,
             processes, signals, handlers, storm, watched_twice, streams, numbers, low_water,
             interrupted_writes, listening):
    said("==", part.__name__)
    part()
