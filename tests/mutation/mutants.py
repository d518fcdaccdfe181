"""Breaks the package one operator at a time and shows which breaks no test notices; run by hand.

    python tests/mutation/mutants.py --count 60 --seed 7

Each mutant is one change in a temporary copy of the tree. The test file of its module runs first, then the folder that
mirrors its own, then the wider tests. It is killed when they fail or take far longer than without it; tests that fail
as they are do not count. Mutants without effect are listed, with the reason, in ``equivalent.toml``.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import os
import queue
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ("formulas", "demand", "estimate", "engines", "supply", "studies")
MIN_PLACES = 10  # a module with fewer has little arithmetic of its own
WIDER = ["tests", "-m", "not slow and not gpu", "--ignore=tests/measure", "--ignore=tests/mutation"]
LEFT_BEHIND = shutil.ignore_patterns(".git", ".venv", ".hypothesis", ".*_cache", "__pycache__", "build", "dist")
REPLACED = """Add + -, Sub - +, Mult * /, Div / *, FloorDiv // / *, Mod % *, Pow ** *, And and or, Or or and,
    Lt < <= >=, LtE <= < >, Gt > >= <=, GtE >= > <, Eq == !=, NotEq != =="""
OPERATORS = {name: symbols for name, *symbols in map(str.split, REPLACED.split(","))}
PAIRS = "min max, minimum maximum, floor ceil, add subtract, multiply divide, less less_equal, greater greater_equal"
FUNCTIONS = {a: b for pair in PAIRS.split(", ") for a, b in (pair.split(), reversed(pair.split()))}
CANARY = '''"""Ends a run of tests that did not import the copy beside this file."""
import sys
from pathlib import Path
import pytest

def pytest_sessionfinish():
    found = getattr(sys.modules.get("capacity"), "__file__", None)
    if found is not None and Path(__file__).resolve().parent not in Path(found).resolve().parents:
        pytest.exit(f"tests imported {found}, not the mutated copy", returncode=77)
'''


@dataclass(frozen=True)
class Mutant:
    """One change: characters ``start`` to ``stop`` of a file become ``text``, and a line ``before`` is ``after``."""

    file: str
    line: int
    start: int
    stop: int
    text: str
    before: str
    after: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}\n  - {self.before}\n  + {self.after}"


def mutants_of(root: Path, file: str) -> Iterator[Mutant]:
    """Every mutant of a module, in the order of its text."""
    source = (root / file).read_text(encoding="utf-8")
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))

    def place(line: int, column: int) -> int:  # columns of the syntax tree count bytes
        begin = starts[line - 1]
        return begin + len(source[begin : starts[line]].encode()[:column].decode())

    def span(node: ast.expr) -> tuple[int, int]:
        return place(node.lineno, node.col_offset), place(node.end_lineno or 0, node.end_col_offset or 0)

    changes = {change for node in _computing(ast.parse(source)) for change in _changes(node, source, span)}
    for start, stop, text in sorted(changes):
        first, last = source.rfind("\n", 0, start) + 1, source.find("\n", stop)
        lines = source[first:last], source[first:start] + text + source[stop:last]
        yield Mutant(file, source.count("\n", 0, start) + 1, start, stop, text, *(" ".join(s.split()) for s in lines))


def _computing(node: ast.AST) -> Iterator[ast.expr | ast.AugAssign]:
    """Nodes that compute something: no annotation, decorator, formatted string, message or ``strict=``."""
    skipped = [*getattr(node, "decorator_list", ()), getattr(node, "annotation", None), getattr(node, "returns", None)]
    if isinstance(node, ast.Call):
        skipped += [word for word in node.keywords if word.arg == "strict"]
    if isinstance(node, ast.JoinedStr | ast.Raise):
        return
    if isinstance(node, ast.expr | ast.AugAssign):
        yield node
    for child in ast.iter_child_nodes(node):
        if child not in skipped:
            yield from _computing(child)


def _changes(node: ast.expr | ast.AugAssign, source: str, span: Callable) -> Iterator[tuple[int, int, str]]:
    """The changes at a node, each as start, stop and new text."""
    for op, left, right in _operations(node):
        written, *others = OPERATORS.get(type(op).__name__, [""])
        if isinstance(op, ast.Add) and (_is_text(left) or _is_text(right)):
            continue
        for other in others:
            at = source.index(written, span(left)[1], span(right)[0])
            yield at, at + len(written), other
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Not):
        start, stop = span(node)
        yield start, start + (1 if isinstance(node.op, ast.USub) else len("not ")), ""
        if source.startswith("-(-", start) and "//" in source[start:stop]:  # -(-a // b) rounds up, (a // b) down
            yield start, stop, source[start + 1 : stop].replace("-", "", 1)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield *span(node), str(not node.value if isinstance(node.value, bool) else node.value + 1)
    elif isinstance(node, ast.Call):
        name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if name in FUNCTIONS:
            yield span(node.func)[1] - len(name), span(node.func)[1], FUNCTIONS[name]


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or isinstance(getattr(node, "value", None), str)


def _operations(node: ast.expr | ast.AugAssign) -> Iterator[tuple[ast.AST, ast.expr, ast.expr]]:
    """Operators of a node with what stands left and right of each."""
    if isinstance(node, ast.AugAssign):
        yield node.op, node.target, node.value
    elif isinstance(node, ast.BinOp):
        yield node.op, node.left, node.right
    elif isinstance(node, ast.BoolOp):
        yield from ((node.op, *pair) for pair in pairwise(node.values))
    elif isinstance(node, ast.Compare):
        yield from ((op, *pair) for op, pair in zip(node.ops, pairwise([node.left, *node.comparators]), strict=True))


def candidates(root: Path, folders: Sequence[str] = FOLDERS) -> dict[str, list[Mutant]]:
    """Every mutant of the modules in some folders that have at least `MIN_PLACES` places to change."""
    files = sorted(path.relative_to(root).as_posix() for f in folders for path in (root / "capacity" / f).rglob("*.py"))
    found = {file: list(mutants_of(root, file)) for file in files}
    return {file: each for file, each in found.items() if len({m.start for m in each}) >= MIN_PLACES}


def draw(found: dict[str, list[Mutant]], count: int, seed: int, per_file: int = 3) -> list[Mutant]:
    """``count`` mutants, each place as likely as any other, at most ``per_file`` of a file."""
    rng, places, drawn = random.Random(seed), {}, {file: [] for file in found}
    for mutant in (m for each in found.values() for m in each):
        places.setdefault((mutant.file, mutant.start), []).append(mutant)
    for place in rng.sample(sorted(places), len(places)):
        if len(drawn[place[0]]) < per_file and sum(map(len, drawn.values())) < count:
            drawn[place[0]].append(rng.choice(places[place]))
    return sorted((m for each in drawn.values() for m in each), key=lambda m: (m.file, m.start))


class Copies:
    """Copies of the tree: one a job to mutate, and one that stays as it is, to see what the tests do there."""

    def __init__(self, root: Path, folder: Path, jobs: int = 1) -> None:
        self.clean, self.lock = folder / "clean", threading.Lock()
        self.free: queue.Queue[Path] = queue.Queue()
        self.unchanged: dict[tuple[str, ...], tuple[float, list[str]]] = {}
        for copy in (self.clean, *(folder / f"job{job}" for job in range(jobs))):
            shutil.copytree(root, copy, ignore=LEFT_BEHIND)
            (copy / "canary_of_mutants.py").write_text(CANARY, encoding="utf-8")
            if copy != self.clean:
                self.free.put(copy)

    def kills(self, mutant: Mutant, stages: Sequence[Sequence[str]]) -> bool:
        """Whether tests of one stage or another fail with the mutant."""
        copy = self.free.get()
        module, source = copy / mutant.file, (self.clean / mutant.file).read_text(encoding="utf-8")
        try:
            module.write_text(source[: mutant.start] + mutant.text + source[mutant.stop :], encoding="utf-8")
            for stage in stages:
                seconds, failing = self.as_they_are(tuple(stage))
                if run_tests(copy, [*stage, "-x", *failing], 20 + 4 * seconds)[0] != 0:
                    return True
            return False
        finally:
            module.write_text(source, encoding="utf-8")
            self.free.put(copy)

    def as_they_are(self, stage: tuple[str, ...]) -> tuple[float, list[str]]:
        """Seconds that tests take without a mutant, and options that leave out those that fail."""
        with self.lock:
            if stage not in self.unchanged:
                begun = time.monotonic()
                status, output = run_tests(self.clean, [*stage, "-rfE"], 3600)
                failing = re.findall(r"^(?:FAILED|ERROR) (\S+?\.py)(::.+?)?(?: - .*)?$", output, flags=re.MULTILINE)
                if status not in (0, 1) and not failing:
                    raise RuntimeError(f"pytest {' '.join(stage)} cannot run (exit status {status}):\n{output[-3000:]}")
                if failing:
                    print("left out, for they fail as they are:", *(file + name for file, name in failing), sep="\n  ")
                options = [f"--deselect={file}{name}" if name else f"--ignore={file}" for file, name in failing]
                self.unchanged[stage] = time.monotonic() - begun, options
            return self.unchanged[stage]


def run_tests(copy: Path, options: Sequence[str], limit_s: float) -> tuple[int, str]:
    """Exit status and output of pytest in a copy; a run past its time is ended and has status 124."""
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "canary_of_mutants", "--tb=no"]
    environment = os.environ | {"PYTHONPATH": str(copy), "PYTHONDONTWRITEBYTECODE": "1", "COLUMNS": "400"}
    with tempfile.TemporaryFile("w+", encoding="utf-8") as log:
        command += [*options]
        running = subprocess.Popen(command, cwd=copy, env=environment, stdout=log, stderr=log, start_new_session=True)
        try:
            status = running.wait(limit_s)
        except subprocess.TimeoutExpired:
            status = 124
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(running.pid, signal.SIGKILL)  # and whatever the tests have started
            running.wait()
        log.seek(0)
        output = log.read()
    if status == 77:
        raise RuntimeError(output[-2000:])
    return status, output


def stages_of(root: Path, file: str, wider: Sequence[str] = (), *, doctests: bool = False) -> list[list[str]]:
    """The tests to run one after the other: of the module, of its folder, and the wider ones."""
    folder = Path("tests", *Path(file).parts[1:-1])
    near = [path.as_posix() for path in (folder / f"test_{Path(file).name}", folder) if (root / path).exists()]
    return [*([file] for _ in range(doctests)), *([path] for path in near), *([list(wider)] if wider else [])]


def equivalents(path: Path) -> set[tuple[str, str, str]]:
    """File, line and mutated line of each mutant that is argued to have no effect."""
    rows = tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", ()) if path.exists() else ()
    return {(row["file"], row["before"], row["after"]) for row in rows if row["reason"]}


def main() -> None:
    asked = _asked()
    if asked.list:
        print(*_chosen(asked, asked.root), f"seed {asked.seed}", sep="\n")
        return
    from rich.progress import track

    known = equivalents(asked.root / "tests/mutation/equivalent.toml")
    with tempfile.TemporaryDirectory(prefix="mutants-") as folder, ThreadPoolExecutor(asked.jobs) as pool:
        copies = Copies(asked.root, Path(folder), asked.jobs)
        chosen = _chosen(asked, copies.clean)
        print(f"mutants: {len(chosen)}, seed {asked.seed}", flush=True)

        def verdict(mutant: Mutant) -> str:
            if (mutant.file, mutant.before, mutant.after) in known:
                return "equivalent"
            if copies.kills(mutant, stages_of(copies.clean, mutant.file, asked.tests, doctests=asked.doctests)):
                return "killed"
            print(f"lives: {mutant}", flush=True)
            return "lives"

        found = list(track(pool.map(verdict, chosen), "testing mutants", total=len(chosen)))
    killed, judged = found.count("killed"), len(found) - found.count("equivalent")
    print(f"{killed} of {judged} killed ({killed / max(judged, 1):.0%}), {len(found) - judged} without effect")


def _asked() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--count", type=int, default=60, help="mutants to draw (60)")
    add("--seed", type=int, default=random.randrange(10**6), help="repeats a draw; a new one otherwise")
    add("--per-file", type=int, default=3, help="most mutants of one file (3)")
    add("--folders", nargs="+", default=FOLDERS, help="folders of capacity to draw from")
    add("--only", metavar="FILE:LINE", help="every mutant of one line instead of a draw")
    add("--change", nargs=3, metavar=("FILE", "OLD", "NEW"), help="one mutant of your own instead of a draw")
    add("--tests", nargs="*", default=WIDER, help="wider tests, after those of the module and its folder")
    add("--doctests", action="store_true", help="run the doctests of the module first")
    add("--list", action="store_true", help="show what is drawn and run nothing")
    add("--jobs", type=int, default=1, help="mutants tested at the same time (1)")
    add("--root", type=Path, default=ROOT, help="tree to copy (this one)")
    return parser.parse_args()


def _chosen(asked: argparse.Namespace, root: Path) -> list[Mutant]:
    if asked.change:
        file, old, new = asked.change
        source = (root / file).read_text(encoding="utf-8")
        if source.count(old) != 1:
            raise SystemExit(f"{file} has {old!r} {source.count(old)} times; give text that stands there once")
        start = source.index(old)
        return [Mutant(file, source.count("\n", 0, start) + 1, start, start + len(old), new, old, new)]
    if asked.only:
        file, line = asked.only.rsplit(":", 1)
        return [mutant for mutant in mutants_of(root, file) if mutant.line == int(line)]
    return draw(candidates(root, asked.folders), asked.count, asked.seed, asked.per_file)


if __name__ == "__main__":
    main()
