"""HloCostAnalysis: flops and bytes as XLA counts them."""
