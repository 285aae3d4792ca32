"""Stands for `python PROGRAM …`: the process is forked from one that has loaded torch and Triton; its exit code or signal is this one's."""

import array
import json
import os
import signal
import socket
import sys

with socket.socket(socket.AF_UNIX) as connection:
    connection.connect(sys.argv[1])
    request = json.dumps([sys.argv[2:], os.getcwd(), dict(os.environ)]).encode()  # noqa: PTH109
    streams = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [0, 1, 2]))]
    connection.sendmsg([len(request).to_bytes(4, "big")], streams)
    connection.sendall(request)
    status = int(connection.recv(16) or b"255")
if status < 0:
    signal.signal(-status, signal.SIG_DFL)
    os.kill(os.getpid(), -status)
sys.exit(status)
