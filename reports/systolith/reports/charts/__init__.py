"""Charts of a report, each a function from run data to inline SVG."""
