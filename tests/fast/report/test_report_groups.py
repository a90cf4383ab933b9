"""A metric of the comparison is in one table of the page; the terminal shows metrics that there are."""

from __future__ import annotations

import pytest
from extras import needs

from dlcp.model.metrics import METRICS

pytestmark = needs("pandas")


@pytest.mark.parametrize("name", METRICS)
def test_a_metric_is_in_one_table_of_the_page(name: str) -> None:
    from dlcp.report.output.html import _GROUPS

    assert len([title for title, prefixes in _GROUPS.items() if name.startswith(prefixes)]) == 1


def test_the_terminal_shows_metrics_that_there_are() -> None:
    from dlcp.report.output.terminal import _GROUPS

    shown = [name for group in _GROUPS for name in group]
    assert set(shown) <= set(METRICS)
    assert len(shown) == len(set(shown))
