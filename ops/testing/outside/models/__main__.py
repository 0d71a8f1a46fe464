"""``python -m ops.testing.outside.models``: the models as a process of their own."""

import argparse
from contextlib import suppress
from pathlib import Path

from ops.testing.outside.models.service import Service


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m ops.testing.outside.models",
        description="Scripted language models with a ledger.",
    )
    parser.add_argument("--store", type=Path, required=True, help="directory, made when missing")
    parser.add_argument("--port", type=int, default=0, help="0: a free one")
    parser.add_argument("--port-file", type=Path, help="where the port is written once it listens")
    arguments = parser.parse_args()
    service = Service(arguments.store, port=arguments.port)
    if arguments.port_file:
        unfinished = arguments.port_file.with_suffix(".new")
        unfinished.write_text(str(service.server_port))
        unfinished.replace(arguments.port_file)  # never seen empty
    with suppress(KeyboardInterrupt):
        service.serve_forever()


if __name__ == "__main__":
    main()
