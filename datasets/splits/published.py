"""The rules of published splits of photographs, each beside the reader of its data."""

from collections.abc import Mapping

from datasets.inaturalist import rules as inaturalist
from datasets.landmarks import rules as landmarks
from datasets.splits import rule

RULES: Mapping[str, rule.Rule] = {**landmarks.RULES, **inaturalist.RULES}
