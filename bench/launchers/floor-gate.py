"""``floor-gate.py HEAD_IP HOSTS COMMAND...``: wait for HOSTS live nodes, then become COMMAND."""

import os
import socket
import sys
import time

from ray._raylet import GcsClient

ip, hosts, command = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
deadline = time.monotonic() + 600


def pause(problem: object) -> None:
    """Wait a moment, or give up when the time is over."""
    if time.monotonic() > deadline:
        sys.exit(f"not all nodes joined: {problem}")
    time.sleep(0.1)


while True:
    try:
        socket.create_connection((ip, 6379), 0.5).close()
        break
    except OSError as error:
        pause(error)
client = GcsClient(address=f"{ip}:6379")
while True:
    try:
        alive = sum(node.state == 0 for node in client.get_all_node_info().values())
    except Exception as error:
        pause(error)
        continue
    if alive >= hosts:
        os.execvp(command[0], command)  # noqa: S606 - no shell is wanted
    pause(f"{alive} of {hosts}")
