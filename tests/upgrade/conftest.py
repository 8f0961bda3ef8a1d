"""Logs of the services where a test fails."""

from tests.integration.conftest import pytest_runtest_makereport

__all__ = ["pytest_runtest_makereport"]
