"""The implementation report that PAMSPEC 18.12 asks for (P4, P5), as JSON and as Markdown.

Invariant: a profile is complete only when each of its cases passed, and each profile that it stands on is complete; so
nothing that was not seen working is claimed (P3).
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from pamspec_conformance.profiles import PROFILES, VERSION, Profile
from pamspec_conformance.run import Outcome, Result

NOT_STATED: Final = "not stated"
SUBJECTS: Final = (
    ("storage", "Storage choices"),
    ("authorization", "Authorization model"),
    ("indexes", "Index behaviour"),
    ("export", "Export behaviour"),
    ("deletion", "Deletion behaviour"),
)
"""What an implementation states about itself."""


@dataclass(frozen=True)
class Statement:
    """What an implementation says of itself; no case can find it out."""

    name: str = NOT_STATED
    version: str = NOT_STATED
    texts: Mapping[str, str] = field(default_factory=dict)
    deviations: tuple[str, ...] = ()

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Statement:
        """From its JSON form; ValueError names what is wrong with it."""
        known = {"name", "version", "known_deviations", *(name for name, _ in SUBJECTS)}
        foreign = set(document) - known
        if foreign:
            raise ValueError(f"a statement has no member {', '.join(sorted(foreign))}")
        texts = {name: str(document[name]) for name, _ in SUBJECTS if name in document}
        name, version = str(document.get("name", NOT_STATED)), str(document.get("version", NOT_STATED))
        return cls(name, version, texts, tuple(map(str, document.get("known_deviations", ()))))


@dataclass(frozen=True)
class ProfileResult:
    """What the cases say of one profile."""

    profile: Profile
    results: tuple[Result, ...]
    standing: str
    """complete, partial or failed; not run where none of its cases ran."""

    def count(self, outcome: Outcome) -> int:
        """How many cases ended so."""
        return sum(result.outcome is outcome for result in self.results)


class Report:
    """The results of a run, by profile."""

    def __init__(self, results: Sequence[Result], statement: Statement, address: str, at: str) -> None:
        self.statement, self.address, self.at = statement, address, at
        own = {profile.name: _own(profile, results) for profile in PROFILES}
        self.profiles = [_standing(own, entry) for entry in own.values()]

    @property
    def failed(self) -> bool:
        """Whether any case failed."""
        return any(entry.count(Outcome.FAILED) for entry in self.profiles)

    @property
    def complete(self) -> list[str]:
        """The profiles that may be claimed."""
        return [entry.profile.name for entry in self.profiles if entry.standing == "complete"]

    def document(self) -> dict[str, Any]:
        """The report as a JSON document."""
        return {
            "report": "pamspec-implementation-report",
            "spec_version": VERSION,
            "implementation": {"name": self.statement.name, "version": self.statement.version, "address": self.address},
            "generated_at": self.at,
            "profiles": [_profile_document(entry) for entry in self.profiles],
            **{name: self.statement.texts.get(name, NOT_STATED) for name, _ in SUBJECTS},
            "test_results": {
                outcome.value: sum(entry.count(outcome) for entry in self.profiles) for outcome in Outcome
            },
            "known_deviations": [*self.statement.deviations, *self._deviations()],
        }

    def json(self) -> str:
        """The document as text."""
        return json.dumps(self.document(), indent=2, ensure_ascii=False) + "\n"

    def markdown(self) -> str:
        """The report for people."""
        lines = [
            f"# Implementation report: {self.statement.name} {self.statement.version}",
            "",
            f"PAMSPEC {VERSION}, {self.at}, {self.address}.",
            "",
            "| profile | section | version | standing | passed | failed | not yet | not tried |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for entry in self.profiles:
            counts = " | ".join(str(entry.count(outcome)) for outcome in Outcome)
            lines.append(
                f"| {entry.profile.name} | {entry.profile.section} | {VERSION} | {entry.standing} | {counts} |"
            )
        for name, title in SUBJECTS:
            lines += ["", f"## {title}", "", self.statement.texts.get(name, NOT_STATED)]
        lines += ["", "## Known deviations", ""]
        lines += [f"- {text}" for text in (*self.statement.deviations, *self._deviations())] or ["None known."]
        for entry in self.profiles:
            lines += ["", f"## {entry.profile.name}: {entry.profile.title}", "", *_table(entry)]
        return "\n".join(lines) + "\n"

    def _deviations(self) -> list[str]:
        return [
            f"{result.case.name}: {result.detail}"
            for entry in self.profiles
            for result in entry.results
            if result.outcome is Outcome.FAILED
        ]


def _own(profile: Profile, results: Sequence[Result]) -> ProfileResult:
    mine = tuple(result for result in results if result.case.profile == profile.name)
    outcomes = {result.outcome for result in mine}
    if not mine:
        standing = "not run"
    elif Outcome.FAILED in outcomes:
        standing = "failed"
    else:
        standing = "complete" if outcomes == {Outcome.PASSED} else "partial"
    return ProfileResult(profile, mine, standing)


def _standing(own: Mapping[str, ProfileResult], entry: ProfileResult) -> ProfileResult:
    """With what its foundations leave of it: no profile is complete on a foundation that is not."""
    below = [own[name].standing for name in entry.profile.stands_on]
    if entry.standing == "complete" and any(standing != "complete" for standing in below):
        return ProfileResult(entry.profile, entry.results, "partial")
    return entry


def _profile_document(entry: ProfileResult) -> dict[str, Any]:
    return {
        "name": entry.profile.name,
        "section": entry.profile.section,
        "version": VERSION,
        "standing": entry.standing,
        "cases": [
            {
                "name": result.case.name,
                "covers": list(result.case.covers),
                "promise": result.case.promise,
                "outcome": result.outcome.value,
                **({"detail": result.detail} if result.detail else {}),
            }
            for result in entry.results
        ],
    }


def _table(entry: ProfileResult) -> list[str]:
    rows = ["| case | covers | outcome |", "|---|---|---|"]
    for result in entry.results:
        covers = " ".join(result.case.covers)
        detail = f": {result.detail}".replace("|", "\\|").replace("\n", " ") if result.detail else ""
        rows.append(f"| `{result.case.name}` {result.case.promise} | {covers} | {result.outcome.value}{detail} |")
    return rows
