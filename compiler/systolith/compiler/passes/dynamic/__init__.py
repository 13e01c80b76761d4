"""Arrays of bounded sizes as arrays of their bounds, with their sizes as scalars beside them."""
