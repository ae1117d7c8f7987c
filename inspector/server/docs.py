"""The page /docs: what the OpenAPI document says, readable without any network."""

import json
import re

from .front import template


def paragraphs(text):
    """A docstring's paragraphs, each a list of (part, whether it is code): what stands between two backticks is."""
    return [[(part, n % 2 == 1) for n, part in enumerate(re.split("`([^`\n]+)`", paragraph)) if part]
            for paragraph in re.split(r"\n\s*\n", text.strip()) if paragraph]


def kind_of(schema):
    """The type of a field in words: "a | b" for one of several, [x] for a list, {x} for named ones."""
    if "anyOf" in schema:
        return " | ".join(kind_of(part) for part in schema["anyOf"])
    if "enum" in schema:
        return " | ".join(json.dumps(value) for value in schema["enum"])
    if schema.get("type") == "array":
        return f"[{kind_of(schema['items'])}]"
    if schema.get("type") == "object" and isinstance(schema.get("additionalProperties"), dict):
        return f"{{{kind_of(schema['additionalProperties'])}}}"
    most = f", at most {schema['maximum']:g}" if "maximum" in schema else ""
    return schema.get("type", "any") + most


def fields_of(document, operation):
    """Rows (name, type, default) of a route's body; the default is None where the field must be given."""
    content = operation.get("requestBody", {}).get("content", {}).get("application/json")
    if content is None:
        return []
    schema = document["components"]["schemas"][content["schema"]["$ref"].rpartition("/")[2]]
    required = schema.get("required", [])
    return [(name, kind_of(field), None if name in required else json.dumps(field.get("default")))
            for name, field in schema["properties"].items()]


def docs_page(document):
    """The HTML of an OpenAPI document."""
    routes = [{"method": method.upper(), "path": path, "summary": paragraphs(operation["summary"]),
               "description": paragraphs(operation.get("description", "")), "fields": fields_of(document, operation),
               "example": json.dumps(operation.get("requestBody", {}).get("content", {}).get("application/json", {})
                                     .get("example"), ensure_ascii=False)}
              for path, methods in document["paths"].items() for method, operation in methods.items()]
    return template("docs.html").render(info=document["info"], routes=routes)
