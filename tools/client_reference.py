"""Writes docs/client-reference.md: each public name of `stoplist_client` with its signature and docstring.

usage: tools/client_reference.py. griffe reads the source. What griffe2md makes of that shows the inner modules, and its
links lead nowhere in ordinary Markdown; so the page is made here.
"""

import re
from collections.abc import Iterator
from pathlib import Path

import griffe
import stoplist_client

ROOT = Path(__file__).parents[1]
TARGET = ROOT / "docs" / "client-reference.md"
INTRODUCTION = """# Reference of stoplist_client

Made of the docstrings by `make reference`. [client.md](client.md) explains how the parts work together;
[interface.md](interface.md), whose sections are named here, is the contract of the service.
"""
# By the module, or the folder of modules, that defines a name. Whoever adds one with public names gives it a line.
SECTIONS = {
    "client": "Clients",
    "async_client": "Clients",
    "model": "What goes in and comes out",
    "tokens": "Tokens, and where they are kept",
    "secret": "Tokens, and where they are kept",
    "files": "Tokens, and where they are kept",
    "mirror": "The mirror",
    "errors": "Errors",
}
# What is of the inside, by what a partner uses of it, or gives.
SHOWN_AS = dict.fromkeys(("TokenFile", "TokenKeyring", "TokenMemory"), "TokenStore") | {
    "Keyring": "keyring.backend.KeyringBackend",
    "Printed": "str",
}
GIVEN_OUT = ("Changes", "AsyncChanges")
WIDTH = 100


def reference() -> str:
    """The whole document."""
    parts = [INTRODUCTION]
    for title in dict.fromkeys(SECTIONS.values()):
        parts.append(f"## {title}\n")
        parts += [part for name, found in public() if section(found) == title for part in entry(name, found)]
    return "\n".join(parts)


def public() -> list[tuple[str, griffe.Object]]:
    """What a partner imports, and its definition, in the order of the source."""
    package = griffe.load("stoplist_client", search_paths=[ROOT / "client" / "src"])
    if not isinstance(package, griffe.Module):
        raise TypeError("stoplist_client is no package")
    modules = list(SECTIONS)
    names = [name for name in stoplist_client.__all__ if not name.startswith("_")]
    found = [(name, definition) for name in names for definition in definitions(package, name)]
    return sorted(found, key=lambda pair: (modules.index(module_of(pair[1])), pair[1].lineno or 0))


def definitions(module: griffe.Module, name: str) -> Iterator[griffe.Object]:
    """Where a module, or one within it, says what a name is; not where it is imported."""
    if (member := module.members.get(name)) and not isinstance(member, griffe.Alias):
        yield member
    for inner in module.modules.values():
        if isinstance(inner, griffe.Module):
            yield from definitions(inner, name)


def section(found: griffe.Object) -> str:
    """Where it belongs."""
    return SECTIONS[module_of(found)]


def module_of(found: griffe.Object) -> str:
    """The module, or the folder of modules, that defines it."""
    return found.path.split(".")[1]


def entry(name: str, found: griffe.Object) -> Iterator[str]:
    """Heading, signature and docstring; then those of each public method and property, inherited ones too."""
    yield described(f"### {name}", head(found), found)
    if not isinstance(found, griffe.Class):
        return
    for member in map(resolved, found.all_members.values()):
        if isinstance(member, griffe.Function) and not member.name.startswith("_"):
            yield described(f"#### {name}.{member.name}", call(member), member)
        elif isinstance(member, griffe.Attribute) and "property" in member.labels:
            yield described(f"#### {name}.{member.name}", f"{member.name}: {member.annotation}", member)


def resolved(member: griffe.Object | griffe.Alias) -> griffe.Object:
    """What is inherited, as it was defined."""
    found = member.final_target if isinstance(member, griffe.Alias) else member
    if not isinstance(found, griffe.Object):
        raise TypeError(f"{member.path} is nowhere defined")
    return found


def described(heading: str, code: str, found: griffe.Object) -> str:
    code = spelled_out(code, found.module)
    texts = [found.docstring.value if found.docstring else ""]
    made = maker(found)
    if made and made.parent and made.parent.name not in stoplist_client.__all__ and made.parent.docstring:
        texts.append(made.parent.docstring.value)
    # `name:  what it means` becomes an entry of a list.
    text = re.sub(r"^((?:\w+, )*[a-z]\w*): +(?=\S)", r"- `\1`: ", "\n\n".join(texts), flags=re.MULTILINE)
    return f"{heading}\n\n```python\n{code}\n```\n\n{text}\n"


def maker(found: griffe.Object) -> griffe.Function | None:
    """The `__init__` that partners call: nobody makes an error, or what a client gives out."""
    if not isinstance(found, griffe.Class) or section(found) == "Errors" or found.name in GIVEN_OUT:
        return None
    made = found.all_members.get("__init__")
    function = resolved(made) if made else None
    return function if isinstance(function, griffe.Function) else None


def head(found: griffe.Object) -> str:
    """How a thing is made, or what it is."""
    if isinstance(found, griffe.Attribute):
        return f"{found.name} = {found.value}".replace("'", '"')
    if isinstance(found, griffe.Function):
        return call(found)
    if not isinstance(found, griffe.Class):
        raise TypeError(f"{found.path} is of no kind that has an entry")
    if made := maker(found):
        return call(made, f"class {found.name}")
    bases = ", ".join(str(base) for base in found.bases)
    if section(found) == "Errors":
        return "\n    ".join([f"class {found.name}({bases})", *attributes(found)])
    if "Struct" not in bases:
        return f"class {found.name}({bases})"
    fields = [field for field in found.attributes.values() if "instance-attribute" in field.labels and field.annotation]
    shown = [f"{field.name}: {field.annotation}" + f" = {field.value}" * bool(field.value) for field in fields]
    return on_lines(spelled_out(f"class {found.name}({', '.join(shown)})", found.module))


def attributes(found: griffe.Class) -> Iterator[str]:
    """What an error tells beside its text: what its class says, and what its `__init__` keeps."""
    made = found.members.get("__init__")
    if isinstance(made, griffe.Function) and made.source:
        kept = set(re.findall(r"self\.(\w+)", made.source))
        yield from (f"{each.name}: {each.annotation}" for each in made.parameters if each.name in kept)
        return
    for each in found.members.values():
        if not isinstance(each, griffe.Attribute):
            continue
        yield f"{each.name}: {each.annotation}" if each.annotation else f"{each.name} = {each.value}".replace("'", '"')


def spelled_out(code: str, module: griffe.Module) -> str:
    """A signature without names that nobody can import: constants and aliases are replaced by what they stand for."""

    def meant(name: re.Match[str]) -> str:
        return SHOWN_AS.get(name[0]) or value_of(name[0], module) or name[0]

    return re.sub(r"\b_?[A-Z]\w*\b", meant, code)


def value_of(name: str, module: griffe.Module) -> str | None:
    """What a name of this module stands for; None for what is public, or not defined in this package, or a class."""
    member = module.members.get(name)
    if name in stoplist_client.__all__ or member is None:
        return None
    try:
        found = resolved(member)
    except griffe.AliasResolutionError:
        return None
    if not isinstance(found, griffe.Attribute):
        return None
    return spelled_out(str(found.value), found.module).replace("'", '"')


def call(found: griffe.Function, name: str = "") -> str:
    """The signature, without the argument that stands for the object itself."""
    signature = found.signature(name=name or found.name, return_type=not name)
    shown = on_lines(spelled_out(signature, found.module))
    return f"async {shown}" if "async" in found.labels else shown


def on_lines(signature: str) -> str:
    """One argument a line, where one line for all would be too long."""
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
