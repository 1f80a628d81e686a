"""The same examples on every machine: a test that fails, fails again."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import settings

settings.register_profile("steady", derandomize=True, deadline=None, database=None)
settings.load_profile("steady")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The kill rate of verify's mutants, over all forms that ran, in whatever process."""
    total: Counter[str] = Counter()
    for reports in terminalreporter.stats.values():
        for report in reports:
            for name, numbers in getattr(report, "user_properties", ()):
                if name == "mutants" and report.when == "call":
                    total.update(numbers)
    if total:
        changed = total["differs"] + total["broken"]
        terminalreporter.write_line(
            f"mutants: {total['mutants']:,}; {total['killed']:,} of {changed:,} that change something are rejected "
            f"({total['killed'] / max(1, changed):.2%}), {total['shown']:,} of {total['equal in a site']:,} that do "
            f"not are shown ({total['shown'] / max(1, total['equal in a site']):.2%})"
        )
