"""Results in, understanding out: metrics, intervals, plots, tables and a page. Knows results only."""

from dlcp.report.build import ReportSummary, report

__all__ = ["ReportSummary", "report"]
