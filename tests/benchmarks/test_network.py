"""Hosts in namespaces come and go, also those of a run that was killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import pytest

from benchmarks.exchange.network import Network, available

ALLOWED = available()
pytestmark = pytest.mark.skipif(not ALLOWED, reason=ALLOWED.reason)

ECHO = """
import socket, sys
server = socket.create_server((sys.argv[1], 5000))
print("up", flush=True)
there, _ = server.accept()
while there.recv(1 << 16):
    pass
there.close()
"""
SEND = """
import socket, sys, time
begin = time.perf_counter()
there = socket.create_connection((sys.argv[1], 5000))
there.sendall(bytes(int(sys.argv[2])))
there.shutdown(socket.SHUT_WR)
there.recv(1)
print(time.perf_counter() - begin, flush=True)
"""


def _seconds(network: Network, size: int) -> float:
    """How long some bytes take from the first host to the second."""
    server = network.start("server", [sys.executable, "-c", ECHO, network.hosts[1]], host=1)
    _until(lambda: "up" in network.log("server").read_text())
    network.start("client", [sys.executable, "-c", SEND, network.hosts[1], str(size)], 0).wait(30)
    server.wait(30)
    return float(network.log("client").read_text())


def _until(holds: object) -> None:
    end = time.monotonic() + 30
    assert callable(holds)
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.01)


def _there() -> str:
    links = subprocess.run(["ip", "-br", "link"], capture_output=True, text=True, check=True).stdout
    spaces = subprocess.run(["ip", "netns"], capture_output=True, text=True, check=True).stdout
    return links + spaces


def test_a_link_has_its_rate_and_counts_what_it_carries() -> None:
    with Network(2, "80mbit") as network:
        before = network.carried()
        slow = _seconds(network, 5_000_000)
        assert 5_000_000 < network.carried() - before < 5_600_000
        network.limit("800mbit")
        fast = _seconds(network, 5_000_000)
    assert 0.4 < slow < 1.5 and fast < slow / 2


def test_networks_have_their_own_names_and_leave_nothing() -> None:
    with Network(1, "1gbit") as one, Network(2, "1gbit") as two:
        assert not {one.address, *one.hosts} & {two.address, *two.hosts}
        sleeper = two.start("sleeper", ["sleep", "100"], host=1)
        assert f"tidemill{two.hosts[0].split('.')[2]}-1" in _there()
    assert sleeper.returncode == -signal.SIGKILL
    for number in {network.address.split(".")[2] for network in (one, two)}:
        assert f"tidemill{number}" not in _there()
    assert not one.folder.exists() and not two.folder.exists()


def test_the_next_run_removes_what_a_killed_one_left() -> None:
    program = """
import os, signal
from benchmarks.exchange.network import Network
n = Network(1, "1gbit")
print(n.start("a", ["sleep", "100"]).pid, n.start("b", ["sleep", "100"], host=0).pid)
print(n.folder, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    killed = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True
    )
    assert killed.returncode == -signal.SIGKILL, killed.stderr
    pids, folder = killed.stdout.split("\n")[:2]
    assert all(os.path.exists(f"/proc/{pid}") for pid in pids.split())
    assert os.path.exists(folder)
    with Network(1, "1gbit") as network:
        assert not os.path.exists(folder) or str(network.folder) == folder
    _until(lambda: not any(_is_running(pid) for pid in pids.split()))
    assert not os.path.exists(folder)


def _is_running(pid: str) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as stat:
            return stat.read().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False
