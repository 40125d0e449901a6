"""A listener on a wire that a program gives to another one, which it spawns.

The arguments are the address, the port, and how the other program starts: `spawn` by posix_spawn
at another number, `vfork` by vfork and exec. The other program answers one connection.
"""
import os
import socket
import subprocess
import sys

ANSWERS = "import socket, sys; s = socket.socket(fileno=int(sys.argv[1])); " \
          "print('on', flush=True); c, _ = s.accept(); c.sendall(b'by the other program'); c.close()"

address, port, way = sys.argv[1:]
server = socket.create_server((address, int(port)))
if way == "spawn":
    line = [sys.executable, "-c", ANSWERS, "9"]
    actions = [(os.POSIX_SPAWN_DUP2, server.fileno(), 9)]
    other = os.posix_spawn(sys.executable, line, os.environ, file_actions=actions)
    sys.exit(os.waitstatus_to_exitcode(os.waitpid(other, 0)[1]))
number = server.fileno()
line = [sys.executable, "-c", ANSWERS, str(number)]
sys.exit(subprocess.run(line, pass_fds=[number]).returncode)
