"""A listener on a wire that a program gives to another one, which it spawns.

The arguments are the address, the port, and how the other program starts: `spawn` by posix_spawn
at another number, `vfork` by vfork and exec, `confined` by fork, dup2 and exec with no environment.
The other program answers one connection. That of `confined` first changes its root and its user,
and starts no more threads. `left` starts it
once a connection has come, and watches the listener no more. `refused` starts it in the same way for a user without privilege; it
prints the error of `accept`.
"""
import os
import select
import socket
import subprocess
import sys

ANSWERS = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1])); " \
          "print('on', flush=True); c, _ = s.accept(); c.sendall(b'by the other program'); c.close()"

CONFINED = "import os, resource; os.chroot('/'); os.setuid(65534); " \
           "resource.setrlimit(resource.RLIMIT_NPROC, (1, 1)); " + ANSWERS
REFUSED = "import errno, socket, sys\n" \
          "try: socket.socket(socket.AF_INET, socket.SOCK_STREAM, 0, int(sys.argv[1])).accept()\n" \
          "except OSError as error: print(errno.errorcode.get(error.errno, error), flush=True)"

address, port, way = sys.argv[1:]
server = socket.create_server((address, int(port)))
if way == "spawn":
    line = [sys.executable, "-c", ANSWERS, "9"]
    actions = [(os.POSIX_SPAWN_DUP2, server.fileno(), 9)]
    other = os.posix_spawn(sys.executable, line, os.environ, file_actions=actions)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]))
if way in ("confined", "left", "refused"):
    if way == "left":
        waits = select.epoll()
        waits.register(server, select.EPOLLIN)
        waits.poll()
    other = os.fork()
    if other == 0:
        if way == "refused":
            os.setuid(65534)
        os.dup2(server.fileno(), 9)
        code = {"confined": CONFINED, "left": ANSWERS, "refused": REFUSED}[way]
        os.execve(sys.executable, [sys.executable, "-c", code, "9"], {})
    if way == "left":
        waits.unregister(server)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]))
number = server.fileno()
line = [sys.executable, "-c", ANSWERS, str(number)]
sys.exit(subprocess.run(line, pass_fds=[number]).returncode)
