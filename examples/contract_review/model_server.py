"""A model server that speaks OpenAI's chat completions, answers by rules, and says so in its name.

It stands in for a language model where there is none, as an outside witness: every request it
accepts is counted in an append-only file before it is answered, by the run and step that asked.

The file is written with one ``write`` for each call and without fsync. A killed process loses
nothing, since the kernel has the line; a power cut may lose the last seconds, which no test of
recovery is about. A line torn by a full disk is skipped when the file is read again.
"""

import argparse
import fcntl
import json
import os
import re
import secrets
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.contract_review.http_service import Refusal, Reply, Request, Routes, parser, serve
from examples.contract_review.model_rules import NotUnderstood, answer
from examples.contract_review.prompts import TASK

MODEL = "onward-example-rules-1"  #: not a language model, and named accordingly
_LATENCY = re.compile(r"(\d+(?:\.\d+)?)(?:-(\d+(?:\.\d+)?))?")
_BYTES_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class Call:
    """One request that was accepted."""

    run: str
    step: str
    tokens_in: int
    tokens_out: int
    id: str = ""  #: of the answer, as it was told to whoever asked


class Ledger:
    """Every call, in a file that only grows and in counters read back from it at the start."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._path = directory / "calls.jsonl"
        self._lock = threading.Lock()
        self._calls: dict[tuple[str, str], list[Call]] = {}
        self._tokens_in = self._tokens_out = 0
        self._file = os.open(self._path, os.O_RDWR | os.O_APPEND | os.O_CREAT, 0o644)
        self._own()
        self._load()

    def count(self, call: Call) -> int:
        """Count a call; the answer is the second in which its line was written."""
        row = {"run": call.run, "step": call.step, "id": call.id}
        line = json.dumps({**row, "in": call.tokens_in, "out": call.tokens_out})
        with self._lock:
            os.write(self._file, line.encode() + b"\n")
            self._add(call)
            return int(os.fstat(self._file).st_mtime)

    def stats(self) -> dict[str, Any]:
        """Totals, and the steps that asked more than once."""
        with self._lock:
            repeated = [
                {"run": run, "step": step, "calls": len(calls)}
                for (run, step), calls in sorted(self._calls.items())
                if len(calls) > 1 and run
            ]
            unlabelled = sum(len(calls) for (run, _), calls in self._calls.items() if not run)
            total = sum(map(len, self._calls.values()))
            return {
                "model": MODEL,
                "calls": total,
                "tokens_in": self._tokens_in,
                "tokens_out": self._tokens_out,
                "unlabelled_calls": unlabelled,
                "distinct_steps": sum(1 for run, _ in self._calls if run),
                "repeated": repeated,
            }

    def calls(self, run: str | None) -> list[dict[str, Any]]:
        """Calls by run and step, of one run or of all, with their answers in the order of asking."""
        with self._lock:
            return [
                {"run": owner, "step": step, "calls": len(calls), "answers": _billed(calls)}
                for (owner, step), calls in sorted(self._calls.items())
                if run is None or owner == run
            ]

    def _own(self) -> None:
        """Two servers on one file would each know half of the calls."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            raise SystemExit(
                f"model server: another one is already counting in {self._path}"
            ) from None

    def _load(self) -> None:
        lines = self._path.read_bytes().split(b"\n")
        if lines[-1]:  # torn: end it, so that the next call has a line of its own
            os.write(self._file, b"\n")
        for line in filter(None, lines):
            try:
                row = json.loads(line)
                self._add(Call(row["run"], row["step"], row["in"], row["out"], row.get("id", "")))
            except (ValueError, KeyError, TypeError):
                continue

    def _add(self, call: Call) -> None:
        self._calls.setdefault((call.run, call.step), []).append(call)
        self._tokens_in += call.tokens_in
        self._tokens_out += call.tokens_out


def _billed(calls: list[Call]) -> list[dict[str, Any]]:
    return [
        {"id": call.id, "tokens_in": call.tokens_in, "tokens_out": call.tokens_out}
        for call in calls
    ]


def routes(ledger: Ledger, latency: tuple[float, float]) -> Routes:
    """The interface over a ledger. ``latency`` is the range, in seconds, a call takes."""
    chance = secrets.SystemRandom()

    def complete(request: Request) -> Reply:
        body = request.json_object()
        if body.get("stream"):
            raise Refusal(400, "this server does not stream; leave `stream` out")
        messages = _messages(body)
        try:
            content = json.dumps(answer(_asked(messages)), ensure_ascii=False)
        except NotUnderstood as error:
            raise Refusal(400, str(error)) from None
        call = Call(
            run=request.headers.get("x-onward-run", ""),
            step=request.headers.get("x-onward-step", ""),
            tokens_in=sum(map(_tokens, messages)),
            tokens_out=_tokens(content),
            id=f"chatcmpl-{secrets.token_hex(12)}",
        )
        created = ledger.count(call)
        time.sleep(chance.uniform(*latency))
        return Reply(_completion(content, call, created))

    return {
        ("POST", "/v1/chat/completions"): complete,
        ("GET", "/v1/models"): lambda _request: Reply(_models()),
        ("GET", "/stats"): lambda _request: Reply(ledger.stats()),
        ("GET", "/calls"): lambda request: Reply(
            {"calls": ledger.calls(next(iter(request.query.get("run", [])), None))}
        ),
    }


def main() -> None:
    """Run the service."""
    options = _options()
    serve(routes(Ledger(options.store), options.latency), options, name="model server")


def _options() -> argparse.Namespace:
    options = parser("model_server", "A rule-based stand-in for a language model.")
    options.add_argument("--store", type=Path, required=True, help="directory of the calls' file")
    options.add_argument(
        "--latency", type=_range, default=(0.04, 0.12), help="milliseconds: 80, or 40-120 (default)"
    )
    return options.parse_args()


def _range(text: str) -> tuple[float, float]:
    found = _LATENCY.fullmatch(text)
    if not found:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither milliseconds nor a range such as 40-120"
        )
    low = float(found[1]) / 1000
    return low, max(low, float(found[2] or 0) / 1000)


def _messages(body: dict[str, Any]) -> list[str]:
    messages = body.get("messages")
    found = [message.get("content") for message in messages or () if isinstance(message, dict)]
    texts = [text for text in found if isinstance(text, str)]
    if not texts or len(texts) < len(found):
        raise Refusal(400, "`messages` must be a list of messages with a text as `content`")
    return texts


def _asked(messages: list[str]) -> str:
    """The last message with a task: those after it say what was wrong with an answer."""
    return next((text for text in reversed(messages) if text.startswith(TASK)), messages[-1])


def _tokens(text: str) -> int:
    return max(1, len(text.encode()) // _BYTES_PER_TOKEN)


def _completion(content: str, call: Call, created: int) -> dict[str, Any]:
    message = {"role": "assistant", "content": content, "refusal": None}
    return {
        "id": call.id,
        "object": "chat.completion",
        "created": created,
        "model": MODEL,
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        "usage": {
            "prompt_tokens": call.tokens_in,
            "completion_tokens": call.tokens_out,
            "total_tokens": call.tokens_in + call.tokens_out,
        },
    }


def _models() -> dict[str, Any]:
    return {
        "object": "list",
        "data": [{"id": MODEL, "object": "model", "created": 0, "owned_by": "example"}],
    }


if __name__ == "__main__":
    main()
