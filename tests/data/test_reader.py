"""Data files as Arrow: today's schema over whatever was written, and nothing outside the table is opened."""

from __future__ import annotations

import datetime as dt
import json
import zlib
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from threading import Barrier
from typing import Any
from uuid import UUID

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyroaring import BitMap64

from deltars.data.deletion_vectors import MAGIC
from deltars.data.reader import PlacedRows, read_each_file, read_scan
from deltars.data.scan import Scan
from deltars.errors import DeltarsError, SchemaMismatch, StorageError, ValidationError
from deltars.protocol import ColumnMapping, StructType, schema_from_ddl
from deltars.protocol.z85 import decode_z85, encode_z85

UTC = dt.UTC


def _scan(
    root: Path,
    schema: StructType | str,
    files: list[dict[str, Any]],
    partition_by: tuple[str, ...] = (),
    mapping: ColumnMapping = "none",
) -> Scan:
    rows = [
        {
            "path": file["path"],
            "size": 1,
            "partition_values": json.dumps(file.get("values", {})),
            "deletion_vector": json.dumps(file["vector"]) if "vector" in file else None,
        }
        for file in files
    ]
    columns = pa.schema(
        [
            ("path", pa.string()),
            ("size", pa.int64()),
            ("partition_values", pa.string()),
            ("deletion_vector", pa.string()),
        ]
    )
    wanted = schema_from_ddl(schema) if isinstance(schema, str) else schema
    return Scan(str(root), wanted, partition_by, pa.Table.from_pylist(rows, columns), "t", 3, column_mapping=mapping)


def _write(root: Path, name: str, /, **columns: Any) -> dict[str, Any]:
    (root / name).parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.table(columns), root / name)
    return {"path": name}


def test_partition_values_come_from_the_log_and_not_from_the_path(tmp_path: Path) -> None:
    file = _write(tmp_path, "day=1999-01-01/a.parquet", id=[1, 2]) | {"values": {"day": "2026-02-03", "text": ""}}
    rows = read_scan(_scan(tmp_path, "id LONG, day DATE, text STRING", [file], ("day", "text"))).read_all()
    assert rows.to_pylist() == [{"id": i, "day": dt.date(2026, 2, 3), "text": None} for i in (1, 2)]


def test_columns_are_chosen_by_name_in_any_case_and_order(tmp_path: Path) -> None:
    file = _write(tmp_path, "a.parquet", id=[1], name=["x"]) | {"values": {"day": "1"}}
    scan = _scan(tmp_path, "id LONG, name STRING, day INT", [file], ("day",))
    assert read_scan(scan, columns=["DAY", "id"]).read_all().to_pylist() == [{"day": 1, "id": 1}]
    assert read_scan(scan, columns=["day"]).read_all().to_pylist() == [{"day": 1}]
    with pytest.raises(ValidationError, match="there is no column 'nope'"):
        read_scan(scan, columns=["nope"])


def test_old_files_are_read_under_a_new_schema_nested_columns_too(tmp_path: Path) -> None:
    old = _write(
        tmp_path,
        "old.parquet",
        s=pa.array([{"a": 1}, None], pa.struct([("a", pa.int32())])),
        xs=pa.array([[{"a": 1}], None], pa.list_(pa.struct([("a", pa.int32())]))),
        m=pa.array([[("k", {"a": 1})], None], pa.map_(pa.string(), pa.struct([("a", pa.int32())]))),
    )
    schema = (
        "s STRUCT<b: STRING, a: INT>, xs ARRAY<STRUCT<a: INT, b: INT>>, m MAP<STRING, STRUCT<a: LONG, b: INT>>, n INT"
    )
    assert read_scan(_scan(tmp_path, schema, [old])).read_all().to_pylist() == [
        {"s": {"b": None, "a": 1}, "xs": [{"a": 1, "b": None}], "m": [("k", {"a": 1, "b": None})], "n": None},
        {"s": None, "xs": None, "m": None, "n": None},
    ]


def test_narrower_types_are_widened(tmp_path: Path) -> None:
    file = _write(
        tmp_path,
        "a.parquet",
        i=pa.array([7], pa.int8()),
        d=pa.array([7], pa.int32()),
        f=pa.array([0.5], pa.float32()),
        c=pa.array([Decimal("1.25")], pa.decimal128(5, 2)),
        x=pa.array([3], pa.int32()),
        t=pa.array([dt.date(2020, 1, 2)]),
    )
    schema = "i LONG, d DOUBLE, f DOUBLE, c DECIMAL(12,4), x DECIMAL(12,2), t TIMESTAMP_NTZ"
    [row] = read_scan(_scan(tmp_path, schema, [file])).read_all().to_pylist()
    assert row == {
        "i": 7, "d": 7.0, "f": 0.5, "c": Decimal("1.2500"), "x": Decimal("3.00"), "t": dt.datetime(2020, 1, 2),
    }  # fmt: skip


def test_int96_and_milliseconds_are_microseconds_of_utc(tmp_path: Path) -> None:
    moment = dt.datetime(2020, 1, 2, 3, 4, 5, 678000)
    pq.write_table(pa.table({"t": pa.array([moment])}), tmp_path / "a.parquet", use_deprecated_int96_timestamps=True)
    pq.write_table(pa.table({"t": pa.array([moment], pa.timestamp("ms", "UTC"))}), tmp_path / "b.parquet")
    files = [{"path": "a.parquet"}, {"path": "b.parquet"}]
    rows = read_scan(_scan(tmp_path, "t TIMESTAMP", files)).read_all()
    assert rows.schema.field("t").type == pa.timestamp("us", "UTC")
    assert rows["t"].to_pylist() == [moment.replace(tzinfo=UTC)] * 2


def test_a_type_that_no_widening_leads_to_is_refused_by_column_and_file(tmp_path: Path) -> None:
    file = _write(tmp_path, "a.parquet", id=["1"])
    with pytest.raises(SchemaMismatch, match=r"a\.parquet: column id is string in the file"):
        read_scan(_scan(tmp_path, "id LONG", [file])).read_all()


def _mapped(*columns: tuple[str, str, int]) -> StructType:
    return StructType.from_dict(
        {
            "type": "struct",
            "fields": [
                {
                    "name": name,
                    "type": "long",
                    "nullable": True,
                    "metadata": {"delta.columnMapping.id": number, "delta.columnMapping.physicalName": physical},
                }
                for name, physical, number in columns
            ],
        }
    )


def test_columns_are_found_by_their_physical_names(tmp_path: Path) -> None:
    file = _write(tmp_path, "a.parquet", id=[1], other=[2]) | {"values": {"p": "3"}}
    scan = _scan(tmp_path, _mapped(("other", "id", 1), ("part", "p", 2)), [file], ("part",), "name")
    assert read_scan(scan).read_all().to_pylist() == [{"other": 1, "part": 3}]


def test_columns_are_found_by_their_field_ids(tmp_path: Path) -> None:
    ids = pa.schema([pa.field("x", pa.int64(), metadata={"PARQUET:field_id": "9"})])
    pq.write_table(pa.table({"x": [1]}, schema=ids), tmp_path / "a.parquet")
    scan = _scan(tmp_path, _mapped(("id", "col-1", 9), ("new", "x", 10)), [{"path": "a.parquet"}], (), "id")
    assert read_scan(scan).read_all().to_pylist() == [{"id": 1, "new": None}]


def test_a_file_without_field_ids_is_not_read_as_nulls(tmp_path: Path) -> None:
    file = _write(tmp_path, "a.parquet", x=[1])
    with pytest.raises(SchemaMismatch, match="no field ids"):
        read_scan(_scan(tmp_path, _mapped(("id", "x", 9)), [file], (), "id")).read_all()


# -- deletion vectors --------------------------------------------------------------------------------------------------

DELETED = [0, 2, 70_000]


def _bitmap(rows: list[int]) -> bytes:
    return MAGIC + BitMap64(rows).serialize()


def _vector(tmp_path: Path, kind: str) -> dict[str, Any]:
    data = _bitmap(DELETED)
    if kind == "i":
        padded = data + b"\0" * (-len(data) % 4)
        return {"storageType": "i", "pathOrInlineDv": encode_z85(padded), "sizeInBytes": len(data), "cardinality": 3}
    uuid = UUID("d2c639aa-8816-431a-aaf6-d3fe2512ff61")
    content = b"\x01" + len(data).to_bytes(4, "big") + data + zlib.crc32(data).to_bytes(4, "big")
    (tmp_path / "ab").mkdir()
    file = tmp_path / "ab" / f"deletion_vector_{uuid}.bin"
    file.write_bytes(content)
    place = file.as_uri() if kind == "p" else f"ab{encode_z85(uuid.bytes)}"
    return {"storageType": kind, "pathOrInlineDv": place, "offset": 1, "sizeInBytes": len(data), "cardinality": 3}


@pytest.mark.parametrize("kind", ["i", "u", "p"])
def test_deleted_rows_are_left_out(tmp_path: Path, kind: str) -> None:
    file = _write(tmp_path, "a.parquet", id=range(100_000)) | {"vector": _vector(tmp_path, kind)}
    scan = _scan(tmp_path, "id LONG", [file])
    ids = read_scan(scan).read_all()["id"].to_pylist()
    assert ids == [i for i in range(100_000) if i not in DELETED]


def _padded(data: bytes) -> bytes:
    return data + b"\0" * (-len(data) % 4)


def _with_hashes(data: bytes) -> str:
    """The last group as a number, with a # in the place of a digit for each byte that it lacks."""
    missing = -len(data) % 4
    head = len(data) - (4 - missing) if missing else len(data)
    tail = encode_z85(b"\0" * missing + data[head:]) if missing else ""
    return encode_z85(data[:head]) + "#" * missing + tail[missing:]


@pytest.mark.parametrize("extra", range(4), ids=lambda extra: f"{extra} bytes more")
@pytest.mark.parametrize(
    "encode",
    [
        lambda data: (encode_z85(_padded(data)), len(data)),
        lambda data: (encode_z85(_padded(data)), len(_padded(data))),
        lambda data: (encode_z85(data), len(data)),
        lambda data: (encode_z85(data), len(_padded(data))),
        lambda data: (_with_hashes(data), len(data)),
        lambda data: (encode_z85(_padded(data)) + str(-len(data) % 4 or ""), len(data)),
    ],
    ids=["zeros", "zeros counted", "short group", "short group, zeros counted", "hashes", "digit"],
)
def test_inline_vectors_of_every_padding_are_read(
    tmp_path: Path, encode: Callable[[bytes], tuple[str, int]], extra: int
) -> None:
    # Some writers leave zeros behind the bitmap and count them.
    text, size = encode(_bitmap([0, 2]) + b"\0" * extra)
    vector = {"storageType": "i", "pathOrInlineDv": text, "sizeInBytes": size, "cardinality": 2}
    file = _write(tmp_path, "a.parquet", id=range(5)) | {"vector": vector}
    assert read_scan(_scan(tmp_path, "id LONG", [file])).read_all()["id"].to_pylist() == [1, 3, 4]


NATIVE = "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
"""The example of Delta's protocol."""


@pytest.mark.parametrize("is_little", [False, True], ids=["big-endian", "little-endian"])
def test_vector_in_the_native_format_is_read(tmp_path: Path, is_little: bool) -> None:
    data = decode_z85(NATIVE)
    if is_little:
        data = b"".join(data[place : place + 4][::-1] for place in (0, 4, 8)) + data[12:]
    vector = {"storageType": "i", "pathOrInlineDv": encode_z85(data), "sizeInBytes": 40, "cardinality": 6}
    file = _write(tmp_path, "a.parquet", id=range(30)) | {"vector": vector}
    ids = read_scan(_scan(tmp_path, "id LONG", [file])).read_all()["id"].to_pylist()
    assert ids == [i for i in range(30) if i not in (3, 4, 7, 11, 18, 29)]


@pytest.mark.parametrize("length", [0, 5, 9, 20, 39])
def test_native_vector_that_was_cut_off_is_refused(tmp_path: Path, length: int) -> None:
    data = decode_z85(NATIVE)[:length]
    vector = {"storageType": "i", "pathOrInlineDv": encode_z85(data), "sizeInBytes": length, "cardinality": 6}
    file = _write(tmp_path, "a.parquet", id=range(30)) | {"vector": vector}
    with pytest.raises(ValidationError, match="cannot be read"):
        read_scan(_scan(tmp_path, "id LONG", [file])).read_all()


@pytest.mark.parametrize("text", ["####0", "#####", "#$$$$", "ab cd", "ab;cd", "é", "#0"])
def test_text_that_is_not_z85_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        decode_z85(text)


def test_vector_in_a_file_without_an_offset_begins_behind_the_version(tmp_path: Path) -> None:
    vector = {key: value for key, value in _vector(tmp_path, "u").items() if key != "offset"}
    file = _write(tmp_path, "a.parquet", id=range(100_000)) | {"vector": vector}
    assert read_scan(_scan(tmp_path, "id LONG", [file])).read_all().num_rows == 100_000 - len(DELETED)


def test_a_vector_may_delete_every_row(tmp_path: Path) -> None:
    data = _bitmap([0, 1])
    vector = {"storageType": "i", "pathOrInlineDv": encode_z85(data), "sizeInBytes": len(data), "cardinality": 2}
    file = _write(tmp_path, "a.parquet", id=[1, 2]) | {"vector": vector, "values": {"p": "1"}}
    assert read_scan(_scan(tmp_path, "id LONG, p INT", [file], ("p",)), columns=["p"]).read_all().num_rows == 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"cardinality": 4}, "holds 3 rows, but the log says 4"),
        ({"sizeInBytes": 7}, "its size is"),
        ({"pathOrInlineDv": "abc"}, "cannot be read"),
        ({"storageType": "x"}, "does not name its file"),
        ({"storageType": "p", "pathOrInlineDv": "file:///etc/hostname"}, "outside the table"),
    ],
)
def test_a_broken_vector_is_an_error_and_never_a_row_too_many(
    tmp_path: Path, change: dict[str, Any], reason: str
) -> None:
    file = _write(tmp_path, "a.parquet", id=range(100_000)) | {"vector": _vector(tmp_path, "u") | change}
    with pytest.raises(DeltarsError, match=reason):
        read_scan(_scan(tmp_path, "id LONG", [file])).read_all()


def test_a_vector_with_a_flipped_bit_is_refused(tmp_path: Path) -> None:
    file = _write(tmp_path, "a.parquet", id=range(100_000)) | {"vector": _vector(tmp_path, "u")}
    [stored] = (tmp_path / "ab").iterdir()
    content = bytearray(stored.read_bytes())
    content[-6] ^= 1
    stored.write_bytes(content)
    with pytest.raises(ValidationError, match="checksum"):
        read_scan(_scan(tmp_path, "id LONG", [file])).read_all()


def test_a_vector_beyond_the_files_rows_is_refused(tmp_path: Path) -> None:
    file = _write(tmp_path, "a.parquet", id=[1, 2]) | {"vector": _vector(tmp_path, "i")}
    with pytest.raises(ValidationError, match="deletes row 70000"):
        read_scan(_scan(tmp_path, "id LONG", [file])).read_all()


# -- files -------------------------------------------------------------------------------------------------------------


def test_a_missing_file_is_named_with_its_version(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match=r"gone\.parquet is missing, and version 3 needs it") as caught:
        read_scan(_scan(tmp_path, "id LONG", [{"path": "gone.parquet"}])).read_all()
    assert (caught.value.table, caught.value.version, caught.value.path) == ("t", 3, "gone.parquet")


def test_a_file_that_is_no_parquet_is_named(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"PAR1 no, not at all PAR1")
    (tmp_path / "b.parquet").write_bytes(b"")
    for name in ("a.parquet", "b.parquet"):
        with pytest.raises(StorageError, match=name):
            read_scan(_scan(tmp_path, "id LONG", [{"path": name}])).read_all()


def test_an_absolute_path_into_the_table_is_read(tmp_path: Path) -> None:
    _write(tmp_path, "a b.parquet", id=[1])
    for path in ((tmp_path / "a b.parquet").as_uri(), f"file:{tmp_path}/a%20b.parquet", f"{tmp_path}/a%20b.parquet"):
        assert read_scan(_scan(tmp_path, "id LONG", [{"path": path}])).read_all().num_rows == 1


@pytest.mark.parametrize(
    "path",
    ["../out.parquet", "%2e%2e/out.parquet", "x/../../out.parquet", "file://{out}", "{out}", "s3://bucket/out.parquet"],
)
def test_nothing_outside_the_table_is_opened(tmp_path: Path, path: str) -> None:
    outside = tmp_path / "out.parquet"
    _write(tmp_path, "out.parquet", id=[1])
    root = tmp_path / "table"
    root.mkdir()
    with pytest.raises(ValidationError):
        read_scan(_scan(root, "id LONG", [{"path": path.format(out=outside)}])).read_all()


def test_a_symbolic_link_out_of_the_table_is_not_followed(tmp_path: Path) -> None:
    _write(tmp_path, "out.parquet", id=[1])
    root = tmp_path / "table"
    root.mkdir()
    (root / "a.parquet").symlink_to(tmp_path / "out.parquet")
    (root / "dir").symlink_to(tmp_path)
    for path in ("a.parquet", "dir/out.parquet"):
        with pytest.raises(ValidationError, match="leads out of the table"):
            read_scan(_scan(root, "id LONG", [{"path": path}])).read_all()


def test_files_that_are_read_at_the_same_time_keep_their_order_and_their_places(tmp_path: Path) -> None:
    files = [_write(tmp_path, f"{n}.parquet", id=list(range(n, n + 3))) for n in range(20)]
    barrier = Barrier(2, timeout=30)

    def use(rows: Iterator[PlacedRows]) -> list[tuple[int, list[int]]]:
        barrier.wait()
        return [(placed.file, placed.rows["id"].to_pylist()) for placed in rows]

    found = read_each_file(_scan(tmp_path, "id LONG", files), use)
    assert found == [[(n, [n, n + 1, n + 2])] for n in range(20)]


def test_an_error_of_one_of_many_files_names_it(tmp_path: Path) -> None:
    files = [_write(tmp_path, f"{n}.parquet", id=[n]) for n in range(20)]
    (tmp_path / "7.parquet").unlink()
    with pytest.raises(StorageError, match=r"7\.parquet is missing"):
        read_each_file(_scan(tmp_path, "id LONG", files), list)
    assert read_each_file(_scan(tmp_path, "id LONG", []), list) == []
