"""Each broken variant of the service is noticed by the case that it names; without a variant that case passes."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest

from libs.pamspec_conformance.tests import delegation_variants, query_variants, relation_variants, variants
from libs.pamspec_conformance.tests.broken_door import Answer, BrokenDoor, Exchange, Variant
from pamspec_cli.own_service import OwnService
from pamspec_conformance import Facilities, HttpBinding, Outcome, Result, cases, run_cases


def _all() -> Iterator[type[Variant]]:
    for module in (variants, query_variants, relation_variants, delegation_variants):
        for _, found in inspect.getmembers(module, inspect.isclass):
            if issubclass(found, Variant) and found.breaks and found.__module__ == module.__name__:
                yield found


async def _results(own: OwnService, door: BrokenDoor, variant: Variant, *names: str) -> list[Result]:
    name = type(variant).__name__.lower()
    url = door.of(name, variant)

    async def forget() -> None:
        door.memories[name].clear()

    wanted = [case for case in cases() if not names or case.name in names]
    assert names or wanted
    async with HttpBinding(url, own.key) as binding, HttpBinding(url, own.stranger_key) as stranger:
        return await run_cases(wanted, binding, Facilities(stranger, forget, binding))


@pytest.mark.parametrize("variant", sorted(_all(), key=str))
async def test_a_broken_variant_fails_its_case(own: OwnService, door: BrokenDoor, variant: type[Variant]) -> None:
    (result,) = await _results(own, door, variant(), variant.breaks)
    assert result.outcome is Outcome.FAILED, f"{variant.__name__} went unnoticed: {result}"
    assert result.detail
    (sound,) = await _results(own, door, Variant(), variant.breaks)
    assert sound.outcome is Outcome.PASSED, f"it fails without the variant too: {sound.detail}"


class Missing(Variant):
    """Does not know one operation."""

    def __init__(self, operation: str, status: int = 404) -> None:
        self.operation, self.status = operation, status

    async def __call__(self, exchange: Exchange) -> Answer:
        if exchange.operation != self.operation:
            return await exchange.forward()
        error = {"code": "invalid_request", "message": "No.", "retryable": False, "operation_id": "op:x", "details": {}}
        return Answer(self.status, {"error": error}, {})


@pytest.mark.parametrize("status", [404, 405, 501])
async def test_what_is_not_offered_is_never_passed(own: OwnService, door: BrokenDoor, status: int) -> None:
    """A case that only expects refusals does not take a missing operation for one."""
    names = ["lite.stale_delete_conflicts", "lite.changes_need_an_expected_version", "lite.stale_update_conflicts"]
    results = await _results(own, door, Missing("delete", status), *names)
    outcomes = {result.case.name: result.outcome for result in results}
    assert outcomes == {names[0]: Outcome.NOT_YET, names[1]: Outcome.NOT_YET, names[2]: Outcome.PASSED}


class Silent(Variant):
    """Answers no JSON at all."""

    async def __call__(self, exchange: Exchange) -> Answer:
        return Answer(200, None, {}, b"<html>")


async def test_an_answer_that_is_no_answer_fails_every_case(own: OwnService, door: BrokenDoor) -> None:
    for result in await _results(own, door, Silent()):
        assert result.outcome is Outcome.FAILED, result
