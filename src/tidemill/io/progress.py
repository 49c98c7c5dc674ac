"""Progress bars, for the chunks of a source and for other long work."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from tidemill.io.sources import Chunk


def shown(chunks: Iterable[Chunk], name: str, total: int | None) -> Iterator[Chunk]:
    """Yield the same chunks, and show a progress bar of their rows on the terminal."""
    with _bar() as bar:
        task = bar.add_task(f"{name} rows", total=total)
        for chunk in chunks:
            yield chunk
            bar.advance(task, chunk.batch.num_rows)


@contextmanager
def counted(name: str) -> Iterator[Callable[[int, int], None]]:
    """Show a progress bar on the terminal while the body runs: it calls the function with done and total."""
    with _bar() as bar:
        task = bar.add_task(name, total=None)
        yield lambda done, total: bar.update(task, completed=done, total=total)


def _bar() -> Any:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    return Progress(*columns)
