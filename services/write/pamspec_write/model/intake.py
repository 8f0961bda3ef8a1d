"""What an import takes: every line of an export checked as it comes, in its order, before anything is stored.

Invariant: the chain holds from its root to the head, every line has its one form (so that exporting again gives the
same bytes), and counts and digests are those of the lines. A refusal names the line and carries none of its text.
"""

from __future__ import annotations

import enum

import msgspec
import orjson

from pamspec_common import contracts, strict_json
from pamspec_common.envelope import SPEC_VERSION
from pamspec_common.errors import InvalidRequest, PamspecError
from pamspec_common.ids import short_hash
from pamspec_common.ledger import entry_hash, genesis
from pamspec_common.transfer import (
    FORMAT,
    FORMAT_VERSION,
    MAX_LINE,
    EndLine,
    EntryLine,
    FailureLine,
    Line,
    Manifest,
    OperationPart,
    PolicyLine,
    ScopeLine,
    Tally,
    bytes_or_none,
    decode_line,
    encode_line,
    manifest_digest,
)
from pamspec_write.model.entry_lines import BadLine, Entry, check_event, check_time, check_version, read_entry
from pamspec_write.model.rule_lines import FIRST, RuleLine, check_rule, rule_order


class _Stage(enum.Enum):
    MANIFEST = "the manifest"
    SCOPE = "the scope"
    ENTRIES = "an entry or the end"
    RULES = "a policy, a schema, a hold, a snapshot or the end"
    DONE = "nothing"


class Intake:
    """The lines of one file so far: feed them in order, then call `finish`."""

    def __init__(self) -> None:
        self.number = 0
        """The line that is being read, from 1."""
        self.manifest: Manifest | None = None
        self.scope: ScopeLine | None = None
        self.end: EndLine | None = None
        self._stage = _Stage.MANIFEST
        self._tally = Tally(b"")
        self._recorded_at = ""
        self._last_operation_seq = 0
        self._rule_order = FIRST

    def feed(self, line: bytes) -> None:
        """Check the next line, without its line feed; InvalidRequest when anything about it does not hold."""
        self.number += 1
        try:
            self._take(line)
        except BadLine as problem:
            raise self.refused(str(problem)) from None
        except PamspecError as problem:
            raise self.refused(problem.message) from None

    def refused(self, why: str) -> InvalidRequest:
        """The refusal of the line that was fed last."""
        return InvalidRequest(f"Line {self.number}: {why} Nothing was imported.", details={"line": self.number})

    def finish(self) -> EndLine:
        """The end of a whole file; InvalidRequest when the file was cut."""
        if self.end is None:
            self.number += 1
            raise self.refused(f"the file ends where {self._stage.value} should stand; it was cut, export again.")
        return self.end

    def _take(self, line: bytes) -> None:
        found = _decoded(line)
        stage = self._stage
        if stage is _Stage.DONE:
            raise BadLine("the export ended before it; import one file at a time.")
        if isinstance(found, FailureLine):
            raise BadLine("the export failed here, as the line tells; export again.")
        if isinstance(found, Manifest) and stage is _Stage.MANIFEST:
            self._take_manifest(found, line)
            return
        if encode_line(found)[:-1] != line:
            raise BadLine("it is not written as the format writes it; a file must not be edited.")
        if isinstance(found, ScopeLine) and stage is _Stage.SCOPE:
            self._take_scope(found, line)
        elif isinstance(found, EntryLine) and stage is _Stage.ENTRIES:
            self._take_entry(found, line)
        elif isinstance(found, RuleLine) and stage in (_Stage.ENTRIES, _Stage.RULES):
            self._stage = _Stage.RULES
            self._take_rule(found)
            self._tally.add(line + b"\n")
        elif isinstance(found, EndLine) and stage in (_Stage.ENTRIES, _Stage.RULES):
            self._take_end(found)
        else:
            raise BadLine(f"here should stand {stage.value}; lines are missing, repeated or in another order.")

    def _take_manifest(self, manifest: Manifest, line: bytes) -> None:
        if manifest.format != FORMAT:
            raise BadLine("this is no PAMSPEC export.")
        if manifest.format_version != FORMAT_VERSION:
            raise BadLine(
                f"the file has format version {manifest.format_version}, this service reads {FORMAT_VERSION};"
                " import it with a service that is as new."
            )
        if manifest.digest != manifest_digest(line):
            raise BadLine("the manifest has another digest; it was edited.")
        if manifest.spec_version != SPEC_VERSION:
            raise BadLine(f"the object model is not {SPEC_VERSION}.")
        if manifest.embeddings.included:
            raise BadLine("vectors are not taken; export with embeddings reference, and bring them with put_vectors.")
        self.manifest, self._stage = manifest, _Stage.SCOPE

    def _take_scope(self, scope: ScopeLine, line: bytes) -> None:
        assert self.manifest is not None
        document = strict_json.parse(bytes(scope.document))
        try:
            contracts.check("memory-scope", document)
        except contracts.ContractViolation:
            raise BadLine("the scope's document does not keep its contract.") from None
        if strict_json.dumps(document) != bytes(scope.document) or "policy" in document:
            raise BadLine("the scope's document is not written as the format writes it.")
        if document["scope_id"] != self.manifest.scope_id:
            raise BadLine("the scope is not the one of the manifest.")
        if scope.ledger_epoch != self.manifest.watermark.ledger_epoch:
            raise BadLine("the ledger epoch is not the one of the manifest.")
        self.scope, self._stage = scope, _Stage.ENTRIES
        self._tally = Tally(genesis(bytes.fromhex(scope.ledger_id)))
        self._tally.add(line + b"\n")

    def _take_entry(self, line: EntryLine, raw: bytes) -> None:
        assert self.manifest is not None
        entry = read_entry(line)
        event, tally = entry.event, self._tally
        if event.sequence != tally.sequence + 1:
            raise BadLine(f"here should stand entry {tally.sequence + 1}; lines are missing, repeated or reordered.")
        if entry_hash(tally.head_hash, entry.stored) != entry.entry_hash:
            raise BadLine("its hash does not follow from the entry before it; the event was edited.")
        if event.scope_id != self.manifest.scope_id:
            raise BadLine("the entry is of another scope.")
        if event.recorded_at < self._recorded_at:
            raise BadLine("the entry was recorded before the one in front of it.")
        check_event(entry)
        if entry.version is not None:
            check_version(entry.version, event)
        if entry.operation is not None:
            self._check_operation(entry, entry.operation)
        self._recorded_at = event.recorded_at
        source = entry.operation is not None and entry.operation.source_event is not None
        tally.count(
            event.sequence,
            entry.entry_hash,
            version=entry.version is not None,
            operation=entry.operation is not None,
            source=source,
        )
        tally.add(raw + b"\n")

    def _check_operation(self, entry: Entry, operation: OperationPart) -> None:
        version, event = entry.version, entry.event
        if version is None or operation.operation_id != event.operation_id:
            raise BadLine("the operation is not the one of its entry.")
        if short_hash("operation", operation.actor_id, operation.operation_id) != version.operation_hash:
            raise BadLine("the operation's hash is another one.")
        if operation.last_sequence < event.sequence:
            raise BadLine("the operation ended before its entry.")
        answer = bytes_or_none(operation.answer)
        if answer is not None:
            strict_json.parse(answer)
        check_time(operation.created_at)
        self._last_operation_seq = max(self._last_operation_seq, operation.last_sequence)

    def _take_rule(self, found: RuleLine) -> None:
        assert self.manifest is not None
        order = rule_order(found)
        if order <= self._rule_order:
            raise BadLine(
                "policies, schemas, holds, held objects and snapshots stand in this order, each kind by its ids."
            )
        if isinstance(found, PolicyLine) and found.policy_version != self._rule_order[1] + 1:
            raise BadLine(f"here should stand version {self._rule_order[1] + 1} of the policy.")
        self._rule_order = order
        check_rule(found, self.manifest.scope_id, self._tally.sequence)

    def _take_end(self, end: EndLine) -> None:
        assert self.manifest is not None
        own = self._tally.end()
        if end.digest != own.digest:
            raise BadLine("the lines before it have another digest; the file was edited or lines are missing.")
        if end != own:
            raise BadLine("its counts or its head are not those of the lines before it.")
        if self._last_operation_seq > end.sequence:
            raise BadLine("an operation ends behind the last entry.")
        if end.sequence < self.manifest.watermark.sequence:
            raise BadLine("the ledger ends before the position of the manifest.")
        self.end, self._stage = end, _Stage.DONE


def _decoded(line: bytes) -> Line:
    if len(line) > MAX_LINE:
        raise BadLine(f"it is longer than {MAX_LINE} bytes.")
    try:
        return decode_line(line)
    except msgspec.ValidationError:
        raise BadLine(_misfit(line)) from None
    except msgspec.DecodeError:
        raise BadLine("it is not one JSON document; the file was cut or edited.") from None


def _misfit(line: bytes) -> str:
    """What is wrong with a line of another form: a newer format says so in its manifest."""
    try:
        document = orjson.loads(line)
    except orjson.JSONDecodeError:
        return "it is not one JSON document; the file was cut or edited."
    if isinstance(document, dict) and document.get("kind") == "manifest":
        version = document.get("format_version")
        if document.get("format") == FORMAT and isinstance(version, int) and version > FORMAT_VERSION:
            return (
                f"the file has format version {version}, this service reads {FORMAT_VERSION};"
                " import it with a service that is as new."
            )
    return "it is no line of this format; the file was edited, or this is no PAMSPEC export."
