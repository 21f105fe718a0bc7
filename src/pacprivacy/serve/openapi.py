"""The description of the service that programs read: OpenAPI 3.1."""

from __future__ import annotations

from typing import Any, Final

from pacprivacy import _version
from pacprivacy.estimators import PrivatePredictor
from pacprivacy.serve.desk import Desk
from pacprivacy.serve.limits import Limits

_Schema = dict[str, Any]  # as JSON

_REFUSALS: Final = {
    "400": "The body does not fit.",
    "401": "There is no token, or nobody's.",
    "403": "The budget is spent, or might not cover the request; nothing was drawn or spent.",
    "408": "The body came too slowly.",
    "413": "The request is too large.",
    "415": "The body is not JSON.",
    "422": "The query could not be answered on these data, or not in time; it was paid for.",
    "429": "Too many requests of this principal.",
    "503": "Too many requests wait, or the service is closing.",
}
_NUMBERS: Final = {"type": "array", "items": {"type": "number"}}
_AMOUNTS: Final = {
    "type": ["object", "null"],
    "properties": {
        "mi_nats": {"type": "number", "description": "Information, in nats."},
        "success_increment": {
            "type": "number",
            "description": "Of guessing one unit's membership, above a blind guess.",
        },
    },
}
_SIDES: Final = {
    "type": "object",
    "description": "Of the principal's own limit, null if there is none, and of the total.",
    "properties": {"own": _AMOUNTS, "total": _AMOUNTS},
}


def _object(**properties: object) -> _Schema:
    return {"type": "object", "required": list(properties), "properties": properties}


def _json(schema: _Schema) -> _Schema:
    return {"application/json": {"schema": schema}}


def _answer(what: str, schema: _Schema | None) -> _Schema:
    content = {"text/plain": {}} if schema is None else _json(schema)
    refused = {
        status: {"description": text, "content": _json(_object(error={"type": "string"}))}
        for status, text in _REFUSALS.items()
    }
    return {"200": {"description": what, "content": content}, **refused}


_REPLIES: Final = _object(
    labels={"type": "array", "description": "The class with the largest value."},
    values={"type": "array", "items": _NUMBERS, "description": "What was released."},
    noise_std={**_NUMBERS, "description": "Of the noise in a value; 0 if exact."},
    unanimous={
        "type": "array",
        "items": {"type": "boolean"},
        "description": "All models agree: an exact fact of the universe, free of charge.",
    },
    charges_nats=_NUMBERS,
    spent=_AMOUNTS,
    left=_SIDES,
)
_CELLS: Final = _object(
    columns={"type": "array", "items": {"type": "string"}},
    rows={"type": "array", "items": {"type": "array"}},
    promise={"type": "string"},
    not_hidden={"type": "string"},
    certificate={"type": "object"},
    left=_SIDES,
)
_BUDGET: Final = _object(principal={"type": "string"}, left=_SIDES, limits=_SIDES)


def _get(what: str, schema: _Schema | None) -> _Schema:
    return {"get": {"responses": _answer(what, schema)}}


def _post(summary: str, body: _Schema, what: str, schema: _Schema) -> _Schema:
    request = {"required": True, "content": _json(body)}
    answers = _answer(what, schema)
    return {"post": {"summary": summary, "requestBody": request, "responses": answers}}


def _rows(predictor: PrivatePredictor, columns: tuple[str, ...] | None, most: int) -> _Schema:
    n = predictor.n_features_in_
    row = {**_NUMBERS, "minItems": n, "maxItems": n}
    row |= {} if columns is None else {"description": f"In this order: {', '.join(columns)}."}
    return {"type": "array", "minItems": 1, "maxItems": most, "items": row}


def describe_service(desk: Desk, limits: Limits) -> _Schema:
    """Return the routes of a service, their bodies and their answers."""
    counts = "The principal's own counts, and budgets; for Prometheus."
    paths: _Schema = {"/metrics": _get(counts, None)}
    if desk.predictor is not None:
        paths["/predict"] = _post(
            "Private answers of the model; every request spends.",
            _object(rows=_rows(desk.predictor, desk.columns, limits.rows)),
            "One answer per row.",
            _REPLIES,
        )
    paths["/budget"] = _get("What is left, and the limits.", _BUDGET)
    paths["/certificate"] = _get("What is promised.", {"type": "object"})
    if desk.session is not None:
        paths["/sql"] = _post(
            "A private answer to a query; every request spends.",
            _object(query={"type": "string"}),
            "The cells, with noise and intervals.",
            _CELLS,
        )
    return {
        "openapi": "3.1.0",
        "info": {"title": "Private answers", "version": _version.__version__},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }
