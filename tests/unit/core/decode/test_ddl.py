"""Which columns a DDL statement adds or renames, in the dialects of several databases."""

from __future__ import annotations

import pytest

from headrace.core.decode.schema_changes import Added, Altered, parse_alteration


@pytest.mark.parametrize(
    ("ddl", "added"),
    [
        ("alter table t add column c int default 0", ["c"]),
        (
            "ALTER TABLE `inv`.`t` ADD `c, d` varchar(20) DEFAULT 'a, ADD b int' COMMENT 'it''s', ADD d DECIMAL(9,2)",
            ["c, d", "d"],
        ),
        ("alter ignore table if exists t add column if not exists c int first, engine=InnoDB;", ["c"]),
        ("alter table t add (a int, b enum('x','y') default 'x'), drop column c", ["a", "b"]),
        ('ALTER TABLE "APP"."T" ADD ("C#1" NUMBER(9,2) DEFAULT 0, D DATE)', ["C#1", "D"]),
        ("/* who */ alter table t -- why\n add c int # what", ["c"]),
        ("alter table t add index i (a), add unique key u (b), add constraint f foreign key (c) references x (d)", []),
        ("alter table t add primary key (a, b), alter column c set default 5, modify d int, order by a", []),
        ("create index i on t (a)", []),
        ("comment on column t.a is 'x'", []),
    ],
)
def test_columns_that_are_added(ddl: str, added: list[str]) -> None:
    """The parser finds them beside other clauses; texts, comments and quoted names may contain any characters."""
    found = parse_alteration(ddl)
    assert found is not None
    assert ([each.name for each in found.added], found.renamed) == (added, ())


@pytest.mark.parametrize(
    ("definition", "reads", "default"),
    [
        ("int", "null", ""),
        ("int default null", "null", ""),
        ("int not null default -5 after b", "number", "-5"),
        ("decimal(9,2) default +1.50 comment 'x'", "number", "1.50"),
        ("boolean default true", "number", "1"),
        ("varchar(9) default 'it''s' not null", "text", "it's"),
        ("varchar(9) default ''", "text", ""),
        *(
            (f"varchar(9) default {other}", "", "")
            for other in (r"'a\nb'", "'a' 'b'", "uuid()", "(1 + 1)", "b'1'", "x'0a'")
        ),
        *((f"int default {other}", "", "") for other in ("1 + 1", "-(1)", "", "current_timestamp", "1e3", "`a`")),
    ],
)
def test_the_default_of_a_column(definition: str, reads: str, default: str) -> None:
    """The parser returns a literal default, and none for an expression."""
    assert parse_alteration(f"alter table t add c {definition}") == Altered(added=(Added("c", reads, default),))


@pytest.mark.parametrize(
    ("ddl", "renamed"),
    [
        ("alter table customers change column email mail varchar(200)", [("email", "mail")]),
        ("alter table t change `a` `b` int, rename column c to d, rename index i to j", [("a", "b"), ("c", "d")]),
        ("alter table t change a A bigint", []),
        ('alter table "T" rename column A to "b"', [("A", "b")]),
    ],
)
def test_columns_that_are_renamed(ddl: str, renamed: list[tuple[str, str]]) -> None:
    """MySQL's CHANGE renames a column only if the names differ."""
    assert parse_alteration(ddl) == Altered(renamed=tuple(renamed))


@pytest.mark.parametrize(
    "ddl",
    [
        *("", "N/A", "rename table a to b", "exec sp_rename 'a', 'b'", "alter table"),
        *("alter table t add", "alter table t add a int, b int", "alter table t frobnicate c"),
        *("alter table t rename to u", "alter table t rename column a"),
    ],
)
def test_other_statements_are_not_parsed(ddl: str) -> None:
    """The parser returns None instead of a guess."""
    assert parse_alteration(ddl) is None
