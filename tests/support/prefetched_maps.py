"""This finds tensor maps that a kernel prefetches without PTX saying which of its parameters they
are. ptxas 12.4 and 12.5 give such an instruction a wrong address (prefetch_map() in
templates/sm90/tensor_copy.cuh), which only a GPU would tell.
"""

import collections
import re

DEFINITION = re.compile(
    r"^\s*(?:@!?%p\d+ )?(?:add|cvta|mov)[.\w]*\s+(%rd\d+), (%?\w+)", re.MULTILINE
)
PREFETCH = re.compile(r"prefetch\.tensormap \[(%rd\d+)\]")


def maps_chosen_at_run_time(ptx):
    """Returns how many prefetches have an address that is not always the same parameter's."""
    sources = collections.defaultdict(list)
    for register, source in DEFINITION.findall(ptx):
        sources[register].append(source)

    def is_known(value):
        if not value.startswith("%"):
            return True
        return len(sources[value]) == 1 and is_known(sources[value][0])

    return sum(not is_known(register) for register in PREFETCH.findall(ptx))
