r"""RE2 patterns as Java patterns that find the same strings.

Spark matches with `java.util.regex`, which reads the same text differently: `$` also matches
before a last newline, `\s` holds a vertical tab, `[a[b]]` is a union, `\b` asks Unicode. So a
pattern is read as RE2 reads it and written anew. Only whether there is a match counts here, so
groups capture nothing and laziness is kept as it comes.

And it works differently: it goes back and tries again, for ever on nested repetition, and calls
itself for each round of a repeated group, until its stack ends the JVM. So only patterns that it
answers in a time in proportion to the text are given to it (`why_not_java`), and of these only what
it reads as RE2 does at every code point. All others run by RE2 itself, in Arrow batches.
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
# In a class: what RE2 calls white space leaves out the vertical tab, which Java's \s holds.
_SETS = {
    "d": r"\d", "D": r"\D", "w": r"\w", "W": r"\W", "s": r"\t\n\f\r\x20", "S": r"\S\x0B",
}  # fmt: skip
_CONTROLS = {"a": 7, "f": 12, "t": 9, "n": 10, "r": 13, "v": 11}

_FOLDED = {"k": r"[kK\x{212A}]", "s": r"[sS\x{17F}]"}
"""Letters of ASCII that are the same as one beyond it, but for case."""

_REPEAT = re.compile(r"(?:[*+?]|\{[0-9]+(?:,[0-9]*)?\})\??")
_GROUP = re.compile(r"\(\?(?:P?<[^>]*>|([imsU]*)(?:-([imsU]+))?([:)]))")
_QUOTED = re.compile(r"\\Q(.*?)(?:\\E|\Z)", re.DOTALL)
_NUMBER = re.compile(r"\\(?:x\{([0-9A-Fa-f]+)\}|x([0-9A-Fa-f]{2})|([0-7]{1,3}))")
_PROPERTY = re.compile(r"\\([pP])(?:\{(\^?)(\w+)\}|(\w))")
_NAMED = re.compile(r"\[:(\^?)(\w+):\]")


WAYS = 256
"""In how many ways a pattern that Java gets may match at one place."""
PIECES = 300
"""How long it may be: Java calls itself for each piece."""


def to_java(pattern: str) -> str:
    r"""A Java pattern that is found in a string where RE2 finds this one, if `why_not_java` has no objection.

    >>> to_java(r"^a.$")
    '\\Aa[^\\n]\\z'
    """
    return _Reader(check_pattern(pattern)).read()


def why_not_java(pattern: str) -> str | None:
    r"""Why Java cannot be given a pattern, if so.

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
    """A group that is open: the flags outside of it, and how many alternatives it has."""

    flags: frozenset[str]
    alternatives: int = 1


class _Reader:
    """One pass over a pattern that RE2 accepts; flags hold to the end of their group."""

    def __init__(self, pattern: str) -> None:
        self.text, self.at = pattern, 0
        self.flags: frozenset[str] = frozenset()
        self.outer: list[_Group] = []
        # What is found out about the work it makes for Java.
        self.why: str | None = None
        self.pieces, self.ways, self.choices, self.unbounded = 0, 1, 0, 0
        self.last, self.ends_unbounded = "", False

    def objection(self) -> str | None:
        """Why Java should not be given what was read."""
        if self.why is not None:
            return self.why
        if self.pieces > PIECES:
            return f"it has more than {PIECES} pieces"
        if self.ways > WAYS:
            return f"it can match in more than {WAYS} ways at one place"
        # A search starts at every place of the text; if it then goes on to the end, that is a square.
        anchored = self.anchored and not self.choices
        if self.unbounded > 1 or (self.unbounded == 1 and not anchored and not self.ends_unbounded):
            return "it repeats without a limit before its end"
        return None

    @property
    def anchored(self) -> bool:
        """Whether it matches at the start of a text only, if there is no alternative to it."""
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
        """Take note of what a repetition makes Java do; `before` is what is repeated."""
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
        """One character, or those that are the same in another case."""
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
            return _plain(_number(number))
        if property_ := self.take(_PROPERTY):
            self.object("it asks for properties of characters")  # of which Unicodes differ
            return _property(*property_.groups())
        name = self.text[self.at + 1]
        self.at += 2
        return _SETS.get(name) or _plain(_CONTROLS.get(name, ord(name)))


def _number(found: re.Match[str]) -> int:
    wide, narrow, octal = found.groups()
    return int(octal, 8) if octal else int(wide or narrow, 16)


def _times(repeat: str) -> tuple[int, int | None]:
    """How often at least, and at most."""
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
    category = len(name) <= 2 and name != "Yi"  # the one script with a name as short
    return f"\\{letter}{{{name if category else 'Is' + name}}}"
