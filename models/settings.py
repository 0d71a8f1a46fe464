"""Settings: every knob, its unit and its reason, read once from ``ONWARD_*`` in the environment."""

from functools import lru_cache
from pathlib import Path
from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

_HOSTED = "https://api.openai.com/v1,https://api.anthropic.com/v1"


def _base_url(text: str) -> str:
    """A base URL is recorded with every call made to it: credentials in it would be recorded too."""
    parts = urlsplit(text)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError("must be a URL such as https://api.openai.com/v1")
    if parts.username or parts.password or parts.query or parts.fragment:
        raise ValueError(
            "must hold neither a user, a password, a query nor a fragment, since it is recorded with every "
            "call: name the key's secret in ONWARD_LLM_KEY instead"
        )
    return text.rstrip("/")


def _base_urls(text: str) -> str:
    return ",".join(_base_url(url.strip()) for url in text.split(",") if url.strip())


class Settings(BaseSettings):
    """What a process of Onward needs to know. Durations are seconds."""

    model_config = SettingsConfigDict(
        env_prefix="ONWARD_",
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,  # keys are among it
    )

    database_url: str = "postgresql+psycopg://onward@127.0.0.1:5432/onward"
    broker_url: str = "redis://127.0.0.1:6379/0"
    agents: str = ""  #: packages with workflows, comma-separated: ``acme.review,acme.release``
    home: str = ".onward"  #: state of the embedded stack of this checkout
    log: Literal["text", "json"] = "text"  #: how log lines are written
    #: Of every Redis key, for two deployments on one Redis database. Callers without our code must set the
    #: same (``broker_transport_options={"global_keyprefix": ...}``), or their messages go nowhere.
    key_prefix: str = ""

    lease_ttl: float = 30.0  #: a step is stale when its owner was silent for this long
    heartbeat: float = 10.0  #: how often a lease is renewed; three may be missed
    trust_margin: float = 2.0  #: the owner stops trusting its lease this long before it ends
    sweep_period: float = 5.0
    wake_period: float = 1.0
    sweep_batch: int = Field(500, ge=1, le=10_000)

    publish_grace: float = 10.0  #: whoever made a step due publishes it within this time
    publish_backoff_max: float = 60.0
    publish_window: int = 1000  #: unclaimed messages a queue may hold

    sticky: bool = False  #: go on with the next step in place instead of through the broker
    sticky_seconds: float = 1.0
    sticky_steps: int = 20

    task_events: bool = True  #: tell Flower of every task: about four more Redis commands a step

    step_time_limit: float = 900.0  #: hard limit of a step that sets none
    step_soft_time_limit: float = 840.0
    visibility_timeout: float = Field(  #: Redis hands an unacked message out again after this long
        default_factory=lambda given: max(3600.0, 4 * given["step_time_limit"]), gt=0
    )
    shutdown_grace: float = 25.0  #: what a running step gets to finish in on SIGTERM

    send_window: float = (
        5.0  #: after its intent is durable, a request starts to leave within this time
    )
    presume_dead_after: float = (
        900.0  #: a sender that nobody can see is believed gone after this silence
    )
    resend_limit: int = 8  #: times one effect is sent again without asking a person
    tool_timeout: float = 60.0  #: one call of a tool that sets no time-out
    lookup_time_limit: float = 60.0  #: hard limit of one look-up; a longer one counts as failed
    look_pause: float = 2.0  #: between two looks; failed ones wait longer and longer
    look_pause_max: float = 300.0
    lookup_failure_limit: int = 20  #: look-ups that failed in a row before a person is asked

    alert_command: str = (
        ""  #: run for each newly blocked run and each stale sweep; JSON on its stdin
    )
    alert_webhook: str = ""  #: the same JSON, sent there by POST
    alert_timeout: float = 10.0

    llm_base_url: Annotated[str, AfterValidator(lambda url: _base_url(url) if url else url)] = (
        ""  #: base URL that ctx.llm asks; without one, the provider's own
    )
    llm_model: str = ""  #: what ctx.llm asks for when the call names no model
    llm_provider: Literal["openai", "anthropic"] = "openai"  #: whose SDK and request format
    llm_key: str = ""  #: NAME of the secret that holds the API key; never the key
    llm_pin: str = ""  #: pattern for the model that answers (``gpt-x-*``); without one it is the model asked for
    #: How a schema is told: some endpoints refuse ``json_schema``; otherwise it is put into words.
    llm_response_format: Literal["json_schema", "json_object", "text"] = "json_schema"
    llm_timeout: float = Field(300.0, gt=0)  #: one request; below any step limit, so it ends first
    #: Base URLs, comma-separated, that model requests may be POSTed to: all else that is POSTed is an effect.
    model_endpoints: Annotated[str, AfterValidator(_base_urls)] = _HOSTED
    #: USD per million tokens by model, as JSON or the path of a JSON or TOML file: docs/budgets.md.
    prices: str = ""

    artifacts: str = Field(  #: directory or fsspec URL that large values are kept in
        default_factory=lambda given: str(Path(given["home"]) / "artifacts")
    )
    artifact_limit: int = Field(1024**3, gt=0)  #: bytes of one artifact
    encryption_key: SecretStr = SecretStr("")  #: payloads and artifacts are encrypted with it
    encryption_key_command: str = ""  #: prints the key instead: a vault's client
    #: Names of secrets, comma-separated, that are struck out of all texts from the start: docs/secrets.md.
    secrets: str = ""
    secrets_command: str = ""  #: prints the value of the secret whose name is its last argument
    secrets_dir: str = ""  #: one file a secret, as Docker and Kubernetes mount them

    crash_limit: int = 3  #: observed deaths of the process that ran the step
    lost_limit: int = 10  #: owners that fell silent without a proven death
    output_limit: int = 256 * 1024  #: bytes of one recorded value
    plan_limit: int = 20_000  #: steps of a run, dynamic ones included
    group_limit: int = 10_000  #: members of one group
    depth_limit: int = 50  #: groups within groups

    @model_validator(mode="after")
    def _lease_outlives_missed_heartbeats(self) -> Self:
        if self.lease_ttl < 3 * self.heartbeat:
            raise ValueError(
                f"ONWARD_LEASE_TTL={self.lease_ttl} must be at least three times "
                f"ONWARD_HEARTBEAT={self.heartbeat}: otherwise one late heartbeat makes a healthy step stale"
            )
        if self.trust_margin >= self.lease_ttl - self.heartbeat:
            raise ValueError(
                f"ONWARD_TRUST_MARGIN={self.trust_margin} leaves no time in which a lease may be trusted"
            )
        return self

    @model_validator(mode="after")
    def _one_source_of_the_encryption_key(self) -> Self:
        if self.encryption_key.get_secret_value() and self.encryption_key_command:
            raise ValueError(
                "ONWARD_ENCRYPTION_KEY and ONWARD_ENCRYPTION_KEY_COMMAND are both set: unset one, or a change of "
                "the one that is not used would go unnoticed until something cannot be read"
            )
        return self

    @field_validator("llm_key")
    @classmethod
    def _names_a_secret(cls, name: str) -> str:
        if name and not (name.isascii() and name.replace("_", "").isalnum() and len(name) <= 128):
            raise ValueError("ONWARD_LLM_KEY takes the NAME of a secret (letters, digits, _)")
        return name

    @property
    def model_urls(self) -> tuple[str, ...]:
        """Base URLs of every model endpoint that settings declare."""
        urls = (*self.model_endpoints.split(","), self.llm_base_url)
        return tuple(dict.fromkeys(url for url in urls if url))


@lru_cache(maxsize=1)
def settings() -> Settings:
    """The process's settings, read once. Tests that change the environment call ``cache_clear``."""
    return Settings()
