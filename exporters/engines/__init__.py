"""Engines: module to graph."""
