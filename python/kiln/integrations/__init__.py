"""Kiln in frameworks and engines. Each module is imported by its name."""
