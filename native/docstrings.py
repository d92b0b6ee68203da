"""Put the docstrings of a stub into a copy of its Cython module, so that ``help()`` shows what the stub says.

usage: docstrings.py MODULE.pyx MODULE.pyi OUTPUT.pyx
"""

from __future__ import annotations

import ast
import re
import sys
import textwrap
from pathlib import Path

CLASS = re.compile(r"(?:cdef )?class (\w+)")
FUNCTION = re.compile(r"( *)(?:def|cpdef) (\w+)\(")
#: Class and function; None for a function of the module, and for the class itself.
Name = tuple[str | None, str | None]


def stub_docstrings(stub: str) -> dict[Name, str]:
    """Return the docstrings of a stub, by class and function."""
    found: dict[Name, str] = {}

    def keep(name: Name, node: ast.ClassDef | ast.FunctionDef) -> None:
        text = ast.get_docstring(node)
        if text:
            found.setdefault(name, text)

    for node in ast.parse(stub).body:
        if isinstance(node, ast.FunctionDef):
            keep((None, node.name), node)
        elif isinstance(node, ast.ClassDef):
            keep((node.name, None), node)
            for member in node.body:
                if isinstance(member, ast.FunctionDef) and not member.name.startswith("__"):
                    keep((node.name, member.name), member)
    return found


def quoted(text: str, indent: str) -> str:
    """Return a docstring as source lines."""
    escaped = text.replace("\\", "\\\\").replace('"""', '\\"\\"\\"')
    if escaped.endswith('"'):
        escaped = escaped[:-1] + '\\"'
    body = textwrap.indent(escaped, indent).lstrip()
    end = f"\n{indent}" if "\n" in body else ""
    return f'{indent}"""{body}{end}"""\n'


def header_end(lines: list[str], start: int) -> int | None:
    """Return the line in which a header ends with a colon, None for a body on the same line."""
    depth = 0
    for number in range(start, len(lines)):
        code = lines[number].split("#")[0].rstrip()
        depth += sum(code.count(sign) for sign in "([{") - sum(code.count(sign) for sign in ")]}")
        if depth == 0:
            return number if code.endswith(":") else None
    return None


def with_docstrings(module: str, docstrings: dict[Name, str]) -> str:
    """Return the module with each docstring behind the header that it belongs to."""
    lines = module.splitlines(keepends=True)
    after: dict[int, str] = {}
    inside: str | None = None
    for number, line in enumerate(lines):
        if line.strip() and not line.startswith((" ", "#", "@", "\t")):
            inside = None
        if named := CLASS.match(line):
            inside, name, indent = named.group(1), (named.group(1), None), ""
        elif named := FUNCTION.match(line):
            indent = named.group(1)
            if indent not in ("", "    ") or (indent and inside is None):
                continue
            name = (inside if indent else None, named.group(2))
        else:
            continue
        end = header_end(lines, number)
        if end is not None and name in docstrings:
            after[end] = quoted(docstrings[name], indent + "    ")
    return "".join(line + after.get(number, "") for number, line in enumerate(lines))


def main(source: str, stub: str, output: str) -> None:
    """Write the copy."""
    found = stub_docstrings(Path(stub).read_text(encoding="utf-8"))
    Path(output).write_text(
        with_docstrings(Path(source).read_text(encoding="utf-8"), found), encoding="utf-8"
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
