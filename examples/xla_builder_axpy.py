"""alpha * x + y, made with the builder: run by the reference evaluator, and on a simulated chip."""

import numpy as np

from systolith import api as sl


def axpy(size: int) -> sl.XlaComputation:
    b = sl.XlaBuilder("axpy")
    alpha = b.parameter(0, "f32[]", "alpha")
    x = b.parameter(1, sl.make_shape("f32", [size]), "x")
    y = b.parameter(2, sl.make_shape("f32", [size]), "y")
    b.add(b.mul(alpha, x), y)  # also: b.Add(...), sl.ops.Add(...), alpha * x + y
    return b.build()


def main() -> None:
    computation = axpy(8)
    print(computation.hlo_text())

    arguments = np.float32(2), np.arange(8, dtype=np.float32), np.ones(8, np.float32)
    (reference,) = computation.evaluate(*map(np.asarray, arguments))
    print("reference:", reference)

    client = sl.Client("tiny")
    data = [client.transfer_to_server(sl.Literal.create(argument)) for argument in arguments]
    result = client.execute_and_transfer(computation, data).array
    print("chip:     ", result)
    np.testing.assert_array_equal(result, reference)


if __name__ == "__main__":
    main()
