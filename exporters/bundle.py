"""The output folder: sealing it with a manifest, and reading it back without trusting it.

Every path in `bundle.json` is relative, stays inside the folder and names a regular file; nothing in a bundle is a
link. `files` hashes everything but `bundle.json`, and `digest` hashes `bundle.json`.
"""

from __future__ import annotations

import hashlib
import json
import os
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from onnxport.exporters.errors import BundleError
from onnxport.exporters.graph import Variant
from onnxport.exporters.manifest import MANIFEST_NAME, Component, Manifest, VariantEntry
from onnxport.exporters.onnx_facts import read_facts
from onnxport.verify.contract import FileRecord
from onnxport.verify.digest import file_sha256

if TYPE_CHECKING:
    import onnxruntime

    from onnxport.verify.report import Report

SCHEMA_VERSION = 1


@dataclass(frozen=True)
class Bundle:
    """A bundle on disk, its manifest read and checked. The files themselves are checked by `verify_bundle`."""

    path: Path
    manifest: Manifest

    def component(self, name: str | None = None) -> Component:
        """Returns the component of that name; None: the only one there is.

        Raises:
            BundleError: there is none of that name, or several and no name.
        """
        return self.manifest.components[self.component_name(name)]

    def component_name(self, name: str | None = None) -> str:
        """Returns the name that `component` goes by; raises like it."""
        names = list(self.manifest.components)
        if name is None and len(names) == 1:
            return names[0]
        if name is None:
            raise BundleError(f"{self.path} has the components {', '.join(names)}; say which one (--component).")
        if name not in names:
            raise BundleError(f"{self.path} has no component {name!r}; it has {', '.join(names)}.")
        return name

    def variant_name(self, variant: str | None = None, component: str | None = None) -> str:
        """Returns the variant to use: the one asked for, else `optimized`, else `base`.

        Raises:
            BundleError: the component has no such variant.
        """
        variants = self.component(component).variants
        if variant is None:
            variant = "optimized" if "optimized" in variants else "base"
        if variant not in variants:
            raise BundleError(f"{self.path} has no variant {variant!r}; it has {', '.join(variants)}.")
        return variant

    def variant(self, variant: str | None = None, component: str | None = None) -> VariantEntry:
        """Returns what the manifest says of a variant; chooses and raises like `variant_name`."""
        return self.component(component).variants[self.variant_name(variant, component)]

    def file(self, variant: str | None = None, component: str | None = None) -> Path:
        """Returns the graph file of a variant.

        Raises:
            BundleError: no such variant, or its file is missing.
        """
        path = self.path / self.variant(variant, component).file
        if not path.is_file():
            raise BundleError(f"{path} is missing although {MANIFEST_NAME} lists it; copy the whole bundle again.")
        return path

    def session(
        self,
        variant: str | None = None,
        component: str | None = None,
        provider: str = "CPUExecutionProvider",
        **overrides: str | int | bool,
    ) -> onnxruntime.InferenceSession:
        """Opens a plain ONNX Runtime session with the options that the manifest records for the variant.

        Args:
            variant: None: `optimized` where there is one, else `base`.
            component: None: the only one there is.
            provider: execution provider; there is no fallback to another one.
            overrides: session options that replace or join the recorded ones ("graph_optimization_level",
                "intra_op_num_threads", or any session configuration entry).

        Raises:
            BundleError: no such component or variant, or its file is missing.
            SessionError: the provider is not available, an option is refused, or the file does not load.
        """
        from onnxport.verify.runners import OrtRunner

        options = dict(self.variant(variant, component).session_options)
        options.update(
            {key: str(int(value)) if isinstance(value, bool) else str(value) for key, value in overrides.items()}
        )
        return OrtRunner(self.file(variant, component), provider=provider, session_options=options).session

    def report(self) -> Report | None:
        """Returns the stored report of the verification that the export ended with; None: it was skipped.

        Raises:
            BundleError: the report is missing or unreadable.
            VerificationError: the file is no report.
        """
        from onnxport.verify.report import Report

        name = self.manifest.verification.report
        if name is None:
            return None
        try:
            return Report.from_json((self.path / name).read_bytes())
        except OSError as e:
            raise BundleError(
                f"{self.path / name} cannot be read: {e.strerror or e}. Copy the whole bundle again."
            ) from e

    def digest_ok(self) -> bool:
        """Whether `bundle.json` on disk is as it was sealed."""
        content = _read_manifest(self.path)
        return content.get("digest") == _digest(content)


def variant_entry(variant: Variant, root: Path) -> VariantEntry:
    """Describes a variant that lies in the bundle folder `root`, from the file itself where it is ONNX.

    Raises:
        BundleError: the variant is not inside `root`, or its graph does not use exactly its external data file.
        ModelFileError: the file to read the facts from is not an ONNX model.
    """
    file = _relative(variant.path, root)
    data = None if variant.external_data is None else _relative(variant.external_data, root)
    facts = read_facts(variant.facts_path or variant.path)
    own_facts = variant.facts_path is None
    expected = () if variant.external_data is None else (variant.external_data.name,)
    if own_facts and (facts.external_data != expected or facts.missing_data):
        raise BundleError(
            f"{file} keeps weights in {', '.join(facts.external_data) or 'no other file'}, expected "
            f"{', '.join(expected) or 'none'} beside it; save the graph again together with its data."
        )
    sizes = [path.stat().st_size for path in (variant.path, variant.external_data) if path is not None]
    return VariantEntry(
        file=file,
        external_data=data,
        precision=variant.precision,
        opsets=dict(facts.opsets),
        ir_version=facts.ir_version,
        ops=dict(facts.ops),
        fusions=dict(sorted(variant.fusions.items())),
        level=variant.level,
        session_options=dict(sorted(variant.session_options.items())),
        portable=variant.portable and facts.portable,
        min_onnxruntime=facts.min_onnxruntime,
        size_bytes=sum(sizes),
        notes=variant.notes,
    )


def seal(root: Path, manifest: Manifest) -> Manifest:
    """Hashes what is in `root`, writes `bundle.json` and returns the manifest that is in it.

    The same files and the same manifest give the same bytes. `files` and `digest` of the argument are replaced.

    Raises:
        BundleError: a link, a special file, a name that cannot be stored, or a path in the manifest without a file.
    """
    paths = sorted(_regular_files(root))
    for path in paths:
        if (root / path).stat().st_nlink > 1:
            raise BundleError(f"{path} is a hard link, which ONNX refuses to load weights from; copy the file instead.")
    with ThreadPoolExecutor() as pool:  # hashlib lets go of the interpreter lock
        try:
            records = tuple(pool.map(lambda path: _record(root, path), paths))
        except OSError as e:
            raise BundleError(f"{e.filename} cannot be read: {e.strerror or e}. Check its permissions.") from e
        except ValidationError as e:
            raise BundleError(f"{root} holds a file whose name cannot be stored: {_explain(e)}. Rename it.") from e
    sealed = manifest.model_copy(update={"files": records, "digest": ""})
    _require_whole(sealed, root)
    content = sealed.model_dump(mode="json")
    try:
        content["digest"] = _digest(content)
    except ValueError as e:
        raise BundleError(f"the manifest of {root} holds a number that JSON has not ({e}); use finite ones.") from e
    (root / MANIFEST_NAME).write_text(json.dumps(content, indent=2) + "\n", encoding="ascii", newline="\n")
    return sealed.model_copy(update={"digest": content["digest"]})


def load_bundle(path: str | os.PathLike[str]) -> Bundle:
    """Reads a bundle's manifest and checks that nothing in the folder leads out of it. No file is hashed or loaded.

    Raises:
        BundleError: no such folder, no bundle.json, malformed or unknown content, a path or a link that leads out.
    """
    root = Path(path)
    if not root.is_dir():
        raise BundleError(f"{root} is {'a file' if root.exists() else 'missing'}; give the folder of a bundle.")
    content = _read_manifest(root)
    version = content.get("schema_version")
    if version != SCHEMA_VERSION:
        raise BundleError(
            f"{root / MANIFEST_NAME} has schema_version {version!r}, this onnxport reads {SCHEMA_VERSION}; "
            "upgrade onnxport, or export the bundle again."
        )
    try:
        manifest = Manifest.model_validate(content)
    except ValidationError as e:
        raise BundleError(f"{root / MANIFEST_NAME} is malformed: {_explain(e)}. Export the bundle again.") from e
    for _ in _regular_files(root):
        pass
    _require_whole(manifest, root)
    return Bundle(root, manifest)


def _digest(content: dict[str, Any]) -> str:
    """Returns the sha256 of the canonical JSON of everything but the digest itself."""
    rest = {key: value for key, value in content.items() if key != "digest"}
    canonical = json.dumps(rest, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(canonical.encode()).hexdigest()


def _read_manifest(root: Path) -> dict[str, Any]:
    path = root / MANIFEST_NAME
    if path.is_symlink():
        raise BundleError(f"{path} is a link; a bundle holds regular files only. Copy the files, following links.")
    try:
        content = json.loads(path.read_bytes(), object_pairs_hook=_unique, parse_constant=_no_constant)
    except FileNotFoundError as e:
        raise BundleError(f"{root} has no {MANIFEST_NAME}; give the folder that onnxport export wrote.") from e
    except OSError as e:
        raise BundleError(f"{path} cannot be read: {e.strerror or e}. Check its permissions.") from e
    except (ValueError, RecursionError) as e:  # bad JSON, bad UTF-8, a key twice, endless nesting
        raise BundleError(f"{path} is not the JSON of a manifest: {e}. Export or copy the bundle again.") from e
    if not isinstance(content, dict):
        raise BundleError(f"{path} holds a {type(content).__name__}, expected an object. Export the bundle again.")
    return content


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    content = dict(pairs)
    if len(content) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} stands there twice")
    return content


def _no_constant(name: str) -> float:
    raise ValueError(f"{name} is no JSON")


def _explain(error: ValidationError) -> str:
    """Returns the first problems in words: where, what, and for an unknown key which."""
    problems = [f"{'.'.join(map(str, item['loc']))}: {item['msg']}" for item in error.errors(include_url=False)]
    more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
    return "; ".join(problems[:3]) + more


def _regular_files(root: Path) -> Iterator[str]:
    """Yields the paths below `root` but the manifest's, "/"-separated; refuses links and special files."""
    folders = [root]
    while folders:
        folder = folders.pop()
        try:
            entries = list(os.scandir(folder))
        except OSError as e:
            raise BundleError(f"{folder} cannot be read: {e.strerror or e}. Check its permissions.") from e
        for entry in entries:
            path = Path(entry.path)
            name = path.relative_to(root).as_posix()
            mode = entry.stat(follow_symlinks=False).st_mode
            if stat.S_ISDIR(mode):
                folders.append(path)
            elif stat.S_ISLNK(mode):
                raise BundleError(
                    f"{path} is a link to {os.readlink(path)}; a bundle holds regular files only. "
                    "Copy the files, following links."
                )
            elif not stat.S_ISREG(mode):
                raise BundleError(f"{path} is neither a file nor a folder; a bundle holds nothing else. Remove it.")
            elif name != MANIFEST_NAME:
                yield name


def _record(root: Path, path: str) -> FileRecord:
    file = root / path
    return FileRecord(path=path, size_bytes=file.stat().st_size, sha256=file_sha256(file))


def _require_whole(manifest: Manifest, root: Path) -> None:
    """There is something to load, and whatever the manifest names is a file whose hash it records."""
    if not manifest.components or not all(component.variants for component in manifest.components.values()):
        raise BundleError(f"{root / MANIFEST_NAME} has no component, or one without variants. Export the bundle again.")
    listed = {record.path for record in manifest.files}
    if len(listed) != len(manifest.files):
        raise BundleError(f"{root / MANIFEST_NAME} lists a file twice in files. Export the bundle again.")
    for where, path in _named_paths(manifest):
        if path not in listed:
            raise BundleError(
                f"{root / MANIFEST_NAME} names {path} as {where}, which is not in its list of files. "
                "Export the bundle again."
            )


def _named_paths(manifest: Manifest) -> Iterator[tuple[str, str]]:
    for name, component in manifest.components.items():
        for variant, entry in component.variants.items():
            yield f"{variant} of {name}", entry.file
            if entry.external_data is not None:
                yield f"external data of {variant} of {name}", entry.external_data
        if component.golden is not None:
            yield f"the golden tensors of {name}", component.golden
    for path in manifest.preprocessing.files:
        yield "a preprocessing file", path
    if manifest.verification.report is not None:
        yield "the report", manifest.verification.report
    if manifest.verification.tokenizer is not None:
        yield "the tokenizer's record", manifest.verification.tokenizer


def _relative(path: Path, root: Path) -> str:
    try:
        return path.relative_to(root).as_posix()
    except ValueError as e:
        raise BundleError(f"{path} is outside the bundle {root}; write the variant into the bundle folder.") from e
