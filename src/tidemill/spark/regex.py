r"""RE2 patterns as Java patterns that find the same strings.

Spark matches with `java.util.regex`, which reads the same text differently: `$` also matches
before a last newline, `\s` holds a vertical tab, `[a[b]]` is a union, `\b` asks Unicode. So a
pattern is read as RE2 reads it and written anew. Only whether there is a match counts here, so
groups capture nothing and laziness is kept as it comes.

One difference is left: RE2 finds `\B` between the bytes of a character beyond ASCII, Java does not.
"""

from __future__ import annotations

import re

from tidemill.core.errors import UnsupportedError
from tidemill.expr.functions import check_pattern

_POSIX = {
    "alnum": r"\p{Alnum}", "alpha": r"\p{Alpha}", "ascii": r"\p{ASCII}", "blank": r"\p{Blank}",
    "cntrl": r"\p{Cntrl}", "digit": r"\p{Digit}", "graph": r"\p{Graph}", "lower": r"\p{Lower}",
    "print": r"\p{Print}", "punct": r"\p{Punct}", "space": r"\s", "upper": r"\p{Upper}",
    "word": r"\w", "xdigit": r"\p{XDigit}",
}  # fmt: skip
_ASSERTIONS = {
    "A": r"\A", "z": r"\z",
    "b": r"(?:(?<=\w)(?!\w)|(?<!\w)(?=\w))", "B": r"(?:(?<=\w)(?=\w)|(?<!\w)(?!\w))",
}  # fmt: skip
# In a class: what RE2 calls white space leaves out the vertical tab, which Java's \s holds.
_SETS = {
    "d": r"\d", "D": r"\D", "w": r"\w", "W": r"\W", "s": r"\t\n\f\r\x20", "S": r"\S\x0B",
}  # fmt: skip
_CONTROLS = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}

_REPEAT = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??")
_GROUP = re.compile(r"\(\?(?:P?<[^>]*>|([imsU]*)(?:-([imsU]+))?([:)]))")
_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|\Z)", re.DOTALL)
_NUMBER = re.compile(r"\\(?:x\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})|([0-7]{1,3}))")
_PROPERTY = re.compile(r"\\([pP])(?:\{(\^?)(\w+)\}|(\w))")
_NAMED = re.compile(r"\[:(\^?)(\w+):\]")


def to_java(pattern: str) -> str:
    r"""A Java pattern that is found in a string where RE2 finds this one.

    >>> to_java(r"^a.$")
    '\\Aa[^\\n]\\z'
    """
    return _Reader(check_pattern(pattern)).read()


class _Reader:
    """One pass over a pattern that RE2 accepts; flags hold to the end of their group."""

    def __init__(self, pattern: str) -> None:
        self.text, self.at = pattern, 0
        self.flags: frozenset[str] = frozenset()
        self.outer: list[frozenset[str]] = []

    def take(self, form: re.Pattern[str]) -> re.Match[str] | None:
        found = form.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def read(self) -> str:
        out = []
        while self.at < len(self.text):
            out.append(self.piece())
        return "".join(out)

    def piece(self) -> str:
        if repeat := self.take(_REPEAT):
            return repeat.group()
        if quoted := self.take(_QUOTED):
            return "".join(self.folded(_plain(ord(c))) for c in quoted.group(1))
        char = self.text[self.at]
        if char == "(":
            return self.group()
        if char == "[":
            return self.bracket()
        if char == "\\":
            return self.escape()
        self.at += 1
        if char == ")":
            self.flags = self.outer.pop()
            return ")"
        if char == ".":
            return "[\\x{0}-\\x{10FFFF}]" if "s" in self.flags else "[^\\n]"
        if char == "^":
            return r"(?:\A|(?<=\n))" if "m" in self.flags else r"\A"
        if char == "$":
            return r"(?:\z|(?=\n))" if "m" in self.flags else r"\z"
        return "|" if char == "|" else self.folded(_plain(ord(char)))

    def folded(self, atom: str) -> str:
        # RE2 folds case over all of Unicode, which Java does only with `u`.
        return f"(?iu:{atom})" if "i" in self.flags else atom

    def group(self) -> str:
        found = self.take(_GROUP)
        if found is None:
            self.at += 1
        on, off, close = found.groups() if found else (None, None, None)
        if close != ")":
            self.outer.append(self.flags)
        self.flags = (self.flags | set(on or "")) - set(off or "")
        return "" if close == ")" else "(?:"

    def escape(self) -> str:
        name = self.text[self.at + 1]
        if name == "C":
            raise UnsupportedError(
                "spark", r"\C (one byte) in a regular expression", instead="use . or [\\s\\S]"
            )
        if name in _ASSERTIONS:
            self.at += 2
            return _ASSERTIONS[name]
        return self.folded(f"[{self.member()}]")

    def bracket(self) -> str:
        """A character class; what Java would take for an operator in it is escaped."""
        self.at += 1
        out = ["["]
        if self.text[self.at] == "^":
            out.append("^")
            self.at += 1
        first = True
        while first or self.text[self.at] != "]":
            first = False
            if named := self.take(_NAMED):
                inside = _POSIX[named.group(2)]
                out.append(inside.swapcase()[:2] + inside[2:] if named.group(1) else inside)
                continue
            start = self.at
            out.append(self.member())
            single = not (self.text[start] == "\\" and self.text[start + 1] in "dDwWsSpP")
            if single and self.text[self.at] == "-" and self.text[self.at + 1] != "]":
                self.at += 1
                out.append("-" + self.member())
        self.at += 1
        return self.folded("".join(out) + "]")

    def member(self) -> str:
        """One character or set, as it stands inside a Java class."""
        if self.text[self.at] != "\\":
            self.at += 1
            return _plain(ord(self.text[self.at - 1]))
        if number := self.take(_NUMBER):
            wide, narrow, octal = number.groups()
            return _plain(int(octal, 8) if octal else int(wide or narrow, 16))
        if property_ := self.take(_PROPERTY):
            return _property(*property_.groups())
        name = self.text[self.at + 1]
        self.at += 2
        return _SETS.get(name) or _plain(_CONTROLS.get(name, ord(name)))


def _plain(code: int) -> str:
    char = chr(code)
    return char if char.isalnum() and char.isascii() else f"\\x{{{code:X}}}"


def _property(letter: str, caret: str | None, long: str | None, short: str | None) -> str:
    name = long or short or ""
    letter = letter.swapcase() if caret else letter
    if name == "Any":
        return r"\x{0}-\x{10FFFF}" if letter == "p" else r"[^\x{0}-\x{10FFFF}]"
    category = len(name) <= 2 and name != "Yi"  # the one script with a name as short
    return f"\\{letter}{{{name if category else 'Is' + name}}}"
