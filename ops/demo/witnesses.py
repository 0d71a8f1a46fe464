"""The outside world: two services with books of their own, against which the journal is held."""

import http.client
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from examples.contract_review.estimate import CALLS_PER_DOCUMENT
from examples.contract_review.model_server import MODEL
from ops.stack import Home, Program, Stage

MODEL_SERVER, REGISTRY = "model", "registry"
_TIMEOUT = 10.0  #: seconds for an answer from this machine


@dataclass(frozen=True, slots=True)
class Service:
    """One service of the outside world."""

    program: Program
    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def is_ready(self) -> bool:
        try:
            return bool(self.get("/stats"))
        except OSError:
            return False

    def get(self, path: str) -> dict[str, Any]:
        """A JSON answer; every failure is an OSError."""
        return self._ask("GET", path)

    def post(self, path: str, body: object) -> dict[str, Any]:
        """The same for an order."""
        return self._ask("POST", path, json.dumps(body))

    def _ask(self, method: str, path: str, body: str | None = None) -> dict[str, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=_TIMEOUT)
        try:
            connection.request(method, path, body)
            answer = json.loads(connection.getresponse().read())
        except (http.client.HTTPException, ValueError) as error:
            raise OSError(f"{self.url}{path} gave no JSON: {error}") from error
        finally:
            connection.close()
        return answer if isinstance(answer, dict) else {}


@dataclass(frozen=True, slots=True)
class Witnessed:
    """What the outside world counted."""

    filings: int
    distinct: int
    duplicate_filings: int
    filing_requests: int  #: each of them made a filing: the registry knows no keys
    look_ups: int
    responses_dropped: int
    llm_calls: int
    tokens: int

    @property
    def lost_calls(self) -> int:
        """LLM calls beyond three for each filed document."""
        return max(0, self.llm_calls - CALLS_PER_DOCUMENT * self.distinct)


@dataclass(frozen=True, slots=True)
class Witnesses:
    """Model server and registry of one batch."""

    model: Service
    registry: Service

    @property
    def environment(self) -> dict[str, str]:
        """What tells workers where they are."""
        return {
            "ONWARD_LLM_BASE_URL": f"{self.model.url}/v1",
            "ONWARD_LLM_MODEL": MODEL,
            "ONWARD_LLM_LABELS": "1",
            "ONWARD_LLM_RESPONSE_FORMAT": "json_schema",
            "ONWARD_REGISTRY_URL": self.registry.url,
        }

    def testify(self) -> Witnessed:
        """Ask both. Raises OSError when one does not answer."""
        filed, asked = self.registry.get("/stats"), self.model.get("/stats")
        return Witnessed(
            filings=filed["filings"],
            distinct=filed["distinct_documents"],
            duplicate_filings=filed["duplicate_filings"],
            filing_requests=filed["requests"],
            look_ups=filed["look_ups"],
            responses_dropped=filed["responses_dropped"],
            llm_calls=asked["calls"],
            tokens=asked["tokens_in"] + asked["tokens_out"],
        )

    def model_calls(self) -> list[dict[str, Any]]:
        """Every answer that the model server gave, by run and step in the order of asking."""
        found: list[dict[str, Any]] = self.model.get("/calls")["calls"]
        return found


def witnesses(home: Home, store: Path, *, latency: str, root: Path, prefix: str = "") -> Witnesses:
    """The two services over one directory."""
    store.mkdir(mode=0o700, parents=True, exist_ok=True)
    calls = ("--store", str(store / "model"), "--latency", latency)
    filings = ("--store", str(store / "registry.sqlite"))
    return Witnesses(
        model=_service(home, prefix + MODEL_SERVER, "model_server", arguments=calls, root=root),
        registry=_service(home, prefix + REGISTRY, "registry", arguments=filings, root=root),
    )


def _service(
    home: Home, name: str, module: str, *, arguments: tuple[str, ...], root: Path
) -> Service:
    port = home.port(name.replace("-", "_"))
    python = (sys.executable, "-m", f"examples.contract_review.{module}")
    program = Program(
        name=name,
        argv=(*python, *arguments, "--port", str(port)),
        log=home.log(name),
        cwd=root,
        stage=Stage.BROKER,  # outlives the workers, which may be in the middle of a call
    )
    return Service(program, port)
