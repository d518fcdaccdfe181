"""Every formula is called by the package, or named in docs/house.md as one for notebooks and called in one."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path

import capacity

ROOT = Path(__file__).parents[2]
PACKAGE = Path(capacity.__file__).parent
FORMULAS = PACKAGE / "formulas"
HEADING = "## Formulas for notebooks"


def public_formulas():
    """Module and name of each public formula."""
    for file in sorted(FORMULAS.glob("*.py")):
        for node in ast.parse(file.read_text()).body:
            if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
                yield file.stem, node.name


def calls():
    """Formulas called or tabulated by their own module, read through it, or imported from it: (module, name)."""
    found = set()
    for file in PACKAGE.rglob("*.py"):
        tree = ast.parse(file.read_text())
        modules = {}  # local name: module of formulas
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and node.module == "capacity.formulas":
                modules |= {name.asname or name.name: name.name for name in node.names}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("capacity.formulas."):
                found |= {(node.module.rpartition(".")[2], name.name) for name in node.names}
        for node in ast.walk(tree):
            if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
                found.add((modules[node.value.id], node.attr))
            elif file.parent == FORMULAS and isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
                found.add((file.stem, node.func.id))
        if file.parent == FORMULAS:
            found |= {(file.stem, name) for name in in_tables(tree)}
    return found


def in_tables(tree):
    """Names in tables of a module: formulas that are chosen by a key."""
    tables = [node.value for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign) and node.value]
    return {node.id for table in tables for node in ast.walk(table) if isinstance(node, ast.Name)}


def notebook_code():
    """All code of all notebooks."""
    books = [json.loads(file.read_text()) for file in sorted((ROOT / "notebooks").glob("*.ipynb"))]
    cells = [cell for book in books for cell in book["cells"] if cell["cell_type"] == "code"]
    return "".join(line for cell in cells for line in cell["source"])


def listed():
    """The formulas that docs/house.md names as those for notebooks."""
    text = (ROOT / "docs" / "house.md").read_text().partition(HEADING)[2].partition("\n## ")[0]
    return re.findall(r"`(\w+)\.(\w+)`", text)


def test_a_formula_is_called_by_the_package_or_listed_as_one_for_notebooks():
    used = calls()
    uncalled = [formula for formula in public_formulas() if formula not in used]

    assert sorted(uncalled) == sorted(listed())


def test_a_formula_for_notebooks_is_called_in_one():
    code = notebook_code()

    assert [name for module, name in listed() if f"{module}.{name}(" not in code] == []
