"""References to secrets: the name is stored, the value is looked up where it is used and never stored.

    KEY = Secret("BILLING_KEY")
    client = httpx2.Client(headers={"Authorization": f"Bearer {KEY.reveal()}"})

The value is taken at each ``reveal``, so that a rotated one is used at once, from the first of

1. the environment: ``ONWARD_SECRET_BILLING_KEY``, then ``BILLING_KEY``;
2. ``ONWARD_SECRETS_COMMAND``, run with the name as its last argument (kept for half a minute);
3. the file ``BILLING_KEY`` in ``ONWARD_SECRETS_DIR``, as Docker and Kubernetes mount them.
"""

import logging
import os
import re
import secrets
import shlex
import subprocess
import time
from pathlib import Path
from typing import Any

from pydantic import GetCoreSchemaHandler, GetJsonSchemaHandler
from pydantic.json_schema import JsonSchemaValue
from pydantic_core import CoreSchema, PydanticCustomError, core_schema

from models import redaction
from models.errors import OnwardError
from models.exceptions import NOT_A_REFERENCE
from models.messages import one_line, safe_repr
from models.settings import settings

_log = logging.getLogger("onward.secrets")

TAG = "$secret"
#: In a serialisation context: a function of a name, whose result stands in JSON in place of the reference.
WRITE_AS = "onward_secret"

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,127}")
_PREFIX = "ONWARD_SECRET_"
_OURS = re.compile(r"ONWARD_(?!SECRET_)")  # settings are nobody's secrets to name
_COMMAND_TIMEOUT = 20.0  #: seconds
_FRESH = 30.0  #: seconds that a command's answer is used again, since a vault takes long and counts

_answers: dict[tuple[str, str], tuple[float, str]] = {}

#: Behind a placeholder that this process's own code has made. Nobody outside can know it, so no document can
#: have its placeholders filled in; it is struck out of whatever is recorded, digested or shown.
MARK = f"~{secrets.token_hex(16)}~"


class SecretMissing(OnwardError):
    """A secret has no value where it is needed."""

    error_type = "secret_missing"


class SecretRefused(OnwardError):
    """A name or a value that cannot be a secret's."""

    error_type = "secret_refused"


class SecretsCommandFailed(RuntimeError):
    """The command that knows the secrets did not answer; the step's retry policy decides."""


class Secret:
    """A reference to a secret by its name. Neither ``repr`` nor the journal ever shows a value.

    In a text it stands as ``{{secret:NAME}}``, which is filled in where the text is sent. Until then a mark of this
    process follows it, by which it is told from the same words in a document.
    """

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        if not _NAME.fullmatch(name):
            # not shown: whoever writes Secret(...) around the value itself would find it in a log
            raise SecretRefused(
                'Secret takes the NAME of a secret, as in Secret("BILLING_KEY"): letters, digits, "_", "." and "-"'
            )
        if _OURS.match(name):
            raise SecretRefused(f"{name} is a setting of Onward, not a secret for agents")
        self._name = name

    @property
    def name(self) -> str:
        return self._name

    @property
    def placeholder(self) -> str:
        """``{{secret:NAME}}`` as it is recorded."""
        return f"{{{{secret:{self._name}}}}}"

    def reveal(self) -> str:
        """Its value, now; every text that leaves this process is without it from here on.

        Raises ``SecretMissing``.
        """
        value = self._found()
        if len(value) < redaction.SHORTEST:
            raise SecretRefused(
                f"Secret {self._name} has a value of fewer than {redaction.SHORTEST} characters, which would be "
                "struck out of half of every message: give it a longer one"
            )
        redaction.register(self._name, value)
        return value

    def _found(self) -> str:
        for variable in self._variables():
            if value := os.environ.get(variable, ""):
                return value
        return _from_command(self._name) or _from_directory(self._name) or self._missing()

    def _variables(self) -> tuple[str, ...]:
        spelled = re.sub("[.-]", "_", self._name)
        return tuple(dict.fromkeys((_PREFIX + self._name, _PREFIX + spelled, self._name)))

    def _missing(self) -> str:
        command, directory = settings().secrets_command, settings().secrets_dir
        raise SecretMissing(
            f"Secret {self._name} has no value here: neither {' nor '.join(self._variables())} is set in the "
            f"environment, ONWARD_SECRETS_COMMAND "
            f"{'prints nothing for it' if command else 'is not set'}, and ONWARD_SECRETS_DIR "
            f"{f'({directory}) has no file {self._name}' if directory else 'is not set'}. Give this worker a value "
            "in one of these places; then `onward runs retry` goes on"
        )

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and other._name == self._name

    def __hash__(self) -> int:
        return hash((TAG, self._name))

    def __str__(self) -> str:
        redaction.let_vanish(MARK)
        return self.placeholder + MARK

    def __repr__(self) -> str:
        return f"Secret({self._name!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Secret, (self._name,)

    @classmethod
    def __get_pydantic_core_schema__(
        cls, _source: object, _handler: GetCoreSchemaHandler
    ) -> CoreSchema:
        return core_schema.no_info_plain_validator_function(
            _read,
            serialization=core_schema.plain_serializer_function_ser_schema(
                _write, info_arg=True, when_used="json"
            ),
        )

    @classmethod
    def __get_pydantic_json_schema__(
        cls, _schema: CoreSchema, _handler: GetJsonSchemaHandler
    ) -> JsonSchemaValue:
        return {"type": "object", "properties": {TAG: {"type": "string"}}, "required": [TAG]}


def unmarked(text: str) -> str:
    """``text`` as it is recorded, the same in every process."""
    return text.replace(MARK, "")


def adopt(structure: Any) -> Any:
    """A structure out of JSON with its ``{"$secret": "NAME"}`` as references."""
    if type(structure) is dict:
        if structure.keys() == {TAG} and isinstance(structure[TAG], str):
            return Secret(structure[TAG])
        return {key: adopt(item) for key, item in structure.items()}
    if type(structure) is list:
        return [adopt(item) for item in structure]
    return structure


def learn_from_environment() -> None:
    """Know the operator's secrets from the start: ``ONWARD_SECRET_*`` and the names in ``ONWARD_SECRETS``.

    Code that reads its key from the environment by itself reveals nothing to us. What is named here is struck
    out all the same, and in every process alike.
    """
    listed = {name.strip() for name in settings().secrets.split(",") if name.strip()}
    given = {name: name.removeprefix(_PREFIX) for name in os.environ if name.startswith(_PREFIX)}
    for key in re.split(r"[\s,]+", settings().encryption_key.get_secret_value()):
        if len(key) >= redaction.SHORTEST:
            redaction.register("ONWARD_ENCRYPTION_KEY", key)
    for variable, name in [*given.items(), *((name, name) for name in sorted(listed))]:
        value = os.environ.get(variable, "") or _from_directory(name)
        if len(value) >= redaction.SHORTEST:
            redaction.register(name, value)
        elif value:
            _log.warning("%s is too short to be struck out of texts, and is not.", variable)


def _read(value: object) -> Secret:
    if isinstance(value, Secret):
        return value
    if isinstance(value, dict) and value.keys() == {TAG} and isinstance(value[TAG], str):
        if _NAME.fullmatch(value[TAG]):
            return Secret(value[TAG])
        raise PydanticCustomError(NOT_A_REFERENCE, "that is no name of a secret")
    raise PydanticCustomError(
        NOT_A_REFERENCE,
        'it takes a reference, Secret("NAME") or {"$secret": "NAME"} in JSON, and never a value, which would '
        "be recorded",
    )


def _write(secret: Secret, info: core_schema.SerializationInfo) -> Any:
    context = info.context
    write_as = context.get(WRITE_AS) if isinstance(context, dict) else None
    return write_as(secret.name) if write_as else {TAG: secret.name}


def _from_command(name: str) -> str:
    command = settings().secrets_command
    if not command:
        return ""
    at, value = _answers.get((command, name), (0.0, ""))
    if value and time.monotonic() - at < _FRESH:
        return value
    try:
        done = subprocess.run(
            [*shlex.split(command), name], capture_output=True, encoding="utf-8", stdin=subprocess.DEVNULL,
            timeout=_COMMAND_TIMEOUT, check=False,
        )  # fmt: skip
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        raise SecretsCommandFailed(
            f"ONWARD_SECRETS_COMMAND could not be run for secret {name}: {type(error).__name__}"
        ) from None
    if done.returncode != 0:
        last = one_line((done.stderr.strip().splitlines() or ["without a word"])[-1])
        raise SecretsCommandFailed(
            f"ONWARD_SECRETS_COMMAND ended with {done.returncode} for secret {name}: {last}"
        )
    value = done.stdout.rstrip("\r\n")
    _answers[command, name] = time.monotonic(), value
    return value


def _from_directory(name: str) -> str:
    directory = settings().secrets_dir
    if not directory:
        return ""
    try:
        return (Path(directory) / name).read_text("utf-8").rstrip("\r\n")
    except (FileNotFoundError, NotADirectoryError):
        return ""
    except (OSError, UnicodeDecodeError) as error:
        raise SecretMissing(
            f"Secret {name}: its file in ONWARD_SECRETS_DIR ({safe_repr(directory)}) cannot be read: "
            f"{type(error).__name__}"
        ) from None
