"""Recipes that ship with onnxport, read through importlib.resources."""
