"""Which small errors can be planted in a Python file.

A mutant replaces one piece of the source by another, and keeps the number of lines. Left alone are
asserts (they tell our own mistakes), type hints, decorators, texts, modes of files and flags of the
system.
"""

import ast
from collections.abc import Iterator
from itertools import pairwise
from typing import NamedTuple

_COMPARE = {
    ast.Lt: ("<", "<=", ">="),
    ast.LtE: ("<=", "<", ">"),
    ast.Gt: (">", ">=", "<="),
    ast.GtE: (">=", ">", "<"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
}
_ARITHMETIC = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
    ast.Mult: ("*", "//"),
    ast.FloorDiv: ("//", "*"),
    ast.Mod: ("%", "//"),
    ast.LShift: ("<<", ">>"),
    ast.RShift: (">>", "<<"),
    ast.BitAnd: ("&", "|"),
    ast.BitOr: ("|", "&"),
}
NO_LOCK = '__import__("contextlib").nullcontext()'
_LITERALS = (ast.JoinedStr, ast.List, ast.Tuple, ast.Dict, ast.Set, ast.ListComp)
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Mutant(NamedTuple):
    """One planted error."""

    path: str  # from the project's root
    function: str  # "Log.flush"; "" outside of all functions
    kind: str
    line: int
    end_line: int
    start: int  # the piece's place in the source, in characters
    end: int
    after: str  # what stands there now

    def apply(self, source: str) -> str:
        """The source with the error."""
        piece = source[self.start : self.end]
        padding = "\n" * (piece.count("\n") - self.after.count("\n"))
        return source[: self.start] + self.after + padding + source[self.end :]

    def lines(self, source: str) -> tuple[str, str]:
        """The lines before and after, on one line each."""
        return tuple(  # type: ignore[return-value]
            " ".join(
                line.strip() for line in text.splitlines()[self.line - 1 : self.end_line] if line
            ).strip()
            for text in (source, self.apply(source))
        )


def mutants_of(source: str, path: str) -> list[Mutant]:
    """All errors that can be planted in a file."""
    finder = _Finder(source, path)
    finder.visit(ast.parse(source))
    return sorted(set(finder.mutants), key=lambda mutant: (mutant.start, mutant.end, mutant.after))


class _Finder(ast.NodeVisitor):
    def __init__(self, source: str, path: str) -> None:
        self.mutants: list[Mutant] = []
        self._source, self._path = source, path
        self._names: list[str] = []
        self._depth = 0  # of functions
        # AST positions count bytes of UTF-8
        self._lines = [line.encode() for line in source.splitlines(keepends=True)]
        starts = [0]
        for line in self._lines:
            starts.append(starts[-1] + len(line.decode()))
        self._starts = starts

    # -- places ------------------------------------------------------------------------------------

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + len(self._lines[line - 1][:column].decode())

    def _begin(self, node: ast.AST) -> int:
        return self._at(node.lineno, node.col_offset)  # type: ignore[attr-defined]

    def _end(self, node: ast.AST) -> int:
        return self._at(node.end_lineno, node.end_col_offset)  # type: ignore[attr-defined]

    def _text(self, node: ast.AST) -> str:
        return self._source[self._begin(node) : self._end(node)]

    def _add(self, kind: str, start: int, end: int, after: str) -> None:
        piece = self._source[start:end]
        if piece == after or after.count("\n") > piece.count("\n"):
            return
        line = self._source.count("\n", 0, start) + 1
        self.mutants.append(
            Mutant(
                path=self._path,
                function=".".join(self._names) if self._depth else "",
                kind=kind,
                line=line,
                end_line=line + piece.count("\n"),
                start=start,
                end=end,
                after=after,
            )
        )

    def _replace(self, kind: str, node: ast.AST, after: str) -> None:
        self._add(kind, self._begin(node), self._end(node), after)

    def _between(self, kind: str, left: ast.AST, right: ast.AST, old: str, new: str) -> None:
        """Another operator between two operands."""
        start, end = self._end(left), self._begin(right)
        at = self._source.find(old, start, end)
        if at >= 0:
            self._add(kind, at, at + len(old), new)

    # -- what is left alone ------------------------------------------------------------------------

    def visit_Assert(self, node: ast.Assert) -> None:
        pass

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        self._drop(node, node.target)
        if node.value is not None:
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        pass

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        self._names.append(node.name)
        for statement in node.body:
            self.visit(statement)
        self._names.pop()

    def _visit_function(self, node: ast.FunctionDef | ast.AsyncFunctionDef) -> None:
        for default in (*node.args.defaults, *filter(None, node.args.kw_defaults)):
            self.visit(default)
        self._names.append(node.name)
        self._depth += 1
        for statement in node.body:
            self.visit(statement)
        self._depth -= 1
        self._names.pop()

    visit_FunctionDef = _visit_function
    visit_AsyncFunctionDef = _visit_function

    def visit_keyword(self, node: ast.keyword) -> None:
        if node.arg != "strict":  # of zip: it tells our own mistakes, as an assert does
            self.visit(node.value)

    # -- the errors --------------------------------------------------------------------------------

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        for (left, right), operator in zip(pairwise(operands), node.ops, strict=True):
            old, *others = _COMPARE[type(operator)]
            for new in others:
                self._between("comparison", left, right, old, new)
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if "os.O_" in self._text(node):
            return  # flags of the system, which no test tells apart
        is_text = any(
            isinstance(side, _LITERALS)
            or (isinstance(side, ast.Constant) and isinstance(side.value, str | bytes))
            for side in (node.left, node.right)
        )
        if type(node.op) in _ARITHMETIC and not is_text:
            self._between("arithmetic", node.left, node.right, *_ARITHMETIC[type(node.op)])
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        for left, right in pairwise(node.values):
            self._between("and/or", left, right, old, new)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._replace("not", node, f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._replace("constant", node, str(not node.value))
        elif isinstance(node.value, int) and not self._text(node).startswith("0o"):
            self._replace("constant", node, str(node.value + 1))
            if node.value > 0:
                self._replace("constant", node, str(node.value - 1))

    def visit_If(self, node: ast.If) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._negate(node.test)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        for condition in node.ifs:
            self._negate(condition)
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if not isinstance(test, ast.Compare | ast.UnaryOp):  # these have errors of their own
            self._replace("negation", test, f"(not ({self._text(test)}))")

    def visit_Return(self, node: ast.Return) -> None:
        value = node.value
        if value is not None and not (isinstance(value, ast.Constant) and value.value is None):
            self._replace("return", value, "None")
        self.generic_visit(node)

    def visit_Expr(self, node: ast.Expr) -> None:
        if isinstance(node.value, ast.Constant):
            return  # a docstring
        if isinstance(node.value, ast.Call):
            self._replace("statement", node, "pass")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        self._drop(node, *node.targets)
        self.visit(node.value)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        if self._depth:
            self._replace("statement", node, "pass")
        self.visit(node.value)

    def _drop(self, node: ast.stmt, *targets: ast.expr) -> None:
        """Without an assignment to an attribute or an item. (A local name would be missed.)"""
        is_kept = any(isinstance(target, ast.Attribute | ast.Subscript) for target in targets)
        if self._depth and is_kept:
            self._replace("statement", node, "pass")

    def visit_Raise(self, node: ast.Raise) -> None:
        self._replace("statement", node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._replace("statement", node, "pass")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._replace("statement", node, "pass")

    def visit_Delete(self, node: ast.Delete) -> None:
        self._replace("statement", node, "pass")

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            if "lock" in self._text(item.context_expr).lower():
                self._replace("lock", item.context_expr, NO_LOCK)
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        first, second = (*node.args, None, None)[:2]
        is_starred = isinstance(first, ast.Starred) or isinstance(second, ast.Starred)
        is_symmetric = isinstance(node.func, ast.Name) and node.func.id in ("min", "max")
        if first is not None and second is not None and not is_starred and not is_symmetric:
            gap = self._source[self._end(first) : self._begin(second)]
            swapped = self._text(second) + gap + self._text(first)
            self._add("arguments", self._begin(first), self._end(second), swapped)
        self.generic_visit(node)


def with_keys(mutants: list[Mutant], source: str) -> Iterator[tuple[str, Mutant]]:
    """Each mutant with a key that outlives changes elsewhere in its file."""
    seen: dict[str, int] = {}
    for mutant in mutants:
        before, after = mutant.lines(source)
        key = key_of(mutant.path, mutant.function, before, after)
        seen[key] = seen.get(key, 0) + 1
        yield key if seen[key] == 1 else f"{key}\n# {seen[key]}", mutant


def key_of(path: str, function: str, before: str, after: str) -> str:
    return f"{path} {function}\n- {before}\n+ {after}"
