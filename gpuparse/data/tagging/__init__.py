"""What taggers read: tag sets, features of words, vocabularies and batches."""

from gpuparse.data.tagging.batches import TagBatch, collate_tags
from gpuparse.data.tagging.tagset import TAG_SETS, TagSet
from gpuparse.data.tagging.vocab import TagExample, TagVocabulary

__all__ = ["TAG_SETS", "TagBatch", "TagExample", "TagSet", "TagVocabulary", "collate_tags"]
