"""The balanced schedule: which joiners share the rows of which keys (paper 004, V-B).

Keys are in partitions. The joiners of a partition are its *virtual team*: each of them takes a part of its
base rows, and reads the index that all of them share.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

Loads = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Schedule:
    """The virtual team of each partition.

    >>> schedule = Schedule.by_key(4, joiners=2)
    >>> schedule.teams
    ((0,), (1,), (0,), (1,))
    >>> schedule.workloads(np.array([8.0, 1, 1, 1]))
    array([9., 2.])
    """

    teams: tuple[tuple[int, ...], ...]
    joiners: int

    @staticmethod
    def by_key(partitions: int, joiners: int) -> Schedule:
        """Return the schedule of a static partition: each partition has one joiner."""
        return Schedule(tuple((p % joiners,) for p in range(partitions)), joiners)

    def workloads(self, loads: Loads) -> Loads:
        """Return the workload of each joiner, given the number of rows by partition (equation 3)."""
        found = np.zeros(self.joiners)
        for team, load in zip(self.teams, loads):
            found[list(team)] += load / len(team)
        return found

    def unbalancedness(self, loads: Loads) -> float:
        """Return the standard deviation of workloads, as a share of their mean (equation 2).

        The equation is printed without its square and root, and would be 0 for every schedule.
        """
        return _spread(self.workloads(loads))

    def shared(self, partition: int, joiner: int) -> Schedule:
        """Return the schedule in which another joiner is in the team of a partition."""
        team = (*self.teams[partition], joiner)
        return Schedule((*self.teams[:partition], team, *self.teams[partition + 1 :]), self.joiners)


def balanced(schedule: Schedule, loads: Loads, *, threshold: float = 0.01) -> Schedule:
    """Return a schedule with less unbalancedness (algorithm 3).

    Partitions of the joiner with most work are shared with the one with least, those with most rows first,
    as long as one of them makes a difference above the threshold. Nothing moves: who had a partition keeps
    it, so rows on their way to a joiner are right whenever they come.

    >>> one = Schedule.by_key(4, joiners=2)
    >>> better = balanced(one, np.array([8.0, 1, 1, 1]))
    >>> better.teams, better.workloads(np.array([8.0, 1, 1, 1]))
    (((0, 1), (1, 0), (0,), (1,)), array([5.5, 5.5]))
    """
    while True:
        better = _shared_once(schedule, loads, threshold)
        if better is None:
            return schedule
        schedule = better


def _shared_once(schedule: Schedule, loads: Loads, threshold: float) -> Schedule | None:
    workloads = schedule.workloads(loads)
    before = _spread(workloads)
    most, least = int(workloads.argmax()), int(workloads.argmin())
    own = [p for p, team in enumerate(schedule.teams) if most in team and least not in team and loads[p]]
    for partition in sorted(own, key=lambda p: -loads[p] / len(schedule.teams[p])):
        team, load = list(schedule.teams[partition]), loads[partition]
        after = workloads.copy()
        after[team] -= load / len(team)
        after[[*team, least]] += load / (len(team) + 1)
        if before - _spread(after) > threshold:
            return schedule.shared(partition, least)
    return None


def _spread(workloads: Loads) -> float:
    mean = workloads.mean()
    return float(workloads.std() / mean) if mean else 0.0


class Statistics:
    """The rows of each partition, of which older ones count less and less."""

    def __init__(self, partitions: int, *, kept: float = 0.5) -> None:
        """`kept` is the share of what was counted that is left after `decay`."""
        self.loads: Loads = np.zeros(partitions)
        self._kept = kept

    def add(self, rows: Ints) -> None:
        """Count rows, given how many came of each partition."""
        self.loads += rows

    def decay(self) -> None:
        """Let what was counted until now count less."""
        self.loads *= self._kept
