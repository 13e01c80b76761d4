"""Figures for papers, drawn by matplotlib from the numbers of `charts.data`; imported only when one is drawn."""
