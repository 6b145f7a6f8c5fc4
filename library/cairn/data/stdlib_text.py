"""Text that every Python installation holds: its library, its language reference, its character names, arithmetic.

Each piece belongs to a group (a module, a topic); a group falls into one split as a whole, so that a held-out
docstring never stands in a training module. Read in sorted order and without importing anything, so that one Python
version gives the same bytes everywhere; tests, installed packages and generated configuration are left out.
"""

from __future__ import annotations

import ast
import copy
import inspect
import os
import random
import re
import unicodedata
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path

STAND_INS = {
    "Github": "source of the standard library's modules",
    "Wikipedia (en)": "topics of the language reference (pydoc_data)",
    "StackExchange": "a function's signature, then its docstring as the answer",
    "PubMed Abstracts": "the docstring that opens a module and sums it up",
    "HackerNews": "the block comments of a module",
    "EuroParl": "characters of many scripts with their names",
    "DM Mathematics": "generated questions of arithmetic with answers",
}
"""Tag of the Pile → the text that stands in for it."""

EXCLUDED_FOLDERS = {"site-packages", "dist-packages", "__pycache__", "test", "tests", "idle_test", "lib-dynload"}
EXCLUDED_FILES = re.compile(r"^_sysconfigdata|^_sysconfig_vars|^topics\.py$|^sitecustomize\.py$")
COMMENT = re.compile(r"(?:^[ \t]*#(?!!).*\n?)+", re.MULTILINE)
SHORTEST_PROSE, LONGEST_ANSWER = 40, 1500
CHARACTERS_PER_TABLE = 80
QUESTIONS_PER_PAGE = 120
PAGES = 2200
NAMED_RANGES = ("CJK UNIFIED", "CJK COMPAT", "HANGUL SYLLABLE", "TANGUT", "NUSHU", "KHITAN", "EGYPTIAN", "ANATOLIAN")
"""Characters whose names are only numbers, or whose scripts no tokenizer was made for."""


@dataclass(frozen=True)
class Piece:
    """One document of a tag."""

    tag: str
    text: str


@dataclass(frozen=True)
class Example:
    """An instruction example: a signature in its class and module, and its docstring."""

    signature: str
    docstring: str


@dataclass(frozen=True)
class Group:
    """What must stay in one split."""

    pieces: tuple[Piece, ...]
    examples: tuple[Example, ...] = ()


@dataclass(frozen=True)
class Origin:
    """A group not read yet. `kind` is where it is found, for an even split of every kind."""

    kind: str
    name: str
    read: Callable[[], Group]


def origins() -> Iterator[Origin]:
    """Everything there is, in a fixed order."""
    yield from (Origin("module", name, partial(module_group, name, path)) for name, path in library_files())
    yield from topic_origins()
    yield from character_origins()
    yield from (Origin("arithmetic", f"{page:06d}", partial(arithmetic_group, page)) for page in range(PAGES))


def library_files() -> list[tuple[str, Path]]:
    """(name relative to the library, path) of every module's file, sorted by name."""
    root = Path(os.__file__).parent
    found = []
    for folder, folders, files in os.walk(root):
        folders[:] = [name for name in folders if name not in EXCLUDED_FOLDERS and not name.startswith("config-")]
        for name in files:
            if name.endswith(".py") and not EXCLUDED_FILES.match(name):
                path = Path(folder) / name
                found.append((path.relative_to(root).as_posix(), path))
    return sorted(found)


def module_group(name: str, path: Path) -> Group:
    """All pieces and examples of one module; none where it is no readable Python in UTF-8."""
    try:
        source = path.read_bytes().decode("utf-8")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(source)
    except (UnicodeDecodeError, SyntaxError, ValueError):
        return Group(())
    module = name.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    examples = tuple(_examples(tree, module))
    pieces = [Piece("Github", source)] if source.strip() else []
    opening = ast.get_docstring(tree) or ""
    if len(opening) >= SHORTEST_PROSE:
        pieces.append(Piece("PubMed Abstracts", f"{module}\n\n{opening}\n"))
    remarks = "\n\n".join(_comments(source))
    if len(remarks) >= SHORTEST_PROSE:
        pieces.append(Piece("HackerNews", f"{module}\n\n{remarks}\n"))
    pieces.extend(Piece("StackExchange", f"{example.signature}\n\n{example.docstring}\n") for example in examples)
    return Group(tuple(pieces), examples)


def _examples(tree: ast.Module, module: str) -> Iterator[Example]:
    for function, owner in _functions(tree, ""):
        docstring = inspect.cleandoc(ast.get_docstring(function, clean=False) or "").strip()
        if SHORTEST_PROSE <= len(docstring) <= LONGEST_ANSWER:
            head = ast.unparse(_without_body(function)).removesuffix("\n    ...").strip()
            place = f"# {module}\n" + (f"class {owner}:\n    " if owner else "")
            yield Example(place + head, docstring)


def _functions(node: ast.AST, owner: str) -> Iterator[tuple[ast.FunctionDef | ast.AsyncFunctionDef, str]]:
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            yield child, owner
        elif isinstance(child, ast.ClassDef):
            yield from _functions(child, child.name)
        elif isinstance(child, ast.If | ast.Try):
            yield from _functions(child, owner)


def _without_body(function: ast.FunctionDef | ast.AsyncFunctionDef) -> ast.AST:
    head = copy.copy(function)
    head.body, head.decorator_list = [ast.Expr(ast.Constant(...))], []
    return head


def _comments(source: str) -> Iterator[str]:
    """Block comments of two lines and more, without their marks."""
    for match in COMMENT.finditer(source):
        lines = [line.strip().lstrip("#").removeprefix(" ").rstrip() for line in match.group().splitlines()]
        if len(lines) > 1:
            yield "\n".join(lines).strip()


def topic_origins() -> Iterator[Origin]:
    """The language reference, topic by topic."""
    from pydoc_data.topics import topics

    for name in sorted(topics):
        yield Origin("topic", name, partial(Group, (Piece("Wikipedia (en)", topics[name]),)))


def character_origins() -> Iterator[Origin]:
    """Tables of named characters in the order of Unicode."""
    lines: list[str] = []
    for code in range(0x20, 0x20000):
        character = chr(code)
        name = unicodedata.name(character, "")
        if name and not name.startswith(NAMED_RANGES):
            lines.append(f"{character} is {name.lower()} (U+{code:04X}, {unicodedata.category(character)})")
        if len(lines) == CHARACTERS_PER_TABLE:
            yield Origin("characters", f"{code:06x}", partial(Group, (Piece("EuroParl", "\n".join(lines) + "\n"),)))
            lines = []


def arithmetic_group(page: int) -> Group:
    """A page of questions and answers from a seed of its own."""
    chance = random.Random(page)
    return Group((Piece("DM Mathematics", "".join(_question(chance) for _ in range(QUESTIONS_PER_PAGE))),))


def _question(chance: random.Random) -> str:
    a, b, c = (chance.randrange(-(10**size), 10**size) for size in (chance.randrange(1, 5) for _ in range(3)))
    b = b or 1
    forms = (
        (f"What is {a} + {b}?", a + b),
        (f"What is {a} - ({b})?", a - b),
        (f"Calculate {a} * {b}.", a * b),
        (f"Solve {b}*x = {b * c} for x.", c),
        (f"What is the remainder when {abs(a)} is divided by {abs(b)}?", abs(a) % abs(b)),
        (f"Evaluate {a} + {b} * ({c}).", a + b * c),
        (f"Is {a} greater than {b}?", a > b),
    )
    asked, answer = forms[chance.randrange(len(forms))]
    return f"{asked}\n{answer}\n"
