"""HLO text: to IR and back."""
