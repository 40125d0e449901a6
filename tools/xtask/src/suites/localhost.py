"""Calls of one process on its own connections over localhost, told as Linux tells them.

Each test passes on the kernel's sockets, so one that fails under `mill run --lo` is a difference.
"""
import ctypes
import fcntl
import os
import select
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
import unittest

libc = ctypes.CDLL(None, use_errno=True)
SECONDS = 5


def pair(host="127.0.0.1"):
    """A connection's two ends."""
    with listener(host) as server:
        near = socket.create_connection(server.getsockname()[:2], SECONDS)
        far, _ = server.accept()
    return near, far


def listener(host="127.0.0.1"):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    return socket.create_server((host, 0), family=family)


def of_another_process(server):
    """A connection by the kernel, since its other end is a process of its own."""
    line = "import socket, sys, time; s = socket.create_connection(('127.0.0.1', " \
           f"{server.getsockname()[1]})); print(1, flush=True); sys.stdin.read()"
    other = subprocess.Popen([sys.executable, "-c", line], stdin=subprocess.PIPE,
                             stdout=subprocess.PIPE)
    other.stdout.readline()
    return other


def read_line(fd):
    """A line from a pipe."""
    line = b""
    while not line.endswith(b"\n") and (more := os.read(fd, 1)):
        line += more
    return line


class Epoll(unittest.TestCase):
    def test_copy_of_an_epoll_adds_what_the_first_waits_for(self):
        first = select.epoll()
        copy = select.epoll.fromfd(os.dup(first.fileno()))
        near, far = pair()
        copy.register(far, select.EPOLLIN)
        near.send(b"x")
        self.assertEqual(first.poll(SECONDS), [(far.fileno(), select.EPOLLIN)])

    def test_copy_made_later_tells_of_what_the_first_watches(self):
        first = select.epoll()
        near, far = pair()
        first.register(far, select.EPOLLIN)
        copy = select.epoll.fromfd(os.dup(first.fileno()))
        first.close()
        near.send(b"x")
        self.assertEqual(copy.poll(SECONDS), [(far.fileno(), select.EPOLLIN)])

    def test_socket_added_while_another_thread_waits_is_told_to_it(self):
        waits, told = select.epoll(), []
        thread = threading.Thread(target=lambda: told.extend(waits.poll(SECONDS)))
        thread.start()
        time.sleep(0.1)
        near, far = pair()
        waits.register(far, select.EPOLLIN)
        near.send(b"x")
        thread.join()
        self.assertEqual(told, [(far.fileno(), select.EPOLLIN)])

    def test_sockets_added_while_several_threads_wait_are_told_to_them(self):
        waits, told = select.epoll(), []
        mode = select.EPOLLIN | select.EPOLLONESHOT
        threads = [threading.Thread(target=lambda: told.extend(waits.poll(SECONDS, 1)))
                   for _ in range(3)]
        for thread in threads:
            thread.start()
        time.sleep(0.1)
        pairs = [pair() for _ in threads]
        for near, far in pairs:
            waits.register(far, mode)
            near.send(b"x")
        for thread in threads:
            thread.join()
        self.assertEqual(sorted(fd for fd, _ in told), sorted(far.fileno() for _, far in pairs))

    def test_wait_of_the_kernels_ends_in_time(self):
        thread = threading.Thread(target=lambda: None)
        thread.start()
        thread.join()
        waits = select.epoll()
        began = time.monotonic()
        self.assertEqual(waits.poll(0.2), [])
        self.assertTrue(0.15 < time.monotonic() - began < SECONDS)
        signal.signal(signal.SIGALRM, lambda *_: os.write(into, b"x"))
        out, into = os.pipe()
        waits.register(out, select.EPOLLIN)
        signal.setitimer(signal.ITIMER_REAL, 0.1)
        self.assertEqual(waits.poll(SECONDS), [(out, select.EPOLLIN)])

    def test_epoll_within_an_epoll_tells_of_sockets_added_later(self):
        outer, inner = select.epoll(), select.epoll()
        outer.register(inner, select.EPOLLIN)
        near, far = pair()
        inner.register(far, select.EPOLLIN)
        self.assertEqual(outer.poll(0), [])
        near.send(b"x")
        self.assertEqual(outer.poll(SECONDS), [(inner.fileno(), select.EPOLLIN)])
        far.recv(1)
        self.assertEqual(outer.poll(0), [])

    def test_epoll_within_an_epoll_tells_of_sockets_added_before(self):
        outer, inner = select.epoll(), select.epoll()
        near, far = pair()
        inner.register(far, select.EPOLLIN)
        outer.register(inner, select.EPOLLIN)
        self.assertRaises(FileExistsError, outer.register, inner, select.EPOLLIN)
        near.send(b"x")
        self.assertEqual(outer.poll(SECONDS), [(inner.fileno(), select.EPOLLIN)])
        outer.modify(inner, 0)
        self.assertEqual(outer.poll(0), [])
        outer.modify(inner, select.EPOLLIN)
        self.assertEqual(outer.poll(SECONDS), [(inner.fileno(), select.EPOLLIN)])
        outer.unregister(inner)
        self.assertEqual(outer.poll(0), [])
        self.assertRaises(FileNotFoundError, outer.unregister, inner)

    def test_wait_for_one_event_leaves_out_neither_sockets_nor_pipes(self):
        waits = select.epoll()
        near, far = pair()
        out, into = os.pipe()
        os.write(into, b"x")
        waits.register(far, select.EPOLLOUT)
        waits.register(out, select.EPOLLIN)
        told = {fd for _ in range(4) for fd, _ in waits.poll(SECONDS, 1)}
        self.assertEqual(told, {far.fileno(), out})

    def test_socket_told_once_before_it_connects_is_not_told_again(self):
        waits = select.epoll()
        with listener() as server:
            near = socket.socket()
            waits.register(near, select.EPOLLIN | select.EPOLLOUT | select.EPOLLONESHOT)
            self.assertEqual(len(waits.poll(SECONDS)), 1)
            near.connect(server.getsockname())
            self.assertEqual(waits.poll(0.1), [])
            waits.modify(near, select.EPOLLOUT | select.EPOLLONESHOT)
            self.assertEqual(waits.poll(SECONDS), [(near.fileno(), select.EPOLLOUT)])
            self.assertEqual(waits.poll(0), [])


class Listener(unittest.TestCase):
    def test_shut_down_beside_its_connections_keeps_the_place(self):
        with listener() as server:
            place = server.getsockname()
            near = socket.create_connection(place, SECONDS)
            far, _ = server.accept()
            server.shutdown(socket.SHUT_RDWR)
            self.assertRaises(OSError, server.accept)
            self.assertRaises(ConnectionRefusedError, socket.create_connection, place, SECONDS)
            near.send(b"on")
            self.assertEqual(far.recv(10), b"on")

    def test_shut_down_ends_an_accept_of_another_thread(self):
        with listener() as server:
            said = []

            def accepts():
                try:
                    said.append(server.accept())
                except OSError as error:
                    said.append(error.errno)

            thread = threading.Thread(target=accepts)
            thread.start()
            time.sleep(0.1)
            server.shutdown(socket.SHUT_RD)
            thread.join(SECONDS)
            self.assertEqual(said, [22])

    def test_at_a_port_that_was_chosen_listens_beside_old_connections(self):
        # Each round leaves a TIME_WAIT at a listener's port, which the kernel may choose again.
        for _ in range(400):
            with socket.socket() as server:
                server.bind(("127.0.0.1", 0))
                server.listen()
                near = socket.create_connection(server.getsockname(), SECONDS)
                far, _ = server.accept()
                far.close()
                near.close()

    def test_at_the_port_of_a_connection_is_refused(self):
        near, far = pair()
        with socket.socket() as other:
            self.assertRaises(OSError, other.bind, near.getsockname())

    def test_dissolved_listens_to_nobody(self):
        with listener() as server:
            place = server.getsockname()
            unspecified = struct.pack("=H14x", socket.AF_UNSPEC)
            self.assertEqual(libc.connect(server.fileno(), unspecified, 16), 0)
            self.assertRaises(ConnectionRefusedError, socket.create_connection, place, SECONDS)
            self.assertRaises(OSError, server.accept)

    def test_filter_that_was_attached_before_it_listens_stays(self):
        refuse_all = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0))
        program = struct.pack("HP", 1, ctypes.addressof(refuse_all))
        attach = 26
        with socket.socket() as server:
            server.bind(("127.0.0.1", 0))
            server.setsockopt(socket.SOL_SOCKET, attach, program)
            server.listen()
            line = "import socket, sys; s = socket.socket(); s.settimeout(1)\n" \
                   f"try: s.connect(('127.0.0.1', {server.getsockname()[1]}))\n" \
                   "except TimeoutError: sys.exit(7)"
            other = subprocess.run([sys.executable, "-c", line], timeout=SECONDS)
            self.assertEqual(other.returncode, 7)

    def test_accept_with_a_time_limit_waits_that_long(self):
        with listener() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 300000))
            began = time.monotonic()
            with self.assertRaises(BlockingIOError):
                server.accept()
            self.assertGreaterEqual(time.monotonic() - began, 0.25)
            near = socket.create_connection(server.getsockname())
            server.accept()[0].close()
            near.close()

    def test_accept_with_a_time_limit_takes_what_comes(self):
        with listener() as server:
            limit = struct.pack("ll", SECONDS, 0)
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, limit)
            for connect in (socket.create_connection, lambda _: of_another_process(server)):
                accepted = []
                thread = threading.Thread(target=lambda: accepted.append(server.accept()[0]))
                thread.start()
                other = connect(server.getsockname())
                thread.join(SECONDS)
                self.assertEqual(len(accepted), 1)
                accepted[0].close()
                if isinstance(other, subprocess.Popen):
                    other.communicate()
                else:
                    other.close()

    def test_of_both_sides_tells_of_connections_from_here_and_from_others(self):
        with listener() as server:
            waits = select.epoll()
            waits.register(server, select.EPOLLIN)
            self.assertEqual(waits.poll(0), [])
            other = of_another_process(server)
            self.assertEqual(waits.poll(SECONDS), [(server.fileno(), select.EPOLLIN)])
            near = socket.create_connection(server.getsockname(), SECONDS)
            server.accept()
            self.assertEqual(waits.poll(SECONDS), [(server.fileno(), select.EPOLLIN)])
            server.accept()
            self.assertEqual(waits.poll(0), [])
            other.communicate()
            near.close()


class Calls(unittest.TestCase):
    def test_socket_at_an_ipv6_address_is_ipv6_only(self):
        with listener("::1") as server:
            only = server.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY)
            self.assertEqual(only, 1)

    def test_socket_accepted_over_either_family_has_the_options_of_both(self):
        options = {(socket.IPPROTO_IP, socket.IP_TOS): 0x28,
                   (socket.IPPROTO_IPV6, socket.IPV6_TCLASS): 0x48,
                   (socket.IPPROTO_IP, socket.IP_TTL): 33,
                   (socket.IPPROTO_IPV6, socket.IPV6_UNICAST_HOPS): 44}
        for host in ("127.0.0.1", "::1"):
            with socket.create_server(("", 0), family=socket.AF_INET6,
                                      dualstack_ipv6=True) as server:
                for option, value in options.items():
                    server.setsockopt(*option, value)
                near = socket.create_connection((host, server.getsockname()[1]), SECONDS)
                far, _ = server.accept()
                for each in (server, far):
                    self.assertEqual({one: each.getsockopt(*one) for one in options}, options)
                far.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, 0x10)
                self.assertEqual(far.getsockopt(socket.IPPROTO_IPV6, socket.IPV6_TCLASS), 0x48)
                near.close()
                far.close()

    def test_each_number_that_is_open_takes_its_flags(self):
        near, far = pair()
        for number in range(3, 2000):
            try:
                flags = fcntl.fcntl(number, fcntl.F_GETFD)
            except OSError:
                continue
            self.assertEqual(fcntl.fcntl(number, fcntl.F_SETFD, flags), 0)
        self.assertEqual(near.send(b"x"), 1)
        self.assertEqual(far.recv(1), b"x")

    def test_mark_of_urgent_data_is_found(self):
        near, far = pair()
        near.send(b"ab")
        near.send(b"!", socket.MSG_OOB)
        select.select([], [], [far], SECONDS)
        self.assertEqual(libc.sockatmark(far.fileno()), 0)
        self.assertEqual(far.recv(10), b"ab")
        self.assertEqual(libc.sockatmark(far.fileno()), 1)

    def test_reads_and_writes_without_a_position(self):
        near, far = pair()

        class Piece(ctypes.Structure):
            _fields_ = [("at", ctypes.c_void_p), ("len", ctypes.c_size_t)]

        text = ctypes.create_string_buffer(b"hello", 5)
        piece = Piece(ctypes.addressof(text), 5)
        none = ctypes.c_long(-1)
        self.assertEqual(libc.pwritev2(near.fileno(), ctypes.byref(piece), 1, none, 0), 5)
        room = ctypes.create_string_buffer(5)
        piece = Piece(ctypes.addressof(room), 5)
        self.assertEqual(libc.preadv2(far.fileno(), ctypes.byref(piece), 1, none, 0), 5)
        self.assertEqual(room.raw, b"hello")
        nowait = 8
        self.assertEqual(libc.preadv2(far.fileno(), ctypes.byref(piece), 1, none, nowait), -1)
        self.assertEqual(ctypes.get_errno(), 11)
        place = ctypes.c_long(0)
        self.assertEqual(libc.preadv2(far.fileno(), ctypes.byref(piece), 1, place, 0), -1)
        self.assertEqual(ctypes.get_errno(), 29)

    def test_bytes_are_thrown_away_without_room(self):
        near, far = pair()
        near.send(b"abcdef")
        self.assertEqual(libc.recv(far.fileno(), None, 4, socket.MSG_TRUNC), 4)
        self.assertEqual(far.recv(10), b"ef")

    def test_call_that_gets_nothing_leaves_the_address_alone(self):
        near, far = pair()
        room, address = ctypes.create_string_buffer(10), ctypes.create_string_buffer(16)
        length = ctypes.c_int(16)
        got = libc.recvfrom(far.fileno(), room, 10, socket.MSG_DONTWAIT, address,
                            ctypes.byref(length))
        self.assertEqual((got, length.value), (-1, 16))
        near.send(b"x")
        got = libc.recvfrom(far.fileno(), room, 10, 0, address, ctypes.byref(length))
        self.assertEqual((got, length.value), (1, 0))

    def test_connection_passed_to_itself_goes_on(self):
        near, far = pair()
        here, there = socket.socketpair()
        socket.send_fds(here, [b"x"], [far.fileno(), far.fileno()])
        far.close()
        near.settimeout(0.1)
        self.assertRaises(TimeoutError, near.recv, 1)
        near.send(b"on")
        got, copy = socket.recv_fds(there, 1, 2)[1]
        self.assertEqual(os.read(got, 10), b"on")
        os.close(got)
        os.write(copy, b"back")
        near.settimeout(SECONDS)
        self.assertEqual(near.recv(10), b"back")
        os.close(copy)
        self.assertEqual(near.recv(1), b"")

    def test_connection_in_a_message_that_is_dropped_ends(self):
        near, far = pair()
        here, there = socket.socketpair()
        socket.send_fds(here, [b"x"], [far.fileno()])
        far.close()
        here.close()
        there.close()
        near.settimeout(SECONDS)
        self.assertEqual(near.recv(1), b"")

    @unittest.skipUnless(os.uname().machine == "x86_64", "other machines have no such numbers")
    def test_waits_by_their_old_numbers_tell_of_sockets(self):
        near, far = pair()
        near.send(b"x")
        poll, epoll_wait, select_ = 7, 232, 23
        entry = ctypes.create_string_buffer(struct.pack("=ihh", far.fileno(), 1, 0), 8)
        self.assertEqual(libc.syscall(poll, entry, 1, 1000), 1)
        self.assertEqual(struct.unpack("=ihh", entry.raw)[2], 1)
        waits = select.epoll()
        waits.register(far, select.EPOLLIN)
        events = ctypes.create_string_buffer(12)
        self.assertEqual(libc.syscall(epoll_wait, waits.fileno(), events, 1, 1000), 1)
        bits = ctypes.create_string_buffer(128)
        bits[far.fileno() // 8] = 1 << far.fileno() % 8
        self.assertEqual(libc.syscall(select_, far.fileno() + 1, bits, None, None, None), 1)


class Waits(unittest.TestCase):
    """A call that waits keeps the socket that it began with."""

    def in_thread(self, call, *args):
        said = []

        def run():
            try:
                said.append(call(*args))
            except OSError as error:
                said.append(error.errno)

        thread = threading.Thread(target=run, daemon=True)
        thread.start()
        time.sleep(0.1)
        return thread, said

    def test_read_of_a_number_that_was_closed_gets_what_comes(self):
        near, far = pair()
        number = far.detach()
        thread, said = self.in_thread(os.read, number, 10)
        os.close(number)
        near.settimeout(0.1)
        self.assertRaises(TimeoutError, near.recv, 1)
        near.settimeout(SECONDS)
        near.send(b"on")
        thread.join(SECONDS)
        self.assertEqual(said, [b"on"])
        self.assertEqual(near.recv(1), b"")

    def test_read_of_a_number_that_is_another_sockets_gets_its_own_bytes(self):
        near, far = pair()
        with listener() as server:
            number = far.detach()
            thread, said = self.in_thread(os.read, number, 10)
            other = socket.create_connection(server.getsockname(), SECONDS)
            os.close(number)
            new, _ = server.accept()
        self.assertEqual(new.fileno(), number)
        other.send(b"new")
        time.sleep(0.1)
        near.send(b"old")
        thread.join(SECONDS)
        self.assertEqual(said, [b"old"])
        new.settimeout(SECONDS)
        self.assertEqual(new.recv(10), b"new")

    def test_recvmsg_of_a_number_that_is_another_sockets_gets_its_own_bytes(self):
        near, far = pair()
        with listener() as server:
            thread, said = self.in_thread(far.recvmsg, 10, 100)
            other = socket.create_connection(server.getsockname(), SECONDS)
            os.close(far.fileno())
            new, _ = server.accept()
        other.send(b"new")
        time.sleep(0.1)
        near.send(b"old")
        thread.join(SECONDS)
        far.detach()
        self.assertEqual([one[0] for one in said], [b"old"])
        new.settimeout(SECONDS)
        self.assertEqual(new.recv(10), b"new")

    def test_accept_of_a_number_that_was_closed_takes_a_connection(self):
        server = listener()
        place, number = server.getsockname(), server.detach()
        taker = socket.socket(fileno=number)
        thread, said = self.in_thread(taker.accept)
        os.close(number)
        near = socket.create_connection(place, SECONDS)
        thread.join(SECONDS)
        taker.detach()
        self.assertEqual(said[0][1], near.getsockname())
        self.assertRaises(ConnectionRefusedError, socket.create_connection, place, SECONDS)

    def test_poll_of_a_number_that_was_closed_keeps_the_connection_until_an_event(self):
        near, far = pair()
        number = far.detach()
        waits = select.poll()
        waits.register(number, select.POLLIN)
        thread, said = self.in_thread(waits.poll, SECONDS * 1000)
        os.close(number)
        near.settimeout(0.2)
        self.assertRaises(TimeoutError, near.recv, 1)
        self.assertEqual(said, [])
        near.send(b"on")
        thread.join(SECONDS)
        self.assertEqual(said, [[(number, select.POLLNVAL)]])
        near.settimeout(SECONDS)
        self.assertRaises(ConnectionResetError, near.recv, 1)

    def test_poll_of_two_goes_on_for_the_one_that_is_open(self):
        near, far = pair()
        other, there = pair()
        number = far.detach()
        waits = select.poll()
        for fd in (number, there.fileno()):
            waits.register(fd, select.POLLIN)
        thread, said = self.in_thread(waits.poll, SECONDS * 1000)
        os.close(number)
        time.sleep(0.1)
        self.assertEqual(said, [])
        other.send(b"on")
        thread.join(SECONDS)
        expected = [(number, select.POLLNVAL), (there.fileno(), select.POLLIN)]
        self.assertEqual([sorted(one) for one in said], [sorted(expected)])
        near.settimeout(SECONDS)
        self.assertEqual(near.recv(1), b"")

    def test_select_of_a_number_that_was_closed_keeps_the_connection(self):
        near, far = pair()
        number = far.detach()
        thread, said = self.in_thread(select.select, [number], [], [], 1)
        os.close(number)
        near.settimeout(0.2)
        self.assertRaises(TimeoutError, near.recv, 1)
        self.assertEqual(said, [])
        thread.join(SECONDS)
        self.assertEqual(len(said), 1)
        near.settimeout(SECONDS)
        self.assertEqual(near.recv(1), b"")

    def test_wait_of_an_epoll_that_was_closed_tells_of_its_sockets(self):
        waits = select.epoll()
        near, far = pair()
        waits.register(far, select.EPOLLIN)
        room = ctypes.create_string_buffer(12)
        number = os.dup(waits.fileno())
        waits.close()
        thread, said = self.in_thread(libc.epoll_wait, number, room, 1, SECONDS * 1000)
        os.close(number)
        near.send(b"x")
        thread.join(SECONDS)
        self.assertEqual(said, [1])

    def test_write_of_a_number_that_was_closed_sends_all(self):
        near, far = pair()
        number, text = far.detach(), b"x" * 8_000_000
        thread, said = self.in_thread(os.write, number, text)
        os.close(number)
        got = 0
        while more := near.recv(1 << 20):
            got += len(more)
        thread.join(SECONDS)
        self.assertEqual((got, said), (len(text), [len(text)]))


class Processes(unittest.TestCase):
    """Listeners and connections that another program gets."""

    ACCEPTS = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1])); " \
              "print('on', flush=True); s.accept()[0].sendall(b'by the child')"

    def answered(self, server, child):
        """A client in this process, whose connection only the child accepts."""
        self.assertEqual(child.stdout.readline(), b"on\n")
        with socket.create_connection(server.getsockname(), SECONDS) as near:
            self.assertEqual(near.recv(100), b"by the child")
        child.communicate(timeout=SECONDS)

    def line(self, number):
        return [sys.executable, "-c", self.ACCEPTS, str(number)]

    def kept_open(self, server):
        fcntl.fcntl(server, fcntl.F_SETFD, 0)
        return server.fileno()

    def test_listener_that_a_child_of_vfork_gets_is_the_childs_too(self):
        with listener() as server:
            number = self.kept_open(server)
            child = subprocess.Popen(self.line(number), stdout=subprocess.PIPE, pass_fds=[number])
            self.answered(server, child)

    def test_listener_at_another_number_is_the_childs_too(self):
        with listener() as server:
            child = subprocess.Popen(self.line(0), stdout=subprocess.PIPE, stdin=server)
            self.answered(server, child)

    def test_listener_that_a_spawned_program_gets_is_its_own_too(self):
        with listener() as server:
            out, into = os.pipe()
            # The pipe comes first, since it may have the number 9.
            actions = [(os.POSIX_SPAWN_DUP2, into, 1), (os.POSIX_SPAWN_DUP2, server.fileno(), 9)]
            pid = os.posix_spawn(sys.executable, self.line(9), os.environ, file_actions=actions)
            os.close(into)
            self.assertEqual(read_line(out), b"on\n")
            with socket.create_connection(server.getsockname(), SECONDS) as near:
                self.assertEqual(near.recv(100), b"by the child")
            os.waitpid(pid, 0)
            os.close(out)

    RECEIVES = "import socket; u = socket.socket(fileno=0); " \
               "s = socket.socket(fileno=socket.recv_fds(u, 1, 1)[1][0]); " \
               "print('on', flush=True); s.accept()[0].sendall(b'by the child')"

    def receiver(self):
        """A child that gets a listener over a UNIX socket, and the socket."""
        here, there = socket.socketpair()
        with there:
            line = [sys.executable, "-c", self.RECEIVES]
            return here, subprocess.Popen(line, stdin=there, stdout=subprocess.PIPE)

    def test_listener_passed_over_a_unix_socket_is_the_receivers_too(self):
        here, child = self.receiver()
        with here, listener() as server:
            socket.send_fds(here, [b"x"], [server.fileno()])
            self.answered(server, child)

    def test_listener_passed_by_one_of_several_messages_is_the_receivers_too(self):
        here, child = self.receiver()
        with here, listener() as server:
            text = ctypes.create_string_buffer(b"x", 1)
            piece = ctypes.create_string_buffer(struct.pack("PN", ctypes.addressof(text), 1))
            rights = struct.pack("Niii4x", 20, socket.SOL_SOCKET, socket.SCM_RIGHTS,
                                 server.fileno())
            control = ctypes.create_string_buffer(rights, len(rights))
            message = struct.pack("PIPNPNiI4x", 0, 0, ctypes.addressof(piece), 1,
                                  ctypes.addressof(control), len(rights), 0, 0)
            self.assertEqual(libc.sendmmsg(here.fileno(), message, 1, 0), 1)
            self.answered(server, child)

    def test_accept_of_a_forked_child_waits_as_long_as_its_time_limit(self):
        with listener() as server:
            server.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, struct.pack("ll", 0, 300000))
            child = os.fork()
            if child == 0:
                signal.alarm(SECONDS)
                began = time.monotonic()
                try:
                    server.accept()
                except BlockingIOError:
                    os._exit(0 if time.monotonic() - began >= 0.25 else 2)
                os._exit(3)
            self.assertEqual(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), 0)

    def test_listener_after_fork_and_exec_waits(self):
        with listener() as server:
            out, into = os.pipe()
            number = self.kept_open(server)
            child = os.fork()
            if child == 0:
                os.dup2(into, 1)
                os.execv(sys.executable, self.line(number))
            self.assertEqual(read_line(out), b"on\n")
            with socket.create_connection(server.getsockname(), SECONDS) as near:
                self.assertEqual(near.recv(100), b"by the child")
            os.waitpid(child, 0)
            for fd in (out, into):
                os.close(fd)

    def test_connection_that_another_program_gets_works_or_is_refused(self):
        near, far = pair()
        near.send(b"come")
        number = self.kept_open(far)
        use = "import errno, os, sys\ntry: print(os.read(int(sys.argv[1]), 10))\n" \
              "except OSError as error: print(errno.errorcode[error.errno])"
        done = subprocess.run([sys.executable, "-c", use, str(number)], pass_fds=[number],
                              capture_output=True, timeout=SECONDS)
        self.assertIn(done.stdout, [b"b'come'\n", b"EBADF\n"])
        self.assertEqual(b"another process" in done.stderr, b"EBADF" in done.stdout)

    @unittest.skipUnless(os.uname().machine == "x86_64", "other machines have no such number")
    def test_child_that_is_forked_by_number_reads_a_connection_or_is_refused(self):
        near, far = pair()
        near.send(b"come")
        out, into = os.pipe()
        fork = 57
        child = libc.syscall(fork)
        if child == 0:
            try:
                os.write(into, os.read(far.fileno(), 10))
            except OSError as error:
                os.write(into, b"%d" % error.errno)
            os._exit(0)
        os.waitpid(child, 0)
        said = os.read(out, 10)
        self.assertIn(said, [b"come", b"9"])
        far.setblocking(False)
        if said == b"come":
            self.assertRaises(BlockingIOError, far.recv, 10)
        else:
            self.assertEqual(far.recv(10), b"come")
        for fd in (out, into):
            os.close(fd)

    def test_copies_in_a_child_of_vfork_leave_the_parents_connection(self):
        near, far = pair()
        kept = os.dup(0)
        os.dup2(far.fileno(), 0)
        far.close()
        # Before it starts, the child copies descriptor 0 to another number, and then to stdout.
        subprocess.run(["true"], stdout=0, stdin=kept, check=True)
        os.dup2(kept, 0)
        os.close(kept)
        near.settimeout(SECONDS)
        self.assertEqual(near.recv(1), b"")

    def test_options_set_while_listening_are_inherited_from_both_sides(self):
        with listener() as server:
            server.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            server.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            other = of_another_process(server)
            near = socket.create_connection(server.getsockname(), SECONDS)
            for _ in range(2):
                far, _ = server.accept()
                self.assertNotEqual(far.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY), 0)
                self.assertNotEqual(far.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), 0)
            other.communicate()
            near.close()

    def test_socket_dissolved_connects_to_another_process(self):
        line = "import socket, sys; s = socket.create_server(('127.0.0.1', 0)); " \
               "print(s.getsockname()[1], flush=True); s.accept()[0].sendall(b'from there')"
        other = subprocess.Popen([sys.executable, "-c", line], stdout=subprocess.PIPE)
        port = int(other.stdout.readline())
        with listener() as server, socket.socket() as near:
            near.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            near.connect(server.getsockname())
            unspecified = struct.pack("=H14x", socket.AF_UNSPEC)
            self.assertEqual(libc.connect(near.fileno(), unspecified, 16), 0)
            near.connect(("127.0.0.1", port))
            self.assertEqual(near.recv(100), b"from there")
            self.assertNotEqual(near.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE), 0)
            other.communicate()


class FastOpen(unittest.TestCase):
    def test_socket_that_connects_by_sending_is_connected(self):
        for by_message in (False, True):
            with listener() as server, socket.socket() as near:
                place = server.getsockname()
                if by_message:
                    near.sendmsg([b"fast"], [], socket.MSG_FASTOPEN, place)
                else:
                    near.sendto(b"fast", socket.MSG_FASTOPEN, place)
                self.assertRaisesRegex(OSError, "106|already", near.connect, place)
                far, _ = server.accept()
                self.assertEqual(far.recv(10), b"fast")
                near.send(b"on")
                self.assertEqual(far.recv(10), b"on")


class Wires(unittest.TestCase):
    def test_connection_to_elsewhere_is_the_kernels_where_no_stack_can_start(self):
        line = "import errno, resource, socket\ns = socket.socket()\ns.setblocking(False)\n" \
               "resource.setrlimit(resource.RLIMIT_NOFILE, (8, 8))\n" \
               "print(errno.errorcode[s.connect_ex(('10.255.255.1', 9))])"
        done = subprocess.run([sys.executable, "-c", line], capture_output=True, timeout=SECONDS)
        self.assertIn(done.stdout, [b"EINPROGRESS\n", b"ENETUNREACH\n"])


class Signals(unittest.TestCase):
    def told(self, number):
        told = []
        signal.signal(number, lambda *_: told.append(1))
        return told

    def awaited(self, told):
        limit = time.monotonic() + SECONDS
        while not told and time.monotonic() < limit:
            time.sleep(0.01)
        self.assertTrue(told)

    def test_socket_that_asks_for_signals_gets_them(self):
        told = self.told(signal.SIGIO)
        with listener() as server, socket.socket() as near:
            fcntl.fcntl(near, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(near, fcntl.F_SETFL, os.O_ASYNC)
            near.connect(server.getsockname())
            far, _ = server.accept()
            told.clear()
            far.send(b"x")
            self.awaited(told)

    def test_listener_that_asks_for_signals_gets_them(self):
        told = self.told(signal.SIGIO)
        with socket.socket() as server:
            fcntl.ioctl(server, 0x8901, struct.pack("i", os.getpid()))
            fcntl.ioctl(server, 0x5452, struct.pack("i", 1))
            server.bind(("127.0.0.1", 0))
            server.listen()
            told.clear()
            with socket.create_connection(server.getsockname(), SECONDS):
                self.awaited(told)

    def test_connection_that_asks_for_signals_gets_them_or_is_refused(self):
        told = self.told(signal.SIGIO)
        near, far = pair()
        try:
            fcntl.fcntl(far, fcntl.F_SETOWN, os.getpid())
            fcntl.fcntl(far, fcntl.F_SETFL, os.O_ASYNC)
        except OSError as error:
            self.assertEqual(error.errno, 22)
            self.assertFalse(fcntl.fcntl(far, fcntl.F_GETFL) & os.O_ASYNC)
            return
        near.send(b"x")
        self.awaited(told)


class Numbers(unittest.TestCase):
    @unittest.skipUnless(os.uname().machine == "x86_64", "other machines have other numbers")
    def test_reads_and_writes_without_a_position_by_number(self):
        near, far = pair()
        preadv2, pwritev2 = 327, 328

        class Piece(ctypes.Structure):
            _fields_ = [("at", ctypes.c_void_p), ("len", ctypes.c_size_t)]

        text, room = ctypes.create_string_buffer(b"hello", 5), ctypes.create_string_buffer(5)
        piece = Piece(ctypes.addressof(text), 5)
        none = ctypes.c_long(-1)
        sent = libc.syscall(pwritev2, near.fileno(), ctypes.byref(piece), 1, none, none, 0)
        self.assertEqual(sent, 5)
        piece = Piece(ctypes.addressof(room), 5)
        got = libc.syscall(preadv2, far.fileno(), ctypes.byref(piece), 1, none, none, 0)
        self.assertEqual((got, room.raw), (5, b"hello"))


if __name__ == "__main__":
    unittest.main()
