"""The rules of the tree: imports go down, Ray and DeepSpeed stay in their places, nothing grows too large, all is said.

Read from the source by `ast`, so a rule holds for code that no test runs, and for imports inside functions too.
"""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).resolve().parents[1]
PACKAGE = ROOT / "library" / "cairn"
SOURCES = sorted(PACKAGE.rglob("*.py"))
THIN = sorted([*(ROOT / "jobs").glob("*.py"), *(ROOT / "services").glob("*.py")])

MAX_FILE_LINES = 300
MAX_FUNCTION_LINES = 60
MAX_THIN_LINES = 80
FORBIDDEN_NAMES = ("utils", "helpers", "manager", "misc")

# Left may not import right. Names within one set may not import each other, but for the pairs of SIDEWAYS.
LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "records", "metrics", "plugins", "config"}),
    frozenset({"losses", "schedules", "optimizers", "models", "adapters", "data"}),
    frozenset({"store", "generation", "evaluation", "stages", "training", "comparison", "exports"}),
    frozenset({"cluster", "serving", "search"}),
    frozenset({"cli"}),
)
ORDER_WITHIN = (
    ("errors", "records", "metrics", "plugins", "config"),
    ("models", "adapters"),
    ("store", "generation", "evaluation", "stages", "training", "comparison"),
    ("store", "generation", "evaluation", "exports"),
)
# L0 is one small knot: a plugin has a Config, a recipe names plugins.
MUTUAL = ({"plugins", "config"},)
# Where a recipe's data and its model meet: the pipeline loads the tokenizer that it encodes with.
MEETING_PLACE = ("data/pipeline.py", "models")
RAY_PLACES = (
    "cluster/",
    "serving/",
    "search/",
    "training/trainer.py",
    "training/ray_session.py",
    "data/pipeline.py",
    "data/sources/",
)
DEEPSPEED_PLACES = ("training/engine.py",)


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


def imported(tree: ast.AST) -> Iterator[str]:
    """Every module named by an import, at any depth; imports for type checking included."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            yield node.module or ""
            if node.module == "cairn":
                yield from (f"cairn.{alias.name}" for alias in node.names)


def folder_of(path: Path) -> str:
    first = path.relative_to(PACKAGE).parts[0]
    return first.removesuffix(".py")


def layer_of(folder: str) -> int:
    return next(index for index, layer in enumerate(LAYERS) if folder in layer)


def may_import(importer: str, target: str) -> bool:
    if importer == target or {importer, target} in MUTUAL:
        return True
    if layer_of(importer) != layer_of(target):
        return layer_of(importer) > layer_of(target)
    chains = [chain for chain in ORDER_WITHIN if importer in chain and target in chain]
    return bool(chains) and all(chain.index(target) < chain.index(importer) for chain in chains)


@pytest.mark.parametrize(
    ("importer", "target", "allowed"),
    [
        ("data", "models", False),
        ("adapters", "models", True),
        ("models", "adapters", False),
        ("evaluation", "generation", True),
        ("generation", "evaluation", False),
        ("exports", "training", False),
        ("cluster", "cli", False),
        ("cli", "cluster", True),
        ("errors", "config", False),
    ],
)
def test_the_rule_itself(importer: str, target: str, allowed: bool) -> None:
    assert may_import(importer, target) is allowed


def test_imports_go_down() -> None:
    wrong = [
        f"{relative(path)} imports {name}"
        for path in SOURCES
        if path.parent != PACKAGE or path.stem not in ("__init__", "__main__")
        for name in imported(ast.parse(path.read_text()))
        if name.startswith("cairn.") and not may_import(folder_of(path), name.split(".")[1])
        if (relative(path), name.split(".")[1]) != MEETING_PLACE
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("library", "places"), [("ray", RAY_PLACES), ("deepspeed", DEEPSPEED_PLACES)])
def test_a_heavy_library_stays_in_its_place(library: str, places: tuple[str, ...]) -> None:
    wrong = [
        relative(path)
        for path in SOURCES
        if not relative(path).startswith(places)
        and any(name.split(".")[0] == library for name in imported(ast.parse(path.read_text())))
    ]
    assert not wrong


def test_the_ground_layer_needs_neither_torch_nor_ray() -> None:
    heavy = {"torch", "ray", "transformers", "deepspeed", "numpy"}
    wrong = [
        relative(path)
        for path in SOURCES
        if path.parent != PACKAGE and folder_of(path) in LAYERS[0]
        if heavy & {name.split(".")[0] for name in imported(ast.parse(path.read_text()))}
    ]
    assert not wrong


def test_importing_cairn_and_its_command_loads_nothing_heavy() -> None:
    code = (
        "import sys, cairn, cairn.config.load, cairn.cli.main\n"
        "print(sorted({'torch', 'ray', 'transformers', 'numpy', 'fastapi'} & set(sys.modules)))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_files_and_functions_stay_small() -> None:
    wrong = []
    for path in SOURCES:
        text = path.read_text()
        lines = text.count("\n")
        if lines > MAX_FILE_LINES:
            wrong.append(f"{relative(path)}: {lines} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                size = (node.end_lineno or node.lineno) - node.lineno + 1
                if size > MAX_FUNCTION_LINES:
                    wrong.append(f"{relative(path)}:{node.lineno} {node.name}: {size} lines")
    assert not wrong, "\n".join(wrong)


def test_jobs_and_services_are_thin() -> None:
    assert THIN
    assert not [path.name for path in THIN if path.read_text().count("\n") > MAX_THIN_LINES]


def test_every_module_and_public_class_says_what_it_is() -> None:
    wrong = []
    for path in [*SOURCES, *THIN]:
        tree = ast.parse(path.read_text())
        if not ast.get_docstring(tree):
            wrong.append(str(path.relative_to(ROOT)))
        wrong += [
            f"{path.relative_to(ROOT)}:{node.lineno} {node.name}"
            for node in tree.body
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_") and not ast.get_docstring(node)
        ]
    assert not wrong, "\n".join(wrong)


def test_no_module_is_a_grab_bag() -> None:
    assert not [relative(path) for path in SOURCES if any(name in path.stem for name in FORBIDDEN_NAMES)]


def test_packages_hold_no_code_in_init() -> None:
    wrong = [
        relative(path) for path in SOURCES if path.name == "__init__.py" and len(ast.parse(path.read_text()).body) != 1
    ]
    assert not wrong


def test_every_exception_that_is_caught_is_dealt_with() -> None:
    wrong = [
        f"{relative(path)}:{node.lineno}"
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or all(isinstance(statement, ast.Pass) for statement in node.body))
    ]
    assert not wrong


def test_the_readme_maps_every_folder() -> None:
    readme = (ROOT / "README.md").read_text()
    folders = {folder_of(path) for path in SOURCES if path.parent != PACKAGE}
    assert not [name for name in sorted(folders) if f"`{name}/`" not in readme]


def test_commands_and_files_in_the_readme_exist() -> None:
    readme = (ROOT / "README.md").read_text()
    targets = set(re.findall(r"^\w[\w-]*(?=:)", (ROOT / "Makefile").read_text(), re.MULTILINE))
    assert not set(re.findall(r"\bmake ([a-z][a-z-]+)", readme)) - targets
    named = set(re.findall(r"\b(?:jobs|services|tests|library)/[\w/.-]*\w\.\w+", readme))
    assert named
    assert not [name for name in sorted(named) if not (ROOT / name).exists()]
