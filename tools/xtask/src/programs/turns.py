"""Processes that take turns at one listener, as postfix's and nginx's (`accept_mutex on`) do.

The arguments are the address, the port and a file. A process locks the file, waits for a connection
in epoll and accepts one. Then it unlocks the file and serves. Of four such processes, three wait
for the lock or serve. The master never accepts; it ends its children by TERM.
"""
import fcntl
import os
import select
import signal
import socket
import sys
import time

address, port, path = sys.argv[1:]
server = socket.create_server((address, int(port)), backlog=128)
children = []
for _ in range(4):
    child = os.fork()
    if child:
        children.append(child)
        continue
    lock = open(path, "w")
    waits = select.epoll()
    waits.register(server, select.EPOLLIN)
    while True:
        fcntl.flock(lock, fcntl.LOCK_EX)
        waits.poll()
        near, _ = server.accept()
        fcntl.flock(lock, fcntl.LOCK_UN)
        near.recv(100)
        time.sleep(0.02)
        near.sendall(b"served")
        near.close()


def end(*_):
    for child in children:
        os.kill(child, signal.SIGTERM)
        os.waitpid(child, 0)
    sys.exit(0)


signal.signal(signal.SIGTERM, end)
while True:
    signal.pause()
