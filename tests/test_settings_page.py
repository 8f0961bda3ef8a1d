"""The page of settings says what the code reads: every variable of every service, with its default."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr, ValidationError
from pydantic_settings import BaseSettings

from pamspec_common.consuming.settings import ConsumingSettings
from pamspec_common.settings import CommonSettings
from pamspec_delegation.settings import Settings as DelegationSettings
from pamspec_gateway.settings import Settings as GatewaySettings
from pamspec_indexing.settings import Settings as IndexingSettings
from pamspec_query.settings import Settings as QuerySettings
from pamspec_relay.settings import Settings as RelaySettings
from pamspec_retention_sweeper.settings import Settings as SweeperSettings
from pamspec_subscription.settings import Settings as SubscriptionSettings
from pamspec_write.settings import Settings as WriteSettings

PAGE = Path(__file__).resolve().parent.parent / "docs" / "settings.md"
SECTIONS: Mapping[str, type[BaseSettings]] = {
    "Every service": CommonSettings,
    "The gateway": GatewaySettings,
    "The write service": WriteSettings,
    "The relay": RelaySettings,
    "The query service": QuerySettings,
    "The subscription service": SubscriptionSettings,
    "The delegation service": DelegationSettings,
    "The indexing service": IndexingSettings,
    "The retention sweeper": SweeperSettings,
    "Services that consume the ledger": ConsumingSettings,
}


def defaults_on_the_page(section: str) -> dict[str, str]:
    """The variables of one section, with the default that it shows."""
    text = PAGE.read_text(encoding="utf-8").split(f"## {section}\n", 1)[1].split("\n## ", 1)[0]
    return dict(re.findall(r"^\| `PAMSPEC_(\w+)` \| `?(.*?)`? \| ", text, re.MULTILINE))


def shown(value: Any) -> str:
    """A default as the page writes it."""
    if isinstance(value, SecretStr):
        return value.get_secret_value()
    if value is None or value in ("", (), [], {}):
        return "none"
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return json.dumps(value)


def defaults_in_the_code(settings: type[BaseSettings]) -> dict[str, str]:
    """What a class of settings adds to the one that it stands on."""
    inherited = {name for base in settings.__mro__[1:] for name in getattr(base, "model_fields", ())}
    return {
        name.upper(): "must be set" if field.is_required() else shown(field.get_default(call_default_factory=True))
        for name, field in settings.model_fields.items()
        if name not in inherited
    }


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_is_on_the_page_with_its_default(section: str) -> None:
    assert defaults_on_the_page(section) == defaults_in_the_code(SECTIONS[section])


def test_no_section_is_unknown() -> None:
    assert re.findall(r"^## (.*)$", PAGE.read_text(encoding="utf-8"), re.MULTILINE) == list(SECTIONS)


@pytest.mark.parametrize(
    ("settings", "variables"),
    [
        (SubscriptionSettings, {"WEBHOOK_KEYS": '{"k1": "quiet-word"}'}),
        (GatewaySettings, {"KEY_PEPPER": "quiet-word", "CALLOUT_NKEY_SEED": "quiet-word"}),
        (GatewaySettings, {"KEY_PEPPER": "p", "TOKEN_ISSUERS": '[{"issuer": "quiet-word"}]'}),
    ],
)
def test_a_refused_value_is_not_shown(
    monkeypatch: pytest.MonkeyPatch, settings: type[BaseSettings], variables: dict[str, str]
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(f"PAMSPEC_{name}", value)
    with pytest.raises(ValidationError) as refused:
        settings()
    assert "quiet-word" not in str(refused.value)
