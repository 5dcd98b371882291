"""The published JSON Schema of performance cards is the model's own."""

import json
from pathlib import Path

from jsonschema import Draft202012Validator

from schemas.performance_card import PerformanceCard

PUBLISHED = Path(__file__).parents[3] / "docs" / "performance-card.schema.json"


def test_the_published_schema_is_the_models_own() -> None:
    """given a changed card, then docs/performance-card.schema.json is written anew from `PerformanceCard.model_json_schema()`"""
    published = json.loads(PUBLISHED.read_text(encoding="utf-8"))

    assert published == PerformanceCard.model_json_schema()
    Draft202012Validator.check_schema(published)
