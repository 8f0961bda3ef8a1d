"""Every log call of the product names an action, and docs/operations/log-actions.md lists each of them."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "operations" / "log-actions.md"
LEVELS = {f"_log.{level}" for level in ("debug", "info", "warning", "error", "exception", "critical", "log")}
_KINDS = {"relay_{}": ("relay_loss", "relay_stream_drift")}
"""Actions that are made of a kind, by their form."""


def sources() -> Iterator[tuple[Path, ast.Module]]:
    for folder in ("libs", "services"):
        for path in sorted((ROOT / folder).glob("*/pamspec_*/**/*.py")):
            yield path, ast.parse(path.read_text(encoding="utf-8"))


def log_calls(tree: ast.AST) -> Iterator[ast.Call]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and ast.unparse(node.func) in LEVELS:
            yield node


def dictionaries(node: ast.expr, tree: ast.AST) -> list[ast.Dict]:
    """The dictionaries that an argument stands for: itself, or what its name was given."""
    if isinstance(node, ast.Dict):
        return [node]
    assert isinstance(node, ast.Name), ast.dump(node)
    given = [one for one in ast.walk(tree) if isinstance(one, ast.Assign) and isinstance(one.value, ast.Dict)]
    return [one.value for one in given if isinstance(one.value, ast.Dict) and node.id in map(ast.unparse, one.targets)]


def actions(call: ast.Call, tree: ast.AST) -> set[str]:
    """The actions that a call may log under."""
    given = [keyword.value for keyword in call.keywords if keyword.arg == "extra"]
    found: set[str] = set()
    for dictionary in dictionaries(given[0], tree) if given else []:
        for key, value in zip(dictionary.keys, dictionary.values, strict=True):
            if isinstance(key, ast.Constant) and key.value == "action":
                found |= named(value)
    return found


def named(value: ast.expr) -> set[str]:
    if isinstance(value, ast.Constant):
        return {str(value.value)}
    if isinstance(value, ast.IfExp):
        return named(value.body) | named(value.orelse)
    assert isinstance(value, ast.JoinedStr), ast.dump(value)
    form = "".join(str(part.value) if isinstance(part, ast.Constant) else "{}" for part in value.values)
    return set(_KINDS[form])


def everything() -> set[str]:
    found: set[str] = set()
    for path, tree in sources():
        for call in log_calls(tree):
            told = actions(call, tree)
            assert told, f"{path.relative_to(ROOT)}:{call.lineno} logs without an action"
            found |= told
    return found


def test_no_other_name_logs() -> None:
    """Whoever logs has one logger, `_log`, which the test below looks for."""
    for path, tree in sources():
        for node in ast.walk(tree):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "logging.getLogger":
                assert f"_log = {ast.unparse(node)}" in path.read_text(encoding="utf-8"), path


def test_every_log_call_names_an_action_and_the_page_lists_all() -> None:
    listed = re.findall(r"^\| `(\w+)` \|", PAGE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(listed) == sorted(everything())
