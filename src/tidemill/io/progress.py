"""A progress bar for the chunks of a source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemill.io.sources import Chunk


def shown(chunks: Iterable[Chunk], name: str, total: int | None) -> Iterator[Chunk]:
    """Yield the same chunks, and show a progress bar of their rows on the terminal."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    )
    with bar:
        task = bar.add_task(f"{name} rows", total=total)
        for chunk in chunks:
            yield chunk
            bar.advance(task, chunk.batch.num_rows)
