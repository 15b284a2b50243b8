"""A job that `dagc.measure.jobs` has submitted: `python -m dagc.measure.job PLACE RANKS` in a batch script.

Starts the ranks within the job, by srun unless DAGC_MPIEXEC names another starter, and passes the commands of the
submitting process on to them. When that process ends, for any reason, the job ends too.
"""

from __future__ import annotations

import json
import os
import shutil
import socket
import sys
from contextlib import suppress
from multiprocessing import AuthenticationError
from multiprocessing.connection import Client, Connection
from pathlib import Path
from typing import Any

from dagc.base.errors import DagcError, MissingTool, RunFailed
from dagc.measure.service import START_SECONDS, RanksDied, WorkerLink

KEY, JOB = "key", "job"
STOP = {"do": "stop"}


def main() -> int:
    place, ranks = json.loads(Path(sys.argv[1]).read_text()), int(sys.argv[2])
    srun = shutil.which("srun")
    if srun is not None:
        os.environ.setdefault("DAGC_MPIEXEC", srun)
        os.environ.setdefault("SLURM_KILL_BAD_EXIT", "1")  # a rank that dies ends the others
    try:
        connection = connected(place["hosts"], place["port"], bytes.fromhex(place[KEY]))
    except DagcError as error:
        print(f"dagc: {error.message}", file=sys.stderr)
        return error.exit_code
    # The link to the ranks is closed first: the submitting process takes the end of the connection for that of the job.
    with connection, WorkerLink(ranks) as link, suppress(EOFError, OSError):
        connection.send_bytes(json.dumps({JOB: int(os.environ.get("SLURM_ARRAY_TASK_ID", "0"))}).encode())
        answer(link, {"do": "hello", "limit": START_SECONDS})  # the ranks start before they are needed
        while (command := json.loads(connection.recv_bytes())) != STOP:
            connection.send_bytes(json.dumps({**answer(link, command), "id": command["id"]}).encode())
    return 0


def connected(hosts: list[str], port: int, key: bytes) -> Connection:
    """To the first of these names of a host that can be reached. Raises RunFailed."""
    tried = []
    for host in hosts:
        print(f"connecting to {host}, port {port}", flush=True)
        try:
            connection = Client((host, port), authkey=key)
            keep_alive(connection)
            return connection
        except (OSError, EOFError, AuthenticationError) as why:
            tried.append(f"{host} port {port} ({str(why) or 'closed'})")
    raise RunFailed(f"the host that submitted this job cannot be reached: {', '.join(tried)}")


def keep_alive(connection: Connection) -> None:
    """End the connection a minute after the other host has lost its power or its network."""
    with socket.socket(fileno=os.dup(connection.fileno())) as same:
        same.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for name, value in (("TCP_KEEPIDLE", 30), ("TCP_KEEPINTVL", 10), ("TCP_KEEPCNT", 3)):
            if hasattr(socket, name):
                same.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def answer(link: WorkerLink, command: dict[str, Any]) -> dict[str, Any]:
    try:
        return link.ask({name: value for name, value in command.items() if name != "id"})
    except RanksDied as death:
        return {"died": str(death)}
    except (MissingTool, RunFailed) as error:
        return {"failed": [error.message, error.help]}


if __name__ == "__main__":
    sys.exit(main())
