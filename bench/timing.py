"""Times: of the device, by events, the calls taking turns; of the host, by the clock."""

from __future__ import annotations

import random
import statistics
import time

import torch

# Far more than any GPU's L2. Passing over it takes the device over 100 us, in which the host gets
# ahead: a call's own host time, a peer's context manager included, then hides behind it.
FLUSH_BYTES = 512 << 20


def flusher():
    """A function that leaves nothing of the caller's in L2.

    It reads. After a memset, as most benchmarks do it, L2 is full of lines that the timed call must
    first write back: on an H200 that is up to 10 us of somebody else's traffic (16 x 4096 x 14336
    by cuBLAS takes 41 us after a memset, 33 us after a read).
    """
    memory = torch.ones(FLUSH_BYTES // 4, device="cuda")
    return memory.sum


def take_turns(calls, seconds, sets=1, halfway=lambda: None, least=5, most=1000):
    """Microseconds of each call by events, all samples, L2 flushed before each call.

    `calls` are functions of the number of an input set. Taking turns makes clock drift hit all
    alike, so that ratios hold; the order is shuffled, so that none always follows the same
    neighbour. `seconds` bounds the whole, except that `least` turns are taken. `halfway` is called
    once, while the device works.
    """
    flush = flusher()
    for call in calls.values():
        for index in range(sets):
            call(index)
    torch.cuda.synchronize()
    samples: dict[str, list[float]] = {name: [] for name in calls}
    order, shuffle = list(calls), random.Random(0).shuffle
    start, asked = time.perf_counter(), False
    for turn in range(most):
        elapsed = time.perf_counter() - start
        if turn >= least and elapsed > seconds:
            break
        shuffle(order)
        events = {}
        for name in order:
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            flush()
            before.record()
            calls[name](turn % sets)
            after.record()
            events[name] = before, after
        if not asked and elapsed > seconds / 2:
            asked = True
            halfway()
        torch.cuda.synchronize()
        for name, (before, after) in events.items():
            samples[name].append(before.elapsed_time(after) * 1e3)
    return samples


def host_times(calls, rounds=60, loops=100):
    """Microseconds of host time a call, all samples, the device never waited for.

    `calls` gives a context and a function for each name; they take turns, in shuffled order.
    `loops` stays below the length of the launch queue, so that a call never waits for the device.
    """
    for context, call in calls.values():
        with context():
            for _ in range(20):
                call()
    torch.cuda.synchronize()
    samples: dict[str, list[float]] = {name: [] for name in calls}
    order, shuffle = list(calls), random.Random(0).shuffle
    for _ in range(rounds):
        shuffle(order)
        for name in order:
            context, call = calls[name]
            with context():
                start = time.perf_counter()
                for _ in range(loops):
                    call()
                samples[name].append((time.perf_counter() - start) / loops * 1e6)
            torch.cuda.synchronize()
    return samples


def best_seconds(call, times=12):
    """The shortest of a few back-to-back runs: what a ceiling is."""
    call()
    pairs = []
    for _ in range(times):
        before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        before.record()
        call()
        after.record()
        pairs.append((before, after))
    torch.cuda.synchronize()
    return min(before.elapsed_time(after) for before, after in pairs) / 1e3


def summary(samples):
    """Median and spread: the inter-quartile range in percent of the median."""
    median = statistics.median(samples)
    spread = 0.0
    if len(samples) > 1:
        low, _, high = statistics.quantiles(samples, n=4)
        spread = (high - low) / median * 100
    return {
        "median_us": median,
        "iqr_percent": spread,
        "best_us": min(samples),
        "samples": len(samples),
    }
