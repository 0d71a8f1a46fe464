"""How the example's model server answers: rules over the prompt's passages, chance in the wording.

It understands the three prompts of ``prompts.py`` and nothing else. What it finds is really in the
contract; which findings it picks and how it words them differs each time it is asked, as with a
language model, so that a step that is executed again is seen to give another answer.
"""

import re
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from examples.contract_review import prompts
from examples.contract_review.clause_library import BY_KIND, ClauseKind, StandardClause
from examples.contract_review.model_wording import WORDING, Wording
from examples.contract_review.passages import sentences

MOST_FINDINGS = 8
LONGEST_QUOTE = 400  #: characters; longer sentences are quoted by their beginning
LONGEST_GIST = 120  #: characters
_SEVERITIES = ("low", "medium", "high")

_PASSAGE = re.compile(r"^\[(\d+)\] (.+)$", re.MULTILINE)
_LIKELY = re.compile(r"^- (\w+): passage (\d+)$", re.MULTILINE)
_RISK = re.compile(r"^- (low|medium|high) (\w+): ", re.MULTILINE)
_DUTY = re.compile(
    r"\b(?:shall|must|will not|may not|agrees? (?:to|that|not)|(?:is|are) required|responsible for|"
    r"obligat\w+)\b"
    r"|应当|必须|不得|须|应按|负责|有义务",
    re.IGNORECASE,
)
_TERM = re.compile(
    r"\b(?:term of|period of|perpetual|effective until|until (?:it is )?terminated|"
    r"for (?:a|one|two|three|five|\d+)[^.;]{0,20}(?:day|month|year))"
    r"|有效期|期限为|合同期",
    re.IGNORECASE,
)
_ROLES = re.compile(
    r"\b(Licensor|Licensee|Customer|Company|Provider|Supplier|Vendor|Client|Contractor|Publisher|Developer|"
    r"End User|Subscriber|You|Your|We|Us)\b"
    r"|(甲方|乙方|丙方|用户|许可方|被许可方|供应商|客户)"
)
_CAPITALISED = re.compile(r"\b[A-Z][a-z]{3,}\b")
_HARSHER = (
    "sole discretion",
    "without notice",
    "unlimited",
    "irrevocable",
    "perpetual",
    "at any time",
    "单方",
    "随时",
)
_MILDER = ("reasonable", "written notice", "mutual", "either party", "合理", "书面通知", "双方")

_chance = secrets.SystemRandom()


class NotUnderstood(Exception):
    """The prompt is none of the three that the rules know."""


@dataclass(frozen=True, slots=True)
class Brief:
    """A prompt as the rules see it."""

    task: str
    title: str
    complete: bool
    wording: Wording
    passages: Mapping[int, str]
    user: str

    @property
    def text(self) -> str:
        return "\n".join(self.passages.values())


def answer(user: str) -> dict[str, object]:
    """The answer to a user message of ``prompts.py``, as the object that its schema asks for."""
    brief = _brief(user)
    match brief.task:
        case "obligations":
            return _obligations(brief)
        case "risks":
            return _risks(brief)
        case "summary":
            return _summary(brief)
    raise NotUnderstood(f"the rules know no task {brief.task!r}")


def _brief(user: str) -> Brief:
    task = _field(user, prompts.TASK)
    if task is None:
        raise NotUnderstood(
            "this server answers by rules, and only the prompts of the contract review example"
        )
    _, _, body = user.partition(f"\n{prompts.PASSAGES}\n")
    return Brief(
        task=task,
        title=_field(user, prompts.DOCUMENT) or "",
        complete=_field(user, prompts.COMPLETE) != "no",
        wording=WORDING["zh" if _field(user, prompts.LANGUAGE) == "zh" else "en"],
        passages={int(number): text for number, text in _PASSAGE.findall(body)},
        user=user,
    )


def _obligations(brief: Brief) -> dict[str, object]:
    parties = _parties(brief)
    duties = [sentence for sentence in _all_sentences(brief) if _DUTY.search(sentence)]
    chosen = _some(duties or _all_sentences(brief)[:1])
    return {
        "parties": parties,
        "term": _term(brief),
        "obligations": [
            {
                "party": (party := _bound_party(sentence, parties)),
                "duty": _chance.choice(brief.wording.duties).format(
                    party=party, gist=_gist(sentence)
                ),
                "quote": _quotable(sentence),
            }
            for sentence in chosen
        ],
    }


def _risks(brief: Brief) -> dict[str, object]:
    """At most one risk for each kind of clause, in the passages that were named as likely."""
    found: dict[ClauseKind, dict[str, object]] = {}
    places = [(kind, int(number)) for kind, number in _LIKELY.findall(brief.user)]
    _chance.shuffle(places)
    for kind, number in places:
        clause = BY_KIND.get(ClauseKind(kind))
        sentence = clause and _cued(brief.passages.get(number, ""), clause)
        if clause and sentence and clause.kind not in found:
            found[clause.kind] = _risk(clause, sentence, brief.wording)
    return {"risks": list(found.values())[:MOST_FINDINGS]}


def _risk(clause: StandardClause, sentence: str, wording: Wording) -> dict[str, object]:
    lowered = sentence.lower()
    harsher = any(word in lowered for word in _HARSHER)
    milder = any(word in lowered for word in _MILDER)
    rank = min(2, max(0, clause.weight + harsher - milder))
    concern = clause.zh_concern if wording is WORDING["zh"] else clause.concern
    return {
        "clause": clause.kind.value,
        "severity": _SEVERITIES[rank],
        "reason": _chance.choice(wording.reasons).format(concern=concern, gist=_gist(sentence)),
        "quote": _quotable(sentence),
    }


def _summary(brief: Brief) -> dict[str, object]:
    risks = _RISK.findall(brief.user)
    count = Counter(severity for severity, _ in risks)
    rating = max((severity for severity, _ in risks), key=_SEVERITIES.index, default="low")
    if count["high"] >= 3:
        recommendation = "escalate"
    elif rating != "low" or not brief.complete:
        recommendation = "negotiate"
    else:
        recommendation = "sign"
    wording = brief.wording
    text = _chance.choice(wording.summaries).format(
        title=brief.title, high=count["high"], medium=count["medium"], low=count["low"]
    )
    conditions = _conditions([kind for severity, kind in risks if severity == rating], wording)
    if recommendation == "negotiate" and not conditions:
        conditions = [wording.read_the_rest]
    return {
        "summary": f"{text} {_chance.choice(wording.closings)}",
        "rating": rating,
        "recommendation": recommendation,
        "conditions": conditions if recommendation != "sign" else [],
    }


def _conditions(kinds: Sequence[str], wording: Wording) -> list[str]:
    clauses = [
        BY_KIND[ClauseKind(kind)] for kind in dict.fromkeys(kinds) if kind != ClauseKind.OTHER
    ]
    remedies = [
        clause.zh_remedy if wording is WORDING["zh"] else clause.remedy for clause in clauses
    ]
    _chance.shuffle(remedies)
    return remedies[:4]


def _parties(brief: Brief) -> list[str]:
    """The two roles named most often; a text without any gets its most frequent name."""
    named = Counter(_role(latin or chinese) for latin, chinese in _ROLES.findall(brief.text))
    parties = [name for name, _ in named.most_common(2)]
    if not parties:
        names = Counter(_CAPITALISED.findall(brief.text)).most_common(1)
        parties = [name for name, _ in names]
    return [*parties, *brief.wording.other_parties][:2]


def _role(word: str) -> str:
    return {"Your": "You", "Us": "We"}.get(word, word)


def _bound_party(sentence: str, parties: Sequence[str]) -> str:
    """The party named before the duty, or else the one named at all, or else either."""
    duty = _DUTY.search(sentence)
    before = sentence[: duty.start()].lower() if duty else ""
    for text in (before, sentence.lower()):
        for party in parties:
            if party.lower() in text:
                return party
    return _chance.choice(list(parties))


def _term(brief: Brief) -> str:
    for sentence in _all_sentences(brief):
        if _TERM.search(sentence):
            return sentence[:300]
    return _chance.choice(brief.wording.no_term)


def _cued(passage: str, clause: StandardClause) -> str | None:
    """One of the sentences that hold most of the clause's cues."""
    cues = Counter({text: clause.cues_in(text.lower()) for text in _long_enough(passage)})
    most = max(cues.values(), default=0)
    return _chance.choice([text for text, count in cues.items() if count == most]) if most else None


def _all_sentences(brief: Brief) -> list[str]:
    return [sentence for passage in brief.passages.values() for sentence in _long_enough(passage)]


def _long_enough(passage: str) -> list[str]:
    return [sentence for sentence in sentences(passage) if len("".join(sentence.split())) >= 12]


def _some(found: Sequence[str]) -> list[str]:
    """Up to MOST_FINDINGS of them, in their order, a different choice each time."""
    distinct = list(dict.fromkeys(found))
    count = min(len(distinct), _chance.randint(4, MOST_FINDINGS))
    return [distinct[at] for at in sorted(_chance.sample(range(len(distinct)), count))]


def _quotable(sentence: str) -> str:
    return sentence[:LONGEST_QUOTE]


def _gist(sentence: str) -> str:
    """What the sentence comes to: the part from the duty on, cut between words."""
    duty = _DUTY.search(sentence)
    tail = sentence[duty.start() :] if duty else sentence
    short = tail if len(tail) <= LONGEST_GIST else tail[:LONGEST_GIST].rpartition(" ")[0] + " ..."
    return short.rstrip(".;,。；，")


def _field(user: str, label: str) -> str | None:
    found = re.search(rf"^{re.escape(label)}(.*)$", user, re.MULTILINE)
    return found.group(1).strip() if found else None
