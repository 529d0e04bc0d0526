"""SQL statements as data: what a text asks for, with its expressions as written. No I/O, and nothing is executed.

    text ──sqlglot's tokens──▶ Cursor ──▶ Statement: names, expressions and queries as Fragments of the text
                                            └─ a query or an expression is parsed by sqlglot, when it is executed

sqlglot has no positions for expressions, and writes their text anew. Statements are therefore read token by token, so
that Spark gets every expression as the user wrote it, and every error points at its place.
"""
