"""Hosts on one machine: network namespaces on a bridge, each behind a link of a limited rate.

A run owns a number, for which it holds a lock while it lives; names and addresses follow from it, so runs
cannot collide. A lock that nobody holds beside a folder that exists is a run that was killed: the next run
ends what is left of it.
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

RUNS = Path(tempfile.gettempdir()) / "tidemill-hosts"
MOST = 200
"""Hosts of one network, and networks at a time."""


@dataclass(frozen=True)
class Allowed:
    """Whether this machine lets us make hosts, and why not."""

    yes: bool
    reason: str = ""

    def __bool__(self) -> bool:
        return self.yes


def available() -> Allowed:
    """Make a host and remove it: no list of what is needed would be as true."""
    if os.geteuid() != 0:
        return Allowed(False, "network namespaces need root")
    for tool in ("ip", "tc"):
        if shutil.which(tool) is None:
            return Allowed(False, f"there is no {tool} here: install iproute2")
    try:
        Network(1, "1gbit").close()
    except (OSError, subprocess.CalledProcessError) as error:
        return Allowed(False, f"network namespaces are not allowed here: {_said(error)}")
    return Allowed(True)


class Network:
    """A bridge with the machine itself on it, and hosts. Use as a context, or `close` it."""

    def __init__(self, hosts: int, rate: str) -> None:
        assert 0 < hosts <= MOST
        self._number, self._lock = _take()
        self.folder = _folder(self._number)
        self.address = _address(self._number, 1)
        self.hosts = tuple(_address(self._number, 11 + i) for i in range(hosts))
        self._started: list[subprocess.Popen[bytes]] = []
        try:
            self.folder.mkdir()
            self._build(rate)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Network:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def limit(self, rate: str) -> None:
        """Change the rate of all links, both ways, while they are in use."""
        self._limit("change", rate)

    def carried(self) -> int:
        """Bytes that have come to hosts, and to the machine from them, whoever sent them and what for."""
        came = [("rx_bytes", _bridge(self._number))]
        came += [("tx_bytes", _link(self._number, i)) for i in range(len(self.hosts))]
        return sum(int(Path(f"/sys/class/net/{d}/statistics/{n}").read_text()) for n, d in came)

    def start(
        self,
        name: str,
        command: Sequence[str],
        host: int | None = None,
        env: Mapping[str, str] = {},
    ) -> subprocess.Popen[bytes]:
        """Start a command on a host, or on the machine itself. It writes to `log(name)`."""
        if host is not None:
            command = ["ip", "netns", "exec", _space(self._number, host), *command]
        with open(self.log(name), "wb") as log:
            process = subprocess.Popen(
                command, env={**os.environ, **env}, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                start_new_session=True,
            )  # fmt: skip
        self._started.append(process)
        with _pids(self.folder).open("a") as record:
            record.write(json.dumps([process.pid, _born(process.pid)]) + "\n")
        return process

    def log(self, name: str) -> Path:
        return self.folder / f"{name}.log"

    def close(self) -> None:
        """End what was started here, and remove the hosts. Ctrl-C has to wait until that is done."""
        before = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            _remove(self._number)
            for process in self._started:
                process.wait()
            self._lock.close()
        finally:
            signal.signal(signal.SIGINT, before)

    def _build(self, rate: str) -> None:
        bridge = _bridge(self._number)
        _run("ip", "link", "add", bridge, "type", "bridge")
        _run("ip", "addr", "add", f"{self.address}/24", "dev", bridge)
        _run("ip", "link", "set", bridge, "up")
        for i, address in enumerate(self.hosts):
            space, link = _space(self._number, i), _link(self._number, i)
            _run("ip", "netns", "add", space)
            _run("ip", "link", "add", link, "type", "veth", "peer", "name", "eth0", "netns", space)
            _run("ip", "link", "set", link, "master", bridge, "up")
            _run("ip", "-n", space, "addr", "add", f"{address}/24", "dev", "eth0")
            _run("ip", "-n", space, "link", "set", "eth0", "up")
            _run("ip", "-n", space, "link", "set", "lo", "up")
        self._limit("add", rate)

    def _limit(self, verb: str, rate: str) -> None:
        bucket = ("root", "tbf", "rate", rate, "burst", "256kb", "latency", "100ms")
        for i in range(len(self.hosts)):
            _run("tc", "qdisc", verb, "dev", _link(self._number, i), *bucket)
            _run("tc", "-n", _space(self._number, i), "qdisc", verb, "dev", "eth0", *bucket)


# --- names ----------------------------------------------------------------------------------------


def _bridge(number: int) -> str:
    return f"tidemill{number}"


def _space(number: int, host: int) -> str:
    return f"tidemill{number}-{host}"


def _link(number: int, host: int) -> str:
    return f"tidem{number}-{host}"  # 15 characters at most


def _address(number: int, last: int) -> str:
    return f"10.78.{number}.{last}"


def _folder(number: int) -> Path:
    return RUNS / str(number)


def _pids(folder: Path) -> Path:
    """Processes that were started outside namespaces or in them: a line of pid and birth for each."""
    return folder / "processes"


# --- whose number it is ---------------------------------------------------------------------------


def _take() -> tuple[int, IO[bytes]]:
    """A number that nobody has, and its lock. What is left of runs that were killed goes away."""
    RUNS.mkdir(exist_ok=True)
    for folder in RUNS.iterdir():
        lock = _locked(int(folder.name)) if folder.is_dir() else None
        if lock is not None:
            _remove(int(folder.name))
            lock.close()
    for number in range(MOST):
        lock = _locked(number)
        if lock is not None and not _in_use(number):
            return number, lock
        if lock is not None:
            lock.close()
    raise OSError(f"all {MOST} networks are in use: see {RUNS}")


def _locked(number: int) -> IO[bytes] | None:
    """The lock of a number, unless a run has it. It goes when its file is closed, so with its run."""
    lock = open(RUNS / f"{number}.lock", "ab")  # noqa: SIM115
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        return None
    return lock


def _in_use(number: int) -> bool:
    """Whether somebody else has these addresses."""
    return bool(_run("ip", "route", "show", "root", f"10.78.{number}.0/24").strip())


def _remove(number: int) -> None:
    """End the processes and remove the hosts of a number whose lock we hold."""
    folder = _folder(number)
    spaces = [s for s in _spaces() if s.startswith(f"{_bridge(number)}-")]
    if _pids(folder).exists():
        for line in _pids(folder).read_text().splitlines():
            pid, born = json.loads(line)
            if _born(pid) == born:  # else another process has this id now
                with suppress(ProcessLookupError):
                    os.killpg(pid, signal.SIGKILL)
    for space in spaces:
        # Executors and Python workers have groups of their own, but cannot leave the namespace.
        while pids := _run("ip", "netns", "pids", space).split():
            for pid in pids:
                with suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
        link = _link(number, int(space.rsplit("-", 1)[1]))
        # The link first: a namespace takes it along only some time later.
        subprocess.run(["ip", "link", "del", link], capture_output=True)
        _run("ip", "netns", "del", space)
    subprocess.run(["ip", "link", "del", _bridge(number)], capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


def _spaces() -> list[str]:
    return [line.split()[0] for line in _run("ip", "netns", "list").splitlines() if line]


def _born(pid: int) -> str:
    """When a process began, in ticks since the machine did; a process id alone is used again."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[19]
    except OSError:
        return ""


def _run(*command: str) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


def _said(error: Exception) -> str:
    if isinstance(error, subprocess.CalledProcessError):
        return str(error.stderr).strip() or str(error)
    return str(error)
