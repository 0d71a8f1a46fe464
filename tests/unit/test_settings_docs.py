"""docs/settings.md names every setting with its default, and no document names one that does not exist."""

import json
import re
from pathlib import Path

import pytest
from pydantic import SecretStr

from models.settings import Settings

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
ROWS = dict(re.findall(r"^\| `ONWARD_([A-Z_]+)` \| (.*?) \|", PAGE, re.MULTILINE))
#: Read where they are used, by the example, the demo, the tests and the containers.
ELSEWHERE = re.compile(
    r"SECRET_|DEMO_|NAIVE_|TEST_|REGISTRY_URL|LLM_LABELS|PG_PASSWORD|CONCURRENCY|FAILPOINT"
)
DERIVED = ("artifacts", "visibility_timeout")  #: from other settings; told in words

pytestmark = pytest.mark.unit


def test_every_setting_is_there_and_none_that_is_not() -> None:
    assert {name.lower() for name in ROWS} == set(Settings.model_fields)


@pytest.mark.parametrize("name", [one for one in Settings.model_fields if one not in DERIVED])
def test_its_default_is_the_one_of_the_code(name: str) -> None:
    default = Settings.model_fields[name].default
    text = default.get_secret_value() if isinstance(default, SecretStr) else default
    told = ROWS[name.upper()].strip().strip("`")
    assert told == (text if isinstance(text, str) else json.dumps(text))


def test_documents_and_containers_name_settings_that_exist() -> None:
    places = [ROOT / "README.md", ROOT / "docker-compose.yml", *(ROOT / "docs").rglob("*.md")]
    places += (ROOT / "examples").rglob("*.md")
    unknown = {
        f"{place.relative_to(ROOT)}: ONWARD_{name}"
        for place in places
        for name in re.findall(r"\bONWARD_([A-Z][A-Z_]*)", place.read_text(encoding="utf-8"))
        if name.lower().rstrip("_") not in Settings.model_fields and not ELSEWHERE.match(name)
    }
    assert not unknown
