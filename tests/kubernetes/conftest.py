"""Every test of an overlay is run for each of them."""

import pytest

from tests.kubernetes.overlays import ALL, Overlay


@pytest.fixture(params=ALL, ids=lambda one: one.name)
def overlay(request: pytest.FixtureRequest) -> Overlay:
    """One of the built overlays."""
    found: Overlay = request.param
    return found
