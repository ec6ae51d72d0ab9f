"""Every form that ``seqserve gateway`` speaks."""

from __future__ import annotations

from collections.abc import Sequence

from seqserve_gateway.deepl.routes import FORM as DEEPL
from seqserve_gateway.form import Form
from seqserve_gateway.libretranslate.routes import FORM as LIBRETRANSLATE
from seqserve_gateway.v1.routes import FORM as V1

FORMS: Sequence[Form] = [V1, LIBRETRANSLATE, DEEPL]
