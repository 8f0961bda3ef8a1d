"""Conversations as files: each turn of each session, in order.

A file holds one conversation: `speaker_a`, `speaker_b`, and for every session N `session_N`, a list of turns
`{speaker, dia_id, text or clean_text, blip_caption?}`, and `session_N_date_time`, such as "1:56 pm on 8 May, 2023".
Where it has them, `qa` holds questions `{question, evidence, category}`: the `dia_id`s of the turns that answer it.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import resources
from pathlib import Path
from typing import Any

_SESSION = re.compile(r"session_([0-9]+)\Z")
_UNANSWERABLE = 5
"""The category of questions that only seem to have an answer."""
_DATE = "%I:%M %p on %d %B, %Y"


class NoConversation(Exception):
    """A file or folder that holds no conversation; the message names it."""


@dataclass(frozen=True)
class Turn:
    """What one speaker said once. Times are taken as UTC: the files name no zone."""

    conversation: str
    session: int
    turn: str
    speaker: str
    text: str
    caption: str | None
    at: datetime

    @property
    def scope_id(self) -> str:
        """The scope of its conversation."""
        return f"conversation:{self.conversation}"

    @property
    def key(self) -> str:
        """The idempotency key: the same turn twice is one observation."""
        return f"{self.scope_id}/{self.turn}"


@dataclass(frozen=True)
class Question:
    """What somebody asks about a conversation, and the turns that answer it, at least one."""

    text: str
    evidence: frozenset[str]


@dataclass(frozen=True)
class Conversation:
    """All turns of one conversation in order, and questions about it."""

    name: str
    turns: tuple[Turn, ...]
    questions: tuple[Question, ...] = ()

    @property
    def scope_id(self) -> str:
        """Its scope."""
        return f"conversation:{self.name}"


def read_folder(folder: Path) -> list[Conversation]:
    """Every conversation of a folder, by file name; NoConversation when there is none."""
    files = sorted(folder.glob("*.json")) if folder.is_dir() else []
    if not files:
        raise NoConversation(f"no conversations in {folder}: it should hold one JSON file for each")
    return [parse(file.stem, file.read_text(encoding="utf-8")) for file in files]


def sample() -> list[Conversation]:
    """The short conversations that come with this package."""
    folder = resources.files("pamspec_cli.demo").joinpath("sample")
    files = sorted((file for file in folder.iterdir() if file.name.endswith(".json")), key=lambda file: file.name)
    return [parse(file.name.removesuffix(".json"), file.read_text(encoding="utf-8")) for file in files]


def parse(name: str, text: str) -> Conversation:
    """One conversation from its JSON text; NoConversation when it has another form."""
    try:
        document = json.loads(text)
        turns = tuple(_turns(_scope_part(name), document))
        questions = tuple(_questions(document, frozenset(turn.turn for turn in turns)))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise NoConversation(f"{name} is no conversation: {type(error).__name__} {error}") from None
    if not turns:
        raise NoConversation(f"{name} holds no session with turns")
    return Conversation(_scope_part(name), turns, questions)


def _turns(name: str, document: dict[str, Any]) -> Iterator[Turn]:
    sessions = sorted(int(found[1]) for key in document if (found := _SESSION.fullmatch(key)))
    for session in sessions:
        at = datetime.strptime(document[f"session_{session}_date_time"], _DATE).replace(tzinfo=UTC)
        for turn in document[f"session_{session}"]:
            yield Turn(
                conversation=name,
                session=session,
                turn=turn["dia_id"],
                speaker=turn["speaker"],
                text=turn.get("clean_text") or turn["text"],
                caption=turn.get("blip_caption"),
                at=at,
            )


def _questions(document: dict[str, Any], turns: frozenset[str]) -> Iterator[Question]:
    """Those that turns answer. A file writes some ids together in one text; ids of no turn count for nothing."""
    for asked in document.get("qa", ()):
        named = frozenset(one for text in asked.get("evidence", ()) for one in re.split(r"[;,\s]+", text))
        if asked.get("category") != _UNANSWERABLE and (evidence := named & turns):
            yield Question(asked["question"], evidence)


def _scope_part(name: str) -> str:
    """A file name as the part of an identifier."""
    return re.sub(r"[^A-Za-z0-9+._\-]", "-", name)
