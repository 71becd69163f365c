"""Lay out the report page and the comparison page from tables; decide nothing."""
