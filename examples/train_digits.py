"""Train a classifier of 28 x 28 images; it is plain JAX and knows nothing of systolith.

    JAX_PLATFORMS=systolith python train_digits.py

The images are made here: ten patterns with noise and shifts, in the place of handwritten digits.
"""

from functools import partial

import jax
import jax.numpy as jnp

CLASSES, SIZE, HIDDEN, BATCH, STEPS = 10, 28, 128, 64, 40


def images(key, patterns, count):
    """Labels, and their patterns moved by up to a pixel, under noise."""
    labels_key, move_key, noise_key = jax.random.split(key, 3)
    labels = jax.random.randint(labels_key, (count,), 0, CLASSES)
    moves = jax.random.randint(move_key, (count, 2), -1, 2)
    moved = jax.vmap(lambda image, by: jnp.roll(image, by, (0, 1)))(patterns[labels], moves)
    return labels, moved + jax.random.normal(noise_key, moved.shape)


def parameters(key):
    """Weights and biases of two layers."""
    keys = jax.random.split(key)
    sizes = [(SIZE * SIZE, HIDDEN), (HIDDEN, CLASSES)]
    return [(jax.random.normal(k, s) * (2 / s[0]) ** 0.5, jnp.zeros(s[1])) for k, s in zip(keys, sizes, strict=True)]


def logits(layers, batch):
    (first, first_bias), (second, second_bias) = layers
    hidden = jax.nn.relu(batch.reshape(-1, SIZE * SIZE) @ first + first_bias)
    return hidden @ second + second_bias


def loss(layers, labels, batch):
    chances = jax.nn.log_softmax(logits(layers, batch))
    return -jnp.take_along_axis(chances, labels[:, None], 1).mean()


@partial(jax.jit, donate_argnums=(0, 1))
def step(layers, speeds, key, patterns):
    """One step of gradient descent with momentum on a fresh batch."""
    labels, batch = images(key, patterns, BATCH)
    value, gradients = jax.value_and_grad(loss)(layers, labels, batch)
    speeds = jax.tree.map(lambda speed, gradient: 0.9 * speed + gradient, speeds, gradients)
    return jax.tree.map(lambda weight, speed: weight - 0.01 * speed, layers, speeds), speeds, value


@jax.jit
def accuracy(layers, key, patterns):
    labels, batch = images(key, patterns, 4 * BATCH)
    return (logits(layers, batch).argmax(1) == labels).mean()


def main():
    pattern_key, layer_key, test_key, train_key = jax.random.split(jax.random.key(0), 4)
    patterns = jax.random.normal(pattern_key, (CLASSES, SIZE, SIZE))
    layers = parameters(layer_key)
    speeds = jax.tree.map(jnp.zeros_like, layers)
    print(f"on {jax.devices()[0]}; accuracy {accuracy(layers, test_key, patterns):.3f}")
    for number, key in enumerate(jax.random.split(train_key, STEPS)):
        layers, speeds, value = step(layers, speeds, key, patterns)
        if number % 10 == 9:
            print(f"step {number + 1}: loss {value:.3f}")
    print(f"accuracy {accuracy(layers, test_key, patterns):.3f}")


if __name__ == "__main__":
    main()
