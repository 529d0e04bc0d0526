"""Errors of the library in the command line's own words: commands and options in place of Python calls."""

from __future__ import annotations

import re

import deltars

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
    (r"catalog\.snapshot\(as_of=…\)", 'deltars sql "SELECT …" --as-of MOMENT'),
    (r"in a query: catalog\.sql\(…\)", 'in a query: deltars sql "SELECT …"'),
    (r"catalog\.untag\('([^']*)'\)", r"deltars untag \1"),
    (r"catalog\.untag(\(…\))?", "deltars untag NAME"),
    (r"Write timedelta\(days=30\), ", "Write "),
    (r"Examples: timedelta\(days=14\), ", "Examples: "),
    (r"drop_table\(\) without delete_data removes", "deltars drop TABLE without --delete-data removes"),
    (r"Drop that table with delete_data", "Drop that table with --delete-data"),
    (r"name the other tables with tables=", "name the other tables with --tables A,B"),
    (r"use catalog\.drop_table\b(?!\()", "use deltars drop TABLE"),
    (r"Take it back with catalog\.adopt\(\)", "Take it back with deltars adopt TABLE"),
    (r" ?A temporary view of the Spark session works too\.", ""),
    (r"catalog\.transaction\(\)", "deltars txn ID"),
    (r"Read with Spark \(table\.read\)", 'Use deltars sql "SELECT …"'),
    (r"connect\(…, warehouse=…\), or pass location=…", "deltars init --warehouse LOCATION, or give --location"),
    (r"Use if_not_exists=True or replace=True, or another name", "Give --if-not-exists, or another name"),
    (r"table\.alter\.add_constraint\('([^']*)', …\)", r"deltars alter TABLE add-constraint \1 CONDITION"),
    (r"then call set_default\(column, …\)", "then deltars alter TABLE set-default COLUMN VALUE"),
    (
        r"the rows again( with the other type)?: tx\.write\(table, rows, mode='overwrite', overwrite_schema=True\)",
        r"the rows again\1: deltars load TABLE FILE… --mode overwrite --overwrite-schema",
    ),
    (r"table\.alter\.drop_constraint\('([^']*)'\)", r"deltars alter TABLE drop-constraint \1"),
    (r"table\.alter\.drop_constraint\(…\)", "deltars alter TABLE drop-constraint NAME"),
    (
        r"table\.alter\.cluster_by\(columns\), or cluster_by\(None\)",
        "deltars alter TABLE cluster-by COLUMN…, or --none",
    ),
    (
        r"fill it by table\.update, then call set_not_null\(column\)",
        "fill it by deltars update, then deltars alter TABLE set-not-null COLUMN",
    ),
    (r"Give enable_column_mapping=True", "Give --enable-column-mapping"),
    (r"Give enable_type_widening=True", "Give --enable-type-widening"),
    (r"Write first=True, or after=\"id\" with another column", "Give --first, or --after COLUMN"),
    (r"catalog\.drop_table\(table_id, delete_data=True\)", "deltars drop ID --delete-data"),
    (r"catalog\.drop_table\(UUID\('?([^')]*)'?\), purge=True\)", r"deltars drop \1 --purge"),
    (r"Leave warehouse= out", "Leave --warehouse out"),
    (r"pass discard=True", "give --discard"),
    (r"If no one needs them: force=True", "If no one needs them, give --force"),
    (r"or adopt it first: catalog\.adopt\(\)", "or adopt it first: deltars adopt TABLE"),
    (r"Pass that moment as as_of", "Give that moment as --as-of"),
    (r"tx\.delete\(table, where\) does this", "deltars delete TABLE --where CONDITION deletes rows"),
    (
        r"tx\.update\(table, set, where\) does this",
        "deltars update TABLE --set COLUMN=EXPRESSION --where CONDITION updates rows",
    ),
    (r"(tx\.merge\(table, rows, on\)) does this", r"In Python, \1 merges rows"),
    (r"tx\.write\(table, rows\) does this", "deltars load TABLE FILE… loads the rows of files"),
    (r"tx\.create_table\(name, schema\) does this", "deltars create TABLE --schema DDL creates a table"),
    (r"tx\.drop_table\(table\) does this", "deltars drop TABLE drops a table"),
    (r"tx\.alter\(table\) does this", "deltars alter … changes a table"),
    (r"tx\.delete\(table\) does this", "deltars delete TABLE --all deletes every row"),
    (r"table\.optimize\(\)", "deltars optimize TABLE"),
    (r"table\.vacuum\(\)", "deltars vacuum TABLE"),
    (r"table\.restore\(version\)", "deltars restore TABLE --version N"),
    (r"table\.verify\(\) does this", "deltars verify TABLE does this"),
    (r"table\.history\(\) does this", "deltars history TABLE does this"),
    (r"table\.detail\((partitions=True)?\) does this", "deltars show TABLE does this"),
    (r"table\.diff\(old, new\) compares", "deltars diff TABLE OLD NEW compares"),
    (r"catalog\.sql\(query\)\.explain\(\) does this", "-v says which engine runs a query"),
    (r"(table\.purge\(\)) does this", r"In Python, \1 does this"),
    (r"eave as_of out", "eave the moment out"),
    (
        r"Fill it in the frame, or allow nulls in the table: table\.alter\.set_nullable\(…\)",
        "Fill it in the file, or allow nulls in the table: deltars alter TABLE drop-not-null COLUMN",
    ),
    (r", or a Spark Column", ""),
    (r", a Spark Column, or a number, date, time, bytes, bool or None", ""),
    (r"use mode='overwrite'", "use --mode overwrite"),
    (r"Give the delimiter, or ','", "Give it as --delimiter, or --delimiter ','"),
    (r"Give the encoding, such as latin-1", "Give it as --encoding, such as --encoding latin-1"),
    (r"properties=\{'([^']*)': '([^']*)'\}", r"--property \1=\2"),
    (r"merge_schema=True", "--merge-schema"),
    (r"overwrite_schema=True", "--overwrite-schema"),
)

_MESSAGES = (
    (r"^older_than must be a timedelta, a span or a time", "older_than must be a span or a time"),
    (r"^retention must be a timedelta of 0 or more, or a text like", "retention must be 0 or more, a text like"),
)
_OPTION = re.compile(
    r"^(older_than|keep_versions|retention|target_size|zorder_by|partition_by|cluster_by)(?= (is|must)\b)"
)
"""Arguments of Python that are options of commands, where a message begins with them."""


def said(error: deltars.DeltarsError) -> str:
    """Return what happened and, on another line, what to do, so that a command in it can be copied."""
    # A message that ends with a pointer into a text says where by itself.
    what = error.message if "\n" in error.message else error.what_and_where
    for pattern, words in _MESSAGES:
        what = re.sub(pattern, words, what)
    what = _OPTION.sub(lambda found: "--" + found[0].replace("_", "-"), what)
    hint = error.hint or ""
    # A verb to come names commands where there are any, and else Python on purpose.
    return f"{what}\n{hint if isinstance(error, deltars.NotSupportedYet) else in_commands(hint)}".rstrip()


def in_commands(hint: str) -> str:
    """Return a hint with the commands that do what its Python calls do."""
    for pattern, command in _IN_COMMANDS:
        hint = re.sub(pattern, command, hint)
    return hint
