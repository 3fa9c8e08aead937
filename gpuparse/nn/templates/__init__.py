"""Feature templates: linear scorers of arcs, labels, grandparents and siblings with one weight table a template."""

from gpuparse.nn.templates.atoms import read_templates
from gpuparse.nn.templates.parts import TemplateParts
from gpuparse.nn.templates.scorer import TemplateConfig, TemplateScorer

__all__ = ["TemplateConfig", "TemplateParts", "TemplateScorer", "read_templates"]
