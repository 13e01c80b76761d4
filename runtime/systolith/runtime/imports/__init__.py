"""Models of other tools, as HLO: SCALE-Sim topologies and configurations, ONNX."""
