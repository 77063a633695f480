"""The licence texts of everything that is linked into the binary: those that each crate brings along, each text once."""

import pathlib
import re

from sbom import cargo_metadata, linked_crates

#: Files of a crate that hold terms; those of foreign sources lie a folder deeper.
FILES = re.compile(r"(LICEN[CS]E|COPYING|COPYRIGHT|NOTICE|UNLICENSE)([-._].*)?", re.IGNORECASE)
RULE = "=" * 80


def third_party_licenses(platform):
    """All texts, each below the crates that it is for; the same input gives the same text."""
    crates_of = {}
    without = []
    for crate in sorted(linked_crates(cargo_metadata(platform), platform), key=lambda one: (one["name"], one["version"])):
        if crate["source"] is None:
            continue
        name = f"{crate['name']} {crate['version']} ({crate['license'] or 'see its files'})"
        texts = texts_of(pathlib.Path(crate["manifest_path"]).parent)
        for text in texts:
            crates_of.setdefault(text, []).append(name)
        if not texts:
            without.append(name)
    parts = ["Trunkline is linked with these crates. Each text is the licence or the notice of those above it."]
    parts += [f"{RULE}\n{chr(10).join(names)}\n{RULE}\n\n{text}" for text, names in crates_of.items()]
    if without:
        parts.append(f"{RULE}\nThese bring no text along; the licences that they name are above.\n{RULE}\n\n" + "\n".join(without))
    return "\n\n".join(parts) + "\n"


def texts_of(folder):
    files = sorted(path for pattern in ("*", "*/*") for path in folder.glob(pattern) if FILES.fullmatch(path.name) and path.is_file())
    texts = [path.read_text(errors="replace").strip() for path in files]
    return list(dict.fromkeys(text for text in texts if text))
