"""Kiln under the names and argument orders of other libraries. Import its modules by name."""
