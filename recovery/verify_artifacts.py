"""Is what a run keeps outside the journal, or encrypted in it, what was recorded?

The digests that the database cannot make itself are made here, of the true texts; every artifact that a
step put or took is read to its end.
"""

from collections.abc import Iterator
from dataclasses import replace

from models.artifacts import payloads
from models.artifacts.errors import ArtifactChanged, ArtifactUnavailable
from models.artifacts.store import current
from models.errors import OnwardError
from models.journal import artifacts, wrapped
from models.journal.evidence import EffectFact, Evidence, StepFact
from models.journal.wrapped import Wrapped
from recovery.findings import Finding


def look(facts: Evidence) -> tuple[Evidence, list[Finding]]:
    """The evidence with the digests of true texts, and what was found wrong on the way."""
    texts = wrapped.of_run(facts.run_id)
    reader = _Reader()
    seen = replace(
        facts,
        steps=[_of_step(step, texts, reader) for step in facts.steps],
        effects=[_of_effect(effect, texts, reader) for effect in facts.effects],
    )
    if texts.run_input is not None:
        now = reader.digest("run", [texts.run_input], recorded=facts.input_digest)
        seen = replace(seen, input_now=now or "")
    for step_key, recorded in [*texts.arguments.items(), *_calls(texts)]:
        reader.digest(step_key, [recorded], recorded=None)
    for use in artifacts.uses(facts.run_id):
        if use.role in ("made", "taken"):
            reader.artifact(use.step_key, use.digest, size=use.size, name=use.name)
    return seen, reader.findings


class _Reader:
    """Reads each artifact, and tells of each that is wrong once."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self._read: set[str] = set()
        self._told: set[str] = set()

    def digest(self, where: str, pieces: list[str], *, recorded: str | None) -> str | None:
        """The digest of the true texts; what was recorded where they cannot be read, which is told by itself."""
        try:
            found = payloads.digest_of(*pieces)
        except OnwardError as error:
            self._tell(where, error)
            return recorded
        self._read |= {one.digest for one in payloads.references(pieces)}
        return found

    def artifact(self, where: str, digest: str, *, size: int, name: str) -> None:
        """An artifact that a step put or took."""
        if digest in self._read | self._told:
            return
        try:
            current().verify(digest, size=size, name=name)
            self._read.add(digest)
        except OnwardError as error:
            self._tell(where, error)

    def _tell(self, where: str, error: OnwardError) -> None:
        about = error.digest if isinstance(error, ArtifactChanged) else str(error)
        if about in self._told:
            return
        self._told.add(about)
        word = "payload_unread"
        if isinstance(error, ArtifactChanged):
            word = "artifact_changed" if error.actual else "artifact_missing"
        elif isinstance(error, ArtifactUnavailable):
            word = "artifact_unread"
        self.findings.append(Finding(word, where, str(error)))


def _of_step(step: StepFact, texts: Wrapped, reader: _Reader) -> StepFact:
    output = texts.outputs.get(step.step_key)
    given = texts.inputs.get(step.step_key)
    if output is not None:
        now = reader.digest(step.step_key, [output], recorded=step.output_digest)
        step = replace(step, output_now=now)
    if given is not None:
        now = reader.digest(step.step_key, given, recorded=step.input_digest)
        step = replace(step, input_now=now)
    return step


def _of_effect(effect: EffectFact, texts: Wrapped, reader: _Reader) -> EffectFact:
    result = texts.results.get(effect.key)
    if result is None:
        return effect
    now = reader.digest(effect.key, [result], recorded=effect.result_digest)
    return replace(effect, result_now=now)


def _calls(texts: Wrapped) -> Iterator[tuple[str, str]]:
    for step_key, recorded in texts.calls.items():
        for text in recorded:
            yield step_key, text
