"""Train a linear model whose batches come by infeed and whose errors leave by outfeed, and see who waits for whom.

    python infeed_training.py --chip tpu_v3 --steps 32

One thread makes batches while the chip runs, this one watches the errors. Then the same program is timed with batches
that arrive at given intervals: from some interval on the chip waits for the host.
"""

import argparse
from threading import Thread

import numpy as np

from systolith import api as sl

STEP = """HloModule training
body {{
 state = (s32[], f32[{size},1], token[]) parameter(0)
 step = s32[] get-tuple-element(state), index=0
 w = f32[{size},1] get-tuple-element(state), index=1
 before = token[] get-tuple-element(state), index=2
 item = ((f32[{batch},{size}], f32[{batch},1]), token[]) infeed(before)
 data = (f32[{batch},{size}], f32[{batch},1]) get-tuple-element(item), index=0
 x = f32[{batch},{size}] get-tuple-element(data), index=0
 y = f32[{batch},1] get-tuple-element(data), index=1
 taken = token[] get-tuple-element(item), index=1
 guess = f32[{batch},1] dot(x, w), lhs_contracting_dims={{1}}, rhs_contracting_dims={{0}}
 error = f32[{batch},1] subtract(guess, y)
 gradient = f32[{size},1] dot(x, error), lhs_contracting_dims={{0}}, rhs_contracting_dims={{0}}
 rate = f32[] constant({rate})
 rates = f32[{size},1] broadcast(rate), dimensions={{}}
 change = f32[{size},1] multiply(rates, gradient)
 better = f32[{size},1] subtract(w, change)
 after = token[] outfeed(error, taken), outfeed_shape=f32[{batch},1]
 one = s32[] constant(1)
 next = s32[] add(step, one)
 ROOT result = (s32[], f32[{size},1], token[]) tuple(next, better, after)
}}
more {{
 state = (s32[], f32[{size},1], token[]) parameter(0)
 step = s32[] get-tuple-element(state), index=0
 steps = s32[] constant({steps})
 ROOT less = pred[] compare(step, steps), direction=LT
}}
ENTRY main {{
 w = f32[{size},1] parameter(0)
 zero = s32[] constant(0)
 start = token[] after-all()
 state = (s32[], f32[{size},1], token[]) tuple(zero, w, start)
 end = (s32[], f32[{size},1], token[]) while(state), condition=more, body=body
 ROOT trained = f32[{size},1] get-tuple-element(end), index=1
}}
"""


def produce(client, options, wanted):
    """Push a batch for each step."""
    rng = np.random.default_rng(0)
    with client.infeed() as feed:
        for _ in range(options.steps):
            x = rng.standard_normal((options.batch, options.size), np.float32)
            feed.push(x, x @ wanted)


def train(client, model, options):
    """Run the program while a thread feeds it; mean squared errors of the first and the last step."""
    wanted = np.random.default_rng(1).standard_normal((options.size, 1), np.float32)
    producer = Thread(target=produce, args=(client, options, wanted))
    producer.start()
    (trained,) = model(np.zeros((options.size, 1), np.float32))
    errors = [float(np.mean(client.outfeed().pop() ** 2)) for _ in range(options.steps)]
    producer.join()
    distance = np.abs(trained.numpy() - wanted).max()
    print(f"mean squared error: {errors[0]:.3g} in step 1, {errors[-1]:.3g} in step {options.steps}")
    print(f"the weights are within {distance:.2g} of those that the data were made with")


def timed(model, options, interval):
    """Cycles of the run, and of its waits for the host, if a batch arrives every so many cycles."""
    item = 4 * options.batch * (options.size + 1)
    arrivals = sl.HostTimes({0: [(interval * n, item) for n in range(options.steps)]})
    model(mode="time", host=arrivals)
    run = model.last_run
    return run.cycles, run.result.units["ld"].get("host", 0)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--chip", default="tpu_v3")
    parser.add_argument("--size", type=int, default=64)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--steps", type=int, default=32)
    options = parser.parse_args()
    client = sl.Client(chip=options.chip)
    rate = 1.0 / options.batch / 2
    model = client.compile(STEP.format(size=options.size, batch=options.batch, steps=options.steps, rate=rate))
    train(client, model, options)
    alone, _ = timed(model, options, 0)
    step = alone // options.steps
    print("\nevery (cycles)  run (cycles)  waits for the host")
    for interval in (0, step // 2, step, 2 * step, 4 * step):
        cycles, waits = timed(model, options, interval)
        bound = "host" if waits > cycles / 4 else "chip"
        print(f"{interval:14,}  {cycles:12,}  {waits / cycles:17.0%}  bound by: {bound}")


if __name__ == "__main__":
    main()
