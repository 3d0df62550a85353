"""A process in the place of a server that another one forks: `forked.py SOCKET SCRIPT [ARGUMENT...]`.

It passes on its standard streams, variables, folder and signals, and ends after the server, with its exit code. The
server ends if this process is killed.
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    place = json.dumps([sys.argv[2:], dict(os.environ), os.getcwd()]).encode() + b"\n"
    sent = socket.send_fds(connection, [place], [0, 1, 2])
    connection.sendall(place[sent:])
    answers = connection.makefile("rb")
    pid = int(answers.readline())
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda number, _: os.kill(pid, number))
    code = answers.read()
os._exit(code[0] if code else 1)
