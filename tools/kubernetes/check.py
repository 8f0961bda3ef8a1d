"""`make k8s-check`: every overlay builds, is what is kept, would be taken by an API server, and breaks no policy.

It runs in an environment of its own, whose packages do not weigh on the product's lock.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tools.kubernetes.rendering import DIRECTORY, OVERLAYS, RENDERED, build, header, rendered
from tools.kubernetes.schemas import refusals

COMPONENTS = ("postgres-external", "identity-provider", "model-endpoints", "tracing")
"""Those that no overlay uses; they are built on the base."""
POLICIES = Path(__file__).with_name("checkov.yaml")


@contextmanager
def overlays() -> Iterator[dict[str, Path]]:
    """Every overlay, and one for each component that none of them uses."""
    found = {name: DIRECTORY / "overlays" / name for name in OVERLAYS}
    with tempfile.TemporaryDirectory(dir=DIRECTORY, prefix=".check-") as directory:
        for component in COMPONENTS:
            path = Path(directory) / component
            path.mkdir()
            used = {"resources": ["../../base"], "components": [f"../../components/{component}"]}
            path.joinpath("kustomization.yaml").write_text(yaml.safe_dump(used), encoding="utf-8")
            found[component] = path
        yield found


def objects(text: str) -> Iterator[dict[str, Any]]:
    """The objects of a built overlay."""
    yield from (document for document in yaml.safe_load_all(text) if document)


def unexplained(file: Path, checkov: str) -> list[str]:
    """What the policy scanner has against a built overlay beyond what `checkov.yaml` explains."""
    command = [checkov, "--file", str(file), "--framework", "kubernetes", "--config-file", str(POLICIES)]
    done = subprocess.run([*command, "--output", "json"], capture_output=True, text=True, check=False)
    try:
        document = json.loads(done.stdout)
        passed, failed = document["summary"]["passed"], document["results"]["failed_checks"]
    except (ValueError, KeyError, TypeError):
        return [f"the scanner failed: {done.stderr[-1000:] or done.stdout[-1000:]}"]
    if not passed:
        return ["the scanner looked at nothing"]
    return [f"{one['resource']}: {one['check_id']} {one['check_name']}" for one in failed]


def blind(document: Mapping[str, Any]) -> list[str]:
    """A finding where an unknown field of an object of this kind would not be noticed."""
    planted = {**document, "spec": {**document.get("spec", {}), "surprise": 1}}
    return [] if refusals(planted) else [f"the schema of {document['kind']} takes anything"]


def unseeing(directory: Path, checkov: str) -> list[str]:
    """A finding where the scanner does not see a privileged container."""
    container = {"name": "planted", "image": "planted:1", "securityContext": {"privileged": True}}
    planted = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "planted"}, "spec": {"containers": [container]}}
    file = directory / "planted.yaml"
    file.write_text(yaml.safe_dump(planted), encoding="utf-8")
    seen = any("CKV_K8S_16" in finding for finding in unexplained(file, checkov))
    return [] if seen else ["the scanner does not see a privileged container"]


def main() -> int:
    """Prints what is wrong; 1 when something is. With --write the built overlays are kept instead of compared."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--kubectl", required=True)
    parser.add_argument("--checkov", required=True)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    found: list[str] = []
    count, kinds = 0, set[str]()
    first_line = header()
    with overlays() as paths, tempfile.TemporaryDirectory() as directory:
        for name, path in paths.items():
            text = build(arguments.kubectl, path)
            if name in OVERLAYS and arguments.write:
                RENDERED.mkdir(exist_ok=True)
                rendered(name).write_text(first_line + text, encoding="utf-8")
            elif name in OVERLAYS and rendered(name).read_text(encoding="utf-8") != first_line + text:
                found.append(f"{name}: what is kept in {rendered(name).name} is stale: run  make k8s")
            for document in objects(text):
                count += 1
                where = f"{name}: {document['kind']} {document['metadata']['name']}"
                found += [f"{where}: {refusal}" for refusal in refusals(document)]
                if document["kind"] not in kinds:
                    kinds.add(document["kind"])
                    found += blind(document)
            built = Path(directory) / f"{name}.yaml"
            built.write_text(text, encoding="utf-8")
            found += [f"{name}: {finding}" for finding in unexplained(built, arguments.checkov)]
        found += unseeing(Path(directory), arguments.checkov)
    print("\n".join(found) or f"{len(paths)} overlays, {count} objects of {len(kinds)} kinds: nothing is wrong")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
