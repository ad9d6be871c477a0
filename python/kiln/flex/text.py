"""Graphs of nodes as C++ expressions."""

from __future__ import annotations

from .nodes import Node
from .tracer import ELEMENT, PARAM

LONGEST = 3000  # characters of an expression that is written out; a longer one names shared parts
TYPES = {"torch.bool": "bool", "torch.int64": "long long"}


def expression(root: Node, element: str = "t{slot}({indices})") -> str:
    """The C++ of one value, where a parameter is p0, p1 and so on, and a tensor's element is
    written as `element` says. What is used more than once gets a name only where the text would
    be long without: Kiln can tell which tiles a mask hides from a plain expression alone."""
    order = _in_order(root)
    lengths: dict[Node, int] = {}
    for node in order:
        own = len(node.form) + (0 if node.body is None else len(expression(node.body, element)))
        lengths[node] = own + sum(lengths[x] * _times(node, i) for i, x in _args(node))
    if lengths[root] <= LONGEST:
        return _text(order, root, {}, element)[1]
    uses = dict.fromkeys(order, 0)
    for node in order:
        for i, argument in _args(node):
            uses[argument] += _times(node, i)
    shared = [x for x in order if x.args and uses[x] > 1 and lengths[x] > 8 and x is not root]
    names = {node: f"v{i}" for i, node in enumerate(shared)}
    statements, result = _text(order, root, names, element)
    return f"[&]() {{ {statements}return {result}; }}()"


def slots(root: Node) -> tuple[set[int], set[int]]:
    """The numbers of the parameters and of the tensors that a value is computed from."""
    read: dict[str, set[int]] = {PARAM: set(), ELEMENT: set()}
    for node in _in_order(root):
        if node.slot is not None:
            read[node.form].add(node.slot)
        if node.body is not None:
            for kind, found in zip(read, slots(node.body), strict=True):
                read[kind] |= found
    return read[PARAM], read[ELEMENT]


def type_of(node: Node) -> str:
    """The C++ type of a node's value."""
    return "float" if node.is_float else TYPES.get(str(node.dtype), "int")


def _in_order(root: Node) -> list[Node]:
    """All nodes, each behind its arguments. Without recursion, as a trace of a loop is deep. What
    is within a node's body is another expression."""
    order: list[Node] = []
    seen: set[Node] = set()
    stack = [(root, False)]
    while stack:
        node, is_done = stack.pop()
        if is_done:
            order.append(node)
        elif node not in seen:
            seen.add(node)
            stack.append((node, True))
            stack += [(argument, False) for argument in node.args if argument not in seen]
    return _without_repeats(order)


def _without_repeats(order: list[Node]) -> list[Node]:
    return list(dict.fromkeys(order))


def _args(node: Node) -> list[tuple[int, Node]]:
    return list(enumerate(node.args))


def _times(node: Node, argument: int) -> int:
    return 1 if node.form == ELEMENT else node.form.count(f"{{{argument}}}")


def _text(order: list[Node], root: Node, names: dict[Node, str], element: str) -> tuple[str, str]:
    texts: dict[Node, str] = {}
    statements = ""
    for node in order:
        arguments = [texts[argument] for argument in node.args]
        if node.form == PARAM:
            text = f"p{node.slot}"
        elif node.form == ELEMENT:
            text = element.format(slot=node.slot, indices=", ".join(arguments or ["0"]))
        elif node.body is not None:
            text = node.form.format(*arguments, body=expression(node.body, element))
        else:
            text = node.form.format(*arguments)
        if node in names:
            statements += f"const {type_of(node)} {names[node]} = {text}; "
            text = names[node]
        texts[node] = text
    return statements, texts[root]
