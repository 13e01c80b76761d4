"""Serve a model to two clients at a time: each puts the weights on its devices once, then sends batches.

    python served_model.py --chip tpu_v3 --batches 4

It starts `systolith serve` on a socket of its own.  With a service that runs already, a client is `sl.connect()`.
"""

import argparse
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import numpy as np

from systolith import api as sl


@contextmanager
def service(chip):
    """A server, and its address."""
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "systolith", "serve", f"unix:{folder}/socket", "--chip", chip]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        line = server.stdout.readline()  # once it is there, clients can connect
        if not line:
            sys.exit(server.wait())
        print(line, end="")
        try:
            yield line.split(" at ")[1].strip()
        finally:
            server.terminate()
            server.wait()


def model(batch, size):
    """Relu(x w) v."""
    builder = sl.XlaBuilder("model")
    x = builder.Parameter(0, sl.make_shape(sl.F32, [batch, size]), "x")
    w = builder.Parameter(1, sl.make_shape(sl.F32, [size, size]), "w")
    v = builder.Parameter(2, sl.make_shape(sl.F32, [size, 8]), "v")
    hidden = builder.Max(builder.Dot(x, w), builder.ConstantR0(0.0))
    builder.Dot(hidden, v)
    return builder.Build()


def client(address, number, options):
    """Results of one client's batches, and how far they are from numpy's."""
    rng = np.random.default_rng(number)
    weights = [rng.standard_normal((options.size, n), np.float32) / 8 for n in (options.size, 8)]
    computation = model(options.batch, options.size)
    with sl.connect(address) as service:
        on_device = [service.transfer_to_server(sl.Literal.create(one)) for one in weights]
        worst = 0.0
        for _ in range(options.batches):
            x = rng.standard_normal((options.batch, options.size), np.float32)
            data = service.transfer_to_server(sl.Literal.create(x))
            result = service.execute_and_transfer(computation, [data, *on_device])
            wanted = np.maximum(x @ weights[0], 0) @ weights[1]
            worst = max(worst, float(np.abs(result.array - wanted).max() / np.abs(wanted).max()))
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chip", default="tpu_v3")
    parser.add_argument("--size", type=int, default=128)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--batches", type=int, default=3)
    options = parser.parse_args()
    with service(options.chip) as address, ThreadPoolExecutor() as both:
        for number, worst in enumerate(both.map(lambda n: client(address, n, options), range(2))):
            print(f"client {number}: {options.batches} batches, relative error at most {worst:.3f}")


if __name__ == "__main__":
    main()
