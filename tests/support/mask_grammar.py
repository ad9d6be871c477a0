"""Random masks of variants, for tests of what is read of them over intervals."""


class Grammar:
    """Random masks of every construct that is read, with values near and beyond the ints' ends."""

    def __init__(self, generator):
        self.random = generator

    def pick(self, *choices):
        return self.random.choice(choices)

    def integer(self, depth):
        if depth == 0 or self.random.random() < 0.2:
            return self.pick("q", "kv", "row", "b", "h", "len_q", "len_kv", "x", "y", "n", "mine",
                             "own(b, q)", "own(b, kv)", "its(kv)", "its(row)", "int(flag(at.kv))",
                             str(self.random.randrange(70)), "q - kv", "0x1f", "017")  # fmt: skip
        a, b, less = self.integer(depth - 1), self.integer(depth - 1), depth - 1
        divisor = self.pick("n", "7", "-n", "64", "(n + 1)")
        if self.random.random() < 0.15:
            return self.pick(f"({self.boolean(less)} ? {a} : {b})", f"({self.boolean(less)} + {b})",
                             f"int({self.real(less)})", f"(int)({a})", f"bool({a})")  # fmt: skip
        return self.pick(
            f"({a} + {b})", f"({a} - {b})", f"({a} * {b})", f"-({a})", f"({a}) / {divisor}",
            f"({a}) % {divisor}", f"min({a}, {b})", f"max({a}, {b})", f"abs({a})", f"({a} & {b})",
            f"({a} & 15)", f"({a} | {b})", f"({a} ^ {b})", f"(({a}) >> {self.random.randrange(6)})",
            f"(({a}) << {self.random.randrange(6)})", f"~({a})", f"{a} - {b}", f"{a} + {b}",
        )  # fmt: skip

    def real(self, depth):
        if depth == 0:
            return self.pick("at.distance", "s", "1.5", "2.f", ".25", "(float)kv", "1.f * float(q)")
        a, b = self.real(depth - 1), self.real(depth - 1)
        return self.pick(f"({a} + {b})", f"({a} - {b})", f"{a} * {b}", f"({a}) / {b}", f"-({a})",
                         f"fabsf({a})", f"fminf({a}, {b})", f"(float)({self.integer(0)})",
                         f"({a} + {self.integer(0)})")  # fmt: skip

    def boolean(self, depth):
        if depth == 0 or self.random.random() < 0.4:
            compare = self.pick("<", "<=", ">", ">=", "==", "!=")
            if self.random.random() < 0.1:
                return self.pick("flag(row)", "flag(kv)")
            if self.random.random() < 0.2:
                return f"({self.real(1)} {compare} {self.real(1)})"
            left, right = self.integer(depth), self.integer(min(depth, 1))
            if self.random.random() < 0.2:
                left = f"static_cast<long long>({left})"
            return f"({left} {compare} {right})"
        a, b = self.boolean(depth - 1), self.boolean(depth - 1)
        return self.pick(
            f"({a} && {b})", f"({a} || {b})", f"!{a}", f"({a} == {b})", f"({a} != {b})",
            f"({a} ? {b} : {self.boolean(depth - 1)})", f"({a} and not {b})", f"({a} & {b})",
            f"({a} && ({self.integer(1)}))",
        )  # fmt: skip

    def bound(self):
        """A condition that shows a query one run of keys."""
        number = self.pick("x", "y", "mine", "len_q", str(self.random.randrange(200)))
        return self.pick("kv <= q", "kv < n", f"kv >= {number}", f"q - kv < {number}",
                         f"kv - row <= {number}", f"(kv <= q || kv < {number})", f"q >= {number}",
                         f"{number} == kv", f"!(kv > q || kv < {number})")  # fmt: skip

    def other(self):
        """A comparison, of which much cannot be read over intervals."""
        left = self.pick("own(b, kv / 2)", "its(q - kv + 9)", "own(b, q)", "its(kv)",
                         "its(kv % 64)", "flag(min(kv, q))", "h", self.integer(1))  # fmt: skip
        right = self.pick("own(b, kv)", "its(row)", "x", "1", "own(b, q / 3)", self.integer(1))
        return f"{left} {self.pick('<', '>=', '==', '!=')} {right}"

    def conjunction(self):
        """Runs of keys beside what else hides keys, some of which is unknown."""
        others = [self.pick(self.other(), f"({self.other()} || {self.other()})", self.boolean(1),
                            f"({self.bound()} || {self.other()})", f"!({self.other()})",
                            f"({self.bound()} ? {self.other()} : {self.bound()})")
                  for _ in range(self.pick(0, 1, 1, 2))]  # fmt: skip
        parts = others + [self.bound() for _ in range(self.pick(1, 1, 2))]
        self.random.shuffle(parts)
        return " && ".join(parts)
