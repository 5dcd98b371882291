"""Old code runs on beside a new schema: a migration takes nothing away that it uses, unless it says that it is a contract step."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

VERSIONS = Path(__file__).resolve().parents[2] / "migrations" / "versions"
CONTRACT = "IS_CONTRACT"
"""Set to True by a migration that runs only when no process of the code before it is left."""
TAKEN_AWAY = {"drop_column", "drop_table", "rename_table"}
SQL = re.compile(
    r"DROP\s+(?:TABLE|COLUMN)|RENAME\s+(?:TO|COLUMN|\w+\s+TO)|SET\s+NOT\s+NULL|ALTER\s+(?:COLUMN\s+)?\w+\s+(?:SET\s+DATA\s+)?TYPE",
    re.IGNORECASE,
)


def takes_away(source: str) -> Iterator[tuple[int, str]]:
    """(line, what) of each step of `upgrade` that the code before it may not survive."""
    module = ast.parse(source)
    upgrade = next(node for node in module.body if isinstance(node, ast.FunctionDef) and node.name == "upgrade")
    for node in ast.walk(upgrade):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            given = {keyword.arg: keyword.value for keyword in node.keywords}
            if (what := _what(node.func.attr, node, given)) is not None:
                yield node.lineno, what


def _what(operation: str, call: ast.Call, given: dict[str | None, ast.expr]) -> str | None:
    if operation in TAKEN_AWAY:
        return operation
    if operation == "alter_column":
        changed = {"new_column_name", "type_"} & given.keys()
        return f"alter_column {sorted(changed)}" if changed else "set not null" if _is(given.get("nullable"), False) else None
    if operation == "add_column":
        return "add_column not null without a default" if _lacks_default(call) else None
    if operation == "execute" and (found := SQL.search(_text(call))):
        return found[0]
    return None


def _lacks_default(call: ast.Call) -> bool:
    columns = [node for node in ast.walk(call) if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)]
    given = [{keyword.arg: keyword.value for keyword in node.keywords} for node in columns if node.func.attr == "Column"]  # type: ignore[attr-defined]
    return any(_is(each.get("nullable"), False) and "server_default" not in each for each in given)


def _is(value: ast.expr | None, constant: object) -> bool:
    return isinstance(value, ast.Constant) and value.value is constant


def _text(call: ast.Call) -> str:
    return " ".join(node.value for node in ast.walk(call) if isinstance(node, ast.Constant) and isinstance(node.value, str))


def is_contract(source: str) -> bool:
    """Whether a migration says that it takes away."""
    return any(
        isinstance(node, ast.Assign) and _is(node.value, True) and [getattr(target, "id", None) for target in node.targets] == [CONTRACT]
        for node in ast.parse(source).body
    )


@pytest.mark.parametrize(
    ("step", "found"),
    [
        ('op.drop_column("cases", "lane")', "drop_column"),
        ('op.drop_table("cases")', "drop_table"),
        ('op.rename_table("cases", "orders")', "rename_table"),
        ('op.alter_column("cases", "lane", new_column_name="queue")', "alter_column ['new_column_name']"),
        ('op.alter_column("cases", "tries", type_=sa.BigInteger)', "alter_column ['type_']"),
        ('op.alter_column("cases", "lane", nullable=False)', "set not null"),
        ('op.add_column("cases", sa.Column("age", sa.Integer, nullable=False))', "add_column not null without a default"),
        ('op.execute("ALTER TABLE cases DROP COLUMN lane")', "DROP COLUMN"),
        ('op.execute("alter table cases alter column lane set not null")', "set not null"),
        ('op.execute("ALTER TABLE cases RENAME COLUMN lane TO queue")', "RENAME COLUMN"),
        ('op.execute(f"ALTER TABLE {table} ALTER COLUMN tries TYPE bigint")', "ALTER COLUMN tries TYPE"),
        ('op.execute(sa.text("DROP TABLE cases"))', "DROP TABLE"),
    ],
)
def test_what_takes_away_is_found(step: str, found: str) -> None:
    assert [what for _, what in takes_away(f"def upgrade():\n    {step}\n")] == [found]


@pytest.mark.parametrize(
    "step",
    [
        'op.add_column("cases", sa.Column("age", sa.Integer))',
        'op.add_column("cases", sa.Column("age", sa.Integer, nullable=False, server_default=sa.text("0")))',
        'op.create_table("x", sa.Column("id", sa.Integer, nullable=False))',
        'op.alter_column("cases", "lane", nullable=True)',
        'op.drop_index("cases_open")',
        'op.execute("CREATE TRIGGER only_added BEFORE UPDATE ON cases EXECUTE FUNCTION refuse_change()")',
    ],
)
def test_what_only_adds_is_let_through(step: str) -> None:
    source = f"def upgrade():\n    {step}\n\n\ndef downgrade():\n    op.drop_table('x')\n"

    assert list(takes_away(source)) == []


@pytest.mark.parametrize(("line", "said"), [("IS_CONTRACT = True", True), ("IS_CONTRACT = False", False), ("x = True", False)])
def test_a_contract_step_says_so(line: str, said: bool) -> None:
    assert is_contract(f"{line}\n") is said


def test_every_migration_only_adds_or_says_that_it_is_a_contract_step() -> None:
    sources = {path.name: path.read_text(encoding="utf-8") for path in VERSIONS.glob("[0-9]*.py")}
    assert len(sources) >= 4

    refused = {name: found for name, source in sources.items() if not is_contract(source) and (found := list(takes_away(source)))}

    assert refused == {}
