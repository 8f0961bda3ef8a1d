"""Whether an object is one that an API server would take: every field known, with the type that the API has for it.

Kubernetes' own kinds are held against the published schemas of the oldest and the newest supported version. Kinds of
the Prometheus operator and KEDA are held against models generated from their published definitions; those of
CloudNativePG, which no package carries, against the part of its API that is used here.
"""

from collections.abc import Mapping
from typing import Any

import jsonschema
import kubernetes_validate
from cloudcoil.models.keda.v1alpha1 import ScaledObject
from cloudcoil.models.prometheus_operator.v1 import PrometheusRule, ServiceMonitor
from pydantic import ValidationError

KUBERNETES = ("1.30", "1.37")
"""preStop.sleep is there without a switch from 1.30 on."""
_MODELS = {"ScaledObject": ScaledObject, "PrometheusRule": PrometheusRule, "ServiceMonitor": ServiceMonitor}


def _closed(required: str = "", **properties: Any) -> dict[str, Any]:
    return {
        "type": "object",
        "properties": properties,
        "required": required.split(),
        "additionalProperties": False,
    }


_TEXT, _TRUE_OR_FALSE, _COUNT = {"type": "string"}, {"type": "boolean"}, {"type": "integer", "minimum": 0}
_TEXTS = {"type": "object", "additionalProperties": _TEXT}
_NAMED = _closed("name", name={"type": "string", "minLength": 1})
_CLUSTER = _closed(
    "instances storage",
    instances={"type": "integer", "minimum": 1},
    imageName=_TEXT,
    inheritedMetadata=_closed(labels=_TEXTS, annotations=_TEXTS),
    enableSuperuserAccess=_TRUE_OR_FALSE,
    superuserSecret=_NAMED,
    bootstrap=_closed(initdb=_closed(database=_TEXT, owner=_TEXT, encoding=_TEXT, secret=_NAMED)),
    postgresql=_closed(
        parameters=_TEXTS,
        synchronous=_closed(
            "method number",
            method={"enum": ["any", "first"]},
            number=_COUNT,
            dataDurability={"enum": ["required", "preferred"]},
        ),
    ),
    storage=_closed(size=_TEXT, storageClass=_TEXT),
    walStorage=_closed(size=_TEXT, storageClass=_TEXT),
    resources=_closed(requests=_TEXTS, limits=_TEXTS),
    affinity=_closed(
        enablePodAntiAffinity=_TRUE_OR_FALSE,
        topologyKey=_TEXT,
        podAntiAffinityType={"enum": ["preferred", "required"]},
    ),
    enablePDB=_TRUE_OR_FALSE,
)
_OWN = {"Cluster": _CLUSTER}


def refusals(document: Mapping[str, Any]) -> list[str]:
    """What an API server would say against the object; empty when it would take it."""
    kind = document["kind"]
    if kind in _MODELS:
        return _against_model(_MODELS[kind], document)
    if kind in _OWN:
        return [error.message for error in jsonschema.Draft202012Validator(_OWN[kind]).iter_errors(document["spec"])]
    found = []
    for version in KUBERNETES:
        try:
            kubernetes_validate.validate(document, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            found.append(f"Kubernetes {version}: {error.message}")
        except kubernetes_validate.SchemaNotFoundError:
            found.append(f"Kubernetes {version} has no {document['apiVersion']} {kind}")
    return found


def _against_model(model: Any, document: Mapping[str, Any]) -> list[str]:
    try:
        known = model.model_validate(document).model_dump(mode="json", by_alias=True, exclude_none=True)
    except ValidationError as error:
        return [f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors()]
    return [f"unknown field {path}" for path in _missing(document, known)]


def _missing(given: Any, known: Any, path: str = "") -> list[str]:
    """Fields that the model did not keep, so does not know."""
    if isinstance(given, Mapping) and isinstance(known, Mapping):
        lost = [f"{path}.{name}" for name in given if name not in known]
        return lost + [
            one for name in given if name in known for one in _missing(given[name], known[name], f"{path}.{name}")
        ]
    if isinstance(given, list) and isinstance(known, list):
        pairs = enumerate(zip(given, known, strict=True))
        return [one for number, (mine, theirs) in pairs for one in _missing(mine, theirs, f"{path}[{number}]")]
    return []
