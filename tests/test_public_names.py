"""`import deltars`: light, complete, pinned, and it exports the types that its calls return."""

from __future__ import annotations

import inspect
import subprocess
import sys
import typing
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cached_property
from pathlib import Path
from typing import Any, get_args, is_typeddict

import pandas
import polars
import pyarrow as pa
import pytest
from pyspark.sql import DataFrame, SparkSession

import deltars
from deltars.config import Settings
from deltars.predicate import Predicate
from deltars.transaction.options import CheckedWriteOptions

PINNED = Path(__file__).parent / "public_api.txt"
REGENERATE = "python -m tests.test_public_names"

INTERNAL = {
    # Where a snapshot fetches from; made by the catalog only.
    "deltars.log.snapshot.Contents",
    # Always Parquet.
    "deltars.protocol.actions.Format",
    # An entry of `Verification.findings`: its fields say everything.
    "deltars.mirror.verify.Discrepancy",
    # A condition as a scan carries it to whoever reads its rows.
    *(f"deltars.predicate.tree.{kind.__name__}" for kind in get_args(Predicate)),
}
"""Types of fields that a program has no reason to name."""


def _python(program: str) -> str:
    return subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.strip()


def test_import_loads_no_heavy_library() -> None:
    heavy = ("pyarrow", "sqlalchemy", "pyspark", "msgspec")
    program = f"import sys, deltars; print([name for name in {heavy!r} if name in sys.modules])"
    assert _python(program) == "[]"


def test_every_public_name_is_there_and_listed() -> None:
    assert all(hasattr(deltars, name) for name in deltars.__all__)
    assert set(deltars.__all__) <= set(dir(deltars))
    assert "Catalog" in _python("import deltars; print(dir(deltars))")


def test_a_name_that_is_none_of_ours_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'bigin'"):
        _ = deltars.bigin  # type: ignore[attr-defined]


def test_the_spark_plane_is_there_however_the_package_was_entered() -> None:
    # As in a process that gets its catalog by pickle: nobody there uses a name of `deltars` itself.
    program = "from deltars.transaction.plane import spark_plane; print(type(spark_plane()).__name__)"
    assert _python(program) == "SparkPlane"


def test_writing_arrow_loads_no_pyspark() -> None:
    program = (
        "import sys, pyarrow, deltars\n"
        "from deltars.transaction.plane import plane_for\n"
        "plane_for(pyarrow.table({'id': [1]}))\n"
        "print('pyspark' in sys.modules)"
    )
    assert _python(program) == "False"


def test_threads_that_use_names_for_the_first_time_at_once_all_get_them(tmp_path: Path) -> None:
    program = f"""
import threading, deltars
uri = "deltasql://sqlite/{tmp_path}/lake.db"
deltars.connect(uri).close()
calls = [
    lambda catalog: catalog.begin().rollback(),
    lambda catalog: catalog.snapshot().versions,
    lambda catalog: catalog.mirror_status(),
    lambda catalog: catalog.create_table(f"t{{threading.get_ident()}}", "id INT").history(),
    lambda catalog: catalog.tags(),
    lambda catalog: catalog.reconciler(),
    lambda catalog: catalog.tables(),
    lambda catalog: deltars.Verification,
]
barrier, failures = threading.Barrier(len(calls)), []
def work(call):
    with deltars.connect(uri) as catalog:
        barrier.wait()
        try:
            call(catalog)
        except BaseException as error:
            failures.append(repr(error))
threads = [threading.Thread(target=work, args=(call,)) for call in calls]
for thread in threads: thread.start()
for thread in threads: thread.join()
print(failures)
"""
    assert _python(program) == "[]"


# -- types -------------------------------------------------------------------------------------------------------------


def test_keyword_options_have_one_list_each() -> None:
    assert set(deltars.CatalogSettings.__annotations__) == {setting.name for setting in fields(Settings)}
    assert {"mode", *deltars.WriteOptions.__annotations__} == {option.name for option in fields(CheckedWriteOptions)}


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda catalog: catalog.write("t", None, partitionBy="day"), "write"),
        (lambda catalog: catalog.begin(isolation_level="strict"), "begin"),
        (lambda catalog: catalog.run(lambda tx: None, retry=2), "run"),
        (lambda catalog: deltars.begin(user="ada"), "begin"),  # type: ignore[call-arg]
        (lambda catalog: deltars.connect(catalog.uri, pool=3), "connect"),  # type: ignore[call-arg]
    ],
)
def test_keyword_that_is_no_option_is_a_type_error(
    call: Callable[[deltars.Catalog], object], name: str, tmp_path: Path
) -> None:
    with (
        deltars.connect(f"deltasql://sqlite/{tmp_path}/lake.db") as catalog,
        pytest.raises(TypeError, match=rf"{name}\(\) got an unexpected keyword argument '\w+'; options are \w+"),
    ):
        call(catalog)


def test_every_type_that_a_public_call_returns_is_public() -> None:
    public = {value for _, value in _names() if isinstance(value, type)}
    missing = {
        f"{cls.__module__}.{cls.__qualname__}": where
        for name, value in _names()
        for where, annotation in _returned(name, value)
        for cls in _classes(annotation)
        if cls.__module__.startswith("deltars.") and cls not in public
    }
    assert {cls: where for cls, where in missing.items() if cls not in INTERNAL} == {}


def _names() -> Iterator[tuple[str, Any]]:
    for name in sorted(deltars.__all__):
        yield name, getattr(deltars, name)


def _has_fields(cls: type) -> bool:
    return is_dataclass(cls) or is_typeddict(cls) or hasattr(cls, "__struct_fields__")


def _members(cls: type) -> Iterator[tuple[str, Any]]:
    """Public members that deltars itself defines."""
    for name, member in sorted(inspect.getmembers(cls)):
        owner = next((base for base in cls.__mro__ if name in vars(base)), cls)
        if not name.startswith("_") and owner.__module__.startswith("deltars."):
            yield name, member


def _returned(name: str, value: Any) -> Iterator[tuple[str, Any]]:
    if inspect.isfunction(value):
        yield name, _hints(value).get("return")
    if not isinstance(value, type) or issubclass(value, Exception) or is_typeddict(value):
        return
    if _has_fields(value):
        yield from ((f"{name}.{field}", hint) for field, hint in _hints(value).items() if not field.startswith("_"))
    for member_name, member in _members(value):
        function = _getter(member) or member
        if inspect.isfunction(function):
            yield f"{name}.{member_name}", _hints(function).get("return")


def _getter(member: Any) -> Any:
    if isinstance(member, property):
        return member.fget
    return member.func if isinstance(member, cached_property) else None


def _hints(value: Any) -> dict[str, Any]:
    known = {"DataFrame": DataFrame, "SparkSession": SparkSession, "pandas": pandas, "polars": polars}
    known |= {"SupportsArrowStream": object, "SupportsArrowArray": object}
    # Modules that every command loads name their types under TYPE_CHECKING.
    known |= {name: getattr(deltars, name) for name in deltars.__all__} | {
        "pa": pa,
        "Expression": str,
        "Assignments": dict,
    }
    return typing.get_type_hints(value, localns=known)


def _classes(annotation: Any) -> Iterator[type]:
    if isinstance(annotation, type) and not get_args(annotation):
        yield annotation
    for argument in get_args(annotation):
        yield from _classes(argument)


# -- pinned ------------------------------------------------------------------------------------------------------------


def test_public_names_and_signatures_are_pinned() -> None:
    """A change of the public face is meant, or it is a mistake: `public_api.txt` shows it in the review."""
    pinned = PINNED.read_text().splitlines()
    assert list(_lines()) == pinned, f"the public API has changed; if that is meant, run `{REGENERATE}`"


def _lines() -> Iterator[str]:
    for name, value in _names():
        if inspect.ismodule(value):
            yield f"module {name}"
            for each in sorted(value.__all__):
                member = getattr(value, each)
                yield f"  {each}{_signature(member) if inspect.isfunction(member) else ''}"
        elif inspect.isfunction(value):
            yield f"def {name}{_signature(value)}"
        elif isinstance(value, type):
            yield from _class_lines(name, value)
        else:
            yield f"type {name}"


def _class_lines(name: str, cls: type) -> Iterator[str]:
    if issubclass(cls, Exception):
        yield f"error {name}({', '.join(base.__name__ for base in cls.__bases__)})"
        return
    yield f"class {name}"
    if issubclass(cls, Enum):
        yield from (f"  {member.name} = {member.value!r}" for member in cls)
        return
    own = inspect.get_annotations(cls) if _has_fields(cls) else {}
    for field, hint in own.items():
        if not field.startswith("_"):
            yield f"  {field}: {getattr(hint, '__forward_arg__', hint)}"
    if is_typeddict(cls):
        return
    for member_name, member in _members(cls):
        getter = _getter(member)
        if getter is not None:
            yield f"  {member_name} -> {inspect.get_annotations(getter).get('return')}"
        elif inspect.isfunction(member) or inspect.ismethod(member):
            yield f"  {member_name}{_signature(member)}"


def _signature(function: Callable[..., Any]) -> str:
    """The signature with annotations as the source has them, the same on every Python."""
    signature = inspect.signature(function)
    shown: list[str] = []
    for parameter in signature.parameters.values():
        if parameter.name == "self":
            continue
        if parameter.kind is parameter.KEYWORD_ONLY and "*" not in shown:
            shown.append("*")
        stars = "**" if parameter.kind is parameter.VAR_KEYWORD else ""
        default = "" if parameter.default is parameter.empty else f" = {parameter.default!r}"
        shown.append(f"{stars}{parameter.name}: {parameter.annotation}{default}")
    return f"({', '.join(shown)}) -> {signature.return_annotation}"


if __name__ == "__main__":
    PINNED.write_text("\n".join(_lines()) + "\n")
