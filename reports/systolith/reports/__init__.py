"""Performance reports, plots and comparisons of runs."""
