"""Which operations run together.

In: HLO in canonical form.  Out: HLO whose every operation that runs is in a `Group` (`ops/group.py`), which kernels and
instructions can hold.  Costs of candidates come from `vpu` and `mxu`; nothing is lowered for good.
"""
