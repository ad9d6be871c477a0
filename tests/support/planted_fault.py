"""A row of the lists of faults that scripts/plant_faults.py plants."""

FOLDER = "tests/kernels"


def fault(name, file, old, new, caught_by):
    return {"name": name, "file": file, "old": old, "new": new, "caught_by": caught_by}
