"""Hints of the library in the command line's own words: commands and options in place of Python calls."""

from __future__ import annotations

import re

_IN_COMMANDS = (
    (r"catalog\.tables\(\)", "deltars tables"),
    (r"`deltars history TABLE` and table\.history\(\) list", "deltars history TABLE lists"),
    (r" ?\(or connect with migrate=True\)", ""),
    (r"Read the table again and retry, or let catalog\.run\(\) do it", "Run the command again"),
    (r"Call catalog\.resolve\(txn_id\) to learn whether it committed", "deltars resolve ID says whether it committed"),
    (r"Call catalog\.resolve\('([^']*)'\)", r"Run deltars resolve \1"),
    (r"(with )?catalog\.import_table\(location\)", "deltars import LOCATION"),
    (r"or give another location", "or give another --location"),
    (r"call catalog\.adopt\(\)|adopt the table with catalog\.adopt\(\)", "run deltars adopt TABLE"),
    (r"catalog\.set_properties\(table, \{'([^']*)': '([^']*)'\}\)", r"deltars properties TABLE --set \1=\2"),
    (r"catalog\.set_properties", "deltars properties TABLE --set NAME=VALUE, or --unset NAME"),
    (r"catalog\.tags\(\)", "deltars tags"),
    (r"catalog\.untag\(…\)", "deltars untag NAME"),
    (r"catalog\.transaction\(\)", "deltars txn ID"),
    (r"Read with Spark \(table\.read\)", 'Use deltars sql "SELECT …"'),
    (r"connect\(…, warehouse=…\), or pass location=…", "deltars init --warehouse LOCATION, or give --location"),
    (r"Use if_not_exists=True or replace=True, or another name", "Give --if-not-exists, or another name"),
    (r"table\.alter\.add_constraint\('([^']*)', …\)", r"deltars alter TABLE add-constraint \1 CONDITION"),
    (r"then call set_default\(column, …\)", "then deltars alter TABLE set-default COLUMN VALUE"),
    (r"catalog\.drop_table\(table_id, delete_data=True\)", "deltars drop ID --delete-data"),
    (r"Leave warehouse= out", "Leave --warehouse out"),
    (r"pass discard=True", "give --discard"),
    (r"Pass that moment as as_of", "Give that moment as --as-of"),
    (r"Use a transaction to write: tx\.delete\(table, where\)", "deltars delete TABLE --where CONDITION deletes rows"),
    (
        r"Use a transaction to write: tx\.update\(table, set, where\)",
        "deltars update TABLE --set COLUMN=EXPRESSION --where CONDITION updates rows",
    ),
    (r"Use a transaction to write: (tx\.merge\(table, rows, on\))", r"In Python, \1 merges rows"),
    (r"Use a transaction to write: tx\.write\(table, rows\)", "deltars load TABLE FILE… loads the rows of files"),
    (
        r"Use a transaction to write: tx\.create_table\(name, schema\)",
        "deltars create TABLE --schema DDL creates a table",
    ),
    (r"Use a transaction to write: tx\.drop_table\(table\)", "deltars drop TABLE drops a table"),
    (r"Use a transaction to write: tx\.alter\(table\)", "deltars alter TABLE … changes a table"),
    (r"Use a transaction to write: tx\.delete\(table\)", "deltars delete TABLE --all deletes every row"),
    (r"Use a transaction to write", "deltars load writes rows"),
    (r"eave as_of out", "eave the moment out"),
    (
        r"Fill it in the frame, or allow nulls in the table: table\.alter\.set_nullable\(…\)",
        "Fill it in the file, or allow nulls in the table: deltars alter TABLE drop-not-null COLUMN",
    ),
    (r", or a Spark Column", ""),
    (r", a Spark Column, or a number, date, time, bytes, bool or None", ""),
    (r"use mode='overwrite'", "use --mode overwrite"),
    (r"Give the delimiter, or ','", "Give it as --delimiter, or --delimiter ','"),
    (r"merge_schema=True", "--merge-schema"),
    (r"overwrite_schema=True", "--overwrite-schema"),
)


def in_commands(hint: str) -> str:
    """Return a hint with the commands that do what its Python calls do."""
    for pattern, command in _IN_COMMANDS:
        hint = re.sub(pattern, command, hint)
    return hint
