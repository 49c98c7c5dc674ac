"""Assign the partitions of inputs to slots, which are the partitions of a result."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import DataFrame

from tidemill.core.errors import UserError
from tidemill.spark import private

BY = ("auto", "host", "partition")


@dataclass(frozen=True)
class ResultPartitions:
    """The partitions of a result, called slots. Each holds at most one partition of each input."""

    hosts: tuple[str | None, ...]
    """The host of each slot; None if Spark does not know it."""
    of_side: tuple[tuple[int, ...], ...]
    """The slot of each partition of each input."""
    by_host: bool
    """Whether slots on one host count as close; otherwise every slot counts as its own host."""

    @property
    def count(self) -> int:
        return len(self.hosts)

    @property
    def host_of(self) -> tuple[int, ...]:
        """A number for the host of each slot."""
        if not self.by_host:
            return tuple(range(self.count))
        known = {host: i for i, host in enumerate(dict.fromkeys(self.hosts))}
        return tuple(known[host] for host in self.hosts)

    def dealt(self, count: int) -> list[list[list[int]]]:
        """For each input, its partitions in about `count` groups, each on one host.

        >>> ResultPartitions(("a", "a", "b"), ((2, 0), (0, 1, 2)), by_host=True).dealt(2)
        [[[1], [0]], [[0, 1], [2]]]
        """
        on: dict[str | None, list[int]] = {}
        for slot, host in enumerate(self.hosts):
            on.setdefault(host, []).append(slot)
        each = max(1, count // len(on))
        groups = [own[i::each] for own in on.values() for i in range(min(each, len(own)))]
        of_slot = {slot: i for i, own in enumerate(groups) for slot in own}
        dealt: list[list[list[int]]] = [[[] for _ in groups] for _ in self.of_side]
        for side, own in zip(dealt, self.of_side):
            for partition, slot in enumerate(own):
                side[of_slot[slot]].append(partition)
        return dealt

    def __str__(self) -> str:
        if not self.by_host:
            return f"{self.count}, each by itself"
        names = list(dict.fromkeys(map(str, self.hosts)))
        shown = ", ".join(names[:8]) + (", …" if len(names) > 8 else "")
        return f"{self.count} on {len(names)} hosts: {shown}"


def result_partitions(frames: Sequence[DataFrame], by: str = "auto") -> ResultPartitions:
    """Assign slots to the inputs of an exchange: as many as the largest has partitions, or a few more.

    Partitions of two inputs share a slot if they are on one host, or could be. They are paired in order,
    because inputs written together often have the same order.
    """
    if by not in BY:
        raise UserError("exchange", expected=f"by= one of {', '.join(BY)}", got=repr(by))
    where = [private.partition_hosts(df) for df in frames]
    hosts: list[str | None] = []
    of_side: list[tuple[int, ...]] = [()] * len(frames)
    for side in sorted(range(len(frames)), key=lambda i: -len(where[i])):
        of_side[side] = _seated(where[side], hosts)
    complete = None not in hosts
    if by == "host" and not complete:
        raise UserError(
            "exchange", expected="inputs whose partitions are on hosts that Spark knows, for by='host'",
            got="some that could be read anywhere", hint="cache the inputs first, or use by='partition'",
        )  # fmt: skip
    near = by == "host" or (by == "auto" and complete and len(set(hosts)) > 1)
    return ResultPartitions(tuple(hosts), tuple(of_side), near)


def _seated(where: Sequence[str | None], hosts: list[str | None]) -> tuple[int, ...]:
    """Choose a slot for each partition, on its host; new slots are appended to `hosts`."""
    free: dict[str | None, list[int]] = {}
    for slot, host in enumerate(hosts):
        free.setdefault(host, []).append(slot)
    found = [-1] * len(where)
    # Partitions with a known host choose first; the others take the remaining slots.
    for i in sorted(range(len(where)), key=lambda i: where[i] is None):
        host = where[i]
        fits = free.get(host) or free.get(None) or []
        if host is None:
            fits = min((f for f in free.values() if f), default=[])
        if fits:
            found[i] = fits.pop(0)
            hosts[found[i]] = hosts[found[i]] or host
        else:
            found[i] = len(hosts)
            hosts.append(host)
    return tuple(found)
