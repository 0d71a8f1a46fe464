"""Every framework's adapter, tested in the framework's own environment, as ``make adapters`` does."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRAMEWORKS = ("pydantic_ai", "openai_agents", "langgraph")
LONGEST = 600.0  #: seconds; each takes less than one minute on two cores that do nothing else


@pytest.mark.timeout(LONGEST + 60)
@pytest.mark.parametrize("framework", FRAMEWORKS)
def test_an_adapter_with_the_real_framework(framework: str) -> None:
    python = ROOT / ".venv-adapters" / framework / "bin" / "python"
    if not python.exists():
        pytest.skip("make adapters has not set up this environment")
    command = [str(python), "-m", "pytest", f"tests/adapters/{framework}", "-q"]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        env={name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")},
    ) as tests:  # fmt: skip
        try:
            output, _ = tests.communicate(timeout=LONGEST)
        except BaseException:
            tests.send_signal(signal.SIGINT)  # upon which pytest ends its servers
            raise
    assert tests.returncode == 0, output
