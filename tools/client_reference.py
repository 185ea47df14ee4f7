"""Write docs/client-reference.md: each public name of `stoplist_client` with its signature and docstring.

usage: tools/client_reference.py. griffe reads the source. The page is rendered here, because griffe2md shows the inner
modules, and its links do not work in ordinary Markdown.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import griffe
import stoplist_client

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "client-reference.md"
INTRODUCTION = """# Reference of stoplist_client

Generated from the docstrings by `make reference`. [client.md](client.md) explains how the parts work together.
[interface.md](interface.md), whose sections are cited here, is the contract of the service.
"""
# The section of each module or package that defines public names. A new one with public names needs a line here.
SECTIONS = {
    "client": "Clients",
    "async_client": "Clients",
    "link_maker": "Opt-out links",
    "model": "Inputs and results",
    "tokens": "Tokens and token stores",
    "secret": "Tokens and token stores",
    "files": "Tokens and token stores",
    "mirror": "The mirror",
    "errors": "Errors",
}
# Internal names, and the public ones that are shown instead.
SHOWN_AS = dict.fromkeys(("TokenFile", "TokenKeyring", "TokenMemory"), "TokenStore") | {
    "Keyring": "keyring.backend.KeyringBackend",
    "Printed": "str",
}
# Classes that the client creates; partners never call their `__init__`.
CREATED_BY_CLIENT = ("Changes", "AsyncChanges")
WIDTH = 100


def reference() -> str:
    """Return the whole document."""
    parts = [INTRODUCTION]
    for title in dict.fromkeys(SECTIONS.values()):
        parts.append(f"## {title}\n")
        parts += [
            part for name, definition in public() if section_of(definition) == title for part in entry(name, definition)
        ]
    return "\n".join(parts)


def public() -> list[tuple[str, griffe.Object]]:
    """Return the names that partners import, with their definitions, in the order of the source."""
    package = griffe.load("stoplist_client", search_paths=[ROOT / "client" / "src"])
    if not isinstance(package, griffe.Module):
        raise TypeError("stoplist_client is not a package")
    modules = list(SECTIONS)
    names = [name for name in stoplist_client.__all__ if not name.startswith("_")]
    pairs = [(name, definition) for name in names for definition in definitions(package, name)]
    return sorted(pairs, key=lambda pair: (modules.index(module_of(pair[1])), pair[1].lineno or 0))


def definitions(module: griffe.Module, name: str) -> Iterator[griffe.Object]:
    """Yield the definitions of a name in a module or a module within it, without imports of the name."""
    if (member := module.members.get(name)) and not isinstance(member, griffe.Alias):
        yield member
    for inner in module.modules.values():
        if isinstance(inner, griffe.Module):
            yield from definitions(inner, name)


def section_of(definition: griffe.Object) -> str:
    """Return the section that an object belongs to."""
    return SECTIONS[module_of(definition)]


def module_of(definition: griffe.Object) -> str:
    """Return the top-level module or package that defines an object."""
    return definition.path.split(".")[1]


def entry(name: str, definition: griffe.Object) -> Iterator[str]:
    """Yield heading, signature and docstring of an object, then those of its public methods and properties."""
    yield render(f"### {name}", declaration(definition), definition)
    if not isinstance(definition, griffe.Class):
        return
    for member in map(resolved, definition.all_members.values()):
        if isinstance(member, griffe.Function) and not member.name.startswith("_"):
            yield render(f"#### {name}.{member.name}", function_signature(member), member)
        elif isinstance(member, griffe.Attribute) and "property" in member.labels:
            yield render(f"#### {name}.{member.name}", f"{member.name}: {member.annotation}", member)


def resolved(member: griffe.Object | griffe.Alias) -> griffe.Object:
    """Return the definition behind an inherited or imported member."""
    definition = member.final_target if isinstance(member, griffe.Alias) else member
    if not isinstance(definition, griffe.Object):
        raise TypeError(f"{member.path} has no definition")
    return definition


def render(heading: str, code: str, definition: griffe.Object) -> str:
    code = expand_names(code, definition.module)
    texts = [definition.docstring.value if definition.docstring else ""]
    init = constructor(definition)
    if init and init.parent and init.parent.name not in stoplist_client.__all__ and init.parent.docstring:
        texts.append(init.parent.docstring.value)
    # `name:  what it means` becomes an entry of a list.
    text = re.sub(r"^((?:\w+, )*[a-z]\w*): +(?=\S)", r"- `\1`: ", "\n\n".join(texts), flags=re.MULTILINE)
    return f"{heading}\n\n```python\n{code}\n```\n\n{text}\n"


def constructor(definition: griffe.Object) -> griffe.Function | None:
    """Return the `__init__` that partners call; None for errors and for classes that the client creates."""
    if (
        not isinstance(definition, griffe.Class)
        or section_of(definition) == "Errors"
        or definition.name in CREATED_BY_CLIENT
    ):
        return None
    init = definition.all_members.get("__init__")
    function = resolved(init) if init else None
    return function if isinstance(function, griffe.Function) else None


def declaration(definition: griffe.Object) -> str:
    """Return the declaration of a function, class or constant."""
    if isinstance(definition, griffe.Attribute):
        return f"{definition.name} = {definition.value}".replace("'", '"')
    if isinstance(definition, griffe.Function):
        return function_signature(definition)
    if not isinstance(definition, griffe.Class):
        raise TypeError(f"{definition.path} is not a class, function or constant")
    if init := constructor(definition):
        return function_signature(init, f"class {definition.name}")
    bases = ", ".join(str(base) for base in definition.bases)
    if section_of(definition) == "Errors":
        return "\n    ".join([f"class {definition.name}({bases})", *attributes(definition)])
    if "Struct" not in bases:
        return f"class {definition.name}({bases})"
    fields = [
        field for field in definition.attributes.values() if "instance-attribute" in field.labels and field.annotation
    ]
    shown = [f"{field.name}: {field.annotation}" + f" = {field.value}" * bool(field.value) for field in fields]
    return wrap(expand_names(f"class {definition.name}({', '.join(shown)})", definition.module))


def attributes(definition: griffe.Class) -> Iterator[str]:
    """Yield the attributes of an error: those of its class, or those that its `__init__` stores."""
    init = definition.members.get("__init__")
    if isinstance(init, griffe.Function) and init.source:
        kept = set(re.findall(r"self\.(\w+)", init.source))
        yield from (f"{each.name}: {each.annotation}" for each in init.parameters if each.name in kept)
        return
    for each in definition.members.values():
        if not isinstance(each, griffe.Attribute):
            continue
        yield f"{each.name}: {each.annotation}" if each.annotation else f"{each.name} = {each.value}".replace("'", '"')


def expand_names(code: str, module: griffe.Module) -> str:
    """Return a signature in which private constants and aliases are replaced by their values."""

    def replacement(name: re.Match[str]) -> str:
        return SHOWN_AS.get(name[0]) or value_of(name[0], module) or name[0]

    return re.sub(r"\b_?[A-Z]\w*\b", replacement, code)


def value_of(name: str, module: griffe.Module) -> str | None:
    """Return the value of a module's name; None if it is public, a class, or defined outside this package."""
    member = module.members.get(name)
    if name in stoplist_client.__all__ or member is None:
        return None
    try:
        definition = resolved(member)
    except griffe.AliasResolutionError:
        return None
    if not isinstance(definition, griffe.Attribute):
        return None
    # The bounds of a number are for the decoder: a reader needs its type.
    value = re.sub(r"^Annotated\[(\w+), .*\]$", r"\1", str(definition.value))
    return expand_names(value, definition.module).replace("'", '"')


def function_signature(definition: griffe.Function, name: str = "") -> str:
    """Return the signature of a function, without `self`."""
    signature = definition.signature(name=name or definition.name, return_type=not name)
    shown = wrap(expand_names(signature, definition.module))
    return f"async {shown}" if "async" in definition.labels else shown


def wrap(signature: str) -> str:
    """Put each argument on its own line if the signature is too long for one line."""
    if len(signature) <= WIDTH:
        return signature
    name, _, rest = signature.partition("(")
    arguments, depth = [""], 0
    for at, sign in enumerate(rest):
        depth += (sign in "([{") - (sign in ")]}")
        if depth < 0:
            return "\n    ".join([f"{name}(", *(f"{argument.strip()}," for argument in arguments)]) + f"\n{rest[at:]}"
        if depth == 0 and sign == ",":
            arguments.append("")
        else:
            arguments[-1] += sign
    return signature


if __name__ == "__main__":
    TARGET.write_text(reference())
