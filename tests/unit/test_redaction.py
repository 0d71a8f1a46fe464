"""What was revealed is in no text that leaves the process, however a library spells it."""

import base64
import html
import json
import logging
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable
from urllib.parse import quote, quote_plus

import pytest
from pydantic import BaseModel, ValidationError

from models import redaction
from models.exceptions import Redacted, redact_traceback, scrubbed
from models.messages import describe, one_line, safe_repr, shorten
from models.redaction import redact, redact_params, redact_structure, register
from models.values import Typed
from tasks.logs import JsonFormatter, TextFormatter
from tasks.quiet import without_secrets

PLAIN = "CANARY-0123456789-abcdefghij"
ODD = 'CANARY "quoted" \\ back/slash+é€ & <end>'
PEM = "-----BEGIN PRIVATE KEY-----\nMIICANARYabcdefghijkl\nmnopCANARYqrstuvwxyz\n-----END PRIVATE KEY-----"


@pytest.mark.parametrize("value", [PLAIN, ODD])
@pytest.mark.parametrize(
    "spelled",
    [
        str,
        repr,
        ascii,
        json.dumps,
        lambda value: json.dumps({"a": value}, ensure_ascii=False),
        lambda value: json.dumps(json.dumps({"a": value})),
        lambda value: json.dumps(json.dumps(json.dumps({"a": value}))),
        lambda value: repr(value.encode()),
        quote,
        quote_plus,
        lambda value: quote(value, safe=""),
        lambda value: quote(quote(value, safe=""), safe=""),
        lambda value: json.dumps(value).replace("/", "\\/"),
        lambda value: (
            json.dumps(value)
            .replace("<", "\\u003c")
            .replace(">", "\\u003e")
            .replace("&", "\\u0026")
        ),
        html.escape,
        lambda value: value.encode().hex(),
        lambda value: value.encode().hex().upper(),
        lambda value: base64.b64encode(value.encode()).decode(),
        lambda value: base64.urlsafe_b64encode(value.encode()).decode(),
        lambda value: base64.b64encode(f"u:{value}!".encode()).decode(),
        lambda value: base64.b64encode(f"us:{value}!!".encode()).decode(),
        lambda value: base64.b64encode(f"use:{value}!!!".encode()).decode(),
    ],
)
def test_every_common_spelling_is_struck_out(value: str, spelled: Callable[[str], str]) -> None:
    register("KEY", value)
    text = f"before {spelled(value)} after"
    assert "[secret KEY]" in redact(text)
    assert spelled(value)[4:-4] not in redact(text)
    assert redact(redact(text)) == redact(text)


@pytest.mark.parametrize("line", PEM.splitlines()[1:3])
def test_a_line_of_a_key_stands_for_all_of_it(line: str) -> None:
    register("KEY", PEM)
    assert "CANARY" not in redact(f"could not load {line}")
    assert "CANARY" not in redact(one_line(f"could not load {PEM}"))


def test_nothing_revealed_costs_nothing_and_changes_nothing() -> None:
    text, params = "a text", {"output": "a text"}
    assert redact(text) is text
    assert redact_params(params) is params
    register("KEY", PLAIN)
    assert redact(text) is text
    assert redact_params(params) is params


def test_the_newest_values_of_a_rotating_secret_are_remembered() -> None:
    for number in range(60):
        register("TOKEN", f"token-{number:04}-xyz")
    assert redact("token-0059-xyz token-0010-xyz") == "[secret TOKEN] [secret TOKEN]"
    assert redact("token-0001-xyz") == "token-0001-xyz"


def test_a_value_within_another_or_within_a_mark_is_replaced_once() -> None:
    register("LONG", "secret-value-of-some-length")
    register("SHORT", "secret")
    assert redact("secret-value-of-some-length") == "[secret LONG]"
    assert redact(redact("a secret")) == "a [secret SHORT]"


def test_json_stays_json_where_a_number_is_the_secret() -> None:
    register("PIN", "482913")
    kept = redact('{"pin":482913,"rest":[1.5,"x482913"],"text":"482913"}')
    assert json.loads(kept) == {
        "pin": "[secret PIN]", "rest": [1.5, "x[secret PIN]"], "text": "[secret PIN]",
    }  # fmt: skip
    assert redact_structure({"a": [("482913", 482913)]}) == {"a": [("[secret PIN]", 482913)]}


@pytest.mark.parametrize("shown", range(8, len(PLAIN)))
def test_a_value_cut_by_an_ellipsis_is_known_by_its_ends(shown: int) -> None:
    register("KEY", PLAIN)
    assert "CANARY-0" not in redact(f"input_value='{PLAIN[:shown]}...{'x' * 9}'")
    assert "cdefghij" not in redact(f"'xx...{PLAIN[-shown:]}' is wrong")
    told = f"'{PLAIN[:shown]} ... (300 characters truncated) ... {PLAIN[-shown:]}'"
    assert redact(told) == "'[secret KEY] ... (300 characters truncated) ... [secret KEY]'"
    assert redact("Loading... CAN... done") == "Loading... CAN... done"


@pytest.mark.parametrize("room", range(4, 60))
def test_messages_are_redacted_before_they_are_cut(room: int) -> None:
    register("KEY", PLAIN)
    for cut in (shorten, one_line, safe_repr):
        assert "CANARY" not in redact(cut(f"some words {PLAIN} and more words", limit=room))
    assert "CANARY" not in describe(RuntimeError(f"some words {PLAIN}"), limit=room)


def test_what_names_a_row_is_left_alone_and_all_else_is_not() -> None:
    register("WEAK", "prod")
    params = {
        "run_id": "run-prod", "queue": "prod", "output_digest": "sha256:prod", "output": '"prod"',
        "unheard_of": "prod", "texts": ["prod", "x"], "revision": 3,
    }  # fmt: skip
    assert redact_params(params) == {
        **params, "output": '"[secret WEAK]"', "unheard_of": "[secret WEAK]",
        "texts": ["[secret WEAK]", "x"],
    }  # fmt: skip


def test_found_in_names_the_secret_of_any_bytes() -> None:
    assert redaction.found_in(b"anything") is None
    register("KEY", PLAIN)
    assert redaction.found_in(b"\xff" + base64.b64encode(PLAIN.encode())) == "KEY"
    assert redaction.found_in("nothing here") is None


class _Config(BaseModel):
    count: int


def _caused() -> BaseException:
    try:
        try:
            raise ValueError(f"deep: {PLAIN}")
        except ValueError as error:
            raise RuntimeError("outer") from error
    except RuntimeError as error:
        return error


def _validated() -> BaseException:
    try:
        _Config.model_validate({"count": f"Bearer {PLAIN} and a lot more text that pydantic cuts"})
    except ValidationError as error:
        return error
    raise AssertionError


def _subprocess() -> BaseException:
    try:
        subprocess.run(
            [sys.executable, "-c", "import sys; sys.exit(sys.argv[1])", PLAIN],
            check=True, capture_output=True, text=True,
        )  # fmt: skip
    except subprocess.CalledProcessError as error:
        return error
    raise AssertionError


def _grouped() -> BaseException:
    return ExceptionGroup("several", [KeyError("a"), OSError(PLAIN)])


def _noted() -> BaseException:
    error = RuntimeError("clean")
    error.add_note(f"sent {PLAIN}")
    return error


@pytest.mark.parametrize("made", [_caused, _validated, _subprocess, _grouped, _noted])
def test_no_error_tells_a_secret_in_words_in_a_traceback_or_as_an_object(
    made: Callable[[], BaseException],
) -> None:
    register("KEY", PLAIN)
    error = made()
    record = logging.LogRecord(
        "agent", logging.ERROR, __file__, 1, "failed with %s", (PLAIN,),
        (type(error), error, error.__traceback__),
    )  # fmt: skip
    for line in (TextFormatter().format(record), JsonFormatter().format(record), describe(error)):
        assert "CANARY" not in line, line
    safe = scrubbed(error)
    formatted = "".join(
        [repr(safe), str(safe), *getattr(safe, "__notes__", ()), str(safe.__cause__)]
    )
    assert "CANARY" not in formatted
    assert safe.__context__ is None


def test_an_exit_stays_an_exit_and_a_clean_error_the_same_object() -> None:
    clean = RuntimeError("clean")
    assert scrubbed(clean) is clean
    register("KEY", PLAIN)
    assert scrubbed(clean) is clean
    left = scrubbed(SystemExit(PLAIN))
    assert isinstance(left, SystemExit)
    assert "CANARY" not in f"{left!r} {left.code}"
    assert redact_traceback("nothing", None) == "nothing"


def test_a_result_is_handed_on_as_it_is_recorded() -> None:
    typed = Typed(dict[str, str], subject="the result")
    assert typed.opened('{"a":"x"}', {"a": "x"}) == ('{"a":"x"}', {"a": "x"})
    register("KEY", PLAIN)
    text, value = typed.opened(*typed.round_trip({"a": PLAIN}))
    assert (text, value) == ('{"a":"[secret KEY]"}', {"a": "[secret KEY]"})


def test_a_result_that_cannot_be_read_without_the_secret_is_refused_in_words() -> None:
    register("PIN", "482913")
    typed = Typed(dict[str, int], subject="the result of step x")
    with pytest.raises(Exception, match="holds the value of a secret") as refused:
        typed.open_part(typed.dump({"pin": 482913}))
    assert "482913" not in str(refused.value)


def test_threads_may_reveal_while_others_write() -> None:
    def reveal(worker: int) -> None:
        for number in range(20):
            register(f"W{worker}", f"value-{worker}-{number:03}")
            assert "value" not in redact(f"x value-{worker}-{number:03}")

    failed: list[object] = []
    before = threading.excepthook
    threading.excepthook = failed.append
    try:
        threads = [threading.Thread(target=reveal, args=(number,)) for number in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        threading.excepthook = before
    assert not failed


def test_what_is_encrypted_or_lies_elsewhere_is_left_as_it_is() -> None:
    register("WEAK", "dead")
    sealed = '{"$onward-sealed":{"key":"0123456789abcdef","data":"AAAAdeadBBBB="}}'
    kept = '{"$onward-artifact":{"digest":"sha256:' + "dead" * 16 + '","size":50}}'
    plan = json.dumps([{"arguments": sealed}, {"arguments": kept}, {"arguments": '{"a":"dead"}'}])
    params = {"output": sealed, "input": kept, "nodes": plan, "error": f"{sealed} dead"}
    safe = redact_params(params)
    assert (safe["output"], safe["input"]) == (sealed, kept)
    assert json.loads(str(safe["nodes"])) == [
        {"arguments": sealed}, {"arguments": kept}, {"arguments": '{"a":"[secret WEAK]"}'},
    ]  # fmt: skip
    assert "dead" not in str(safe["error"]), "what only holds such a text is a text"


def test_what_leaves_a_task_as_an_exception_holds_no_secret() -> None:
    """Celery's main process puts it into events, with its traceback, and knows no secret itself."""
    register("KEY", PLAIN)
    with (
        pytest.raises(Redacted, match=r"RuntimeError: lost \[secret KEY\]") as left,
        without_secrets(),
    ):
        raise RuntimeError(f"lost {PLAIN}")
    whole = "".join(traceback.format_exception(left.value))
    assert "CANARY" not in whole
    with pytest.raises(KeyError) as same, without_secrets():
        raise KeyError("clean")
    assert same.value.args == ("clean",)
