# One image for every role: worker, control worker, beat, Flower, migrations, demo services.
FROM python:3.12-slim-bookworm

ENV PYTHONUNBUFFERED=1 \
    PYTHONDONTWRITEBYTECODE=1 \
    PIP_NO_CACHE_DIR=1 \
    PIP_ROOT_USER_ACTION=ignore \
    # Celery's soft shutdown (end running steps, give back messages) acts on SIGQUIT only.
    REMAP_SIGTERM=SIGQUIT \
    # Your agents: mount or copy packages to /agents and name them in ONWARD_AGENTS.
    PYTHONPATH=/onward:/agents

WORKDIR /onward
COPY requirements.lock ./
RUN pip install uv==0.13.9 && uv pip install --system --require-hashes --requirement requirements.lock
COPY pyproject.toml README.md LICENSE ./
COPY models ./models
COPY tasks ./tasks
COPY recovery ./recovery
COPY ops ./ops
COPY examples ./examples
RUN uv pip install --system --no-deps --no-build-isolation . \
    && useradd --create-home --uid 10001 onward \
    && mkdir -p /agents /var/lib/artifacts /var/lib/onward \
    && chown onward /agents /var/lib/artifacts /var/lib/onward
USER onward
CMD ["celery", "-A", "tasks", "worker", "-P", "prefork", "-l", "INFO"]
