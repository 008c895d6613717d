"""The checks, one literal table."""
