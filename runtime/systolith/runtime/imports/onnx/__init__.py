"""ONNX models as modules: `model.py` takes a model and gives HLO, by the rules of `table.py`."""
