"""Random statements: most are right, many have a part missing, doubled or from elsewhere."""

from __future__ import annotations

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

NAMES = ["t", "u", "T", "`t`", "missing", "id", "`a b`", "s.t", "select", "``", "1a"]
COLUMNS = ["id", "name", "d", "ID", "t.id", "nope", "`name`", "t.nope", "s.x", "*"]
LITERALS = [
    "1",
    "-1",
    "NULL",
    "'a'",
    "'it''s'",
    '"q"',
    "1.5",
    "DATE '2026-01-01'",
    "TRUE",
    "1e400",
    "''",
    "r'\\'",
    ":p",
]
WORDS = [
    *(
        "SELECT",
        "FROM",
        "WHERE",
        "SET",
        "INTO",
        "VALUES",
        "(",
        ")",
        ",",
        ";",
        "=",
        "AND",
        "CASE",
        "WHEN",
        "THEN",
        "END",
    ),
    *(
        "BEGIN",
        "ATOMIC",
        "COMMIT",
        "MERGE",
        "USING",
        "ON",
        "MATCHED",
        "NOT",
        "AS",
        "OF",
        "VERSION",
        "@",
        "v1",
        "--",
        "/*",
    ),
    *("DELETE", "UPDATE", "INSERT", "TABLE", "'", "`", "\\", "?", ":", "{", "}", "|>", "\n", "\0", "é", "😀"),
]


def _joined(*parts: SearchStrategy[str] | str) -> SearchStrategy[str]:
    return st.tuples(*(st.just(part) if isinstance(part, str) else part for part in parts)).map(" ".join)


def _maybe(part: SearchStrategy[str]) -> SearchStrategy[str]:
    return st.one_of(st.just(""), part)


name = st.sampled_from(NAMES[:6] * 3 + NAMES)
column = st.sampled_from(COLUMNS[:4] * 3 + COLUMNS)
literal = st.sampled_from(LITERALS)
expression = st.recursive(
    st.one_of(column, literal),
    lambda inner: st.one_of(
        _joined(inner, st.sampled_from(["+", "*", "=", "<", "AND", "||", "<=>"]), inner),
        _joined("(", inner, ")"),
        _joined("CASE WHEN", inner, "THEN", inner, "END"),
        _joined(st.sampled_from(["upper(", "coalesce(", "nofunc(", "concat("]), inner, ")"),
        _joined(inner, "IN (", inner, ",", inner, ")"),
        _joined("(SELECT max(id) FROM", name, ")"),
    ),
    max_leaves=4,
)
moment = st.sampled_from(["VERSION AS OF 1", "@v0", "@v99", "TIMESTAMP AS OF '2001-01-01'", "VERSION AS OF x"])
where = _maybe(_joined("WHERE", expression))
query = st.one_of(
    _joined("SELECT", expression, "AS id FROM", name, _maybe(moment), where),
    _joined("SELECT * FROM", name),
    _joined("SELECT 7 AS id, 'n' AS name, 1.5D AS d"),
)
values = _joined("VALUES (", literal, ",", literal, ",", literal, ")")
clause = st.sampled_from(
    [
        "WHEN MATCHED THEN UPDATE SET *",
        "WHEN MATCHED AND s.id > 1 THEN DELETE",
        "WHEN MATCHED THEN UPDATE SET name = s.name, id = nope",
        "WHEN NOT MATCHED THEN INSERT *",
        "WHEN NOT MATCHED THEN INSERT (id) VALUES (s.id, 1)",
        "WHEN NOT MATCHED BY SOURCE THEN UPDATE SET name = 'x'",
        "WHEN NOT MATCHED BY SOURCE THEN DELETE",
    ]
)
one = st.one_of(
    query,
    _joined("INSERT INTO", name, _maybe(st.sampled_from(["(id, name, d)", "(id)", "(nope)", "BY NAME"])), values),
    _joined(st.sampled_from(["INSERT INTO", "INSERT OVERWRITE", "INSERT INTO TABLE"]), name, query),
    _joined("INSERT INTO", name, "REPLACE WHERE", expression, query),
    _joined("UPDATE", name, "SET", column, "=", expression, where),
    _joined("DELETE FROM", name, where),
    _joined("MERGE INTO", name, "AS t USING (", query, ") AS s ON t.id = s.id", clause, _maybe(clause)),
    _joined("TRUNCATE TABLE", name),
    _joined("CREATE TABLE", _maybe(st.just("IF NOT EXISTS")), name, st.sampled_from(["(id INT)", "(id NOPE)", "()"])),
    _joined("CREATE OR REPLACE TABLE", name, "AS", query),
    _joined("DROP TABLE", _maybe(st.just("IF EXISTS")), name),
    _joined(
        "ALTER TABLE",
        name,
        st.sampled_from(
            [
                "ADD COLUMNS (extra INT)",
                "ADD COLUMN id INT",
                "ALTER COLUMN id COMMENT 'c'",
                "ALTER COLUMN name TYPE INT",
                "DROP COLUMN nope",
                "RENAME COLUMN id TO id2",
                "SET TBLPROPERTIES ('delta.nope' = 'x')",
                "SET TBLPROPERTIES ('mine' = 'x')",
                "ADD CONSTRAINT c CHECK (id > 1000)",
                "DROP CONSTRAINT nope",
                "RENAME TO u",
            ]
        ),
    ),
    _joined(st.sampled_from(["DESCRIBE", "DESCRIBE HISTORY", "DESCRIBE DETAIL", "SHOW COLUMNS IN"]), name),
    _joined("RESTORE TABLE", name, "TO", moment),
    _joined("OPTIMIZE", name, where),
    _joined("REORG TABLE", name, "APPLY (PURGE)"),
)


def _broken(text: str, at: int, word: str, removes: bool) -> str:
    words = text.split(" ")
    at %= len(words) + 1
    return " ".join([*words[:at], word, *words[at + removes :]])


broken = st.builds(_broken, one, st.integers(0, 30), st.sampled_from([*WORDS, ""]), st.booleans())


def statements() -> SearchStrategy[str]:
    """Return statements, alone or in a transaction; some of them are broken."""
    single = st.one_of(one, broken)
    return st.one_of(
        single,
        _joined("BEGIN ATOMIC", single, ";", single, "; END"),
        _joined("BEGIN ;", single, ";", single, ";", st.sampled_from(["COMMIT", "ROLLBACK"])),
    )
