"""The rules of published splits of photographs, each beside the reader of its data."""

from collections.abc import Mapping

from datasets.imagenet21k import rules as imagenet21k
from datasets.inaturalist import rules as inaturalist
from datasets.landmarks import rules as landmarks
from datasets.sop import rules as sop
from datasets.splits import rule

RULES: Mapping[str, rule.Rule] = {
  **landmarks.RULES,
  **inaturalist.RULES,
  **sop.RULES,
  **imagenet21k.RULES,
}
