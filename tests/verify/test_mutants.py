"""Every mutant of a correct rewrite that computes something else is rejected, and every equal one in a site is shown.

No mutant is skipped and no verdict is excused: see `mutants.py` for who decides. The kill rate over all forms that ran
stands in the test's summary.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from hlo_cp2ag.text.parser import parse
from hlo_cp2ag.verify.verification import verify

from .forms import Form
from .hand_forms import hand_forms
from .more_hand_forms import more_hand_forms
from .mutants import judged, lines_about, mutants_of
from .mutations import MUTATIONS
from .tool_forms import tool_forms

FORMS = [*tool_forms(), *hand_forms(), *more_hand_forms()]
QUICK = {
    *("partial", "two by four, partial replicas", "bits and a mask", "two permutes and a select", "by a loop"),
    *("subgroups", "one-hot add of s32", "raised, partial", "in one replica alone"),
}
"""One form of each family; the others run under `sweep`."""


def test_forms_are_shown() -> None:
    assert len({form.name for form in FORMS}) == len(FORMS) and {form.name for form in FORMS} >= QUICK
    for form in FORMS:
        verdict = verify(parse(form.before), parse(form.after))
        assert verdict.ok and verdict.run[0].verdict == "shown", (form.name, verdict)


def test_there_are_enough_kinds_of_mutation() -> None:
    used = {name for form in FORMS for mutant in mutants_of(form) for name in mutant.made_by}
    assert used == set(MUTATIONS) and len(used) >= 45


@pytest.mark.parametrize("form", [pytest.param(f, id=f.name) for f in FORMS if f.name in QUICK])
def test_mutants(form: Form, record_property: Callable[[str, object], None]) -> None:
    check(form, record_property, every=16)


@pytest.mark.sweep
@pytest.mark.parametrize("form", [pytest.param(f, id=f.name) for f in FORMS])
def test_all_mutants(form: Form, record_property: Callable[[str, object], None]) -> None:
    check(form, record_property, every=1)


def check(form: Form, record_property: Callable[[str, object], None], every: int) -> None:
    tally = judged(form, every)
    record_property("mutants", dict(tally.numbers))
    assert not tally.wrong, "\n".join([f"{len(tally.wrong)} of {form.name}:", *lines_about(tally.wrong)])
