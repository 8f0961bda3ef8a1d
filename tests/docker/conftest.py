"""The deployment of the integration tests, for what is tried on it here."""

from tests.integration.conftest import fleet, pytest_runtest_makereport, shared_fleet

__all__ = ["fleet", "pytest_runtest_makereport", "shared_fleet"]
