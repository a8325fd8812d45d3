"""The report of a fit: one HTML file that needs nothing else."""

from membound.report.page import make_page, write_report

__all__ = ["make_page", "write_report"]
