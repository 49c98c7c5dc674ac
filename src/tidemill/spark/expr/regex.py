r"""Translate RE2 patterns to Java patterns that match the same strings.

Spark matches with `java.util.regex`, whose syntax differs: `$` also matches before a last newline,
`\s` includes the vertical tab, `[a[b]]` is a union, `\b` uses Unicode. So a pattern is parsed as RE2
does and written again. Only whether there is a match counts here, so groups do not capture and
laziness is kept.

Its algorithm differs, too: it backtracks, in exponential time on nested repetition, and recurses for
each round of a repeated group, until the stack overflows. So Java only gets patterns that it matches in
time linear in the text (`why_not_java`), and of these only those that it reads as RE2 does at every
code point. All other patterns run in RE2 itself, in Arrow batches.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

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
# Inside a class: RE2's white space does not include the vertical tab, but Java's \s does.
_SETS = {
    "d": r"\d", "D": r"\D", "w": r"\w", "W": r"\W", "s": r"\t\n\f\r\x20", "S": r"\S\x0B",
}  # fmt: skip
_CONTROLS = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}

_FOLDED = {"k": r"[kK\x{212A}]", "s": r"[sS\x{17F}]"}
"""ASCII letters that equal a non-ASCII character if case is ignored."""

_REPEAT = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??")
_GROUP = re.compile(r"\(\?(?:P?<[^>]*>|([imsU]*)(?:-([imsU]+))?([:)]))")
_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|\Z)", re.DOTALL)
_NUMBER = re.compile(r"\\(?:x\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})|([0-7]{1,3}))")
_PROPERTY = re.compile(r"\\([pP])(?:\{(\^?)(\w+)\}|(\w))")
_NAMED = re.compile(r"\[:(\^?)(\w+):\]")


WAYS = 256
"""The most ways in which a pattern for Java may match at one place."""
PIECES = 300
"""The most pieces of a pattern for Java, which recurses for each piece."""


def to_java(pattern: str) -> str:
    r"""Translate a pattern to Java with the same matches as in RE2, if `why_not_java` returns None.

    >>> to_java(r"^a.$")
    '\\Aa[^\\n]\\z'
    """
    return _Reader(check_pattern(pattern)).read()


def why_not_java(pattern: str) -> str | None:
    r"""The reason why a pattern must not run in Java; None if it may.

    >>> why_not_java(r"^\d{3}-\d+$"), why_not_java("error|fail(ed)?")
    (None, None)
    >>> why_not_java("(a|b)*c")
    'it repeats a group'
    >>> why_not_java(r"\pL")
    'it asks for properties of characters'
    """
    reader = _Reader(check_pattern(pattern))
    reader.read()
    return reader.objection()


@dataclass
class _Group:
    """An open group: the flags outside of it, and its number of alternatives."""

    flags: frozenset[str]
    alternatives: int = 1


class _Reader:
    """One pass over a pattern that RE2 accepts; flags apply to the end of their group."""

    def __init__(self, pattern: str) -> None:
        self.text, self.at = pattern, 0
        self.flags: frozenset[str] = frozenset()
        self.outer: list[_Group] = []
        # Statistics that bound the work for Java.
        self.why: str | None = None
        self.pieces, self.ways, self.choices, self.unbounded = 0, 1, 0, 0
        self.last, self.ends_unbounded = "", False

    def objection(self) -> str | None:
        """The reason why the pattern must not run in Java, if any."""
        if self.why is not None:
            return self.why
        if self.pieces > PIECES:
            return f"it has more than {PIECES} pieces"
        if self.ways > WAYS:
            return f"it can match in more than {WAYS} ways at one place"
        # A search starts at every position; if each one may run to the end, the time is quadratic.
        anchored = self.anchored and not self.choices
        if self.unbounded > 1 or (self.unbounded == 1 and not anchored and not self.ends_unbounded):
            return "it repeats without a limit before its end"
        return None

    @property
    def anchored(self) -> bool:
        """Whether it matches only at the start of a text, unless it has alternatives."""
        return self.text.startswith(("^", r"\A"))

    def object(self, why: str) -> None:
        self.why = self.why or why

    def take(self, form: re.Pattern[str]) -> re.Match[str] | None:
        found = form.match(self.text, self.at)
        if found:
            self.at = found.end()
        return found

    def read(self) -> str:
        out = []
        while self.at < len(self.text):
            out.append(self.piece())
            self.pieces += 1
        return "".join(out)

    def piece(self) -> str:
        before, self.last = self.last, "atom"
        if repeat := self.take(_REPEAT):
            self.note_repeat(repeat.group(), before)
            return repeat.group()
        if quoted := self.take(_QUOTED):
            self.pieces += len(quoted.group(1))
            return "".join(self.char(ord(c)) for c in quoted.group(1))
        char = self.text[self.at]
        if char == "(":
            return self.group()
        if char == "[":
            return self.bracket()
        if char == "\\":
            return self.escape()
        self.at += 1
        if char == ")":
            self.last = "group"
            closed = self.outer.pop()
            self.flags = closed.flags
            self.ways *= closed.alternatives
            return ")"
        if char == ".":
            return "[\\x{0}-\\x{10FFFF}]" if "s" in self.flags else "[^\\n]"
        if char in "^$|":
            self.last = char
        if char == "^":
            return r"(?:\A|(?<=\n))" if "m" in self.flags else r"\A"
        if char == "$":
            return r"(?:\z|(?=\n))" if "m" in self.flags else r"\z"
        if char == "|":
            self.choices += 1
            if self.outer:
                self.outer[-1].alternatives += 1
            return "|"
        return self.char(ord(char))

    def note_repeat(self, how: str, before: str) -> None:
        """Record the work that a repetition causes in Java; `before` is what is repeated."""
        self.last = "repeat"
        low, high = _times(how)
        if before == "group" and (low, high) != (0, 1):
            self.object("it repeats a group")
        elif before not in ("atom", "group"):
            self.object("it repeats what is no character")
        if high is None:
            self.unbounded += 1
            if "m" in self.flags or self.outer:
                self.object("it repeats without a limit in a group")
            self.ends_unbounded = self.at == len(self.text) and not self.choices
        else:
            self.ways *= high - low + 1

    def char(self, code: int) -> str:
        """A character, or its case variants if case is ignored."""
        if "i" not in self.flags:
            return _plain(code)
        if code > 127:
            self.object("it ignores the case of characters beyond ASCII")
        # RE2 folds case over all of Unicode: K is a Kelvin sign, s a long s.
        return _FOLDED.get(chr(code).lower()) or f"(?i:{_plain(code)})"

    def folded(self, atom: str) -> str:
        if "i" in self.flags:
            self.object("it ignores case in a class of characters")
        return f"(?iu:{atom})" if "i" in self.flags else atom

    def group(self) -> str:
        found = self.take(_GROUP)
        if found is None:
            self.at += 1
        on, off, close = found.groups() if found else (None, None, None)
        self.last = "flags"
        if close != ")":
            self.outer.append(_Group(self.flags))
        if "m" in (on or "") + (off or ""):
            self.object("it changes where lines end")
        self.flags = (self.flags | set(on or "")) - set(off or "")
        return "" if close == ")" else "(?:"

    def escape(self) -> str:
        name = self.text[self.at + 1]
        if name == "C":
            self.object("it asks for one byte of a character")
        if name in _ASSERTIONS:
            self.at, self.last = self.at + 2, "assertion"
            if name == "B":  # RE2 finds it between the bytes of a character
                self.object("it asks for what is no boundary of a word")
            return _ASSERTIONS[name]
        single = self.take(_NUMBER)
        if single:
            return self.char(_number(single))
        if name in "dDwWsSpP":
            return self.folded(f"[{self.member()}]")
        self.at += 2
        return self.char(_CONTROLS.get(name, ord(name)))

    def bracket(self) -> str:
        """A character class; characters that Java would read as operators are escaped."""
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
        """A character or set, as written inside a Java class."""
        if self.text[self.at] != "\\":
            self.at += 1
            return _plain(ord(self.text[self.at - 1]))
        if number := self.take(_NUMBER):
            return _plain(_number(number))
        if property_ := self.take(_PROPERTY):
            self.object("it asks for properties of characters")  # Unicode versions differ
            return _property(*property_.groups())
        name = self.text[self.at + 1]
        self.at += 2
        return _SETS.get(name) or _plain(_CONTROLS.get(name, ord(name)))


def _number(found: re.Match[str]) -> int:
    wide, narrow, octal = found.groups()
    return int(octal, 8) if octal else int(wide or narrow, 16)


def _times(repeat: str) -> tuple[int, int | None]:
    """The least and the most repetitions."""
    if repeat[0] in "*+?":
        return {"*": (0, None), "+": (1, None), "?": (0, 1)}[repeat[0]]
    low, comma, high = repeat.rstrip("?")[1:-1].partition(",")
    return int(low), int(high) if high else (None if comma else int(low))


def _plain(code: int) -> str:
    char = chr(code)
    return char if char.isalnum() and char.isascii() else f"\\x{{{code:X}}}"


def _property(letter: str, caret: str | None, long: str | None, short: str | None) -> str:
    name = long or short or ""
    letter = letter.swapcase() if caret else letter
    if name == "Any":
        return r"\x{0}-\x{10FFFF}" if letter == "p" else r"[^\x{0}-\x{10FFFF}]"
    category = len(name) <= 2 and name != "Yi"  # the only script with such a short name
    return f"\\{letter}{{{name if category else 'Is' + name}}}"
