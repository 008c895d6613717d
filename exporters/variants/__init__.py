"""Variants: graph to serialised forms."""
