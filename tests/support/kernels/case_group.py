"""Several calls that are judged in one test."""

import dataclasses


@dataclasses.dataclass(frozen=True)
class CaseGroup:
    """Cases, of attention or GEMM, that have kernels in common."""

    name: str
    cases: tuple

    def __str__(self):
        return self.name

    def run(self):
        """Each kernel once."""
        seen = set()
        for case in self.cases:
            key = case.explain().get("key")
            if key not in seen:
                seen.add(key)
                case.run()

    def check(self):
        for case in self.cases:
            case.check()
