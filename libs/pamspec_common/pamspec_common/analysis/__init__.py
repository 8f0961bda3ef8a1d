"""Analysis of texts for lexical search: one for the index and for queries, without any I/O."""

from pamspec_common.analysis.languages import LANGUAGES
from pamspec_common.analysis.terms import Analyzed, Sought, analyze, sought
from pamspec_common.analysis.texts import texts_of

__all__ = ["LANGUAGES", "Analyzed", "Sought", "analyze", "sought", "texts_of"]
