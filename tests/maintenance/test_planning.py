"""Advice from statistics: deterministic, explained, and gone after it was followed."""

from __future__ import annotations

from dataclasses import fields, replace
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deltars.catalog.maintenance import rules_of
from deltars.log.maintenance import (
    EXPIRABLE_VERSIONS,
    MERGEABLE_FILES,
    PAUSE_US,
    Advice,
    MaintenanceRules,
    MaintenanceVerb,
    TableStatistics,
    advise,
)

DAY_S = 86_400.0
QUIET = TableStatistics("t", UUID(int=1), current_version=5, published_version=5, target_bytes=256 << 20)
NUMBERS = st.one_of(st.integers(0, 30), st.integers(0, 1 << 45))
AGES = st.one_of(st.none(), st.floats(0, 100 * DAY_S))


def _verbs(one: TableStatistics) -> list[str]:
    return [advice.verb.value for advice in advise(one)]


@st.composite
def statistics(draw: st.DrawFn) -> TableStatistics:
    values: dict[str, object] = {}
    for field in fields(TableStatistics):
        match field.type:
            case "int":
                values[field.name] = draw(NUMBERS)
            case "float":
                values[field.name] = draw(st.floats(0, 1e6))
            case "float | None":
                values[field.name] = draw(AGES)
            case "bool":
                values[field.name] = draw(st.booleans())
    states = st.sampled_from(["active", "active", "failed", "diverged", "read_only"])
    rules = MaintenanceRules(is_compacted=draw(st.booleans()))
    return replace(QUIET, **values, mirror_state=draw(states), rules=rules)  # type: ignore[arg-type]


def _followed(one: TableStatistics, advice: Advice) -> TableStatistics:
    """Return what the statistics are after a verb, as the verb's own plan promises."""
    match advice.verb:
        case MaintenanceVerb.PUBLISH:
            return replace(one, published_version=one.current_version, lag_s=0.0, mirror_state="active")
        case MaintenanceVerb.OPTIMIZE:
            return replace(one, mergeable_files=0, worn_files=0, unsorted_files=0, unsorted_bytes=0)
        case MaintenanceVerb.VACUUM:
            writers = 0 if advice.is_full else one.dead_writers
            return replace(
                one,
                removed_files=0,
                removed_bytes=0,
                removed_vectors=0,
                change_files=0,
                change_bytes=0,
                untagged_versions=0,
                dead_writers=writers,
                vacuumed_age_s=0.0,
                expirable_versions=one.expirable_after_vacuum,
            )
        case MaintenanceVerb.EXPIRE:
            return replace(one, expirable_versions=0, expirable_after_vacuum=0, expired_age_s=0.0)
    return one


@given(statistics())
def test_advice_is_deterministic_and_gone_after_it_was_followed(one: TableStatistics) -> None:
    advice = advise(one)
    assert advice == advise(one)
    after = one
    for each in advice:
        assert each.reason.endswith(".")
        after = _followed(after, each)
    assert [each for each in advise(after) if not each.is_manual] == []


@given(statistics())
def test_verbs_are_in_the_order_in_which_each_makes_work_for_the_next(one: TableStatistics) -> None:
    order = list(MaintenanceVerb)
    verbs = [advice.verb for advice in advise(one)]
    assert verbs == sorted(verbs, key=order.index)
    assert len(verbs) == len(set(verbs))


@given(statistics())
def test_a_table_that_others_own_is_left_alone(one: TableStatistics) -> None:
    assert [each for each in advise(replace(one, is_ours=False)) if not each.is_manual] == []


def test_a_table_that_needs_nothing_gets_no_advice() -> None:
    assert advise(QUIET) == []
    assert advise(replace(QUIET, mergeable_files=MERGEABLE_FILES - 1, small_files=50)) == []


def test_small_files_are_compacted_unless_the_table_refuses_automatic_compaction() -> None:
    one = replace(QUIET, num_files=40, mergeable_files=30, small_files=35, small_bytes=7_000)
    [advice] = advise(one)
    assert (advice.verb, advice.num_files, advice.size_bytes) == (MaintenanceVerb.OPTIMIZE, 35, 7_000)
    assert advice.reason == "30 of 40 files are smaller than a quarter of the target size 256 MiB."
    assert advise(replace(one, rules=MaintenanceRules(is_compacted=False))) == []


def test_files_with_many_deleted_rows_are_rewritten_even_then() -> None:
    one = replace(QUIET, worn_files=1, worn_bytes=5 << 30, rules=MaintenanceRules(is_compacted=False))
    [advice] = advise(one)
    assert advice.reason == "1 file (5.0 GiB) lost more than a fifth of their rows."


def test_a_clustered_table_is_sorted_by_the_files_that_are_not() -> None:
    one = replace(QUIET, is_clustered=True, mergeable_files=99)
    assert advise(one) == []
    assert _verbs(replace(one, unsorted_files=10)) == ["optimize"]
    assert _verbs(replace(one, unsorted_files=1, unsorted_bytes=256 << 20)) == ["optimize"]
    assert _verbs(replace(one, unsorted_files=1, unsorted_bytes=1)) == []


def test_a_few_removed_files_wait_for_a_day_after_the_last_vacuum_and_many_do_not() -> None:
    few = replace(QUIET, removed_files=1, removed_bytes=1)
    assert _verbs(few) == ["vacuum"]
    assert _verbs(replace(few, vacuumed_age_s=DAY_S - 1)) == []
    assert _verbs(replace(few, vacuumed_age_s=PAUSE_US / 1e6)) == ["vacuum"]
    assert _verbs(replace(few, removed_files=1_000, vacuumed_age_s=0.0)) == ["vacuum"]
    assert _verbs(replace(few, removed_bytes=1 << 30, vacuumed_age_s=0.0)) == ["vacuum"]


def test_a_dead_writer_calls_for_a_vacuum_that_lists_the_directory() -> None:
    [advice] = advise(replace(QUIET, dead_writers=2, vacuumed_age_s=0.0))
    assert (advice.verb, advice.is_full) == (MaintenanceVerb.VACUUM, True)
    assert advice.reason == "2 writers died and may have left files that no version names."


def test_history_that_only_a_vacuum_frees_is_expired_after_it() -> None:
    one = replace(QUIET, expirable_after_vacuum=EXPIRABLE_VERSIONS)
    assert _verbs(one) == []
    assert _verbs(replace(one, removed_files=1)) == ["vacuum", "expire"]
    assert _verbs(replace(one, expirable_versions=EXPIRABLE_VERSIONS)) == ["expire"]
    assert _verbs(replace(one, expirable_versions=1_000, expired_age_s=60.0)) == []


def test_a_lagging_mirror_is_published_unless_it_is_off() -> None:
    one = replace(QUIET, current_version=8, lag_s=7_200.0)
    [advice] = advise(one)
    assert (advice.verb, advice.reason) == ("publish", "3 versions waited 2 hours to be published.")
    assert advise(replace(one, is_published=False)) == []
    assert advise(replace(one, lag_s=1.0)) == []


def test_a_diverged_table_gets_one_piece_of_advice_that_a_person_must_follow() -> None:
    [advice] = advise(replace(QUIET, mirror_state="diverged", removed_files=10, mergeable_files=100))
    assert (advice.verb, advice.is_manual) == (MaintenanceVerb.REPAIR, True)


@pytest.mark.parametrize(
    ("properties", "rules"),
    [
        ({}, MaintenanceRules()),
        ({"delta.targetFileSize": "1mb"}, MaintenanceRules(target_bytes=1 << 20)),
        ({"delta.targetFileSize": "many"}, MaintenanceRules()),
        ({"delta.targetFileSize": "0"}, MaintenanceRules()),
        ({"delta.deletedFileRetentionDuration": "interval 1 day"}, MaintenanceRules(deleted_retention_us=PAUSE_US)),
        ({"delta.logRetentionDuration": "1 month"}, MaintenanceRules()),
        ({"delta.autoOptimize.autoCompact": "FALSE"}, MaintenanceRules(is_compacted=False)),
        ({"delta.autoOptimize.autoCompact": "auto"}, MaintenanceRules()),
    ],
)
def test_properties_make_the_rules(properties: dict[str, str], rules: MaintenanceRules) -> None:
    assert rules_of(properties) == rules
