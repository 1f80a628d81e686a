"""Pairs of modules written by hand: replacements that are right in `fixtures/verify/equal`, wrong ones in `different`
(a few of them compute the same, but are not the same graph outside their sites), those that a layout pass makes right
in `provided`.

What is right was settled by thinking, and by XLA's CPU backend where it runs both.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import hlo_cp2ag

from ..cli.in_process import FIXTURES, cp2ag

EQUAL = sorted((FIXTURES / "verify" / "equal").glob("*.before.hlo"))
PROVIDED = sorted((FIXTURES / "verify" / "provided").glob("*.before.hlo"))
DIFFERENT = sorted((FIXTURES / "verify" / "different").glob("*.before.hlo"))


def _name(path: Path) -> str:
    return path.name.removesuffix(".before.hlo")


def _verdict(before: Path) -> hlo_cp2ag.Verdict:
    after = before.with_name(f"{_name(before)}.after.hlo")
    modules = [hlo_cp2ag.parse(path.read_text(), path.name) for path in (before, after)]
    profile = "neuron" if "neuron" in before.name else "xla"
    return hlo_cp2ag.verify(*modules, profile=profile, run=False)


@pytest.mark.parametrize("before", EQUAL, ids=_name)
def test_a_right_replacement_is_shown_without_a_condition(before: Path) -> None:
    verdict = _verdict(before)
    assert verdict.ok
    assert [site.conditions for site in verdict.sites] == [()] * len(verdict.sites)


@pytest.mark.parametrize("before", PROVIDED, ids=_name)
def test_what_only_a_layout_pass_makes_right_says_so(before: Path) -> None:
    verdict = _verdict(before)
    assert verdict.ok
    assert any("a layout pass follows" in condition for site in verdict.sites for condition in site.conditions)


@pytest.mark.parametrize("before", PROVIDED, ids=_name)
def test_and_is_not_shown_in_a_scheduled_module(before: Path) -> None:
    modules = []
    for path in (before, before.with_name(f"{_name(before)}.after.hlo")):
        modules.append(
            hlo_cp2ag.parse(path.read_text().replace("HloModule m", "HloModule m, is_scheduled=true"), path.name)
        )
    verdict = hlo_cp2ag.verify(*modules, run=False)
    assert not verdict.ok
    assert [site.outcome for site in verdict.sites if "no layout pass follows" in site.reason] != []


@pytest.mark.parametrize("before", DIFFERENT, ids=_name)
def test_a_wrong_one_is_not(before: Path) -> None:
    verdict = _verdict(before)
    assert not verdict.ok
    assert verdict.untouched.remarks or any(site.reason for site in verdict.sites)


@pytest.mark.parametrize("before", EQUAL, ids=_name)
def test_a_right_one_gives_the_same_when_run(before: Path) -> None:
    after = before.with_name(f"{_name(before)}.after.hlo")
    profile = "neuron" if "neuron" in before.name else "xla"
    outcome = cp2ag("verify", before, after, "--profile", profile)
    assert outcome.code == 0
    assert "failed" not in outcome.text
