"""Clients of `turns.py`, or of php-fpm by FastCGI, all of whose requests must be answered.

The arguments are the address, the port, the number of requests, the number of clients, and the
script of php-fpm, if there is one. A request that gets no answer in 5 s is printed.
"""
import concurrent.futures
import socket
import struct
import sys

address, port, requests, clients, script = (sys.argv[1:] + [""])[:5]


def record(kind, content):
    return struct.pack(">BBHHBB", 1, kind, 1, len(content), 0, 0) + content


def pair(name, value):
    return bytes([len(name), len(value)]) + name.encode() + value.encode()


def question():
    if not script:
        return b"serve"
    names = {"SCRIPT_FILENAME": script, "REQUEST_METHOD": "GET"}
    parameters = b"".join(pair(*one) for one in names.items())
    begin = record(1, struct.pack(">HB5x", 1, 0))
    return begin + record(4, parameters) + record(4, b"") + record(5, b"")


def ask(_):
    answer = b""
    try:
        with socket.create_connection((address, int(port)), 5) as near:
            near.settimeout(5)
            near.sendall(question())
            while got := near.recv(4096):
                answer += got
    except OSError as error:
        return f"{error} after {answer!r}"
    return "" if b"served" in answer else f"the answer {answer!r}"


with concurrent.futures.ThreadPoolExecutor(int(clients)) as pool:
    said = [one for one in pool.map(ask, range(int(requests))) if one]
print(f"{len(said)} without an answer", said[:3])
