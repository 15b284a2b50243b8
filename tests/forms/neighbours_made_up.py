"""Kernels drawn at random, of statements that the form `wide` treats in different ways, for data/wide.dag."""

from __future__ import annotations

from random import Random

_INDICES = (
    "int j = blockIdx.x * bx + threadIdx.x;",
    "const unsigned j = blockIdx.x * blockDim.x + threadIdx.x;",
    "const long j = (long)blockIdx.x * bx + threadIdx.x;",
    "int t = threadIdx.x, b = blockIdx.x, j = b * bx + t;",
    "size_t j = threadIdx.x + size_t(bx) * blockIdx.x;",
)
_LEAVE = (
    "if (j >= n) return;",
    "if (!(j < n)) return;",
    "if (i > 2 || n <= j) return;",
    "const bool outside = j >= n;\nif (outside) return;",
)


class MadeUp:
    """One kernel: `float* y` of 3 rows of n elements, `const float* x` of 5."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.values = ["1.5f"]  # of type float, in scope
        self.depth = 0
        self.hidden: list[str] = []  # names in scope that are not declared again there
        self.number = 0

    def text(self, name: str) -> str:
        lines = [self.random.choice(_INDICES), "const int i = blockIdx.y;", self.random.choice(_LEAVE)]
        lines = [line.replace("j >= n", "(long)j >= n").replace("j < n", "(long)j < n") for line in lines]
        lines = [line.replace("n <= j", "n <= (long)j") for line in lines]
        if self.random.random() < 0.3:
            edges = self.random.sample(["j == 0", "j == n - 1", "i == 1", "j < 3", "j + 2 >= n"], 2)
            store = self.random.choice(["", "y[i * n + j] = -1;\n"])
            lines.append(f"if ({' || '.join(map(self._signed, edges))}) {{\n{store}return;\n}}")
        lines += [self.statement() for _ in range(self.random.randint(2, 7))]
        lines.append(f"y[i * n + j] {self.random.choice(['=', '+='])} {self.value()};")
        body = "\n".join(lines)
        return (
            f"kernel {name}(y: inout f32[3 * n], x: in f32[5 * n], n: i64) {{\n  tune bx in {{32, 64}}\n"
            f'  gpu {{ launch grid(ceil(n / bx), 3) block(bx) cuda """\n{body}\n""" }}\n}}\n'
        )

    def _signed(self, condition: str) -> str:
        return condition.replace("j", "(long)j", 1)

    def fresh(self, prefix: str) -> str:
        self.number += 1
        return f"{prefix}{self.number}"

    def element(self) -> str:
        """A load that is within its array."""
        row, far = self.random.randint(0, 4), self.random.choice([-5, -4, -2, -1, 0, 0, 0, 1, 2, 3, 4])
        place = f"{row} * n + j" + (f" + {far}" if far >= 0 else f" - {-far}")
        within = f"(long)j + {far} >= 0 && (long)j + {far} < n"
        return self.random.choice(
            [
                f"x[{row} * n + j]",
                f"x[{row} * n]",
                f"(x + {row} * n)[j]",
                f"*(&x[j] + n * {row})",
                f"({within} ? x[{place}] : 0.5f)",
                f"((long)j == 0 || (long)j == n - 1 ? x[{row} * n + j] : x[{row} * n + j - 1] + x[{row} * n + j + 1])",
                f"((long)j != n - 1 ? x[j + 1] : x[{row} * n])",
                f"x[{row} * n + min(max((long)j + {far}, 0L), long(n) - 1)]",
                f"x[(long)(j * 7 + {row}) % n]",
                "y[i * n + j]",
            ]
        )

    def value(self) -> str:
        parts = [self.random.choice([self.element(), self.random.choice(self.values)]) for _ in range(2)]
        return f"{parts[0]} {self.random.choice('+-*')} {parts[1]}"

    def statement(self) -> str:
        kind = self.random.randrange(10 if self.depth < 2 else 4)
        if kind == 9:
            return self._moving()
        if kind == 0:
            name = self.fresh("a") if self.random.random() < 0.5 else f"b{len(self.values) % 3}"
            if name in self.hidden:
                return ";"
            self.hidden.append(name)
            text = f"{self.random.choice(['float', 'const float'])} {name} = {self.value()};"
            self.values += [name] * (1 + (not text.startswith("const")))
            return text
        if kind == 1:
            return f"y[i * n + j] {self.random.choice(['=', '+=', '*='])} {self.value()};"
        if kind == 2:
            own = sorted({v for v in self.values if self.values.count(v) > 1})
            return f"{self.random.choice(own)} += {self.value()};" if own else "++y[i * n + j];"
        if kind == 3:
            name = self.fresh("p")
            row = self.random.randint(0, 4)
            self.values.append(f"{name}[0]")
            return f"const float* {name} = x + {row} * n + j;"
        return self._block(kind)

    def _moving(self) -> str:
        """A sum down a column, by an index or a pointer that goes from row to row, in some threads further."""
        name, at, counter = self.fresh("a"), self.fresh("m"), self.fresh("k")
        first, load = self.random.choice([("long {} = j", "x[{}]"), ("const float* {} = x + j", "*{}")])
        step = self.random.choice(["{0} += n", "{0} = {0} + n", "{0} = n + {0}"])
        more = self.random.choice([*[""] * 7, "if (i == 1) {} += n;", "const float* kept = &x[j];"])
        more = "if (x[j] > 0) {} += n;" if self.random.random() < 0.05 else more
        head = f"for (int {counter} = 0; {counter} < 2; ++{counter}"
        body = f"{name} += {load.format(at)} * {self.value()};\n{more.format(at)}"
        loop = f"{head}, {step.format(at)}) {{\n{body}\n}}"
        if self.random.random() < 0.5:
            loop = f"{head}) {{\n{body}\n{step.format(at)};\n}}"
        self.hidden.append(name)
        self.values += [name, name]
        return f"float {name} = 0;\n{first.format(at)};\n{loop}"

    def _block(self, kind: int) -> str:
        values, hidden, self.depth = list(self.values), list(self.hidden), self.depth + 1
        counter = self.fresh("k")
        heads = [
            f"for (int {counter} = 0; {counter} < {self.random.randint(0, 4)}; ++{counter})",
            f"if ({self.random.choice(['i == 1', 'n > 5', '(long)j > 4', '(long)j != 7', '(long)j < n - 2'])})",
            f"if ({self.value()} > 0)",
            f"for (long {counter} = 0; {counter} < (long)j && {counter} < 3; ++{counter})",
            f"for (int {counter} = 2; {counter} > 0 && n > 3; {counter} -= 1)",
        ]
        head = heads[kind - 4]
        body = "\n".join(self.statement() for _ in range(self.random.randint(1, 3)))
        self.values, self.hidden = list(values), list(hidden)
        other = f" else {{\n{self.statement()}\n}}" if head.startswith("if") and self.random.random() < 0.4 else ""
        self.values, self.hidden, self.depth = values, hidden, self.depth - 1
        return f"{head} {{\n{body}\n}}{other}"
