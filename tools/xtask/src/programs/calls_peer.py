"""The other end of calls.py: answers lines, or calls back, until its stdin ends."""
import os
import socket
import sys
import threading
import time

listener = socket.create_server((sys.argv[1], int(sys.argv[2])), backlog=50)


def serve(end, address):
    with end, end.makefile("rwb") as lines:
        for line in lines:
            words = line.split()
            if words[0] == b"close":
                return
            if words[0] == b"call":
                with socket.create_connection((address, int(words[1])), 5) as other:
                    other.sendall(b"called\n")
                    other.recv(100)
                continue
            if words[0] == b"count":
                # Let the sender fill all buffers and wait.
                time.sleep(0.3)
                line = b"%d bytes\n" % len(lines.read(int(words[1])))
            lines.write(line.upper())
            lines.flush()


def accept():
    while True:
        end, address = listener.accept()
        threading.Thread(target=serve, args=(end, address[0]), daemon=True).start()


threading.Thread(target=accept, daemon=True).start()
sys.stdin.read()
os._exit(0)
