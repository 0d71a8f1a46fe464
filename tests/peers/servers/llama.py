"""The server of llama.cpp over the tiny model: ``.venv-peers/bin/python llama.py MODEL PORT``."""

import sys
import threading

import xllamacpp


def main() -> None:
    model, port = sys.argv[1:]
    params = xllamacpp.CommonParams()
    params.model.path = model
    params.model_alias = {"tiny"}
    params.hostnames = ["127.0.0.1"]
    params.port = int(port)
    params.n_ctx = 2048
    params.n_parallel = 2
    params.cpuparams.n_threads = 1
    params.use_jinja = True
    params.warmup = False
    server = xllamacpp.Server(params)
    print(server.listening_address, flush=True)  # noqa: T201 - read by whoever started it
    threading.Event().wait()


if __name__ == "__main__":
    main()
