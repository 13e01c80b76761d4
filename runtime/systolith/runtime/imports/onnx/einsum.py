"""Sums of products by an equation, as contractions of two operands at a time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from systolith.compiler.xla_builder import XlaBuilder, XlaOp
from systolith.compiler.xla_builder.contraction import DotDimensionNumbers
from systolith.runtime.imports.onnx.broadcast import dims
from systolith.runtime.imports.onnx.node import Made, Node, Rule
from systolith.runtime.imports.onnx.reduction import reduced

_REST = "..."


@dataclass(frozen=True)
class _Term:
    """An operand, and the label of each of its dimensions."""

    op: XlaOp
    labels: tuple[str, ...]

    @property
    def sizes(self) -> dict[str, int]:
        return dict(zip(self.labels, dims(self.op), strict=True))

    def only(self, b: XlaBuilder, wanted: Collection[str]) -> _Term:
        """Summed over all other labels."""
        axes = [n for n, label in enumerate(self.labels) if label not in wanted]
        if not axes:
            return self
        return _Term(reduced(b, self.op, "add", axes), tuple(x for x in self.labels if x in wanted))

    def without_ones(self, b: XlaBuilder, sizes: Mapping[str, int]) -> _Term:
        """Without the dimensions of size 1 whose labels have another size elsewhere."""
        kept = {label: size for label, size in self.sizes.items() if size == sizes[label]}
        if len(kept) == len(self.labels):
            return self
        return _Term(b.reshape(self.op, list(kept.values())), tuple(kept))


def _labels(n: Node, text: str, rank: int, rest: int) -> tuple[str, ...]:
    """Labels of a term; `...` stands for so many of `rest` as the rank leaves, the last ones."""
    before, dots, after = text.partition(_REST)
    named = [*before, *after]
    some = rank - len(named)
    if not all(x.isascii() and x.isalpha() for x in named) or some < 0 or (some and not dots):
        raise n.refuse(f"the term {text!r} of its equation does not fit {rank} dimensions")
    if repeated := [x for x, times in Counter(named).items() if times > 1]:
        raise n.refuse(f"the term {text!r} of its equation has {repeated[0]!r} twice: diagonals are not there")
    return (*before, *(str(rest - some + d) for d in range(some)), *after)


def _equation(n: Node) -> tuple[list[_Term], tuple[str, ...]]:
    """Operands, and the labels of the result."""
    given, arrow, wanted = n.get("equation", "").replace(" ", "").partition("->")
    texts, inputs = given.split(","), n.inputs
    if len(texts) != len(inputs):
        raise n.refuse(f"its equation has {len(texts)} terms for {len(inputs)} operands")
    rest = max(len(dims(x)) - len(text.replace(_REST, "")) for text, x in zip(texts, inputs, strict=True))
    terms = [_Term(x, _labels(n, text, len(dims(x)), rest)) for text, x in zip(texts, inputs, strict=True)]
    if not arrow:
        times = Counter(given.replace(_REST, "").replace(",", ""))
        wanted = _REST * (_REST in given) + "".join(sorted(x for x in times if times[x] == 1))
    return terms, _labels(n, wanted, len(wanted.replace(_REST, "")) + rest * (_REST in wanted), rest)


def _sizes(n: Node, terms: Sequence[_Term]) -> dict[str, int]:
    """The size of each label; a dimension of size 1 is repeated."""
    found: dict[str, int] = {}
    for term in terms:
        for label, size in term.sizes.items():
            if size != 1 and found.get(label, 1) not in (1, size):
                raise n.refuse(f"sizes {found[label]} and {size} of one label of its equation")
            found[label] = size if size != 1 else found.get(label, 1)
    return found


def _contracted(b: XlaBuilder, x: _Term, y: _Term, wanted: Collection[str]) -> _Term:
    """The product of two operands, summed over the labels that are not wanted."""
    x, y = x.only(b, {*wanted, *y.labels}), y.only(b, {*wanted, *x.labels})
    shared = [label for label in x.labels if label in y.labels]
    batch = [label for label in shared if label in wanted]
    summed = [label for label in shared if label not in wanted]

    def places(term: _Term, labels: Sequence[str]) -> tuple[int, ...]:
        return tuple(map(term.labels.index, labels))

    numbers = DotDimensionNumbers(places(x, summed), places(y, summed), places(x, batch), places(y, batch))
    free = [label for term in (x, y) for label in term.labels if label not in shared]
    return _Term(b.dot_general(x.op, y.op, numbers), (*batch, *free))


def _einsum(n: Node) -> Made:
    terms, wanted = _equation(n)
    sizes = _sizes(n, terms)
    if missing := [label for label in wanted if label not in sizes]:
        raise n.refuse(f"no term of its equation has {missing[0]!r} of the result")
    made, *others = [term.without_ones(n.b, sizes) for term in terms]
    while others:
        made, others = (
            _contracted(n.b, made, others[0], {*wanted, *(x for t in others[1:] for x in t.labels)}),
            others[1:],
        )
    made = made.only(n.b, wanted)
    return [n.b.transpose(made.op, [made.labels.index(label) for label in wanted])]


EINSUM: Mapping[str, Rule] = {"Einsum": _einsum}
"""Rules by operation."""
