"""The name of a case in test ids and messages: what it has other than the default."""

import dataclasses


class NamedCase:
    """The base of the dataclasses of cases, all of whose fields have defaults."""

    def __str__(self):
        base = type(self)()
        changed = [
            f"{field.name}={getattr(self, field.name)}"
            for field in dataclasses.fields(self)
            if getattr(self, field.name) != getattr(base, field.name)
        ]
        return "-".join(changed).replace(" ", "") or "default"
