"""A progress bar over the chunks of a source."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from tidemill.io.sources import Chunk


def shown(chunks: Iterable[Chunk], name: str, total: int | None) -> Iterator[Chunk]:
    """The same chunks, with a bar on the terminal that counts their rows."""
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    bar = Progress(
        TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn()
    )
    with bar:
        task = bar.add_task(f"{name} rows", total=total)
        for chunk in chunks:
            yield chunk
            bar.advance(task, chunk.batch.num_rows)
