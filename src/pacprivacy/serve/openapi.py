"""The description of the service that programs read: OpenAPI 3.1."""

from __future__ import annotations

from typing import Any, Final

from pacprivacy import _version
from pacprivacy.serve.desk import Desk
from pacprivacy.serve.limits import Limits

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


def _object(**properties: Any) -> dict[str, Any]:
    return {"type": "object", "required": list(properties), "properties": properties}


def _json(schema: dict[str, Any]) -> dict[str, Any]:
    return {"application/json": {"schema": schema}}


def _answer(what: str, schema: dict[str, Any] | None) -> dict[str, Any]:
    content = {"text/plain": {}} if schema is None else _json(schema)
    refused = {
        status: {"description": text, "content": _json(_object(error={"type": "string"}))}
        for status, text in _REFUSALS.items()
    }
    return {"200": {"description": what, "content": content}, **refused}


def describe_service(desk: Desk, limits: Limits) -> dict[str, Any]:
    """Return the routes of a service, their bodies and their answers."""
    paths: dict[str, Any] = {
        "/metrics": {
            "get": {
                "responses": _answer(
                    "The principal's own counts, and budgets; for Prometheus.", None
                )
            }
        }
    }
    n, names = getattr(desk.predictor, "n_features_in_", 0), desk.columns
    row = {**_NUMBERS, "minItems": n, "maxItems": n}
    row |= {} if names is None else {"description": f"In this order: {', '.join(names)}."}
    rows = {"type": "array", "minItems": 1, "maxItems": limits.rows, "items": row}
    replies = _object(
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
    if desk.predictor is not None:
        paths["/predict"] = {
            "post": {
                "summary": "Private answers of the model; every request spends.",
                "requestBody": {"required": True, "content": _json(_object(rows=rows))},
                "responses": _answer("One answer per row.", replies),
            }
        }
    paths |= {
        "/budget": {
            "get": {
                "responses": _answer(
                    "What is left, and the limits.",
                    _object(principal={"type": "string"}, left=_SIDES, limits=_SIDES),
                )
            }
        },
        "/certificate": {"get": {"responses": _answer("What is promised.", {"type": "object"})}},
    }
    if desk.session is not None:
        body = _object(query={"type": "string"})
        cells = _object(
            columns={"type": "array", "items": {"type": "string"}},
            rows={"type": "array", "items": {"type": "array"}},
            promise={"type": "string"},
            not_hidden={"type": "string"},
            certificate={"type": "object"},
            left=_SIDES,
        )
        paths["/sql"] = {
            "post": {
                "summary": "A private answer to a query; every request spends.",
                "requestBody": {"required": True, "content": _json(body)},
                "responses": _answer("The cells, with noise and intervals.", cells),
            }
        }
    return {
        "openapi": "3.1.0",
        "info": {"title": "Private answers", "version": _version.__version__},
        "paths": paths,
        "components": {"securitySchemes": {"token": {"type": "http", "scheme": "bearer"}}},
        "security": [{"token": []}],
    }
