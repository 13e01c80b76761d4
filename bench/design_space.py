"""A study of 600 points: three models on 200 variants of a TPU v3 core, each compiled for its chip.

    python -m bench.design_space FOLDER
    systolith sweep FOLDER/design_space.toml -o FOLDER/design_space.csv --jobs 2 --figures FOLDER

writes the models (JAX lowers them) and the study.  `docs/sweeps.md` says how long it takes.
"""

from __future__ import annotations

import sys
from pathlib import Path

from bench.modules import hlo_path

MODELS = ("resnet50_1", "bert_base_1x128", "gpt2_decode_512")

STUDY = """# 200 chips: matrix units, vector memory, bandwidth.
# The cost has no unit: 10 for a matrix unit, 1 for a MiB, 1 for 30 GB/s.
models = [{models}]
chips = ["tpu_v3"]
program = "tuned"
pareto = ["seconds", "10 * mxu.count + vmem.bytes / 1048576 + hbm.gbps / 30"]

[vary]
"mxu.count" = [1, 2, 4, 8]
"vmem.bytes" = ["8MiB", "12MiB", "16MiB", "24MiB", "32MiB"]
"hbm.gbps" = [200, 300, 400, 500, 600, 700, 800, 900, 1050, 1200]
"""


def write(folder: Path) -> Path:
    """The study and its models, in a folder; the path of the study."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS:
        (folder / f"{name}.hlo").write_bytes(hlo_path(name).read_bytes())
    study = folder / "design_space.toml"
    study.write_text(STUDY.format(models=", ".join(f'"{name}.hlo"' for name in MODELS)))
    return study


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit("usage: python -m bench.design_space FOLDER")
    print(write(Path(sys.argv[1])))
