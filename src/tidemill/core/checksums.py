"""Checksums of files, computed while they are written, and of manifests that name them."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, BinaryIO

CHECKSUM = "sha256"
"""The field of a manifest with the checksum of all others."""


class Digesting:
    """A file that computes the checksum of what is written to it, from now on."""

    def __init__(self, file: BinaryIO) -> None:
        self._file, self.digest, self.size, self.closed = file, hashlib.sha256(), 0, False

    def write(self, data: Any) -> int:
        self.digest.update(data)
        self.size += len(data)
        return self._file.write(data)

    def tell(self) -> int:
        return self.size

    def flush(self) -> None:
        self._file.flush()

    def close(self) -> None:
        self.closed = True


def checksum(manifest: Mapping[str, Any]) -> str:
    """The checksum of all fields of a manifest, except the checksum itself.

    >>> checksum({"a": 1}) == checksum({"a": 1, CHECKSUM: "..."})
    True
    """
    rest = {name: value for name, value in manifest.items() if name != CHECKSUM}
    return hashlib.sha256(json.dumps(rest, sort_keys=True).encode()).hexdigest()
