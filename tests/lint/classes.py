#!/usr/bin/env python3
"""classes.py FOLDER: no class below FOLDER has more than 30 member functions or 20 fields.

Fields of a struct that hides nothing are not limited: those are plain values, options for instance. A function that is
defaulted or deleted is not counted, nor is what is static and not a function. Prints each class that is over a limit.
"""
import re
import sys
from dataclasses import dataclass
from pathlib import Path

MOST_FUNCTIONS, MOST_FIELDS = 30, 20

# Comments, raw strings, strings, characters and preprocessor lines: none of them declares a member.
SILENT = re.compile(
    r'//[^\n]*|/\*.*?\*/|R"([^(\s]*)\(.*?\)\1"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\'|'
    r'^[ \t]*#(?:[^\n\\]|\\.|\\\n)*', re.S | re.M)
TOKEN = re.compile(r"[A-Za-z_]\w*|\d[\w.']*|::|->|[^\s\w]")
WORD = re.compile(r"[A-Za-z_]")
CLOSING = {"(": ")", "[": "]", "{": "}", "<": ">"}
# Words that may stand before a declaration without changing what it declares.
DECORATION = {"inline", "constexpr", "mutable", "virtual", "volatile", "explicit", "typename"}


@dataclass
class Class:
    name: str
    is_struct: bool
    functions: int = 0
    fields: int = 0
    hides: bool = False  # has a private or protected part

    def excess(self):
        found = []
        if self.functions > MOST_FUNCTIONS:
            found.append(f"{self.functions} member functions, at most {MOST_FUNCTIONS}")
        if self.fields > MOST_FIELDS and (self.hides or not self.is_struct):
            found.append(f"{self.fields} fields, at most {MOST_FIELDS}")
        return found


class Reader:
    """Goes through the declarations of one file. Bodies of functions and initialisers are passed over."""

    def __init__(self, text):
        self.tokens = TOKEN.findall(SILENT.sub(lambda m: " 0 " if m[0][0] in "\"'R" else " ", text))
        self.at = 0
        self.classes = []

    def read(self):
        while self.at < len(self.tokens):
            self.scope(None, "")
        return self.classes

    def peek(self, ahead=0):
        return self.tokens[self.at + ahead] if self.at + ahead < len(self.tokens) else ""

    def group_end(self, start):
        """Just past the bracket that closes the one at `start`; None when a declaration ends before it."""
        opening, closing, depth, i = self.tokens[start], CLOSING[self.tokens[start]], 0, start
        while i < len(self.tokens):
            token = self.tokens[i]
            if token == opening:
                depth += 1
            elif token == closing:
                depth -= 1
                if depth == 0:
                    return i + 1
            elif opening == "<" and token in "({[":
                i = self.group_end(i) or len(self.tokens)
                continue
            elif opening == "<" and token in ";)}]":
                return None
            i += 1
        return None if opening == "<" else len(self.tokens)

    def skip_group(self):
        self.at = self.group_end(self.at) or self.at + 1

    def scope(self, owner, prefix):
        """Declarations up to the brace that closes the scope; `owner` is the class whose body it is, if any."""
        said = []  # the declaration so far, a token for each group in brackets
        while self.at < len(self.tokens):
            token = self.peek()
            if token == "}":
                self.at += 1
                return
            if token == ";":
                self.at += 1
                self.declare(owner, said)
                said = []
            elif owner and token in ("public", "private", "protected") and self.peek(1) == ":":
                owner.hides |= token != "public"
                self.at += 2
                said = []
            elif token == "[" and self.peek(1) == "[":  # an attribute
                self.skip_group()
            elif token == "[":
                self.skip_group()
                said.append("[]")
            elif token == "(":
                self.parentheses(said)
            elif token == "<" and self.opens_arguments(said):
                self.skip_group()
            elif token == "{":
                said = self.braces(owner, prefix, said)
            else:
                if token not in DECORATION:
                    said.append(token)
                self.at += 1

    def opens_arguments(self, said):
        before = said[-1] if said else ""
        return WORD.match(before) and before != "operator" and self.group_end(self.at) is not None

    def parentheses(self, said):
        before, pointer = said[-1] if said else "", self.peek(1) == "*"
        before_it = self.tokens[self.at - 1] if self.at else ""
        self.skip_group()
        if before in ("alignas", "noexcept", "requires"):
            said.pop()
        elif before != "decltype" and before_it != "explicit":
            said.append("(*)" if pointer else "()")

    def braces(self, owner, prefix, said):
        """At an opening brace: returns what the declaration has said after it, nothing when it has ended."""
        while said and said[0] == "template":
            said = said[1:]
        first = next((word for word in said if word not in ("static", "const", "typedef")), "")
        if first in ("namespace", "extern"):
            self.at += 1
            self.scope(None, prefix)
            return []
        if first in ("class", "struct", "union") and not {"()", "="} & set(said):
            name = said[said.index(first) + 1:]
            name = "".join(name[:name.index(":")] if ":" in name else name).removesuffix("final")
            inner = Class(prefix + (name or "(unnamed)"), first != "class")
            self.classes.append(inner)
            self.at += 1
            self.scope(inner, inner.name + "::")
            return [said[0], "{type}"] if said[0] == "static" else ["{type}"]
        before = self.tokens[self.at - 1]
        if first != "enum" and self.is_function(said):
            tail = said[said.index("()"):] if "()" in said else []
            if ":" in tail and (WORD.match(before) or before == ">"):  # a member's initialiser, the body is to come
                self.skip_group()
                return said
            self.skip_group()
            self.declare(owner, said)
            return []
        self.skip_group()
        return said + ["{type}" if first == "enum" else "{}"]

    @staticmethod
    def is_function(said):
        if "operator" in said:
            return "=" not in said[:said.index("operator")]
        return next((word for word in said if word in ("()", "(*)", "=", "{}")), "") == "()"

    def declare(self, owner, said):
        while said and said[0] == "template":
            said = said[1:]
        if owner is None or not said or said[0] in ("using", "friend", "typedef", "static_assert", "concept"):
            return
        if "{type}" in said:
            said = said[said.index("{type}"):] if "static" not in said else []
            owner.fields += len(said) > 1 and 1 + said.count(",")
        elif said[0] in ("class", "struct", "union", "enum"):
            return  # known by name only
        elif self.is_function(said):
            owner.functions += said[-2:] not in (["=", "default"], ["=", "delete"])
        elif "static" not in said:
            owner.fields += 1 + said.count(",")


def classes_in(text):
    return Reader(text).read()


def main(folder):
    files = sorted(f for ending in ("h", "cpp", "cu") for f in Path(folder).rglob(f"*.{ending}"))
    if not files:
        sys.exit(f"classes.py: {folder}: no sources there")
    found = [(file, c) for file in files for c in classes_in(file.read_text()) if c.excess()]
    for file, c in found:
        print(f"{file}: {c.name} has {', and '.join(c.excess())}: look for the second idea in it")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
